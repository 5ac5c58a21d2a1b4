"""Aggregates and functions of doubles that compute as PostgreSQL does, to the last digit."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace.sql.functions.numeric_functions import check_buckets
from tailrace.sql.functions.numerics import NumericError

Doubles = npt.NDArray[np.float64]

_OVERFLOW = "[22003] value out of range: overflow"
_RADIANS = 0.0174532925199432957692
_SIN_30 = math.sin(30 * _RADIANS)
_ONE_MINUS_COS_60 = 1.0 - math.cos(60 * _RADIANS)
_ASIN_HALF = math.asin(0.5)
_ACOS_HALF = math.acos(0.5)
_ATAN_ONE = math.atan(1.0)


def spread(values: list[float | None], kind: str) -> float | None:
    """Return the variance or standard deviation, by the algorithm of Youngs and Cramer."""
    found = _doubles(values)
    count = len(found)
    is_sample = kind in ("stddev", "stddev_samp", "variance", "var_samp")
    if count == 0 or (is_sample and count == 1):
        return None
    _, squares, _ = _sums(found, found)
    result = squares / (count - 1 if is_sample else count)
    return math.sqrt(result) if kind.startswith("stddev") else result


def regression(ys: list[float | None], xs: list[float | None], kind: str) -> float | None:
    """Return a statistic of pairs of numbers. Where one of a pair is null, both are."""
    y, x = _doubles(ys), _doubles(xs)
    n = len(x)
    if n == 0 or (kind == "covar_samp" and n == 1):
        return None
    sx, sxx, sxy = _sums(x, y)
    sy, syy, _ = _sums(y, x)
    match kind:
        case "regr_sxx":
            return sxx
        case "regr_syy":
            return syy
        case "regr_sxy":
            return sxy
        case "regr_avgx":
            return sx / n
        case "regr_avgy":
            return sy / n
        case "covar_pop":
            return sxy / n
        case "covar_samp":
            return sxy / (n - 1)
    if sxx == 0 or (kind == "corr" and syy == 0):
        return None
    match kind:
        case "corr":
            return sxy / math.sqrt(sxx * syy)
        case "regr_r2":
            return 1.0 if syy == 0 else (sxy * sxy) / (sxx * syy)
        case "regr_slope":
            return sxy / sxx
    return (sy - sx * sxy / sxx) / n


def _doubles(values: list[float | None]) -> Doubles:
    return np.array([value for value in values if value is not None], np.float64)


def _sums(x: Doubles, y: Doubles) -> tuple[float, float, float]:
    """Return the sum of x, and the sums of squares and products of the differences from the means."""
    with np.errstate(all="ignore"):
        # `accumulate` adds one after the other, as an aggregate does.
        sums_x, sums_y = np.add.accumulate(x), np.add.accumulate(y)
        if len(x) == 1:
            squares = products = 0.0
        else:
            n = np.arange(2.0, len(x) + 1)
            from_x, from_y = x[1:] * n - sums_x[1:], y[1:] * n - sums_y[1:]
            if x is y:
                squares = products = float(np.add.accumulate(from_x * from_x / (n * (n - 1.0)))[-1])
            else:
                scale = 1.0 / (n * (n - 1.0))
                squares = float(np.add.accumulate(from_x * from_x * scale)[-1])
                products = float(np.add.accumulate(from_x * from_y * scale)[-1])
        total = float(sums_x[-1])
        is_finite = bool(np.isfinite(x).all())
        both_finite = is_finite and bool(np.isfinite(y).all())
    if (is_finite and not (math.isfinite(total) and math.isfinite(squares))) or (both_finite and not math.isfinite(products)):
        raise NumericError(_OVERFLOW)
    # Sums begin with zero, so that they are never minus zero.
    return total + 0.0, squares + 0.0 if is_finite else math.nan, products + 0.0 if both_finite else math.nan


def float4_sum(values: list[float | None]) -> float | None:
    """Return the sum of float4, each step of which is one."""
    found = np.array([value for value in values if value is not None], np.float32)
    if not len(found):
        return None
    with np.errstate(all="ignore"):
        result = float(np.add.accumulate(found)[-1])
    if not math.isfinite(result) and bool(np.isfinite(found).all()):
        raise NumericError(_OVERFLOW)
    return result


def width_bucket(a: float, low: float, high: float, count: int) -> int:
    """Return the number of the bucket, of `count` equal ones between two bounds."""
    check_buckets(count)
    if math.isnan(a) or math.isnan(low) or math.isnan(high):
        raise NumericError("[2201G] operand, lower bound, and upper bound cannot be NaN")
    if math.isinf(low) or math.isinf(high):
        raise NumericError("[2201G] lower and upper bounds must be finite")
    if low == high:
        raise NumericError("[2201G] lower bound cannot equal upper bound")
    if low > high:
        # Negation is exact, so the buckets of a falling range are those of a rising one.
        a, low, high = -a, -low, -high
    if a < low:
        return 0
    if a >= high:
        if count + 1 >= 2**31:
            raise NumericError("[22003] integer out of range")
        return count + 1
    width = high - low
    part = (a - low) / width if math.isfinite(width) else (a / 2 - low / 2) / (high / 2 - low / 2)
    return min(int(count * part), count - 1) + 1


def _sine(x: float) -> float:
    """Return the sine of 0 to 90 degrees."""
    return math.sin(x * _RADIANS) / _SIN_30 / 2.0 if x <= 30.0 else _near_cosine(90.0 - x)


def _cosine(x: float) -> float:
    return _near_cosine(x) if x <= 60.0 else math.sin((90.0 - x) * _RADIANS) / _SIN_30 / 2.0


def _near_cosine(x: float) -> float:
    return 1.0 - ((1.0 - math.cos(x * _RADIANS)) / _ONE_MINUS_COS_60) / 2.0


_TAN_45 = _sine(45.0) / _cosine(45.0)
_COT_45 = _cosine(45.0) / _sine(45.0)


def _of_degrees(function: str) -> Callable[[float], float]:
    """Return a trigonometric function of degrees, which is exact at the multiples of 30 or 45 degrees."""
    is_odd = function != "cosd"
    flips = function != "sind"

    def call(x: float) -> float:
        if math.isnan(x):
            return x
        if math.isinf(x):
            raise NumericError("[22003] input is out of range")
        x = math.fmod(x, 360.0)
        sign = 1
        if x < 0.0:
            x, sign = -x, -sign if is_odd else sign
        if x > 180.0:
            x, sign = 360.0 - x, -sign if is_odd else sign
        if x > 90.0:
            x, sign = 180.0 - x, -sign if flips else sign
        match function:
            case "sind":
                return sign * _sine(x)
            case "cosd":
                return sign * _cosine(x)
            case "tand":
                return sign * (_ratio(_sine(x), _cosine(x)) / _TAN_45) + 0.0
        return sign * (_ratio(_cosine(x), _sine(x)) / _COT_45) + 0.0

    return call


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.copysign(math.inf, b)


def _inverse(function: str) -> Callable[[float], float]:
    def call(x: float) -> float:
        if math.isnan(x):
            return x
        if not -1.0 <= x <= 1.0:
            raise NumericError("[22003] input is out of range")
        if function == "asind":
            return _arc_sine(x) if x >= 0.0 else -_arc_sine(-x)
        if x < 0.0:
            return 90.0 + _arc_sine(-x)
        return 90.0 - (math.asin(x) / _ASIN_HALF) * 30.0 if x <= 0.5 else (math.acos(x) / _ACOS_HALF) * 60.0

    return call


def _arc_sine(x: float) -> float:
    return (math.asin(x) / _ASIN_HALF) * 30.0 if x <= 0.5 else 90.0 - (math.acos(x) / _ACOS_HALF) * 60.0


def _arc_tangent(x: float) -> float:
    return (math.atan(x) / _ATAN_ONE) * 45.0


def arc_tangent_of_two(y: float, x: float) -> float:
    return (math.atan2(y, x) / _ATAN_ONE) * 45.0


DEGREES: dict[str, Callable[[Any], float]] = {
    **{name: _of_degrees(name) for name in ("sind", "cosd", "tand", "cotd")},
    **{name: _inverse(name) for name in ("asind", "acosd")},
    "atand": _arc_tangent,
}
"""The functions of degrees, by PostgreSQL's names."""
