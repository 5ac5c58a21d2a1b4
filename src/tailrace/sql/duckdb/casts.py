"""Casts between types."""

from tailrace.sql.analysis.types import SqlType

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
    "int4::text": "CAST({0} AS VARCHAR)",
    "int2::float8": "CAST({0} AS DOUBLE)",
    "int4::float8": "CAST({0} AS DOUBLE)",
    "int8::float8": "CAST({0} AS DOUBLE)",
    "numeric::loose": "CAST({0} AS VARCHAR)",
    "numeric::numeric": "CAST({0} AS {type})",
    "loose::numeric": "CAST({0} AS {type})",
    "int4::loose": "CAST({0} AS VARCHAR)",
}
"""`loose` is a numeric that is held as text."""


def cast_template(source: SqlType, target: SqlType, loose_source: bool, loose_target: bool) -> str | None:
    """Return the template of a cast: `{0}` is the value, `{type}` the type in DuckDB, `{length}` that of the target."""
    if source.name == "numeric" or target.name == "numeric":
        mine = "loose" if loose_source else source.name
        wanted = "loose" if loose_target else target.name
        found = _CASTS.get(f"{mine}::{wanted}")
        if found is not None or "loose" in (mine, wanted):
            return found
    return _CASTS.get(f"{source.name}::{target.name}")
