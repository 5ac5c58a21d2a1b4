"""Comparisons of values of every type, and keys by which values are ordered and equal as in PostgreSQL."""

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tailrace.sql.analysis.interval_texts import Interval
from tailrace.sql.analysis.tree import Call
from tailrace.sql.analysis.types import SqlType, is_enum
from tailrace.sql.evaluation.functions import ByCall, Entry, Function
from tailrace.sql.functions.json_functions import sort_key as jsonb_key

Key = Callable[[Any], Any]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TYPES = (
    "bool", "bpchar", "bytea", "date", "float4", "float8", "int2", "int4", "int8", "interval", "jsonb", "name", "numeric",
    "text", "time", "timestamp", "timestamptz", "uuid", "varchar",
)  # fmt: skip
_MIXED = (
    *((one, other) for one in ("int2", "int4", "int8") for other in ("int2", "int4", "int8")),
    ("float4", "float8"), ("float8", "float4"),
    *((one, other) for one in ("date", "timestamp", "timestamptz") for other in ("date", "timestamp", "timestamptz")),
    ("name", "text"), ("text", "name"),
)  # fmt: skip
_DAY = 86_400_000_000


def sort_key(sql_type: SqlType) -> Key:
    """Return what values of a type are compared by. Nulls are not passed to it."""
    if sql_type.is_array:
        return _array_key(sort_key(sql_type.element))
    if is_enum(sql_type.name):
        return {label: place for place, label in enumerate(sql_type.labels)}.__getitem__
    return _KEYS.get(sql_type.name, _itself)


def _array_key(element: Key) -> Key:
    # A null in an array is equal to another, and larger than everything else.
    return lambda items: [(1, 0) if item is None else (0, element(item)) for item in items]


def _itself(value: Any) -> Any:
    return value


def _float_key(value: float) -> Any:
    # NaN is equal to itself and larger than all other numbers.
    return (1, 0.0) if value != value else (0, value)


def _numeric_key(value: Decimal) -> Any:
    return (1, 0) if value.is_nan() else (0, value)


def _padded_key(value: str) -> str:
    return value.rstrip(" ")


def interval_key(value: Interval) -> int:
    """Return the length of an interval in microseconds; a month has 30 days."""
    return (value.months * 30 + value.days) * _DAY + value.microseconds


def as_moment(value: date) -> datetime:
    """Return a date or time stamp as one in UTC."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


_KEYS: dict[str, Key] = {
    "float4": _float_key,
    "float8": _float_key,
    "numeric": _numeric_key,
    "bpchar": _padded_key,
    "interval": interval_key,
    "date": as_moment,
    "timestamp": as_moment,
    "timestamptz": as_moment,
    "jsonb": jsonb_key,
}


def _compare(call: Call) -> Function:
    test = _OPERATORS[call.signature.name]
    left, right = (sort_key(one.type) for one in call.arguments)
    if left is _itself and right is _itself:
        return test
    return lambda a, b: test(left(a), right(b))


def _comparisons() -> dict[str, Entry]:
    pairs = {*((one, one) for one in (*_TYPES, "anyarray", "anyenum")), *_MIXED}
    return {f"{left} {name} {right}": ByCall(_compare) for name in _OPERATORS for left, right in pairs}


COMPARISONS: dict[str, Entry] = _comparisons()
