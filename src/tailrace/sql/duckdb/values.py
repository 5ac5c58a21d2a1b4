"""Values of queries: from what Arrow holds to the Python values that `Result` documents, or to those of expressions."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.interval_texts import Interval, interval_text
from tailrace.sql.analysis.json_documents import JsonError, document_text, read_document, too_deep
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.functions.float_texts import shortest_float4


def python_values(column: pa.Array | pa.ChunkedArray, sql_type: SqlType) -> list[Any]:
    """Return the values of a column of a result."""
    return _converted(column, sql_type, _CONVERTERS)


def expression_values(column: pa.Array | pa.ChunkedArray, sql_type: SqlType) -> list[Any]:
    """Return the values of a column as expressions that are evaluated in Python take them; see `sql.evaluation`."""
    return _converted(column, sql_type, _EXPRESSION_CONVERTERS)


def _converted(column: pa.Array | pa.ChunkedArray, sql_type: SqlType, converters: Mapping[str, "Converter"]) -> list[Any]:
    convert = _converter(sql_type, converters)
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        raise UnsupportedError(f"the result has a {sql_type} outside of the years 1 to 9999") from None
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(sql_type: SqlType, converters: Mapping[str, "Converter"]) -> "Converter | None":
    if sql_type.is_array:
        inner = _converter(sql_type.element, converters)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    return converters.get(sql_type.name)


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise too_deep() from None
    except msgspec.DecodeError:
        raise JsonError("0A000", "a JSON number of this size can't be returned; cast it to text") from None


def _jsonb_text(text: str) -> str:
    return document_text(read_document(text))


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(bytes=value) if isinstance(value, bytes) else UUID(value)


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC)


def _interval(value: Any) -> Interval:
    """Return an interval, which Arrow has as months, days and nanoseconds."""
    months, days, nanoseconds = value
    return Interval(months, days, nanoseconds // 1_000)


def _interval_text(value: Any) -> str:
    return interval_text(_interval(value))


Converter = Callable[[Any], Any]
_CONVERTERS: Mapping[str, Converter] = {
    "numeric": Decimal,
    "float4": shortest_float4,
    "timestamp": _in_utc,
    "timestamptz": _in_utc,
    "json": _json,
    "jsonb": _json,
    "uuid": _uuid,
    "interval": _interval_text,
}
_EXPRESSION_CONVERTERS: Mapping[str, Converter] = {
    "numeric": Decimal,
    "timestamptz": _in_utc,
    "jsonb": _jsonb_text,
    "uuid": _uuid,
    "interval": _interval,
}
