"""Values of results: from what Arrow holds to the Python values that `Result` documents."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.interval_texts import Interval, interval_text
from tailrace.sql.analysis.json_documents import JsonError, too_deep
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.functions.float_texts import float4_text


def python_values(column: pa.Array | pa.ChunkedArray, sql_type: SqlType) -> list[Any]:
    """Return the values of a column of a result."""
    convert = _converter(sql_type)
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        raise UnsupportedError(f"the result has a {sql_type} outside of the years 1 to 9999") from None
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(sql_type: SqlType) -> Callable[[Any], Any] | None:
    if sql_type.is_array:
        inner = _converter(sql_type.element)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    match sql_type.name:
        case "numeric":
            return Decimal
        case "float4":
            return _shortest
        case "timestamp" | "timestamptz":
            return _in_utc
        case "json" | "jsonb":
            return _json
        case "uuid":
            return _uuid
        case "interval":
            return _interval
    return None


def _shortest(value: float) -> float:
    """Return the double that is written with as few digits as distinguish the float4."""
    return float(float4_text(value))


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise too_deep() from None
    except msgspec.DecodeError:
        raise JsonError("0A000", "a JSON number of this size can't be returned; cast it to text") from None


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(bytes=value) if isinstance(value, bytes) else UUID(value)


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC)


def _interval(value: Any) -> str:
    """Return an interval as PostgreSQL prints it. Arrow has it as months, days and nanoseconds."""
    months, days, nanoseconds = value
    return interval_text(Interval(months, days, nanoseconds // 1_000))
