"""Rows of a result as JSON and as Arrow.

JSON has no words for most types: decimals, dates, timestamps and UUIDs are strings, bytes are base64, as in change events.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from tailrace.model.table import ColumnType
from tailrace.sql.result import Result

ARROW_TYPE = "application/vnd.apache.arrow.stream"

_SIMPLE = {
    "boolean": "bool_",
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "double": "float64",
    "text": "string",
    "bytes": "binary",
    "date": "date32",
    "uuid": "string",
    "json": "string",
}
_MOST_DECIMAL_DIGITS = 76


def json_rows(result: Result) -> list[list[Any]]:
    """Rows of values that `msgspec` writes in the way that we want."""
    rows = [list(row) for row in result.rows]
    for place, column in enumerate(result.columns):
        if _holds_moments(column.type):
            for row in rows:
                row[place] = _moments(row[place])
    return rows


def arrow_stream(result: Result) -> bytes:
    import pyarrow as pa

    schema = pa.schema([(column.name, _arrow_type(column.type)) for column in result.columns])
    columns: Sequence[Sequence[object]] = list(zip(*result.rows, strict=True)) or [()] * len(schema)
    arrays = [
        pa.array(list(map(_writer(column.type), values)), field.type)
        for column, values, field in zip(result.columns, columns, schema, strict=True)
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue())


def _holds_moments(kind: ColumnType) -> bool:
    return kind.kind == "timestamp" or (kind.element is not None and _holds_moments(kind.element))


def _moments(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return [_moments(item) for item in value] if isinstance(value, list | tuple) else value


def _arrow_type(kind: ColumnType) -> Any:
    import pyarrow as pa

    if kind.kind == "list":
        return pa.list_(pa.string() if kind.element is None else _arrow_type(kind.element))
    if kind.kind == "timestamp":
        return pa.timestamp("us", "UTC")
    if kind.kind == "decimal":
        if kind.precision is None or kind.precision > _MOST_DECIMAL_DIGITS:
            return pa.string()
        return pa.decimal256(kind.precision, kind.scale or 0)
    return getattr(pa, _SIMPLE[kind.kind])()


def _writer(kind: ColumnType) -> Callable[[Any], Any]:
    """How a value is handed to Arrow."""
    if kind.kind == "json":
        return lambda value: None if value is None else _json_text(value)
    if kind.kind == "uuid" or (kind.kind == "decimal" and (kind.precision is None or kind.precision > _MOST_DECIMAL_DIGITS)):
        return lambda value: None if value is None else str(value)
    return lambda value: value


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
