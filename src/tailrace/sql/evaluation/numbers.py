"""Numbers: arithmetic, rounding and mathematical functions."""

import math
from bisect import bisect_right
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from random import SystemRandom
from typing import Any

from tailrace.sql.analysis.tree import Call
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.evaluation.casts import RANGES, as_real
from tailrace.sql.evaluation.comparisons import sort_key
from tailrace.sql.evaluation.functions import ByCall, Entry, EvaluationError, Function, TakesNulls, coded, expanded
from tailrace.sql.functions import float_functions, number_formats, number_readers, numeric_functions, numerics

_random = SystemRandom()


def _ranged(operate: Callable[..., int]) -> ByCall:
    """Return an entry that fails where the result is out of the range of its type."""

    def make(call: Call) -> Function:
        low, high = RANGES[call.type.name]
        name = str(call.type)

        def function(*values: int) -> int:
            result = operate(*values)
            if low <= result <= high:
                return result
            raise EvaluationError("22003", f"{name} out of range")

        return function

    return ByCall(make)


def division_by_zero() -> EvaluationError:
    return EvaluationError("22012", "division by zero")


def _quotient(a: int, b: int) -> int:
    if not b:
        raise division_by_zero()
    result = abs(a) // abs(b)
    return result if (a < 0) == (b < 0) else -result


def _remainder(a: int, b: int) -> int:
    return a - b * _quotient(a, b)


def _shift(call: Call) -> Function:
    """Return a shift in the width of the type; only the low bits of the distance count."""
    _, high = RANGES[call.type.name]
    bits = (high + 1).bit_length()
    # PostgreSQL's int2 is shifted as an int of C.
    width = max(bits, 32)
    is_left = call.signature.name == "<<"

    def shift(value: int, distance: int) -> int:
        distance %= width
        if not is_left:
            return value >> distance
        result = (value << distance) & ((1 << bits) - 1)
        return result - (1 << bits) if result > high else result

    return shift


def _float(operate: Callable[[float, float], float]) -> ByCall:
    """Return an entry that fails where a finite result has become infinite or zero."""

    def make(call: Call) -> Function:
        fit = as_real if call.type.name == "float4" else _same

        def function(a: float, b: float) -> float:
            return fit(operate(a, b))

        return function

    return ByCall(make)


def _same(value: Any) -> Any:
    return value


def _overflow() -> EvaluationError:
    return EvaluationError("22003", "value out of range: overflow")


def _underflow() -> EvaluationError:
    return EvaluationError("22003", "value out of range: underflow")


def _float_sum(a: float, b: float) -> float:
    result = a + b
    if math.isinf(result) and not math.isinf(a) and not math.isinf(b):
        raise _overflow()
    return result


def _float_difference(a: float, b: float) -> float:
    return _float_sum(a, -b)


def _float_product(a: float, b: float) -> float:
    result = a * b
    if math.isinf(result) and not math.isinf(a) and not math.isinf(b):
        raise _overflow()
    if result == 0 and a and b:
        raise _underflow()
    return result


def _float_quotient(a: float, b: float) -> float:
    if b == 0:
        if a != a:
            return a
        raise division_by_zero()
    result = a / b
    if math.isinf(result) and not math.isinf(a):
        raise _overflow()
    if result == 0 and a and not math.isinf(b):
        raise _underflow()
    return result


def float_power(a: float, b: float) -> float:
    if a == 0 and b < 0:
        raise EvaluationError("2201F", "zero raised to a negative power is undefined")
    if a < 0 and math.isfinite(b) and b != math.floor(b):
        raise EvaluationError("2201F", "a negative number raised to a non-integer power yields a complex result")
    try:
        result = math.pow(a, b)
    except OverflowError:
        raise _overflow() from None
    if result == 0 and a and math.isfinite(a) and math.isfinite(b):
        raise _underflow()
    return result


def _endless(operate: Callable[[float], float]) -> Function:
    """Return a function that is infinite where it would overflow."""

    def function(value: float) -> float:
        try:
            return operate(value)
        except OverflowError:
            return math.copysign(math.inf, operate(math.copysign(1.0, value)))

    return function


def _of_float(operate: Callable[[float], float], *, can_underflow: bool = False) -> Function:
    def function(value: float) -> float:
        try:
            result = operate(value)
        except OverflowError:
            raise _overflow() from None
        except ValueError:
            raise EvaluationError("22003", "input is out of range") from None
        if can_underflow and result == 0 and math.isfinite(value):
            raise _underflow()
        return result

    return function


def _logarithm(operate: Callable[[float], float]) -> Function:
    def function(value: float) -> float:
        if value == 0:
            raise EvaluationError("2201E", "cannot take logarithm of zero")
        if value < 0:
            raise EvaluationError("2201E", "cannot take logarithm of a negative number")
        return operate(value)

    return function


def _float_root(value: float) -> float:
    if value < 0:
        raise EvaluationError("2201F", "cannot take square root of a negative number")
    return math.sqrt(value)


def _cube_root(value: float) -> float:
    return math.cbrt(value)


def _float_sign(value: float) -> float:
    return float((value > 0) - (value < 0))


def _rounded_float(value: float) -> float:
    return math.copysign(float(round(value)), value) if math.isfinite(value) else value


def _truncated_float(value: float) -> float:
    return math.copysign(float(math.trunc(value)), value) if math.isfinite(value) else value


def _ceiling_float(value: float) -> float:
    return math.copysign(float(math.ceil(value)), value) if math.isfinite(value) else value


def _floor_float(value: float) -> float:
    return math.copysign(float(math.floor(value)), value) if math.isfinite(value) else value


def of_numerics(operate: Callable[..., Any]) -> Function:
    """Return a function of numerics whose zero and NaN have no sign."""

    def function(*values: Any) -> Any:
        result = operate(*values)
        return result.copy_abs() if isinstance(result, Decimal) and (not result or result.is_nan()) else result

    return coded(function)


def _to_whole(rounding: str) -> Function:
    return of_numerics(lambda value: numerics.rounded(value, 0, rounding))


def _log10(value: Decimal) -> Decimal:
    return numeric_functions.logarithm(Decimal(10), value)


def _bucket_of(call: Call) -> Function:
    """Return `width_bucket` of an array of thresholds in order."""
    key = sort_key(call.arguments[0].type)

    def bucket(value: Any, thresholds: list[Any]) -> int:
        if None in thresholds:
            raise EvaluationError("22004", "thresholds array must not contain NULLs")
        return bisect_right([key(one) for one in thresholds], key(value))

    return bucket


def _formatted(value: Decimal, form: str) -> str:
    return number_formats.format_numeric(format(value, "f"), form)


def _integer_formatter(bits: int) -> Function:
    return coded(lambda value, form: number_formats.format_integer(value, form, bits))


def _read_number(text: str, form: str) -> Decimal | None:
    found = number_readers.read_number(text, form)
    return None if found is None else Decimal(found)


def _in_base(base: str) -> ByCall:
    def make(call: Call) -> Function:
        bits = 64 if call.arguments[0].type.name == "int8" else 32
        return lambda value: format(value & ((1 << bits) - 1), base)

    return ByCall(make)


def _type_name(call: Call) -> Function:
    given: SqlType = call.arguments[0].type
    return lambda value: str(given)


def _random_between(low: int, high: int) -> int:
    if low > high:
        raise EvaluationError("22023", "lower bound must be less than or equal to upper bound")
    return _random.randint(low, high)


NUMBERS: dict[str, Entry] = expanded(
    {
        "{int} + {int}": _ranged(lambda a, b: a + b),
        "{int} - {int}": _ranged(lambda a, b: a - b),
        "{int} * {int}": _ranged(lambda a, b: a * b),
        "{int} / {int}": _ranged(_quotient),
        "{int} % {int}": _remainder,
        "mod({int}, {int})": _remainder,
        "- {int}": _ranged(lambda a: -a),
        "+ {int}": _same,
        "+ {float}": _same,
        "+ numeric": _same,
        "@ {int}": _ranged(abs),
        "abs({int})": _ranged(abs),
        "{int} & {int}": lambda a, b: a & b,
        "{int} | {int}": lambda a, b: a | b,
        "{int} # {int}": lambda a, b: a ^ b,
        "~ {int}": lambda a: ~a,
        "{int} << int4": ByCall(_shift),
        "{int} >> int4": ByCall(_shift),
        "gcd({int}, {int})": _ranged(math.gcd),
        "lcm({int}, {int})": _ranged(math.lcm),
        "{float} + {float}": _float(_float_sum),
        "{float} - {float}": _float(_float_difference),
        "{float} * {float}": _float(_float_product),
        "{float} / {float}": _float(_float_quotient),
        "float8 ^ float8": float_power,
        "power(float8, float8)": float_power,
        "pow(float8, float8)": float_power,
        "- {float}": lambda a: -a,
        "@ {float}": abs,
        "abs({float})": abs,
        "|/ float8": _float_root,
        "sqrt(float8)": _float_root,
        "||/ float8": _cube_root,
        "cbrt(float8)": _cube_root,
        "round(float8)": _rounded_float,
        "trunc(float8)": _truncated_float,
        "ceil(float8)": _ceiling_float,
        "ceiling(float8)": _ceiling_float,
        "floor(float8)": _floor_float,
        "sign(float8)": _float_sign,
        "exp(float8)": _of_float(math.exp, can_underflow=True),
        "ln(float8)": _logarithm(math.log),
        "log(float8)": _logarithm(math.log10),
        "log10(float8)": _logarithm(math.log10),
        "sin(float8)": _of_float(math.sin),
        "cos(float8)": _of_float(math.cos),
        "tan(float8)": _of_float(math.tan),
        "cot(float8)": _of_float(lambda value: 1.0 / math.tan(value) if value else math.copysign(math.inf, value)),
        "asin(float8)": _of_float(math.asin),
        "acos(float8)": _of_float(math.acos),
        "atan(float8)": _of_float(math.atan),
        "atan2(float8, float8)": math.atan2,
        "sinh(float8)": _endless(math.sinh),
        "cosh(float8)": _endless(math.cosh),
        "asinh(float8)": math.asinh,
        "acosh(float8)": _of_float(math.acosh),
        "atanh(float8)": _of_float(lambda value: math.copysign(math.inf, value) if abs(value) == 1 else math.atanh(value)),
        "tanh(float8)": _of_float(math.tanh),
        "degrees(float8)": lambda value: _float_quotient(value, 0.0174532925199432957692),
        "radians(float8)": lambda value: _float_product(value, 0.0174532925199432957692),
        **{f"{name}(float8)": coded(function) for name, function in float_functions.DEGREES.items()},
        "atan2d(float8, float8)": float_functions.arc_tangent_of_two,
        "erf(float8)": math.erf,
        "erfc(float8)": math.erfc,
        "pi()": lambda: math.pi,
        "random()": _random.random,
        "random(int4, int4)": _random_between,
        "random(int8, int8)": _random_between,
        "random_normal(float8, float8)": _random.normalvariate,
        "numeric + numeric": of_numerics(numerics.add),
        "numeric - numeric": of_numerics(numerics.subtract),
        "numeric * numeric": of_numerics(numerics.multiply),
        "numeric / numeric": of_numerics(numerics.divide),
        "numeric % numeric": of_numerics(numerics.remainder),
        "mod(numeric, numeric)": of_numerics(numerics.remainder),
        "div(numeric, numeric)": of_numerics(numerics.whole_quotient),
        "- numeric": of_numerics(lambda value: value.copy_negate()),
        "@ numeric": Decimal.copy_abs,
        "abs(numeric)": Decimal.copy_abs,
        "sign(numeric)": numeric_functions.sign,
        "numeric ^ numeric": of_numerics(numeric_functions.power),
        "power(numeric, numeric)": of_numerics(numeric_functions.power),
        "pow(numeric, numeric)": of_numerics(numeric_functions.power),
        "sqrt(numeric)": of_numerics(numeric_functions.square_root),
        "exp(numeric)": of_numerics(numeric_functions.exponential),
        "ln(numeric)": of_numerics(numeric_functions.natural_logarithm),
        "log(numeric)": of_numerics(_log10),
        "log10(numeric)": of_numerics(_log10),
        "log(numeric, numeric)": of_numerics(numeric_functions.logarithm),
        "gcd(numeric, numeric)": of_numerics(numeric_functions.greatest_common_divisor),
        "lcm(numeric, numeric)": of_numerics(numeric_functions.least_common_multiple),
        "to_char(numeric, text)": coded(_formatted),
        "to_char(int4, text)": _integer_formatter(32),
        "to_char(int8, text)": _integer_formatter(64),
        "to_char(float4, text)": coded(number_formats.format_float4),
        "to_char(float8, text)": coded(number_formats.format_float),
        "to_number(text, text)": coded(_read_number),
        "width_bucket(anycompatible, anycompatiblearray)": ByCall(_bucket_of),
        "round(numeric)": _to_whole(ROUND_HALF_UP),
        "trunc(numeric)": _to_whole(ROUND_DOWN),
        "ceil(numeric)": _to_whole(ROUND_CEILING),
        "ceiling(numeric)": _to_whole(ROUND_CEILING),
        "floor(numeric)": _to_whole(ROUND_FLOOR),
        "round(numeric, int4)": of_numerics(numerics.rounded),
        "trunc(numeric, int4)": of_numerics(lambda value, digits: numerics.rounded(value, digits, ROUND_DOWN)),
        "scale(numeric)": lambda value: numerics.scale_of(value) if value.is_finite() else None,
        "min_scale(numeric)": lambda value: numeric_functions.minimal_scale(value) if value.is_finite() else None,
        "trim_scale(numeric)": of_numerics(numeric_functions.trimmed),
        "numeric_inc(numeric)": of_numerics(lambda value: numerics.add(value, Decimal(1))),
        "factorial(int8)": coded(numeric_functions.factorial),
        "width_bucket(numeric, numeric, numeric, int4)": coded(numeric_functions.width_bucket),
        "width_bucket(float8, float8, float8, int4)": coded(float_functions.width_bucket),
        "to_hex(int4)": _in_base("x"),
        "to_hex(int8)": _in_base("x"),
        "to_oct(int4)": _in_base("o"),
        "to_oct(int8)": _in_base("o"),
        "to_bin(int4)": _in_base("b"),
        "to_bin(int8)": _in_base("b"),
        "num_nulls(any)": TakesNulls(lambda *values: sum(value is None for value in values)),
        "num_nonnulls(any)": TakesNulls(lambda *values: sum(value is not None for value in values)),
        "pg_typeof(any)": ByCall(_type_name, is_strict=False),
    }
)
