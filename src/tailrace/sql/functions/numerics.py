"""Arithmetic on numerics whose scale depends on their values, with PostgreSQL's rules for the scale of a result.

Such a numeric is a text, as PostgreSQL prints it: digits without an exponent, `NaN`, `Infinity` or `-Infinity`.
"""

from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.input_texts import MAX_SCALE, MAX_WHOLE_DIGITS, read_text
from tailrace.sql.analysis.types import NUMERIC

MIN_SIGNIFICANT_DIGITS = 16
MAX_DISPLAY_SCALE = 1000
"""The largest scale that PostgreSQL chooses for a quotient, a root or a logarithm."""
_MAX_DECIMAL_DIGITS = 38
DIGITS_IN_WORD = 4
"""PostgreSQL computes in words of four decimal digits, and estimates the size of a quotient by them."""
EXACT = Context(prec=400_000, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""More digits than a numeric can have: sums and products are exact."""
ZERO = Decimal(0)
ONE = Decimal(1)
NAN = Decimal("NaN")
INFINITY = Decimal("Infinity")


class NumericError(Exception):
    """The message begins with PostgreSQL's code in brackets."""


def number_of(text: str) -> Decimal:
    """Return the value of a text that holds a numeric."""
    return Decimal(text)


def text_of(value: Decimal) -> str:
    """Return a numeric as PostgreSQL prints it."""
    if value.is_finite():
        if not value:
            value = value.copy_abs()
        elif value.adjusted() >= MAX_WHOLE_DIGITS:
            raise NumericError("[22003] value overflows numeric format")
    return "NaN" if value.is_nan() else format(value, "f")


def read_numeric(text: str) -> str:
    """Return the numeric that a text holds, as PostgreSQL reads it."""
    try:
        value = read_text(text, NUMERIC)
    except AnalysisError as error:
        raise NumericError(f"[{error.sqlstate}] {error.message}") from None
    return text_of(value) if isinstance(value, Decimal) else ""


def of_type(text: str, precision: int, scale: int) -> str:
    """Return a numeric as one of `numeric(precision, scale)`."""
    value = number_of(text)
    if value.is_nan():
        return text
    if value.is_infinite():
        raise NumericError("[22003] numeric field overflow")
    result = rounded(value, scale)
    if result and result.adjusted() >= precision - scale:
        raise NumericError("[22003] numeric field overflow")
    return text_of(result)


def scale_of(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def add(a: Decimal, b: Decimal) -> Decimal:
    return EXACT.add(a, b)


def subtract(a: Decimal, b: Decimal) -> Decimal:
    return EXACT.subtract(a, b)


def multiply(a: Decimal, b: Decimal) -> Decimal:
    result = EXACT.multiply(a, b)
    return at_scale(result, MAX_SCALE) if scale_of(result) > MAX_SCALE else result


def divide(a: Decimal, b: Decimal) -> Decimal:
    """Return the quotient with at least 16 significant digits, and no fewer digits after the point than either operand."""
    special = _special_quotient(a, b)
    return quotient(a, b, quotient_scale(a, b)) if special is None else special


def whole_quotient(a: Decimal, b: Decimal) -> Decimal:
    """Return the quotient without its fraction."""
    special = _special_quotient(a, b)
    return quotient(a, b, 0, ROUND_DOWN) if special is None else special


def _special_quotient(a: Decimal, b: Decimal) -> Decimal | None:
    if a.is_nan() or b.is_nan():
        return NAN
    if not b:
        raise NumericError("[22012] division by zero")
    if a.is_infinite():
        return NAN if b.is_infinite() else INFINITY.copy_sign(EXACT.multiply(a, b))
    return ZERO if b.is_infinite() else None


def quotient(a: Decimal, b: Decimal, scale: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return the quotient of finite numbers, rounded to a scale."""
    digits = max(a.adjusted() - b.adjusted() + scale, 0) + 3
    # Rounding down and keeping track of a remainder makes the second rounding exact.
    context = Context(prec=digits + 2, rounding="ROUND_05UP", Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
    return at_scale(context.divide(a, b), scale, rounding)


def remainder(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan() or (a.is_infinite() and b):
        return NAN
    if not b:
        raise NumericError("[22012] division by zero")
    if b.is_infinite():
        return a
    whole = quotient(a, b, 0, ROUND_DOWN)
    return at_scale(EXACT.subtract(a, EXACT.multiply(whole, b)), max(scale_of(a), scale_of(b)))


def at_scale(value: Decimal, scale: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    return value.quantize(ONE.scaleb(-scale, EXACT), rounding=rounding, context=EXACT)


def rounded(a: Decimal, digits: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return the number with so many digits after the point; a negative number of digits rounds before it."""
    if not a.is_finite():
        return a
    digits = min(max(digits, -MAX_WHOLE_DIGITS), MAX_SCALE)
    if digits >= 0:
        return at_scale(a, digits, rounding)
    return EXACT.plus(at_scale(a, digits, rounding)).quantize(ONE, context=EXACT)


def rounded_to_decimal(a: Decimal, digits: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return the number with so many digits after the point, if it then fits into a decimal of 38 digits."""
    result = rounded(a, digits, rounding)
    if not result.is_finite() or result.adjusted() + 1 + digits > _MAX_DECIMAL_DIGITS:
        raise NumericError(f"[0A000] the number {a:.20g} rounded to {digits} digits needs more than 38 digits")
    return result


def total(values: list[str]) -> Decimal:
    """Return the sum of numerics."""
    result = ZERO
    for value in values:
        result = EXACT.add(result, Decimal(value))
    return result


def extreme(values: list[str], *, is_greatest: bool, is_last: bool) -> str | None:
    """Return the greatest or least numeric; of equal ones the first or last. Nulls are passed over."""
    best: tuple[Decimal, str] | None = None
    for text in values:
        if text is None:
            continue
        value = Decimal(text)
        order = 0 if best is None else compare(value, best[0])
        if best is None or (is_last if order == 0 else (order > 0) is is_greatest):
            best = value, text
    return None if best is None else best[1]


def compare(a: Decimal, b: Decimal) -> int:
    """Return -1, 0 or 1. `NaN` is equal to itself and larger than all others."""
    if a.is_nan() or b.is_nan():
        return int(a.is_nan()) - int(b.is_nan())
    return (a > b) - (a < b)


def sort_key(text: str) -> bytes:
    """Return bytes that are ordered as the numbers are, and equal where they are equal."""
    value = Decimal(text)
    if not value.is_finite():
        return {"NaN": b"\x05", "Infinity": b"\x04"}.get(text, b"")
    if not value:
        return b"\x02"
    exponent = value.adjusted() + 100_000
    digits = "".join(map(str, value.copy_abs().as_tuple().digits)).rstrip("0").encode()
    if value > 0:
        return b"\x03" + exponent.to_bytes(4, "big") + digits
    return b"\x01" + (0xFFFF_FFFF - exponent).to_bytes(4, "big") + bytes(0x69 - digit for digit in digits) + b"\xff"


def quotient_scale(a: Decimal, b: Decimal) -> int:
    weight_a, first_a = leading_word(a)
    weight_b, first_b = leading_word(b)
    weight = weight_a - weight_b - (1 if first_a <= first_b else 0)
    scale = MIN_SIGNIFICANT_DIGITS - weight * DIGITS_IN_WORD
    return min(max(scale, scale_of(a), scale_of(b), 0), MAX_DISPLAY_SCALE)


def leading_word(value: Decimal) -> tuple[int, int]:
    """Return the place of the first word that is not zero, counted from the point, and that word."""
    if not value:
        return 0, 0
    place = value.adjusted() // DIGITS_IN_WORD
    word = int(value.copy_abs().scaleb(-place * DIGITS_IN_WORD, context=EXACT).to_integral_value(rounding=ROUND_DOWN))
    return place, word
