"""How many digits the numerics of an expression have, as far as that is known before any value is.

PostgreSQL decides the scale of each result by its operands. For `+`, `-`, `*`, `sum` and rounding to a constant it depends only
on the scales of the operands, so that engines can compute with decimals of a fixed scale; for `/`, `avg` and others it depends
on the values.
"""

from collections.abc import Sequence

from tailrace.sql.analysis.datetime_fields import field_of
from tailrace.sql.analysis.tree import Constant, Expression
from tailrace.sql.analysis.types import NUMERIC, SqlType, digits_of

_MAX_PRECISION = 38
"""More digits than this are computed value by value."""


def digits_of_call(key: str, result: SqlType, arguments: Sequence[Expression]) -> SqlType:
    """Return the type of a call's result, with its digits if they are known."""
    if result.name != "numeric" or result.scale is not None:
        return result
    if key in ("round(numeric, int4)", "trunc(numeric, int4)"):
        return _rounded(arguments[0], arguments[1])
    if key.startswith("extract("):
        return _extracted(arguments[0], arguments[1].type)
    known = [digits_of(one.type) for one in arguments if one.type.name == "numeric"]
    if None in known or not known:
        return NUMERIC
    digits = [one for one in known if one is not None]
    wholes = [precision - scale for precision, scale in digits]
    scales = [scale for _, scale in digits]
    match key:
        case "numeric + numeric" | "numeric - numeric":
            return _fixed(max(wholes) + 1 + max(scales), max(scales))
        case "numeric * numeric":
            return _fixed(sum(precision for precision, _ in digits), sum(scales))
        case "numeric % numeric" | "mod(numeric, numeric)":
            return _fixed(max(wholes) + max(scales), max(scales))
        case "- numeric" | "+ numeric" | "abs(numeric)" | "@ numeric":
            return arguments[0].type
        case "ceil(numeric)" | "ceiling(numeric)" | "floor(numeric)" | "round(numeric)" | "trunc(numeric)":
            return _fixed(wholes[0] + 1, 0)
        case "sign(numeric)":
            return _fixed(1, 0)
    return NUMERIC


def _extracted(field: Expression, source: SqlType) -> SqlType:
    """Return the type of a field of a date, time or interval."""
    name = field_of(str(field.value)) if isinstance(field, Constant) else None
    if name is None or (name == "julian" and source.name != "date"):
        return NUMERIC
    if name in ("second", "millisecond"):
        return SqlType("numeric", 8, 6 if name == "second" else 3)
    return SqlType("numeric", 26, 6) if name == "epoch" and source.name != "date" else SqlType("numeric", 19, 0)


def _rounded(number: Expression, to: Expression) -> SqlType:
    """Return the type of a number that is rounded to a constant scale, whatever it was before."""
    if not isinstance(to, Constant) or not isinstance(to.value, int) or not 0 <= to.value <= _MAX_PRECISION:
        return NUMERIC
    digits = digits_of(number.type)
    return (
        SqlType("numeric", _MAX_PRECISION, to.value)
        if digits is None
        else _fixed(digits[0] - digits[1] + 1 + to.value, to.value)
    )


def digits_of_aggregate(key: str, result: SqlType, arguments: Sequence[Expression]) -> SqlType:
    """Return the type of an aggregate's result, with its digits if they are known."""
    if result.name != "numeric" or not arguments or result.scale is not None:
        return result
    digits = digits_of(arguments[0].type)
    if digits is None:
        return NUMERIC
    if key.startswith(("min(", "max(")):
        return arguments[0].type
    if key.startswith("sum("):
        return SqlType("numeric", _MAX_PRECISION, digits[1])
    return NUMERIC


def _fixed(precision: int, scale: int) -> SqlType:
    return SqlType("numeric", max(precision, scale, 1), scale) if precision <= _MAX_PRECISION else NUMERIC
