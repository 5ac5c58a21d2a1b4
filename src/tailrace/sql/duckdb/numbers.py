"""Numbers: arithmetic, rounding and mathematical functions."""

from collections.abc import Callable, Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import Call, Constant
from tailrace.sql.analysis.types import SqlType, digits_of
from tailrace.sql.duckdb.templates import MAX_PRECISION, Template, decimal_text, expanded, is_loose

_DIGITS_OF_64_BITS = 18
Render = Callable[[Sequence[str], Call], str]


def of_numerics(operator: str, name: str) -> Render:
    """Return a template that uses DuckDB's decimals where the digits are known, and functions for loose numerics elsewhere."""

    def render(arguments: Sequence[str], call: Call) -> str:
        is_numeric = call.type.name == "numeric"
        loose_result = is_loose(call.type) if is_numeric else not _have_common_decimal(call)
        if not loose_result and not any(is_loose(one.type) for one in call.arguments):
            text = operator.format(*_wide_enough(arguments, call))
            return f"CAST({text} AS {_decimal(call.type)})" if is_numeric else text
        result = f"{name}({', '.join(_as_texts(arguments, call))})"
        return result if loose_result else f"CAST({result} AS {_decimal(call.type)})"

    return render


def _wide_enough(arguments: Sequence[str], call: Call) -> Sequence[str]:
    """Return the operands so that DuckDB computes with 128 bits where the result needs more than 64."""
    first = call.arguments[0].type
    if call.type.name != "numeric" or (call.type.precision or 0) <= _DIGITS_OF_64_BITS:
        return arguments
    if any((one.type.precision or 0) > _DIGITS_OF_64_BITS for one in call.arguments):
        return arguments
    return [f"CAST({arguments[0]} AS DECIMAL({_DIGITS_OF_64_BITS + 1}, {first.scale}))", *arguments[1:]]


def of_texts(name: str) -> Render:
    """Return a template that calls a function of loose numerics."""
    return lambda arguments, call: f"{name}({', '.join(_as_texts(arguments, call))})"


def _as_texts(arguments: Sequence[str], call: Call) -> list[str]:
    return [
        decimal_text(text, argument.type) if argument.type.name == "numeric" else text
        for text, argument in zip(arguments, call.arguments, strict=True)
    ]


def _decimal(sql_type: SqlType) -> str:
    return f"DECIMAL({sql_type.precision}, {sql_type.scale})"


def _have_common_decimal(call: Call) -> bool:
    """Return whether one decimal type holds all arguments, so that DuckDB can compare them."""
    digits = [digits_of(one.type) for one in call.arguments if one.type.name == "numeric"]
    known = [one for one in digits if one is not None]
    if len(known) < len(digits) or any(is_loose(one.type) for one in call.arguments):
        return False
    return max(precision - scale for precision, scale in known) + max(scale for _, scale in known) <= MAX_PRECISION


def _divided(operator: str, name: str) -> Render:
    """Return a template for division that looks at the divisor only if it isn't a constant."""

    def render(arguments: Sequence[str], call: Call) -> str:
        divisor = call.arguments[1]
        if isinstance(divisor, Constant) and isinstance(divisor.value, int) and divisor.value not in (0, -1):
            return f"({arguments[0]} {operator} {arguments[1]})"
        return f"{name}({arguments[0]}, {arguments[1]})"

    return render


def _truncated(arguments: Sequence[str], call: Call) -> str:
    """Return `trunc(numeric, scale)`: of a decimal, the number without what is left over by a power of ten."""
    number, to = call.arguments[0], call.arguments[1] if len(call.arguments) > 1 else None
    places = 0 if to is None else to.value if isinstance(to, Constant) else None
    scale = number.type.scale or 0
    if is_loose(call.type) or not isinstance(places, int):
        texts = _as_texts(arguments, call)
        return f"numeric_trunc({texts[0]}, {texts[1] if to is not None else '0'})"
    if is_loose(number.type):
        return f"CAST(decimal_trunc({arguments[0]}, {places}) AS {_decimal(call.type)})"
    if places >= scale:
        return f"CAST({arguments[0]} AS {_decimal(call.type)})"
    unit = (
        f"1::DECIMAL({places + 1}, {places})"
        if not places
        else f"'{'0.'.ljust(places + 1, '0')}1'::DECIMAL({places + 1}, {places})"
    )
    return f"CAST({arguments[0]} - ({arguments[0]} % {unit}) AS {_decimal(call.type)})"


def _rounded(arguments: Sequence[str], call: Call) -> str:
    """Return `round(numeric, scale)`."""
    number, to = call.arguments[0], call.arguments[1] if len(call.arguments) > 1 else None
    places = arguments[1] if to is not None else "0"
    if is_loose(call.type):
        return f"numeric_round({_as_texts(arguments, call)[0]}, {places})"
    if is_loose(number.type):
        return f"CAST(decimal_round({arguments[0]}, {places}) AS {_decimal(call.type)})"
    return f"CAST({arguments[0]} AS {_decimal(call.type)})"


def _to_whole(name: str) -> Render:
    """Return `ceil` and `floor` of numerics."""

    def render(arguments: Sequence[str], call: Call) -> str:
        if is_loose(call.type) or is_loose(call.arguments[0].type):
            return f"numeric_{name}({_as_texts(arguments, call)[0]}, 0)"
        return f"CAST({name}({arguments[0]}) AS {_decimal(call.type)})"

    return render


def _scale(arguments: Sequence[str], call: Call) -> str:
    number = call.arguments[0].type
    if is_loose(number):
        return f"numeric_scale({arguments[0]})"
    return f"CASE WHEN {arguments[0]} IS NOT NULL THEN {number.scale}::INTEGER END"


def _bucket(arguments: Sequence[str], call: Call) -> str:
    if any(is_loose(one.type) or is_loose(one.type.element) for one in call.arguments):
        raise UnsupportedError(
            "width_bucket of thresholds that are numerics without a fixed scale is not supported", call.location
        )
    return f"bucket_of({arguments[0]}, {arguments[1]})"


def _random_numeric(arguments: Sequence[str], call: Call) -> str:
    raise UnsupportedError("random of numerics is not supported; cast the bounds to bigint or scale random()", call.location)


def _random_normal(arguments: Sequence[str], call: Call) -> str:
    mean, deviation = [*arguments, *("0::DOUBLE", "1::DOUBLE")[len(arguments) :]]
    return f"({mean} + {deviation} * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()))"


def _nulls(test: str) -> Render:
    """Return a template that counts the arguments that are null, or that are not."""
    return lambda arguments, call: f"CAST({' + '.join(f'({one} IS {test})::INTEGER' for one in arguments)} AS INTEGER)"


_OF_FLOATS = {
    "ceil": "ceil({0})", "ceiling": "ceil({0})", "floor": "floor({0})", "trunc": "trunc({0})", "round": "round_even({0}, 0)",
    "dround": "round_even({0}, 0)", "dtrunc": "trunc({0})", "sign": "float_sign({0})",
    "sqrt": "float_sqrt({0})", "dsqrt": "float_sqrt({0})", "cbrt": "cbrt({0})", "dcbrt": "cbrt({0})",
    "exp": "float_exp({0})", "dexp": "float_exp({0})", "ln": "ln(log_argument({0}))", "dlog1": "ln(log_argument({0}))",
    "log": "log10(log_argument({0}))", "log10": "log10(log_argument({0}))", "dlog10": "log10(log_argument({0}))",
    "sin": "sin(finite_argument({0}))", "cos": "cos(finite_argument({0}))", "tan": "tan(finite_argument({0}))",
    "cot": "float_cot({0})", "asin": "asin(unit_argument({0}))", "acos": "acos(unit_argument({0}))", "atan": "atan({0})",
    "sinh": "sinh({0})", "cosh": "cosh({0})", "tanh": "tanh({0})", "asinh": "asinh({0})", "acosh": "float_acosh({0})",
    "atanh": "float_atanh({0})", "degrees": "float_div({0}, 0.017453292519943295::DOUBLE)",
    "radians": "float_mul({0}, 0.017453292519943295::DOUBLE)",
    "sind": "float_sind({0})", "cosd": "float_cosd({0})", "tand": "float_tand({0})", "cotd": "float_cotd({0})",
    "asind": "float_asind({0})", "acosd": "float_acosd({0})", "atand": "float_atand({0})",
    "erf": "float_erf({0})", "erfc": "float_erfc({0})", "gamma": "float_gamma({0})", "lgamma": "float_lgamma({0})",
}  # fmt: skip

NUMBERS: dict[str, Template] = expanded(
    {
        "{int} + {int}": "({0} + {1})",
        "{int} - {int}": "({0} - {1})",
        "{int} * {int}": "({0} * {1})",
        "{int} / {int}": _divided("//", "int_div"),
        "{int} % {int}": _divided("%", "int_mod"),
        # Unlike a sign, a difference fails where the smallest number is negated.
        "- int2": "(0::SMALLINT - {0})",
        "- int4": "(0::INTEGER - {0})",
        "- int8": "(0::BIGINT - {0})",
        "+ {int}": "{0}",
        "abs({int})": "abs({0})",
        "@ {int}": "abs({0})",
        "mod({int}, {int})": _divided("%", "int_mod"),
        "{int} & {int}": "({0} & {1})",
        "{int} | {int}": "({0} | {1})",
        "{int} # {int}": "xor({0}, {1})",
        "~ {int}": "(~{0})",
        "int2 << int4": "int2_shift_left({0}, {1})",
        "int4 << int4": "int4_shift_left({0}, {1})",
        "int8 << int4": "int8_shift_left({0}, {1})",
        "int2 >> int4": "CAST(CAST({0} AS INTEGER) >> ({1} & 31) AS SMALLINT)",
        "int4 >> int4": "({0} >> ({1} & 31))",
        "int8 >> int4": "({0} >> ({1} & 63))",
        "gcd(int4, int4)": "as_int4(int_gcd({0}, {1}))",
        "gcd(int8, int8)": "as_int8(int_gcd({0}, {1}))",
        "lcm(int4, int4)": "as_int4(int_lcm({0}, {1}))",
        "lcm(int8, int8)": "as_int8(int_lcm({0}, {1}))",
        "factorial(int8)": "numeric_factorial({0})",
        "to_hex(int4)": "format('{{:x}}', unsigned4({0}))",
        "to_hex(int8)": "format('{{:x}}', unsigned8({0}))",
        "to_bin(int4)": "format('{{:b}}', unsigned4({0}))",
        "to_bin(int8)": "format('{{:b}}', unsigned8({0}))",
        "to_oct(int4)": "format('{{:o}}', unsigned4({0}))",
        "to_oct(int8)": "format('{{:o}}', unsigned8({0}))",
        "{float} + {float}": "float_add({0}, {1})",
        "{float} - {float}": "float_sub({0}, {1})",
        "{float} * {float}": "float_mul({0}, {1})",
        "{float} / {float}": "float_div({0}, {1})",
        "float8 ^ float8": "float_power({0}, {1})",
        "power(float8, float8)": "float_power({0}, {1})",
        "pow(float8, float8)": "float_power({0}, {1})",
        "dpow(float8, float8)": "float_power({0}, {1})",
        "|/ float8": "float_sqrt({0})",
        "||/ float8": "cbrt({0})",
        "- {float}": "(-{0})",
        "+ {float}": "{0}",
        "abs({float})": "abs({0})",
        "@ {float}": "abs({0})",
        "num_nulls(any)": _nulls("NULL"),
        "num_nonnulls(any)": _nulls("NOT NULL"),
        "pi()": "pi()",
        "atan2(float8, float8)": "atan2({0}, {1})",
        "atan2d(float8, float8)": "float_atan2d({0}, {1})",
        "random()": "random()",
        "random(int4, int4)": "CAST(random_between({0}, {1}) AS INTEGER)",
        "random(int8, int8)": "CAST(random_between({0}, {1}) AS BIGINT)",
        "random(numeric, numeric)": _random_numeric,
        "random_normal(float8, float8)": _random_normal,
        "width_bucket(float8, float8, float8, int4)": "float_width_bucket({0}, {1}, {2}, {3})",
        "width_bucket(numeric, numeric, numeric, int4)": of_texts("numeric_width_bucket"),
        "width_bucket(anycompatible, anycompatiblearray)": _bucket,
        **{f"{name}(float8)": template for name, template in _OF_FLOATS.items()},
        "numeric + numeric": of_numerics("({0} + {1})", "numeric_add"),
        "numeric - numeric": of_numerics("({0} - {1})", "numeric_sub"),
        "numeric * numeric": of_numerics("({0} * {1})", "numeric_mul"),
        "numeric / numeric": of_texts("numeric_div"),
        "numeric % numeric": of_numerics("decimal_mod({0}, {1})", "numeric_mod"),
        "numeric ^ numeric": of_texts("numeric_power"),
        "mod(numeric, numeric)": of_numerics("decimal_mod({0}, {1})", "numeric_mod"),
        "div(numeric, numeric)": of_texts("numeric_whole_div"),
        "- numeric": of_numerics("(-{0})", "numeric_neg"),
        "+ numeric": "{0}",
        "abs(numeric)": of_numerics("abs({0})", "numeric_abs"),
        "@ numeric": of_numerics("abs({0})", "numeric_abs"),
        "sign(numeric)": of_numerics("sign({0})", "numeric_sign"),
        "ceil(numeric)": _to_whole("ceil"),
        "ceiling(numeric)": _to_whole("ceil"),
        "floor(numeric)": _to_whole("floor"),
        "round(numeric)": _rounded,
        "round(numeric, int4)": _rounded,
        "trunc(numeric)": _truncated,
        "trunc(numeric, int4)": _truncated,
        "power(numeric, numeric)": of_texts("numeric_power"),
        "pow(numeric, numeric)": of_texts("numeric_power"),
        "sqrt(numeric)": of_texts("numeric_sqrt"),
        "exp(numeric)": of_texts("numeric_exp"),
        "ln(numeric)": of_texts("numeric_ln"),
        "log(numeric)": of_texts("numeric_log10"),
        "log10(numeric)": of_texts("numeric_log10"),
        "log(numeric, numeric)": of_texts("numeric_log"),
        "gcd(numeric, numeric)": of_texts("numeric_gcd"),
        "lcm(numeric, numeric)": of_texts("numeric_lcm"),
        "scale(numeric)": _scale,
        "min_scale(numeric)": of_texts("numeric_min_scale"),
        "trim_scale(numeric)": of_texts("numeric_trim_scale"),
        "numeric_inc(numeric)": lambda arguments, call: f"numeric_add({_as_texts(arguments, call)[0]}, '1')",
        "to_char(numeric, text)": of_texts("format_numeric"),
        "to_char(int4, text)": "format_integer({0}, {1}, 32)",
        "to_char(int8, text)": "format_integer({0}, {1}, 64)",
        "to_char(float4, text)": "format_float4({0}, {1})",
        "to_char(float8, text)": "format_float({0}, {1})",
        "to_number(text, text)": "read_number({0}, {1})",
    }
)
