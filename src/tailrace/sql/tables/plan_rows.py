"""Rows as plans compute with them: where the values are, and how they are converted from their stored form and for results."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import apsw
import msgspec

from tailrace.model.table import ColumnType, Table
from tailrace.sql.analysis.interval_texts import interval_text
from tailrace.sql.analysis.tree import ColumnReference
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.analysis.write_tree import AnalyzedWrite
from tailrace.sql.functions.float_texts import shortest_float4
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.values import StoredRow, StoredValue, codec_of


class RowPlaces:
    """The places of a row: images of the table's row, columns of a query, what is computed, parameters, and the time."""

    def __init__(self, table: Table, write: AnalyzedWrite, images: Mapping[int, int], query: tuple[int, int] = (0, 0)) -> None:
        """`images` has the start of each image by its number, and `query` the number of a query and of its columns."""
        self._places = {column.name: at for at, column in enumerate(table.columns)}
        self._images = images
        self.used: set[str] = set()
        """The columns of the table that expressions refer to."""
        width = max(images.values()) + len(table.columns) if images else 0
        self._queries = {query[0]: width}
        self._queries[write.computed_number] = width = width + query[1]
        self._parameters = width + len(write.computed_types)

    def column(self, reference: ColumnReference) -> int:
        start = self._images.get(reference.relation)
        if start is None:
            return self._queries[reference.relation] + int(reference.column[1:]) - 1
        self.used.add(reference.column)
        return start + self._places[reference.column]

    def parameter(self, number: int) -> int:
        return self._parameters + number - 1

    def now(self) -> int:
        # The number of parameters is not known here, but the time is the last item.
        return -1


class TableColumns:
    """Converts rows between their stored form and the values of expressions, and gets rows by their key."""

    def __init__(self, table: Table) -> None:
        self.places = {column.name: at for at, column in enumerate(table.columns)}
        self._loads = {column.name: (at, load) for at, column in enumerate(table.columns) if (load := _load(column.type))}
        self._nulls = [None] * len(table.columns)
        key = " AND ".join(f"{quoted(name)} = ?" for name in table.primary_key)
        self._get_sql = f"SELECT * FROM {quoted(table.name)} WHERE {key}"  # noqa: S608

    def loader(self, used: Collection[str]) -> Callable[[StoredRow | None], list[Any]]:
        """Return a function that returns the values of a row, or nulls for no row. Only the columns in use are converted."""
        loads = [one for name, one in self._loads.items() if name in used]

        def load(row: StoredRow | None) -> list[Any]:
            if row is None:
                return self._nulls
            values: list[Any] = list(row)
            for at, convert in loads:
                if values[at] is not None:
                    values[at] = convert(values[at])
            return values

        return load

    def get(self, connection: apsw.Connection, key: tuple[StoredValue, ...]) -> StoredRow | None:
        """Return the row of a key."""
        return next(iter(connection.execute(self._get_sql, key)), None)


def _load(column_type: ColumnType) -> Callable[[Any], Any] | None:
    # The text of JSON is its value in expressions.
    if column_type.kind in ("smallint", "integer", "bigint", "double", "real", "text", "char", "bytes", "json"):
        return None
    return codec_of(column_type).load


def result_converter(sql_type: SqlType) -> Callable[[Any], object]:
    """Return a function that makes a value of `Result` of a value of an expression."""
    convert = _converter(sql_type)
    return _unchanged if convert is None else lambda value: None if value is None else convert(value)


def _converter(sql_type: SqlType) -> Callable[[Any], object] | None:
    if sql_type.is_array:
        inner = _converter(sql_type.element)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    match sql_type.name:
        case "json" | "jsonb":
            return msgspec.json.decode
        case "float4":
            return shortest_float4
        case "interval":
            return interval_text
    return None


def _unchanged(value: Any) -> object:
    return value
