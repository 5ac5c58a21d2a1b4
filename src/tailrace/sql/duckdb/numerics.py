"""Arithmetic on numerics whose scale depends on their values, with PostgreSQL's rules for the scale of a result."""

from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

_CONTEXT = Context(prec=2000, rounding=ROUND_HALF_UP, Emin=-999_999, Emax=999_999)
_MIN_SIGNIFICANT_DIGITS = 16
_MAX_SCALE = 1000
_DIGITS_IN_WORD = 4
"""PostgreSQL computes in words of four decimal digits, and estimates the size of a quotient by them."""


class NumericError(Exception):
    """The message begins with PostgreSQL's code in brackets."""


def scale_of(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def add(a: Decimal, b: Decimal) -> Decimal:
    return _CONTEXT.add(a, b)


def subtract(a: Decimal, b: Decimal) -> Decimal:
    return _CONTEXT.subtract(a, b)


def multiply(a: Decimal, b: Decimal) -> Decimal:
    return _CONTEXT.multiply(a, b)


def divide(a: Decimal, b: Decimal) -> Decimal:
    """Return the quotient with at least 16 significant digits, and no fewer digits after the point than either operand."""
    if not b:
        raise NumericError("[22012] division by zero")
    scale = _quotient_scale(a, b)
    return _CONTEXT.divide(a, b).quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=_CONTEXT)


def remainder(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise NumericError("[22012] division by zero")
    scale = max(scale_of(a), scale_of(b))
    whole = _CONTEXT.divide(a, b).to_integral_value(rounding=ROUND_DOWN)
    return _CONTEXT.subtract(a, _CONTEXT.multiply(whole, b)).quantize(Decimal(1).scaleb(-scale), context=_CONTEXT)


def rounded(a: Decimal, digits: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return the number with so many digits after the point; a negative number of digits rounds before it."""
    result = a.quantize(Decimal(1).scaleb(-digits), rounding=rounding, context=_CONTEXT)
    return result.quantize(Decimal(1), context=_CONTEXT) if digits < 0 else result


def _quotient_scale(a: Decimal, b: Decimal) -> int:
    weight_a, first_a = _leading_word(a)
    weight_b, first_b = _leading_word(b)
    weight = weight_a - weight_b - (1 if first_a <= first_b else 0)
    scale = _MIN_SIGNIFICANT_DIGITS - weight * _DIGITS_IN_WORD
    return min(max(scale, scale_of(a), scale_of(b), 0), _MAX_SCALE)


def _leading_word(value: Decimal) -> tuple[int, int]:
    """Return the place of the first word that is not zero, counted from the point, and that word."""
    if not value:
        return 0, 0
    place = value.adjusted() // _DIGITS_IN_WORD
    word = int(abs(value).scaleb(-place * _DIGITS_IN_WORD, context=_CONTEXT).to_integral_value(rounding=ROUND_DOWN))
    return place, word
