"""The types of the parameters of queries, and their values as constants of these types are written."""

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from uuid import UUID

import msgspec

from tailrace.model.errors import SqlError
from tailrace.sql.analysis.errors import INVALID_TEXT
from tailrace.sql.analysis.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT8,
    INT4,
    INT8,
    JSONB,
    NUMERIC,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
)
from tailrace.sql.analysis.types import UUID as UUID_TYPE

_INT4_END = 1 << 31
_INT8_END = 1 << 63


def parameter_type(value: object) -> SqlType:
    """Return the type of a parameter. That of a string or null is decided by what stands around it, as PostgreSQL does."""
    match value:
        case None | str():
            return UNKNOWN
        case bool():
            return BOOL
        case int():
            if -_INT4_END <= value < _INT4_END:
                return INT4
            return INT8 if -_INT8_END <= value < _INT8_END else NUMERIC
        case float():
            return FLOAT8
        case Decimal():
            return NUMERIC
        case bytes():
            return BYTEA
        case datetime():
            return TIMESTAMPTZ if value.tzinfo else TIMESTAMP
        case date():
            return DATE
        case time():
            return TIME
        case UUID():
            return UUID_TYPE
        case dict():
            return JSONB
        case list() | tuple():
            return _array_type(value)
    raise SqlError(
        f"a parameter can't be a {type(value).__name__}; use a type that JSON has, or bytes, a date, a time, a UUID or a"
        " Decimal"
    )


def _array_type(items: Sequence[object]) -> SqlType:
    types = {parameter_type(item) for item in items if item is not None}
    if not types:
        return UNKNOWN
    if types == {UNKNOWN}:
        return UNKNOWN
    if types <= {INT4, INT8}:
        return (INT8 if INT8 in types else INT4).array
    if types <= {INT4, INT8, NUMERIC, FLOAT8}:
        return (FLOAT8 if FLOAT8 in types else NUMERIC).array
    (only, *others) = types
    return JSONB if others or only.is_array else only.array


def as_parameter(value: object, kind: SqlType) -> object:
    """Return a parameter as constants of its type are written."""
    if kind == JSONB:
        try:
            return msgspec.json.encode(value).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SqlError(f"a parameter can't be written as JSON: {error}", sqlstate=INVALID_TEXT) from None
    if kind.name == "numeric" and isinstance(value, int):
        return Decimal(value)
    if kind.is_array and isinstance(value, list | tuple):
        convert = Decimal if kind.element == NUMERIC else float if kind.element == FLOAT8 else None
        return list(value) if convert is None else [None if item is None else convert(item) for item in value]
    return value
