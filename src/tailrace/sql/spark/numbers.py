"""Numbers: arithmetic in PostgreSQL's widths, rounding and bits.

Integers of 2 and 4 bytes are computed in 8 and fail where the result does not fit. Decimals stay exact: what could have more
than 38 digits is refused. A double that overflows or underflows fails; so does one that was infinite before.
"""

from collections.abc import Callable, Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant, Expression
from tailrace.sql.analysis.types import digits_of
from tailrace.sql.duckdb.templates import expanded
from tailrace.sql.spark.templates import LEAST_INT8, MAX_PRECISION, Rendered, Template, fails, fixed_type, type_of

_INFINITY = "CAST('Infinity' AS DOUBLE)"
_NEGATIVE_INFINITY = "CAST('-Infinity' AS DOUBLE)"
_NEGATIVE_ZERO = "CAST('-0.0' AS DOUBLE)"
_WHOLE_DOUBLES = "4503599627370496D"
"""Doubles from here on have no digits behind the point."""


def _whole(operator: str, name: str) -> Callable[[Sequence[str], Call], Rendered]:
    def render(arguments: Sequence[str], call: Call) -> Rendered:
        if call.type.name == "int8":
            return fails(
                f"{name}({', '.join(_as_int8(text, one) for text, one in zip(arguments, call.arguments, strict=True))})"
            )
        left, right = (f"CAST({text} AS BIGINT)" for text in arguments)
        return fails(f"try_cast({left} {operator} {right} AS {type_of(call)})")

    return render


def _as_int8(text: str, node: Expression) -> str:
    return text if node.type.name == "int8" else f"CAST({text} AS BIGINT)"


def _quotient(arguments: Sequence[str], call: Call) -> Rendered:
    left, right = (_as_int8(text, one) for text, one in zip(arguments, call.arguments, strict=True))
    divisor = call.arguments[1]
    if isinstance(divisor, Constant) and divisor.value not in (0, -1, None):
        return f"CAST({left} DIV {right} AS {type_of(call)})"
    negated = f"try_subtract(0L, {left})"
    return fails(f"try_cast(CASE WHEN {right} = -1L THEN {negated} ELSE {left} DIV nullif({right}, 0L) END AS {type_of(call)})")


def _remainder(arguments: Sequence[str], call: Call) -> Rendered:
    left, right = arguments
    divisor = call.arguments[1]
    if isinstance(divisor, Constant) and divisor.value not in (0, None):
        return f"CAST({left} % {right} AS {type_of(call)})"
    return fails(f"CAST({left} % nullif({right}, 0) AS {type_of(call)})")


def _negated(arguments: Sequence[str], call: Call) -> Rendered:
    if call.type.name == "int8":
        return fails(f"try_subtract(0L, {arguments[0]})")
    return fails(f"try_cast(- CAST({arguments[0]} AS BIGINT) AS {type_of(call)})")


def _absolute(arguments: Sequence[str], call: Call) -> Rendered:
    (text,) = arguments
    if call.type.name == "int8":
        return fails(f"CASE WHEN {text} > {LEAST_INT8} THEN abs({text}) END")
    return fails(f"try_cast(abs(CAST({text} AS BIGINT)) AS {type_of(call)})")


def _finite(text: str) -> str:
    return f"nullif(nullif({text}, {_INFINITY}), {_NEGATIVE_INFINITY})"


def _product(arguments: Sequence[str], call: Call) -> Rendered:
    left, right = arguments
    product = f"({left} * {right})"
    if any(isinstance(one, Constant) and isinstance(one.value, float) and abs(one.value) >= 1 for one in call.arguments):
        return fails(_finite(product))
    return fails(f"CASE WHEN {product} <> 0D OR {left} = 0D OR {right} = 0D THEN {_finite(product)} END")


def _ratio(arguments: Sequence[str], call: Call) -> Rendered:
    left, right = arguments
    ratio = f"({left} / nullif({right}, 0D))"
    return fails(f"CASE WHEN {ratio} <> 0D OR {left} = 0D THEN {_finite(ratio)} END")


def of_decimals(template: str, *, is_comparison: bool = False) -> Callable[[Sequence[str], Call], Rendered]:
    """Return a template for numerics whose digits are known. Spark computes with them exactly as long as 38 suffice."""

    def render(arguments: Sequence[str], call: Call) -> Rendered:
        digits = []
        for one in call.arguments:
            if one.type.name == "numeric":
                # Refuses a numeric without known digits, with its place.
                type_of(one)
                digits.append(digits_of(fixed_type(one)) or (0, 0))
        wholes, scales = [precision - scale for precision, scale in digits], [scale for _, scale in digits]
        if is_comparison:
            room = max(wholes) + max(scales)
        else:
            # As many digits as Spark gives the result of a product, the largest of all.
            room = (
                sum(precision for precision, _ in digits) + 1 if call.signature.name == "*" else max(wholes) + max(scales) + 1
            )
        if room > MAX_PRECISION:
            raise UnsupportedError(
                "these numerics could have more than 38 digits together; cast them to fewer, as in x::numeric(12, 2)",
                call.location,
            )
        text = template.format(*arguments)
        if is_comparison:
            return text
        result = f"CAST({text} AS {type_of(call)})"
        return fails(result) if "nullif" in template else result

    return render


def _scale(arguments: Sequence[str], call: Call) -> Rendered:
    """Render `round` and `trunc` to a constant number of digits."""
    to = call.arguments[1]
    digits = digits_of(fixed_type(call.arguments[0]))
    if not isinstance(to, Constant) or not isinstance(to.value, int) or to.value < 0 or digits is None:
        raise UnsupportedError(
            f"in a route {call.signature.name} needs a number of known digits and a constant of at least 0", call.location
        )
    type_of(call.arguments[0])
    (text,) = arguments[:1]
    if to.value < digits[1] and call.signature.name == "trunc":
        text = f"CASE WHEN {text} < 0 THEN ceil({text}, {to.value}) ELSE floor({text}, {to.value}) END"
    elif to.value < digits[1]:
        text = f"round({text}, {to.value})"
    return f"CAST({text} AS {type_of(call)})"


def _shifted(name: str) -> str:
    return f"{name}({{0}}, {{1}})"


NUMBERS: dict[str, Template] = expanded(
    {
        "{int} + {int}": _whole("+", "try_add"),
        "{int} - {int}": _whole("-", "try_subtract"),
        "{int} * {int}": _whole("*", "try_multiply"),
        "{int} / {int}": _quotient,
        "{int} % {int}": _remainder,
        "mod({int}, {int})": _remainder,
        "- {int}": _negated,
        "+ {int}": "{0}",
        "abs({int})": _absolute,
        "@ {int}": _absolute,
        "int4 & int4": "({0} & {1})",
        "int8 & int8": "({0} & {1})",
        "int4 | int4": "({0} | {1})",
        "int8 | int8": "({0} | {1})",
        "int4 # int4": "({0} ^ {1})",
        "int8 # int8": "({0} ^ {1})",
        "~ int4": "(~ {0})",
        "~ int8": "(~ {0})",
        "int4 << int4": _shifted("shiftleft"),
        "int8 << int4": _shifted("shiftleft"),
        "int4 >> int4": _shifted("shiftright"),
        "int8 >> int4": _shifted("shiftright"),
        "float8 + float8": fails(_finite("({0} + {1})")),
        "float8 - float8": fails(_finite("({0} - {1})")),
        "float8 * float8": _product,
        "float8 / float8": _ratio,
        "- float8": "(- {0})",
        "+ float8": "{0}",
        "abs(float8)": "abs({0})",
        "@ float8": "abs({0})",
        "round(float8)": "rint({0})",
        "ceil(float8)": f"CASE WHEN {{0}} > -1D AND {{0}} < 0D THEN {_NEGATIVE_ZERO}"
        f" WHEN abs({{0}}) < {_WHOLE_DOUBLES} AND {{0}} <> 0D THEN CAST(ceil({{0}}) AS DOUBLE) ELSE {{0}} END",
        "floor(float8)": f"CASE WHEN abs({{0}}) < {_WHOLE_DOUBLES} AND {{0}} <> 0D"
        " THEN CAST(floor({0}) AS DOUBLE) ELSE {0} END",
        "trunc(float8)": f"CASE WHEN {{0}} > -1D AND {{0}} < 0D THEN {_NEGATIVE_ZERO}"
        f" WHEN abs({{0}}) < {_WHOLE_DOUBLES} AND {{0}} <> 0D THEN CAST(CAST({{0}} AS BIGINT) AS DOUBLE) ELSE {{0}} END",
        "sign(float8)": "CASE WHEN {0} = 0D OR isnan({0}) THEN 0D WHEN {0} > 0D THEN 1D WHEN {0} < 0D THEN -1D END",
        "sqrt(float8)": fails("sqrt(CASE WHEN {0} >= 0D THEN {0} END)"),
        "numeric + numeric": of_decimals("({0} + {1})"),
        "numeric - numeric": of_decimals("({0} - {1})"),
        "numeric * numeric": of_decimals("({0} * {1})"),
        "numeric % numeric": of_decimals("({0} % nullif({1}, 0))"),
        "mod(numeric, numeric)": of_decimals("({0} % nullif({1}, 0))"),
        "- numeric": of_decimals("(- {0})"),
        "+ numeric": of_decimals("{0}"),
        "abs(numeric)": of_decimals("abs({0})"),
        "@ numeric": of_decimals("abs({0})"),
        "sign(numeric)": of_decimals("signum({0})"),
        "ceil(numeric)": of_decimals("ceil({0})"),
        "floor(numeric)": of_decimals("floor({0})"),
        "round(numeric)": of_decimals("round({0}, 0)"),
        "trunc(numeric)": of_decimals("CASE WHEN {0} < 0 THEN ceil({0}) ELSE floor({0}) END"),
        "round(numeric, int4)": _scale,
        "trunc(numeric, int4)": _scale,
    }
)
NUMBERS |= {key.replace("ceil(", "ceiling("): template for key, template in NUMBERS.items() if key.startswith("ceil(")}
