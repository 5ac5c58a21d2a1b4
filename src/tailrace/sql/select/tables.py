"""Tables as relations: read from SQLite as a query needs them, with only its columns, and only rows that it can need.

Of a table with a columnar copy (`sql/tables/columnar_copies.py`) only the rows that have changed since are read from SQLite.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.table import Column, ColumnKind, ColumnType, Table
from tailrace.sql.analysis.interval_texts import Interval, read_interval
from tailrace.sql.analysis.types import of_column
from tailrace.sql.duckdb.templates import is_loose
from tailrace.sql.select.columnar_relation import counted_batches
from tailrace.sql.select.sources import ColumnCondition
from tailrace.sql.select.worker_protocol import ColumnarFile
from tailrace.sql.tables.columnar_copies import ColumnarView
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.values import InvalidValueError, StoredValue, codec_of

_EXACT_DOUBLE = 1 << 53
_ARROW_TYPES: dict[ColumnKind, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "uuid": pa.uuid(),
    "json": pa.json_(),
    "real": pa.float32(),
    "time": pa.time64("us"),
    "interval": pa.month_day_nano_interval(),
    "char": pa.string(),
    "enum": pa.string(),
}
_SIZED = frozenset(("text", "char", "bytes", "json", "list", "decimal"))
"""Kinds whose stored values are texts or bytes of any length."""
_RANGES = frozenset(("smallint", "integer", "bigint", "double", "text", "date", "time", "timestamp"))
"""Kinds whose stored values are ordered as the values are."""


_MANY_ROWS = 20_000
_MANY_STEPS = 200_000
"""How many rows a scan reads, or how much work SQLite has with it, before it is worth a columnar copy."""


class RowReader(Protocol):
    """Reads rows from SQLite, all of one state of the tables; see `sql.tables.readers`."""

    def read(
        self, sql: str, values: Sequence[StoredValue], sized: Sequence[int] = ()
    ) -> Iterator[list[tuple[StoredValue, ...]]]:
        """Yield the rows of a statement in parts of bounded size. `sized` are the columns whose values may be large."""
        ...

    def check_tables(self, tables: Iterable[Table]) -> None:
        """Raise `TableAlteredError` if the rows of a table have another shape than these. Call it before the first `read`."""
        ...


class SnapshotReader(RowReader, Protocol):
    """Reads rows of a snapshot that blocks no writer."""

    generation: int
    steps: int
    """The work of SQLite so far."""

    def start(self) -> None:
        """Fix the state that is read."""

    def read_by_keys(
        self, sql: str, keys: Sequence[Sequence[StoredValue]], sized: Sequence[int] = ()
    ) -> Iterator[list[tuple[StoredValue, ...]]]:
        """Yield the rows of a statement that is run for each of the keys."""
        ...


class TableRelation:
    """A table of which a query needs these columns. Without columns only the number of rows matters."""

    def __init__(
        self,
        reader: RowReader,
        table: Table,
        columns: Sequence[str],
        where: Sequence[tuple[ColumnCondition, Sequence[object]]],
        on_many_rows: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_many_rows` is called when a scan takes much work."""
        self.reader = reader
        self._columns = [column for column in table.columns if column.name in columns]
        self.sql, self.values = _statement(table, self._columns, where)
        self._on_many_rows = on_many_rows
        self.schema = schema_of(self._columns)

    @property
    def reads_columns(self) -> bool:
        return bool(self._columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        count = 0
        before = getattr(self.reader, "steps", 0)
        is_long = False
        for rows in self.reader.read(self.sql, self.values, sized_columns(self._columns)):
            count = count + len(rows) if self._columns else int(str(rows[0][0]))
            if not is_long and (count >= _MANY_ROWS or getattr(self.reader, "steps", 0) - before >= _MANY_STEPS):
                # Not at the end, because this query may be stopped before it, and so may all that follow.
                is_long = True
                self._on_many_rows()
            if self._columns:
                yield batch_of(self._columns, rows, self.schema)
            else:
                yield from counted_batches(count)
        if not is_long and getattr(self.reader, "steps", 0) - before >= _MANY_STEPS:
            self._on_many_rows()


class ChangedRowsRelation:
    """The rows of a table that have changed since its columnar copy was made, which the worker reads itself."""

    def __init__(self, reader: SnapshotReader, table: Table, columns: Sequence[str], view: ColumnarView) -> None:
        self._reader = reader
        self._columns = [column for column in table.columns if column.name in columns]
        self._keys = view.keys
        shown = ", ".join(quoted(column.name) for column in self._columns) or "NULL"
        key = " AND ".join(f"{quoted(name)} = ?" for name in table.primary_key)
        self._sql = f"SELECT {shown} FROM {quoted(table.name)} WHERE {key}"  # noqa: S608
        self.schema = schema_of(self._columns)
        self.copy = ColumnarFile(
            str(view.path), [column.name for column in self._columns], table.primary_key, _changed_keys(table, view.keys)
        )

    @property
    def changed_keys(self) -> int:
        """Return how many rows are read from SQLite."""
        return len(self._keys)

    def batches(self) -> Iterator[pa.RecordBatch]:
        if not self._keys:
            return
        for rows in self._reader.read_by_keys(self._sql, self._keys, sized_columns(self._columns)):
            yield batch_of(self._columns, rows, self.schema)


def _changed_keys(table: Table, keys: Sequence[Sequence[StoredValue]]) -> bytes:
    """Return keys as an Arrow batch for the worker; nothing if there are none."""
    if not keys:
        return b""
    columns = [column for name in table.primary_key if (column := table.column(name)) is not None]
    schema = schema_of(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as out:
        out.write_batch(batch_of(columns, keys, schema))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def can_use_copy(table: Table, where: Sequence[tuple[ColumnCondition, Sequence[object]]]) -> bool:
    """Return whether a scan may read so many rows that a columnar copy is faster than SQLite, which finds rows by a key."""
    fixed = {condition.column for condition, _ in where if condition.comparison in ("=", "in")}
    keys = [table.primary_key, *(index.columns for index in table.indexes if index.is_unique)]
    return not any(fixed.issuperset(key) for key in keys)


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema in which rows of these columns are handed to DuckDB."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns] or [("row", pa.null())])


def sized_columns(columns: Sequence[Column]) -> list[int]:
    """Return the places of the columns whose values may be large."""
    return [at for at, column in enumerate(columns) if column.type.kind in _SIZED]


def batch_of(columns: Sequence[Column], rows: Sequence[Sequence[StoredValue]], schema: pa.Schema) -> pa.RecordBatch:
    """Return stored rows as a batch."""
    if not columns:
        return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], schema=schema)
    cells = zip(*rows, strict=True)
    arrays = [_array(column.type, some) for column, some in zip(columns, cells, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _statement(
    table: Table, columns: Sequence[Column], where: Sequence[tuple[ColumnCondition, Sequence[object]]]
) -> tuple[str, list[StoredValue]]:
    tests: list[str] = []
    values: list[StoredValue] = []
    for condition, constants in where:
        column = table.column(condition.column)
        stored = None if column is None else _stored(column.type, condition, constants)
        if stored is not None:
            comparison = f"IN ({', '.join('?' * len(stored))})" if condition.comparison == "in" else f"{condition.comparison} ?"
            tests.append(f"{quoted(condition.column)} {comparison}")
            values += stored
    shown = ", ".join(quoted(column.name) for column in columns) or "count(*)"
    text = f"SELECT {shown} FROM {quoted(table.name)}"  # noqa: S608
    return (f"{text} WHERE {' AND '.join(tests)}" if tests else text), values


def _stored(kind: ColumnType, condition: ColumnCondition, constants: Sequence[object]) -> list[StoredValue] | None:
    """Return constants in the stored form, or `None` if SQLite would compare them otherwise than PostgreSQL."""
    if condition.comparison == "in" and len(constants) == 1 and isinstance(constants[0], list | tuple):
        constants = [one for one in constants[0] if one is not None]
    fits = _FITS.get(kind.kind)
    if fits is None or not constants or not all(map(fits, constants)):
        return None
    if condition.comparison not in ("=", "in") and kind.kind not in _RANGES:
        return None
    if kind.kind in ("smallint", "integer", "bigint", "double", "text"):
        return list(constants)  # type: ignore[arg-type]
    try:
        return [codec_of(kind).store(value) for value in constants]
    except InvalidValueError:
        return None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _is_double(value: object) -> bool:
    return (isinstance(value, float) and math.isfinite(value)) or (_is_whole(value) and abs(value) <= _EXACT_DOUBLE)  # type: ignore[arg-type]


_FITS: dict[ColumnKind, Callable[[Any], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "smallint": _is_whole,
    "integer": _is_whole,
    "bigint": _is_whole,
    "double": _is_double,
    "text": lambda value: isinstance(value, str),
    "bytes": lambda value: isinstance(value, bytes),
    "date": lambda value: isinstance(value, date) and not isinstance(value, datetime),
    "time": lambda value: isinstance(value, time),
    "timestamp": lambda value: isinstance(value, date),
    "uuid": lambda value: isinstance(value, UUID),
    "enum": lambda value: isinstance(value, str),
}


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Return the type in which DuckDB gets values of a column."""
    if kind.kind == "list":
        return pa.list_(arrow_type(kind.element or ColumnType("text")))
    if kind.kind == "decimal":
        return pa.string() if is_loose(of_column(kind)) else pa.decimal128(kind.precision, kind.scale or 0)
    return _ARROW_TYPES[kind.kind]


def _array(kind: ColumnType, kept: Sequence[StoredValue]) -> pa.Array:
    """Return stored values as an array."""
    target = arrow_type(kind)
    match kind.kind:
        case "boolean":
            return pa.array(kept, pa.int8()).cast(target)
        case "date":
            return pa.array(kept, pa.string()).cast(target)
        case "timestamp":
            return pc.cast(pa.array(kept, pa.string()), pa.timestamp("us", "UTC")).cast(target)
        case "time":
            clocks = pc.binary_join_element_wise("1970-01-01T", pa.array(kept, pa.string()), "")
            return clocks.cast(pa.timestamp("us")).cast(target)
        case "decimal":
            return pa.array(kept, pa.string()).cast(target)
        case "interval":
            return pa.array([None if value is None else _in_nanoseconds(read_interval(str(value))) for value in kept], target)
        case "uuid":
            plain = [None if value is None else bytes.fromhex(str(value).replace("-", "")) for value in kept]
            return pa.ExtensionArray.from_storage(target, pa.array(plain, target.storage_type))
        case "json":
            return pa.ExtensionArray.from_storage(target, pa.array(kept, pa.string()))
        case "list":
            load = codec_of(kind).load
            items = [None if value is None else _plain(kind, load(value)) for value in kept]
            return _list_array(kind, items)
    return pa.array(kept, target)


def _in_nanoseconds(value: Interval) -> pa.MonthDayNano:
    return pa.MonthDayNano([value.months, value.days, value.microseconds * 1_000])


def _list_array(kind: ColumnType, items: Sequence[Any]) -> pa.Array:
    target = arrow_type(kind)
    if isinstance(target.value_type, pa.BaseExtensionType):
        stored = pa.array(items, pa.list_(target.value_type.storage_type))
        values = pa.ExtensionArray.from_storage(target.value_type, stored.values)
        return pa.ListArray.from_arrays(stored.offsets, values, type=target, mask=stored.is_null())
    return pa.array(items, target)


def _plain(kind: ColumnType, items: Any) -> list[Any]:
    """Return the items of a list as Arrow takes them."""
    element = kind.element or ColumnType("text")
    match element.kind:
        case "timestamp":
            return [None if item is None else item.replace(tzinfo=None) for item in items]
        case "uuid":
            return [None if item is None else item.bytes for item in items]
        case "interval":
            return [None if item is None else _in_nanoseconds(item) for item in items]
        case "decimal" if pa.types.is_string(arrow_type(element)):
            return [None if item is None else format(item, "f") for item in items]
        case "json":
            return [None if item is None else codec_of(element).store(item) for item in items]
    return list(items)
