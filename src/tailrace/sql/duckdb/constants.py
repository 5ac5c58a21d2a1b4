"""Writes types, constants and casts in DuckDB's SQL."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

from tailrace.sql.analysis.errors import DATATYPE_MISMATCH, AnalysisError, UnsupportedError
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.interval_texts import Interval
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.duckdb.functions import cast_template
from tailrace.sql.duckdb.repeated_arguments import written
from tailrace.sql.duckdb.templates import is_loose
from tailrace.sql.functions.json_paths import JsonPath

_TYPES = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "bytea": "BLOB",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",
    "interval": "INTERVAL",
    "uuid": "UUID",
}


def duckdb_type(sql_type: SqlType) -> str:
    """Return the type in which DuckDB holds values of a type."""
    if sql_type.is_array:
        return f"{duckdb_type(sql_type.element)}[]"
    if sql_type.name == "numeric":
        return "VARCHAR" if is_loose(sql_type) else f"DECIMAL({sql_type.precision}, {sql_type.scale})"
    return _TYPES.get(sql_type.name, "VARCHAR")


def cast_text(text: str, source: SqlType, target: SqlType, *, is_explicit: bool = False) -> str:
    """Return the text of an expression cast from one type to another."""
    if source == target or (
        source.name == target.name
        and duckdb_type(source) == duckdb_type(target)
        and target.length is None
        and not (is_loose(target) and target.precision is not None)
    ):
        return text
    if source.is_array and target.is_array:
        inner = cast_text("item", source.element, target.element, is_explicit=is_explicit)
        return f"list_transform({text}, lambda item: {inner})"
    if source.name == "text" and target.is_array:
        inner = cast_text("item", source, target.element, is_explicit=is_explicit)
        return f"list_transform(array_in({text}), lambda item: {inner})"
    template = cast_template(source, target, is_loose(source), is_loose(target))
    if template is None:
        raise UnsupportedError(f"a cast from {source} to {target} is not supported")
    kind = duckdb_type(target)
    general = written(
        lambda texts: template.format(*texts, type=kind, length=target.length, scale=target.scale, precision=target.precision),
        [text],
    )
    return text.cast_to(target, general) if isinstance(text, JsonPath) else general


def constant(value: object, sql_type: SqlType) -> str:
    """Return a value with its type written out."""
    kind = duckdb_type(sql_type)
    match value:
        case None:
            return f"NULL::{kind}"
        case bool():
            return "true" if value else "false"
        case float():
            return f"'{value!r}'::{kind}"
        case int():
            return f"({value})::{kind}" if value < 0 else f"{value}::{kind}"
        case Decimal():
            return f"'{value:f}'" if kind == "VARCHAR" else f"'{value:f}'::{kind}"
        case str():
            return f"{literal(value)}::{kind}" if kind != "VARCHAR" else literal(value)
        case bytes():
            return f"unhex('{value.hex()}')"
        case datetime():
            moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"'{moment.isoformat(' ')}'::TIMESTAMP"
        case date() | time():
            return f"'{value.isoformat()}'::{kind}"
        case Interval():
            return f"(to_months({value.months}) + to_days({value.days}) + to_microseconds({value.microseconds}))"
        case UUID():
            return f"'{value}'::UUID"
        case list() | tuple():
            return f"[{', '.join(constant(item, sql_type.element) for item in value)}]::{kind}"
    raise UnsupportedError(f"a constant of the type {sql_type} is not supported")


def parameter_value(value: object, wanted: SqlType, location: int) -> object:
    """Return the value of a parameter; strings are read as values of the type that is wanted."""
    if isinstance(value, list | tuple):
        if wanted.is_array:
            return [parameter_value(item, wanted.element, location) for item in value]
        raise AnalysisError(DATATYPE_MISMATCH, f"a list can't be a value of the type {wanted}", location)
    if isinstance(value, str) and wanted.name not in ("text", "varchar", "bpchar", "unknown"):
        try:
            return read_text(value, wanted)
        except AnalysisError as error:
            error.location = location if error.location < 0 else error.location
            raise
    return value


def quoted(name: str) -> str:
    """Return a name in quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a string in quotes."""
    # DuckDB ends the text of a query at a character 0, so such a string is sent in hexadecimal.
    if "\0" in text:
        return f"decode(unhex('{text.encode().hex()}'))"
    return "'" + text.replace("'", "''") + "'"
