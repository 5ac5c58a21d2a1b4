"""Casts between types."""

from tailrace.sql.analysis.types import SqlType
from tailrace.sql.duckdb.output_texts import cast_text

_STRINGS = frozenset(("text", "varchar", "bpchar", "name"))

_CASTS: dict[str, str] = {
    "int2::int4": "CAST({0} AS INTEGER)",
    "int2::int8": "CAST({0} AS BIGINT)",
    "int4::int8": "CAST({0} AS BIGINT)",
    "int8::int4": "CAST({0} AS INTEGER)",
    "int8::int2": "CAST({0} AS SMALLINT)",
    "int4::int2": "CAST({0} AS SMALLINT)",
    "int2::numeric": "CAST({0} AS {type})",
    "int4::numeric": "CAST({0} AS {type})",
    "int8::numeric": "CAST({0} AS {type})",
    "int2::float8": "CAST({0} AS DOUBLE)",
    "int4::float8": "CAST({0} AS DOUBLE)",
    "int8::float8": "CAST({0} AS DOUBLE)",
    "numeric::loose": "CAST({0} AS VARCHAR)",
    "numeric::numeric": "CAST({0} AS {type})",
    "loose::numeric": "CAST({0} AS {type})",
    "int4::loose": "CAST({0} AS VARCHAR)",
    "text::jsonb": "jsonb_in({0})",
    "text::json": "checked_json({0})",
    "json::jsonb": "jsonb_in({0})",
    "jsonb::json": "jsonb_in({0})",
    "jsonb::bool": "jsonb_boolean({0})",
    "jsonb::int2": "CAST(jsonb_integer({0}, 'smallint', 16) AS SMALLINT)",
    "jsonb::int4": "CAST(jsonb_integer({0}, 'integer', 32) AS INTEGER)",
    "jsonb::int8": "CAST(jsonb_integer({0}, 'bigint', 64) AS BIGINT)",
    "jsonb::loose": "jsonb_number({0}, 'numeric')",
    "jsonb::float8": "float8_of_number(jsonb_number({0}, 'double precision'))",
    "text::bool": "boolean_of_text({0})",
    "text::uuid": "uuid_of_text({0})",
    "text::bytea": "bytes_of_text({0})",
    "bool::int4": "CAST({0} AS INTEGER)",
    "int4::bool": "CAST({0} AS BOOLEAN)",
    "int2::bytea": "bytes_of_integer({0}, 4)",
    "int4::bytea": "bytes_of_integer({0}, 8)",
    "int8::bytea": "bytes_of_integer({0}, 16)",
    "bytea::int2": "CAST(integer_of_bytes({0}, 2) AS SMALLINT)",
    "bytea::int4": "CAST(integer_of_bytes({0}, 4) AS INTEGER)",
    "bytea::int8": "integer_of_bytes({0}, 8)",
}
"""`loose` is a numeric that is held as text."""


def cast_template(source: SqlType, target: SqlType, loose_source: bool, loose_target: bool) -> str | None:
    """Return the template of a cast: `{0}` is the value, `{type}` the type in DuckDB, `{length}` that of the target."""
    if target.name in _STRINGS:
        return _to_string(source, target)
    if source.name in _STRINGS and source.name != "text":
        inner = cast_template(SqlType("text"), target, loose_source, loose_target)
        return None if inner is None else inner.replace("{0}", cast_text("{0}", source))
    if source.name == "numeric" or target.name == "numeric":
        mine = "loose" if loose_source else source.name
        wanted = "loose" if loose_target else target.name
        found = _CASTS.get(f"{mine}::{wanted}")
        if found is not None or "loose" in (mine, wanted):
            return found
    return _CASTS.get(f"{source.name}::{target.name}")


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
