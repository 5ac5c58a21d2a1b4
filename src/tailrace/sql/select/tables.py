"""Tables as relations, for queries that join them with topics: read from SQLite before, then held in memory.

Only the columns that the query names are read, and only the rows that simple conditions of its WHERE let through. DuckDB checks
every row again.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec
import pyarrow as pa
from sqlglot import exp

from tailrace.model.errors import QueryLimitError
from tailrace.model.limits import Limits
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.parameters import Parameters
from tailrace.sql.result import Result
from tailrace.sql.select.types import arrow_type
from tailrace.sql.statements import Query

_NUMBERS = frozenset(("smallint", "integer", "bigint"))
_ROWS_AT_ONCE = 10_000


class ReadTables(Protocol):
    """See `sql.tables`."""

    async def query(self, query: Query, params: Parameters, *, most_rows: int | None = None) -> Result: ...


class TableRelation:
    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
        self._columns = columns
        self._rows = rows
        self.schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self._rows), _ROWS_AT_ONCE):
            values = zip(*self._rows[start : start + _ROWS_AT_ONCE], strict=True)
            arrays = [_array(column.type, some) for column, some in zip(self._columns, values, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


async def read_table(
    tables: ReadTables, table: Table, wanted: Sequence[str], where: Sequence[exp.Expr], limits: Limits
) -> TableRelation:
    """`where` are conditions on columns of the table, as `can_push` takes them."""
    columns = [column for column in table.columns if column.name in wanted] or list(table.columns[:1])
    tree = exp.select(*(exp.column(column.name, quoted=True) for column in columns)).from_(_named(table))
    for condition in where:
        tree = tree.where(condition.copy())
    query = Query(text=tree.sql(dialect="postgres"), tree=tree, sources=(table.name,))
    found = await tables.query(query, (), most_rows=limits.joined_rows)
    if found.truncated:
        raise QueryLimitError(
            f"the query reads more than {limits.joined_rows} rows of table {table.name!r} to join them (joined_rows);"
            " narrow them down by a condition on a column of the table"
        )
    return TableRelation(columns, found.rows)


def can_push(condition: exp.Expr, column: Column) -> bool:
    """Whether both engines mean the same by it: a column of a plain type beside constants of that type."""
    if not isinstance(condition, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.In | exp.Between):
        return False
    constants = [
        node for node in condition.walk() if not isinstance(node, exp.Column | exp.Identifier) and node is not condition
    ]
    if column.type.kind in _NUMBERS:
        return all(isinstance(node, exp.Literal) and node.is_int for node in constants)
    return column.type.kind == "text" and all(isinstance(node, exp.Literal) and node.is_string for node in constants)


def _named(table: Table) -> exp.Table:
    parts = [exp.to_identifier(part, quoted=True) for part in table.name.split(".")]
    if len(parts) > 3:
        return exp.Table(this=exp.Dot.build(parts[2:]), db=parts[1], catalog=parts[0])
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))


def _array(kind: ColumnType, values: Sequence[object]) -> pa.Array:
    target = arrow_type(kind)
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, pa.array([_plain(kind, value) for value in values], target.storage_type))
    return pa.array([_plain(kind, value) for value in values], target)


def _plain(kind: ColumnType, value: object) -> object:
    if value is None:
        return None
    match kind.kind:
        case "json":
            return msgspec.json.encode(value).decode()
        case "uuid":
            return value.bytes  # type: ignore[attr-defined]
        case "timestamp":
            return _without_zone(value)
        case "decimal" if kind.precision is None or pa.types.is_floating(arrow_type(kind)):
            return float(value)  # type: ignore[arg-type]
        case "list":
            return [_plain(kind.element or ColumnType("text"), item) for item in value]  # type: ignore[attr-defined]
    return value


def _without_zone(value: object) -> object:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value
