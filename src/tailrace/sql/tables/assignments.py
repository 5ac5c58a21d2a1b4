"""Assigns constants and parameters to columns, with the casts and errors of PostgreSQL."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.model.table import Column, ColumnType
from tailrace.sql.analysis import types
from tailrace.sql.analysis.errors import DATATYPE_MISMATCH, AnalysisError, UnsupportedError
from tailrace.sql.analysis.expressions import ExpressionAnalyzer
from tailrace.sql.analysis.interval_texts import Interval
from tailrace.sql.analysis.json_documents import document_text, read_document
from tailrace.sql.analysis.tree import ColumnReference, Parameter
from tailrace.sql.analysis.types import SqlType, of_column
from tailrace.sql.evaluation.evaluator import Evaluate, compile_expression
from tailrace.sql.tables.values import StoredValue, all_fit, doubles_of, stored

_PLAIN_TEXTS = {
    "timestamp": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII),
    "date": re.compile(r"\d{4}-\d\d-\d\d", re.ASCII),
    "decimal": re.compile(r"-?\d{1,30}(\.\d{1,30})?", re.ASCII),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII),
}
"""Texts that the stored form is made of directly, because they mean the same to everyone."""
_CACHED_CASTS = 1_000


def assigned_column(values: Sequence[Any], column: Column) -> Sequence[StoredValue]:
    """Return many values in the stored form of a column.

    Fast path of `assigned`: values that all have the right Python type are checked together.
    `tests/unit/sql/tables/test_assignments.py` holds both equal.
    """
    present = values
    if column.nullable and None in values:
        present = [value for value in values if value is not None]
    if all_fit(present, column.type):
        return values
    if column.type.kind == "double" and present is values:
        doubles = doubles_of(values)
        if doubles is not None:
            return doubles
    return [assigned(value, column) for value in values]


def assigned(value: object, column: Column) -> StoredValue:
    """Return a value in the stored form of a column. Raises `SqlError` where PostgreSQL does not assign it."""
    if value is None:
        return stored(None, column)
    kind = column.type.kind
    if isinstance(value, str):
        plain = _PLAIN_TEXTS.get(kind)
        is_plain = plain is not None and plain.fullmatch(value) is not None
    else:
        is_plain = kind == "decimal" and type(value) in (int, Decimal)
    if is_plain:
        # One that is not stored has an error of PostgreSQL below.
        with suppress(SqlError):
            return stored(value, column)
    try:
        if kind == "json" and isinstance(value, str):
            return _stored_json(value, column)
        cast = _cast(parameter_type(value), column.type)
        return stored(cast((parameter_value(value),)), column)
    except AnalysisError as error:
        raise _failure(error, parameter_type(value), column) from None


def _stored_json(text: str, column: Column) -> StoredValue:
    document = read_document(text)
    if document is None:
        return stored(None, column)
    return msgspec.json.format(document_text(document), indent=-1)


@lru_cache(_CACHED_CASTS)
def _cast(source: SqlType, target: ColumnType) -> Evaluate:
    wanted = of_column(target)
    return compile_expression(ExpressionAnalyzer([source]).coerce(Parameter(source, 1), wanted, "assignment"), _OneParameter())


def _failure(error: AnalysisError, source: SqlType, column: Column) -> SqlError:
    if isinstance(error, UnsupportedError):
        return UnsupportedSqlError(f"column {column.name!r}: {error.message}")
    message = error.message
    if error.sqlstate == DATATYPE_MISMATCH:
        message = f'column "{column.name}" is of type {of_column(column.type)} but expression is of type {source}'
        return SqlError(message, sqlstate=error.sqlstate)
    return SqlError(f"column {column.name!r}: {message}", sqlstate=error.sqlstate)


class _OneParameter:
    """A row of nothing but one parameter."""

    def column(self, reference: ColumnReference) -> int:
        raise UnsupportedError("a constant has no columns", reference.location)

    def parameter(self, number: int) -> int:
        return 0

    def now(self) -> int:
        raise UnsupportedError("a constant has no time")


def parameter_type(value: object) -> SqlType:
    """Return the type of a parameter. That of a string, a list or a null is decided by what stands around it."""
    match value:
        case Interval():
            return types.INTERVAL
        case None | str() | list() | tuple():
            return types.UNKNOWN
        case bool():
            return types.BOOL
        case int():
            return (
                types.INT4 if -(1 << 31) <= value < 1 << 31 else types.INT8 if -(1 << 63) <= value < 1 << 63 else types.NUMERIC
            )
        case float():
            return types.FLOAT8
        case Decimal():
            return types.NUMERIC
        case bytes():
            return types.BYTEA
        case datetime():
            return types.TIMESTAMPTZ if value.tzinfo is not None else types.TIMESTAMP
        case date():
            return types.DATE
        case time():
            return types.TIME
        case UUID():
            return types.UUID
        case dict():
            return types.JSONB
    raise SqlError(
        f"a parameter can't be a {type(value).__name__}; use a type that JSON has, or bytes, a date, a time, a UUID or a"
        " Decimal"
    )


def parameter_value(value: object) -> Any:
    """Return a parameter as a value of its type."""
    match value:
        case dict():
            try:
                return msgspec.json.encode(value).decode()
            except (TypeError, ValueError, RecursionError) as error:
                raise SqlError(f"a parameter can't be written as JSON: {error}", sqlstate="22P02") from None
        case int() if not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
            return Decimal(value)
    return value
