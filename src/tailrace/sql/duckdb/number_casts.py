"""Casts between numbers, and from texts to numbers."""

from tailrace.sql.analysis.types import SqlType, digits_of
from tailrace.sql.duckdb.templates import decimal_text

_FLOAT_DIGITS = 15
"""A decimal of so many digits is divided by a power of ten without a second rounding."""
_SIZES = {"int2": 16, "int4": 32, "int8": 64}
_HALF_BEYOND = {
    "int2": ("32767.5", "-32768.5", "smallint"),
    "int4": ("2147483647.5", "-2147483648.5", "integer"),
    "int8": ("9223372036854775807.5", "-9223372036854775808.5", "bigint"),
}
_PLAIN: dict[str, str] = {
    "int2::int4": "CAST({0} AS INTEGER)",
    "int2::int8": "CAST({0} AS BIGINT)",
    "int4::int8": "CAST({0} AS BIGINT)",
    "int8::int4": "int4_of_int({0})",
    "int8::int2": "int2_of_int({0})",
    "int4::int2": "int2_of_int({0})",
    "int2::float4": "CAST({0} AS FLOAT)",
    "int4::float4": "CAST({0} AS FLOAT)",
    "int8::float4": "CAST({0} AS FLOAT)",
    "int2::float8": "CAST({0} AS DOUBLE)",
    "int4::float8": "CAST({0} AS DOUBLE)",
    "int8::float8": "CAST({0} AS DOUBLE)",
    "float4::float8": "CAST({0} AS DOUBLE)",
    "float8::float4": "float4_of_float8({0})",
    "float4::int2": "int2_of_float({0})",
    "float4::int4": "int4_of_float({0})",
    "float4::int8": "int8_of_float({0})",
    "float8::int2": "int2_of_float({0})",
    "float8::int4": "int4_of_float({0})",
    "float8::int8": "int8_of_float({0})",
    "text::int2": "int2_of_text({0})",
    "text::int4": "int4_of_text({0})",
    "text::int8": "int8_of_text({0})",
    "text::float4": "float4_of_text({0})",
    "text::float8": "float8_of_text({0})",
    "bool::int4": "CAST({0} AS INTEGER)",
    "int4::bool": "CAST({0} AS BOOLEAN)",
}
_LOOSE: dict[str, str] = {
    "int2": "CAST({0} AS VARCHAR)",
    "int4": "CAST({0} AS VARCHAR)",
    "int8": "CAST({0} AS VARCHAR)",
    "float4": "numeric_of_float4({0})",
    "float8": "numeric_of_float8({0})",
    "text": "numeric_of_text({0})",
    "jsonb": "jsonb_number({0}, 'numeric')",
}
"""How a value becomes a numeric that is held as text."""


def number_cast(source: SqlType, target: SqlType, loose_source: bool, loose_target: bool) -> str | None:
    """Return the template of a cast to or from a number, or `None` if it is none."""
    if target.name == "numeric":
        return _to_numeric(source, target, loose_source, loose_target)
    if source.name == "numeric":
        return _from_loose(target) if loose_source else _from_decimal(source, target)
    return _PLAIN.get(f"{source.name}::{target.name}")


def _to_numeric(source: SqlType, target: SqlType, loose_source: bool, loose_target: bool) -> str | None:
    loose = decimal_text("{0}", source) if source.name == "numeric" else _LOOSE.get(source.name)
    if loose is None:
        return None
    if loose_target:
        if (
            target.precision is None
            or target.scale is None
            or (source.precision, source.scale) == (target.precision, target.scale)
        ):
            return loose
        return f"numeric_typed({loose}, {target.precision}, {target.scale})"
    digits = None if loose_source else digits_of(source)
    if digits is not None:
        precision, scale = digits
        if target.precision is None or target.scale is None:
            return None
        # A number that loses digits may gain a place before the point.
        whole = precision - scale + (1 if target.scale < scale else 0)
        if whole <= target.precision - target.scale:
            return "CAST({0} AS {type})"
        value, failure = "{0}", "fail('22003', 'numeric field overflow')"
    else:
        value, failure = loose, f"no_decimal({loose})"
    return f"coalesce(TRY_CAST({value} AS {{type}}), CASE WHEN {{0}} IS NOT NULL THEN {failure} END)"


def _from_loose(target: SqlType) -> str | None:
    if target.name in _SIZES:
        result = f"numeric_integer({{0}}, {_SIZES[target.name]})"
        return result if target.name == "int8" else f"CAST({result} AS {{type}})"
    if target.name in ("float4", "float8"):
        return f"{target.name}_of_text({{0}})"
    return None


def _from_decimal(source: SqlType, target: SqlType) -> str | None:
    precision, scale = source.precision or 0, source.scale or 0
    if target.name in _SIZES:
        high, low, name = _HALF_BEYOND[target.name]
        if precision - scale < len(low) - 3:
            return "CAST({0} AS {type})"
        beyond = f"{{0}} >= {high} OR {{0}} <= {low}"
        return f"CASE WHEN {beyond} THEN fail('22003', '{name} out of range') ELSE CAST({{0}} AS {{type}}) END"
    if target.name == "float8" and precision <= _FLOAT_DIGITS:
        return "CAST({0} AS DOUBLE)"
    if target.name in ("float4", "float8"):
        return "CAST(CAST({0} AS VARCHAR) AS {type})"
    return None
