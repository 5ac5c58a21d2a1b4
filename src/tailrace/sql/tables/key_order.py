"""Whether one primary key comes behind another, in the order in which the table keeps its rows.

SQLite itself compares, on a connection of its own: a hook that runs inside a statement must not use that statement's.
"""

import apsw

from tailrace.model.table import Column, Table
from tailrace.sql.tables.decimals import COLLATION, register_decimals
from tailrace.sql.tables.values import Stored


class KeyOrder:
    """For one thread."""

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        register_decimals(self._connection)

    def is_behind(self, table: Table, key: tuple[Stored, ...], other: tuple[Stored, ...]) -> bool:
        ((answer,),) = self._connection.execute(_comparison(table), key + other)
        return bool(answer)

    def close(self) -> None:
        self._connection.close()


def _comparison(table: Table) -> str:
    key = [_place(table.column(name)) for name in table.primary_key]
    return f"SELECT ({', '.join(key)}) > ({', '.join('?' * len(key))})"


def _place(column: Column | None) -> str:
    return f"? COLLATE {COLLATION}" if column is not None and column.type.kind == "decimal" else "?"
