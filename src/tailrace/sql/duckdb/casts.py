"""Casts between types."""

from tailrace.sql.analysis.types import SqlType
from tailrace.sql.duckdb.number_casts import number_cast
from tailrace.sql.duckdb.output_texts import cast_text
from tailrace.sql.duckdb.times import TIME_CASTS

_STRINGS = frozenset(("text", "varchar", "bpchar", "name"))

_CASTS: dict[str, str] = {
    **TIME_CASTS,
    "text::jsonb": "jsonb_in({0})",
    "text::json": "checked_json({0})",
    "json::jsonb": "jsonb_in({0})",
    "jsonb::json": "jsonb_in({0})",
    "jsonb::bool": "jsonb_boolean({0})",
    "jsonb::int2": "CAST(jsonb_integer({0}, 'smallint', 16) AS SMALLINT)",
    "jsonb::int4": "CAST(jsonb_integer({0}, 'integer', 32) AS INTEGER)",
    "jsonb::int8": "CAST(jsonb_integer({0}, 'bigint', 64) AS BIGINT)",
    "jsonb::float8": "float8_of_number(jsonb_number({0}, 'double precision'))",
    "text::bool": "boolean_of_text({0})",
    "text::uuid": "uuid_of_text({0})",
    "text::bytea": "bytes_of_text({0})",
    "int2::bytea": "bytes_of_integer({0}, 4)",
    "int4::bytea": "bytes_of_integer({0}, 8)",
    "int8::bytea": "bytes_of_integer({0}, 16)",
    "bytea::int2": "CAST(integer_of_bytes({0}, 2) AS SMALLINT)",
    "bytea::int4": "CAST(integer_of_bytes({0}, 4) AS INTEGER)",
    "bytea::int8": "integer_of_bytes({0}, 8)",
}


def cast_template(source: SqlType, target: SqlType, loose_source: bool, loose_target: bool) -> str | None:
    """Return the template of a cast: `{0}` is the value, `{type}` the type in DuckDB, `{length}` that of the target."""
    if target.name in _STRINGS:
        return _to_string(source, target)
    if source.name in _STRINGS and source.name != "text":
        inner = cast_template(SqlType("text"), target, loose_source, loose_target)
        return None if inner is None else inner.replace("{0}", cast_text("{0}", source))
    found = number_cast(source, target, loose_source, loose_target)
    return found or _CASTS.get(f"{source.name}::{target.name}")


def _to_string(source: SqlType, target: SqlType) -> str | None:
    if source.name == "jsonb" and target.name == "name":
        return None
    # Between char(n) of two lengths the spaces at the end are kept as far as they fit.
    text = "{0}" if source.name == target.name == "bpchar" else cast_text("{0}", source)
    if target.name == "name":
        return f"name_of_text({text})"
    if target.length is None:
        return text
    return f"cut_and_padded({text}, {{length}})" if target.name == "bpchar" else f"left({text}, {{length}})"
