"""Encodes the rows of SQL results: as JSON in one response, or part by part as Arrow, CSV or JSON lines.

In JSON, decimals, dates, timestamps and UUIDs are strings and bytes are base64, as in change events. CSV has the same values;
null is an empty field and an empty text is `""`, so that the two differ.
"""

import importlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from tailrace.http.request_guard import JSON
from tailrace.model.errors import SqlError
from tailrace.model.table import ColumnType
from tailrace.model.text import csv_field, distinct_names
from tailrace.sql.results import ResultColumn, ResultEncoder, ResultRows

ARROW_TYPE = "application/vnd.apache.arrow.stream"
CSV_TYPE = "text/csv"
LINES_TYPE = "application/x-ndjson"

_ARROW_TYPES = {
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
    "real": "float32",
    "char": "string",
    "enum": "string",
    "interval": "string",
}
_PLAIN_SCALE = 6
"""Python writes a number with more digits after the point with an exponent, if it is small."""
_MAX_DECIMAL_DIGITS = 38
"""The precision of `decimal128`, which every Arrow reader supports. Larger and unbounded decimals are text."""


def encoder_for(accept: str) -> ResultEncoder | None:
    """Return the encoder for an Accept header, or `None` for JSON in one response."""
    for wanted in accept.split(","):
        kind = wanted.partition(";")[0].strip().lower()
        if kind in _ENCODERS:
            return _ENCODERS[kind]()
        if kind in (JSON, "*/*"):
            break
    return None


def json_rows(columns: Sequence[ResultColumn], rows: ResultRows) -> list[list[Any]]:
    """Return rows of values that msgspec encodes as documented: timestamps and numbers with an exponent become text."""
    found = [list(row) for row in rows]
    for place, column in enumerate(columns):
        if _is_written_here(column.type):
            for row in found:
                row[place] = _written(row[place])
    return found


class ArrowRows:
    """An Arrow IPC stream."""

    media_type = ARROW_TYPE

    def load(self) -> None:
        importlib.import_module("pyarrow")

    def begin(self, columns: Sequence[ResultColumn]) -> bytes:
        import pyarrow as pa

        self._columns = columns
        self._sink = _ArrowSink()
        self._writer = pa.ipc.new_stream(
            pa.PythonFile(self._sink, "w"), pa.schema([(column.name, _arrow_type(column.type)) for column in columns])
        )
        return self._sink.take()

    def rows(self, rows: ResultRows) -> bytes:
        import pyarrow as pa

        if not rows:
            return b""
        arrays = []
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=True):
            try:
                arrays.append(pa.array(list(map(_writer(column.type), values)), _arrow_type(column.type)))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise SqlError(
                    f"column {column.name!r} has a value that Arrow's {_arrow_type(column.type)} can't hold: {error}; CAST it"
                ) from error
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self._columns]))
        return self._sink.take()

    def end(self) -> bytes:
        self._writer.close()
        return self._sink.take()


class CsvRows:
    media_type = CSV_TYPE

    def load(self) -> None:
        """Do nothing: no library is needed."""

    def begin(self, columns: Sequence[ResultColumn]) -> bytes:
        self._columns = columns
        return (",".join(csv_field(column.name) for column in columns) + "\n").encode() if columns else b""

    def rows(self, rows: ResultRows) -> bytes:
        found = json_rows(self._columns, rows)
        return "".join([",".join(map(csv_field, msgspec.to_builtins(row))) + "\n" for row in found]).encode()

    def end(self) -> bytes:
        return b""


class JsonLines:
    """One JSON object a line for each row. Repeated column names get numbers."""

    media_type = LINES_TYPE

    def load(self) -> None:
        """Do nothing: no library is needed."""

    def begin(self, columns: Sequence[ResultColumn]) -> bytes:
        self._columns = columns
        self._names = distinct_names([column.name for column in columns])
        return b""

    def rows(self, rows: ResultRows) -> bytes:
        encode = msgspec.json.Encoder().encode
        names = self._names
        return b"".join([encode(dict(zip(names, row, strict=True))) + b"\n" for row in json_rows(self._columns, rows)])

    def end(self) -> bytes:
        return b""


_ENCODERS: dict[str, Callable[[], ResultEncoder]] = {ARROW_TYPE: ArrowRows, CSV_TYPE: CsvRows, LINES_TYPE: JsonLines}


class _ArrowSink:
    """A buffer that Arrow writes to, emptied after each batch."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def close(self) -> None:
        """Do nothing."""

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def _is_written_here(kind: ColumnType) -> bool:
    """Return whether msgspec would write values of a type in another form: small decimals with an exponent."""
    if kind.kind == "decimal":
        return kind.scale is None or not 0 <= kind.scale <= _PLAIN_SCALE
    return kind.kind == "timestamp" or (kind.element is not None and _is_written_here(kind.element))


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, Decimal):
        return format(value, "f")
    return [_written(item) for item in value] if isinstance(value, list | tuple) else value


def _arrow_type(kind: ColumnType) -> Any:
    import pyarrow as pa

    if kind.kind == "list":
        return pa.list_(pa.string() if kind.element is None else _arrow_type(kind.element))
    if kind.kind == "timestamp":
        return pa.timestamp("us", "UTC")
    if kind.kind == "time":
        return pa.time64("us")
    if kind.kind == "decimal":
        return pa.string() if _is_text(kind) else pa.decimal128(kind.precision, kind.scale or 0)
    return getattr(pa, _ARROW_TYPES[kind.kind])()


def _is_text(kind: ColumnType) -> bool:
    is_wide = kind.kind == "decimal" and (kind.precision is None or kind.precision > _MAX_DECIMAL_DIGITS)
    return is_wide or kind.kind == "uuid"


def _writer(kind: ColumnType) -> Callable[[Any], Any]:
    """Return the conversion of values of a type for Arrow."""
    if kind.kind == "json":
        return lambda value: None if value is None else _json_text(value)
    if kind.kind == "list" and kind.element is not None and (_is_text(kind.element) or kind.element.kind in ("json", "list")):
        inner = _writer(kind.element)
        return lambda items: None if items is None else [inner(item) for item in items]
    if _is_text(kind):
        return lambda value: None if value is None else _written(value) if kind.kind == "decimal" else str(value)
    return lambda value: value


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
