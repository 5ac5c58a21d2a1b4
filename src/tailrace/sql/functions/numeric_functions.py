"""Roots, powers, logarithms and other functions of numerics, with the digits that PostgreSQL gives them."""

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache

from tailrace.sql.functions.numerics import (
    DIGITS_IN_WORD,
    EXACT,
    INFINITY,
    MAX_DISPLAY_SCALE,
    MIN_SIGNIFICANT_DIGITS,
    NAN,
    ONE,
    ZERO,
    NumericError,
    at_scale,
    compare,
    leading_word,
    multiply,
    quotient,
    quotient_scale,
    scale_of,
    text_of,
)

_MAX_RESULT_SCALE = 2000
_MAX_WHOLE_DIGITS = 131_072
_LOG10_E = 0.434294481903252
_LN_10 = 2.302585092994046
_GUARD_DIGITS = 10
_MAX_FACTORIAL = 32_177
_INT4 = 2**31


def square_root(a: Decimal) -> Decimal:
    if a.is_nan():
        return a
    if a < 0:
        raise NumericError("[2201F] cannot take square root of a negative number")
    if a.is_infinite():
        return a
    scale = _bounded(MIN_SIGNIFICANT_DIGITS - (leading_word(a)[0] * DIGITS_IN_WORD // 2 + 1), a)
    return _root(a, scale)


def _root(a: Decimal, scale: int) -> Decimal:
    """Return the square root, rounded to a scale."""
    # One digit more than needed decides how to round: a root is exact, or never lies in the middle.
    root = math.isqrt(int(a.scaleb(2 * scale + 2, context=EXACT)))
    return at_scale(Decimal((root + 5) // 10).scaleb(-scale, context=EXACT), scale)


def exponential(a: Decimal) -> Decimal:
    if a.is_nan() or a.is_infinite():
        return ZERO if a == -INFINITY else a
    value = max(min(float(a) * _LOG10_E, _MAX_RESULT_SCALE), -_MAX_RESULT_SCALE)
    return _exp(a, _bounded(MIN_SIGNIFICANT_DIGITS - int(value), a))


def _exp(a: Decimal, scale: int) -> Decimal:
    value = float(a)
    if abs(value) >= _MAX_RESULT_SCALE * 3:
        if value > 0:
            raise NumericError("[22003] value overflows numeric format")
        return at_scale(ZERO, scale)
    return at_scale(_context(max(int(value * _LOG10_E), 0) + scale + _GUARD_DIGITS).exp(a), scale)


def natural_logarithm(a: Decimal) -> Decimal:
    if a.is_nan():
        return a
    _check_logarithm(a)
    if a.is_infinite():
        return a
    return _ln(a, _bounded(MIN_SIGNIFICANT_DIGITS - _ln_weight(a), a))


def _check_logarithm(a: Decimal) -> None:
    if not a:
        raise NumericError("[2201E] cannot take logarithm of zero")
    if a < 0:
        raise NumericError("[2201E] cannot take logarithm of a negative number")


def _ln(a: Decimal, scale: int) -> Decimal:
    return at_scale(_context(scale + _GUARD_DIGITS + 6).ln(a), scale)


def _ln_weight(a: Decimal) -> int:
    """Return PostgreSQL's estimate of the place of the first digit of a logarithm."""
    if a <= 0:
        return 0
    if Decimal("0.9") <= a <= Decimal("1.1"):
        place, word = leading_word(EXACT.subtract(a, ONE))
        return place * DIGITS_IN_WORD + int(math.log10(word)) if word else 0
    place, words = leading_word(a)
    weight = place * DIGITS_IN_WORD
    two = int(a.scaleb(-weight + DIGITS_IN_WORD, context=EXACT))
    if a != Decimal(words).scaleb(weight, context=EXACT):
        words, weight = two, weight - DIGITS_IN_WORD
    return int(math.log10(abs(math.log(words) + weight * _LN_10)))


def logarithm(base: Decimal, a: Decimal) -> Decimal:
    """Return the logarithm to a base."""
    if base.is_nan() or a.is_nan():
        return NAN
    for one in sorted((base, a), reverse=False)[:1]:
        _check_logarithm(one)
    if base.is_infinite():
        return NAN if a.is_infinite() else ZERO
    if a.is_infinite():
        return a
    weight_base, weight = _ln_weight(base), _ln_weight(a)
    result = weight - weight_base
    scale = _bounded(MIN_SIGNIFICANT_DIGITS - result, base, a)
    divisor = _ln(base, max(scale + result - weight_base + 8, 0))
    if not divisor:
        raise NumericError("[22012] division by zero")
    return quotient(_ln(a, max(scale + result - weight + 8, 0)), divisor, scale)


def power(base: Decimal, exponent: Decimal) -> Decimal:
    if not base.is_finite() or not exponent.is_finite():
        return _special_power(base, exponent)
    is_whole = exponent == exponent.to_integral_value()
    if not base and exponent < 0:
        raise NumericError("[2201F] zero raised to a negative power is undefined")
    if base < 0 and not is_whole:
        raise NumericError("[2201F] a negative number raised to a non-integer power yields a complex result")
    if is_whole and -_INT4 <= exponent < _INT4:
        return _whole_power(base, int(exponent), scale_of(exponent))
    if not base:
        return at_scale(ZERO, MIN_SIGNIFICANT_DIGITS)
    is_negative = base < 0 and EXACT.remainder(exponent, Decimal(2)) != 0
    base = base.copy_abs()
    weight = _ln_weight(base)
    near = max(8 - weight, 0)
    estimate = at_scale(multiply(_ln(base, near), exponent), near)
    value = float(estimate)
    if abs(value) > _MAX_RESULT_SCALE * 3.01:
        if value > 0:
            raise NumericError("[22003] value overflows numeric format")
        return at_scale(ZERO, MAX_DISPLAY_SCALE)
    value *= _LOG10_E
    scale = _bounded(MIN_SIGNIFICANT_DIGITS - int(value), base, exponent)
    near = max(max(scale + int(value), 0) - weight + 8, 0)
    result = _exp(at_scale(multiply(_ln(base, near), exponent), near), scale)
    return result.copy_negate() if is_negative and result else result


def _whole_power(base: Decimal, exponent: int, exponent_scale: int) -> Decimal:
    size = 0.0
    if base:
        words, shift = _first_words(base)
        size = exponent * (math.log10(words) - shift)
    if size > _MAX_WHOLE_DIGITS:
        raise NumericError("[22003] value overflows numeric format")
    if size + 1 < -MAX_DISPLAY_SCALE:
        return at_scale(ZERO, MAX_DISPLAY_SCALE)
    scale = MIN_SIGNIFICANT_DIGITS - int(size)
    scale = min(max(scale, scale_of(base), exponent_scale, 0), MAX_DISPLAY_SCALE)
    if exponent == 0:
        return at_scale(ONE, scale)
    if not base:
        return at_scale(ZERO, scale)
    digits = max(int(size), 0) + scale + len(str(abs(exponent))) + _GUARD_DIGITS
    return at_scale(_context(digits).power(base, exponent), scale)


def _first_words(a: Decimal) -> tuple[int, int]:
    """Return the first four words of a number as an integer, and the places after the point that it has."""
    shift = (3 - leading_word(a)[0]) * DIGITS_IN_WORD
    words = int(a.copy_abs().scaleb(shift, context=EXACT))
    while words % 10**DIGITS_IN_WORD == 0:
        words //= 10**DIGITS_IN_WORD
        shift -= DIGITS_IN_WORD
    return words, shift


def _special_power(base: Decimal, exponent: Decimal) -> Decimal:
    """Return a power where one of the numbers is not finite."""
    if base.is_nan():
        return ONE if exponent == 0 else NAN
    if exponent.is_nan():
        return ONE if base == 1 else NAN
    if not base and exponent < 0:
        raise NumericError("[2201F] zero raised to a negative power is undefined")
    if base < 0 and exponent.is_finite() and exponent != exponent.to_integral_value():
        raise NumericError("[2201F] a negative number raised to a non-integer power yields a complex result")
    if base == 1 or not exponent:
        return ONE
    if not base:
        return ZERO
    if exponent.is_infinite():
        if base == -1:
            return ONE
        return INFINITY if (abs(base) > 1) == (exponent > 0) else ZERO
    if exponent < 0:
        return ZERO
    return -INFINITY if base < 0 and EXACT.remainder(exponent, Decimal(2)) != 0 else INFINITY


@lru_cache(64)
def factorial(n: int) -> Decimal:
    if n < 0:
        raise NumericError("[22003] factorial of a negative number is undefined")
    if n > _MAX_FACTORIAL:
        raise NumericError("[22003] value overflows numeric format")
    return Decimal(math.factorial(n))


def greatest_common_divisor(a: Decimal, b: Decimal) -> Decimal:
    if not a.is_finite() or not b.is_finite():
        return NAN
    scale = max(scale_of(a), scale_of(b))
    return at_scale(Decimal(math.gcd(_whole(a, scale), _whole(b, scale))).scaleb(-scale, context=EXACT), scale)


def least_common_multiple(a: Decimal, b: Decimal) -> Decimal:
    if not a.is_finite() or not b.is_finite():
        return NAN
    scale = max(scale_of(a), scale_of(b))
    return at_scale(Decimal(math.lcm(_whole(a, scale), _whole(b, scale))).scaleb(-scale, context=EXACT), scale)


def _whole(a: Decimal, scale: int) -> int:
    return int(a.scaleb(scale, context=EXACT))


def sign(a: Decimal) -> Decimal:
    return a if a.is_nan() else Decimal((a > 0) - (a < 0))


def minimal_scale(a: Decimal) -> int:
    """Return the digits after the point that are needed to print the number."""
    return scale_of(trimmed(a))


def trimmed(a: Decimal) -> Decimal:
    """Return the number without zeros at the end of its fraction."""
    text = text_of(a)
    return Decimal(text.rstrip("0").rstrip(".")) if "." in text else a


def width_bucket(a: Decimal, low: Decimal, high: Decimal, count: int) -> int:
    """Return the number of the bucket, of `count` equal ones between two bounds."""
    check_buckets(count)
    if a.is_nan() or low.is_nan() or high.is_nan():
        raise NumericError("[2201G] operand, lower bound, and upper bound cannot be NaN")
    if low.is_infinite() or high.is_infinite():
        raise NumericError("[2201G] lower and upper bounds must be finite")
    order = compare(low, high)
    if order == 0:
        raise NumericError("[2201G] lower bound cannot equal upper bound")
    if compare(a, low) == order:
        return 0
    if compare(a, high) != order:
        if count + 1 >= _INT4:
            raise NumericError("[22003] integer out of range")
        return count + 1
    part = EXACT.multiply(EXACT.subtract(a, low).copy_abs(), Decimal(count))
    return int(quotient(part, EXACT.subtract(high, low).copy_abs(), 0, "ROUND_DOWN")) + 1


def check_buckets(count: int) -> None:
    if count <= 0:
        raise NumericError("[2201G] count must be greater than zero")


def spread(count: int, total: Decimal, squares: Decimal, *, is_sample: bool, is_root: bool) -> Decimal | None:
    """Return the variance or standard deviation of `count` numbers, from their sum and the sum of their squares."""
    if count == 0 or (is_sample and count == 1):
        return None
    if not total.is_finite() or not squares.is_finite():
        return NAN
    n = Decimal(count)
    numerator = EXACT.subtract(EXACT.multiply(n, squares), EXACT.multiply(total, total))
    if numerator <= 0:
        return ZERO
    divisor = EXACT.multiply(n, n - 1 if is_sample else n)
    scale = quotient_scale(numerator, divisor)
    variance = quotient(numerator, divisor, scale)
    return _root(variance, scale) if is_root else variance


def _bounded(scale: int, *operands: Decimal) -> int:
    """Return the scale of a result: no less than that of its operands, and no more than PostgreSQL chooses."""
    return min(max(scale, *map(scale_of, operands), 0), MAX_DISPLAY_SCALE)


def _context(digits: int) -> Context:
    return Context(prec=max(digits, 28), rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
