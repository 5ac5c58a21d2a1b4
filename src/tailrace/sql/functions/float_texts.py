"""The text of a float as PostgreSQL prints it: the fewest digits that lie between the middles to both neighbours.

Other programs also accept a number that lies exactly in the middle, as 1e+23 does, where PostgreSQL prints one digit more.
"""

import math
from fractions import Fraction

import numpy as np

_DIGITS = {True: 9, False: 17}
_FIXED_DIGITS = {True: 6, False: 15}


def float4_text(value: float) -> str:
    return _text(value, is_float4=True)


def float8_text(value: float) -> str:
    return _text(value, is_float4=False)


def shortest_float4(value: float) -> float:
    """Return the double that is written as PostgreSQL writes this float4."""
    if not math.isfinite(value):
        return value
    kept = np.float32(value)
    short = float(str(kept))
    with np.errstate(over="ignore"):
        neighbour = float(np.nextafter(kept, np.float32(math.copysign(math.inf, short - value))))
    is_in_the_middle = short - value == neighbour - short
    return float(float4_text(value)) if is_in_the_middle else short


def _text(value: float, *, is_float4: bool) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if not value:
        return sign + "0"
    digits, exponent = _shortest(abs(value), is_float4=is_float4)
    if -4 <= exponent < _FIXED_DIGITS[is_float4]:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        whole = digits[: exponent + 1].ljust(exponent + 1, "0")
        fraction = digits[exponent + 1 :]
        return f"{sign}{whole}.{fraction}" if fraction else sign + whole
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def _shortest(value: float, *, is_float4: bool) -> tuple[str, int]:
    """Return the digits of a positive number, and the power of ten of the first."""
    exact = Fraction(value)
    low, high = _middles(value, exact, is_float4=is_float4)
    exponent = int(f"{value:.16e}".partition("e")[2])
    for count in range(1, _DIGITS[is_float4] + 1):
        unit = Fraction(10) ** (exponent - count + 1)
        below = exact // unit
        part = exact - below * unit
        is_down = part * 2 < unit or (part * 2 == unit and below % 2 == 0)
        for number in (below, below + 1) if is_down else (below + 1, below):
            if low < number * unit < high:
                text = str(number)
                return text.rstrip("0"), exponent + len(text) - count
    text = str(round(exact / Fraction(10) ** (exponent - _DIGITS[is_float4] + 1)))
    return text.rstrip("0"), exponent + len(text) - _DIGITS[is_float4]


def _middles(value: float, exact: Fraction, *, is_float4: bool) -> tuple[Fraction, Fraction]:
    if is_float4:
        one = np.float32(value)
        with np.errstate(over="ignore"):
            before, after = float(np.nextafter(one, np.float32(0))), float(np.nextafter(one, np.float32(math.inf)))
    else:
        before, after = math.nextafter(value, 0.0), math.nextafter(value, math.inf)
    low = (exact + Fraction(before)) / 2
    return low, (exact + Fraction(after)) / 2 if math.isfinite(after) else exact + (exact - low)
