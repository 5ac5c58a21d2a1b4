"""The functions of numerics and doubles that DuckDB calls in Python."""

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Decimal
from functools import partial

from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.duckdb.vectorized import PythonFunction
from tailrace.sql.functions import float_functions, float_texts, number_formats, number_readers, numeric_functions, numerics
from tailrace.sql.functions.numerics import NumericError, text_of

_ONE = ("VARCHAR",)
_TWO = ("VARCHAR", "VARCHAR")
_NAMES = {16: "int2", 32: "int4", 64: "int8"}
_PRINTED = {16: "smallint", 32: "integer", 64: "bigint"}


def _of_one(name: str, operate: Callable[[Decimal], Decimal]) -> PythonFunction:
    return PythonFunction(name, lambda a: text_of(operate(Decimal(a))), _ONE, "VARCHAR")


def _of_two(name: str, operate: Callable[[Decimal, Decimal], Decimal]) -> PythonFunction:
    return PythonFunction(name, lambda a, b: text_of(operate(Decimal(a), Decimal(b))), _TWO, "VARCHAR")


def _comparison(name: str, test: Callable[[int], bool]) -> PythonFunction:
    return PythonFunction(name, lambda a, b: test(numerics.compare(Decimal(a), Decimal(b))), _TWO, "BOOLEAN")


def _rounding(name: str, operate: Callable[..., Decimal], *more: str) -> PythonFunction:
    return PythonFunction(name, lambda a, n: text_of(operate(Decimal(a), n, *more)), ("VARCHAR", "INTEGER"), "VARCHAR")


def _extreme(name: str, *, is_greatest: bool, is_last: bool) -> PythonFunction:
    call = partial(numerics.extreme, is_greatest=is_greatest, is_last=is_last)
    return PythonFunction(name, call, ("VARCHAR[]",), "VARCHAR")


def _integer(text: str, bits: int) -> int:
    """Return a numeric as an integer of so many bits."""
    value = Decimal(text)
    if not value.is_finite():
        raise NumericError(f"[0A000] cannot convert {'NaN' if value.is_nan() else 'infinity'} to {_PRINTED[bits]}")
    whole = int(numerics.rounded(value, 0))
    if not -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
        raise NumericError(f"[22003] {_PRINTED[bits]} out of range")
    return whole


def _read_integer(text: str, bits: int) -> int:
    return int(str(_read(text, _NAMES[bits])))


def _read(text: str, name: str) -> object:
    try:
        return read_text(text, SqlType(name))
    except AnalysisError as error:
        raise NumericError(f"[{error.sqlstate}] {error.message}") from None


def _read_float(text: str, name: str) -> float:
    return float(str(_read(text, name)))


def _scale(text: str) -> int | None:
    value = Decimal(text)
    return numerics.scale_of(value) if value.is_finite() else None


def _minimal_scale(text: str) -> int | None:
    value = Decimal(text)
    return numeric_functions.minimal_scale(value) if value.is_finite() else None


def _total(values: list[str | None]) -> str | None:
    found = [value for value in values if value is not None]
    return text_of(numerics.total(found)) if found else None


def _distinct(values: list[str | None]) -> list[str]:
    """Return the numbers without those that are equal to an earlier one."""
    return list({numerics.sort_key(value): value for value in reversed(values) if value is not None}.values())


def _average(values: list[str | None]) -> str | None:
    found = [value for value in values if value is not None]
    return text_of(numerics.divide(numerics.total(found), Decimal(len(found)))) if found else None


def _spread(values: list[str | None], kind: str) -> str | None:
    """Return the variance or standard deviation of numerics."""
    found = [Decimal(value) for value in values if value is not None]
    total = squares = Decimal(0)
    for value in found:
        total = numerics.add(total, value)
        squares = numerics.add(squares, numerics.EXACT.multiply(value, value))
    return _spread_of(len(found), total, squares, kind)


def _spread_of_sums(count: int, total: str, squares: str, kind: str) -> str | None:
    return _spread_of(count, Decimal(total), Decimal(squares), kind)


def _spread_of(count: int, total: Decimal, squares: Decimal, kind: str) -> str | None:
    is_sample = kind in ("stddev", "stddev_samp", "variance", "var_samp")
    result = numeric_functions.spread(count, total, squares, is_sample=is_sample, is_root=kind.startswith("stddev"))
    return None if result is None else text_of(result)


def _series(start: str, stop: str, step: str) -> list[str]:
    """Return the numbers of `generate_series`."""
    first, last, by = Decimal(start), Decimal(stop), Decimal(step)
    for value, name in ((first, "start value"), (last, "stop value"), (by, "step size")):
        if not value.is_finite():
            raise NumericError(f"[22023] {name} cannot be {'NaN' if value.is_nan() else 'infinity'}")
    if not by:
        raise NumericError("[22023] step size cannot equal zero")
    if numerics.EXACT.subtract(last, first) / by > _MAX_ROWS:
        raise NumericError(f"[0A000] a series of more than {_MAX_ROWS} rows is not supported")
    scale = max(numerics.scale_of(first), numerics.scale_of(by))
    result: list[str] = []
    value = numerics.at_scale(first, scale)
    while value <= last if by > 0 else value >= last:
        result.append(text_of(value if result else first))
        value = numerics.add(value, by)
    return result


_MAX_ROWS = 10_000_000

NUMBER_FUNCTIONS: Sequence[PythonFunction] = (
    _of_two("numeric_add", numerics.add),
    _of_two("numeric_sub", numerics.subtract),
    _of_two("numeric_mul", numerics.multiply),
    _of_two("numeric_div", numerics.divide),
    _of_two("numeric_whole_div", numerics.whole_quotient),
    _of_two("numeric_mod", numerics.remainder),
    _of_two("numeric_power", numeric_functions.power),
    _of_two("numeric_log", numeric_functions.logarithm),
    _of_two("numeric_gcd", numeric_functions.greatest_common_divisor),
    _of_two("numeric_lcm", numeric_functions.least_common_multiple),
    _comparison("numeric_eq", lambda order: order == 0),
    _comparison("numeric_ne", lambda order: order != 0),
    _comparison("numeric_lt", lambda order: order < 0),
    _comparison("numeric_le", lambda order: order <= 0),
    _comparison("numeric_gt", lambda order: order > 0),
    _comparison("numeric_ge", lambda order: order >= 0),
    _of_one("numeric_neg", Decimal.copy_negate),
    _of_one("numeric_abs", Decimal.copy_abs),
    _of_one("numeric_sqrt", numeric_functions.square_root),
    _of_one("numeric_exp", numeric_functions.exponential),
    _of_one("numeric_ln", numeric_functions.natural_logarithm),
    _of_one("numeric_log10", lambda a: numeric_functions.logarithm(Decimal(10), a)),
    _of_one("numeric_sign", numeric_functions.sign),
    _of_one("numeric_trim_scale", numeric_functions.trimmed),
    _rounding("numeric_round", numerics.rounded),
    _rounding("numeric_trunc", numerics.rounded, ROUND_DOWN),
    _rounding("numeric_ceil", numerics.rounded, ROUND_CEILING),
    _rounding("numeric_floor", numerics.rounded, ROUND_FLOOR),
    _rounding("decimal_round", numerics.rounded_to_decimal),
    _rounding("decimal_trunc", numerics.rounded_to_decimal, ROUND_DOWN),
    PythonFunction("numeric_scale", _scale, _ONE, "INTEGER"),
    PythonFunction("numeric_min_scale", _minimal_scale, _ONE, "INTEGER"),
    PythonFunction("numeric_factorial", lambda n: text_of(numeric_functions.factorial(n)), ("BIGINT",), "VARCHAR"),
    PythonFunction(
        "numeric_width_bucket",
        lambda a, low, high, count: numeric_functions.width_bucket(Decimal(a), Decimal(low), Decimal(high), count),
        ("VARCHAR", "VARCHAR", "VARCHAR", "INTEGER"),
        "INTEGER",
    ),
    PythonFunction("numeric_in", numerics.read_numeric, _ONE, "VARCHAR"),
    PythonFunction("numeric_typed", numerics.of_type, ("VARCHAR", "INTEGER", "INTEGER"), "VARCHAR"),
    PythonFunction("numeric_integer", _integer, ("VARCHAR", "INTEGER"), "BIGINT"),
    PythonFunction("integer_in", _read_integer, ("VARCHAR", "INTEGER"), "BIGINT"),
    PythonFunction("float_in", _read_float, _TWO, "DOUBLE"),
    PythonFunction("numeric_sort_key", numerics.sort_key, _ONE, "BLOB"),
    _extreme("numeric_greatest", is_greatest=True, is_last=False),
    _extreme("numeric_least", is_greatest=False, is_last=False),
    _extreme("numeric_max", is_greatest=True, is_last=True),
    _extreme("numeric_min", is_greatest=False, is_last=True),
    PythonFunction("numeric_sum", _total, ("VARCHAR[]",), "VARCHAR"),
    PythonFunction("numeric_avg", _average, ("VARCHAR[]",), "VARCHAR"),
    PythonFunction("numeric_distinct", _distinct, ("VARCHAR[]",), "VARCHAR[]"),
    PythonFunction("numeric_spread", _spread, ("VARCHAR[]", "VARCHAR"), "VARCHAR"),
    PythonFunction("numeric_spread_of", _spread_of_sums, ("BIGINT", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR"),
    PythonFunction("numeric_series", _series, ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[]"),
    PythonFunction("float_spread", float_functions.spread, ("DOUBLE[]", "VARCHAR"), "DOUBLE"),
    PythonFunction("float_regression", float_functions.regression, ("DOUBLE[]", "DOUBLE[]", "VARCHAR"), "DOUBLE"),
    PythonFunction("float4_sum", float_functions.float4_sum, ("DOUBLE[]",), "DOUBLE"),
    PythonFunction("float_width_bucket", float_functions.width_bucket, ("DOUBLE", "DOUBLE", "DOUBLE", "INTEGER"), "INTEGER"),
    *(PythonFunction(f"float_{name}", call, ("DOUBLE",), "DOUBLE") for name, call in float_functions.DEGREES.items()),
    PythonFunction("float_atan2d", float_functions.arc_tangent_of_two, ("DOUBLE", "DOUBLE"), "DOUBLE"),
    PythonFunction("float4_text", float_texts.float4_text, ("DOUBLE",), "VARCHAR"),
    PythonFunction("float8_long_text", float_texts.float8_text, ("DOUBLE",), "VARCHAR"),
    PythonFunction("float_erf", math.erf, ("DOUBLE",), "DOUBLE"),
    PythonFunction("float_erfc", math.erfc, ("DOUBLE",), "DOUBLE"),
    PythonFunction("format_numeric", number_formats.format_numeric, _TWO, "VARCHAR"),
    PythonFunction("format_integer", number_formats.format_integer, ("BIGINT", "VARCHAR", "INTEGER"), "VARCHAR"),
    PythonFunction("format_float", number_formats.format_float, ("DOUBLE", "VARCHAR"), "VARCHAR"),
    PythonFunction("format_float4", number_formats.format_float4, ("DOUBLE", "VARCHAR"), "VARCHAR"),
    PythonFunction("read_number", number_readers.read_number, _TWO, "VARCHAR"),
)
