"""`to_char` and `to_number` for numbers, by the template patterns of PostgreSQL in the locale "C"."""

from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from tailrace.sql.functions.numerics import EXACT, NumericError, at_scale, multiply, rounded, text_of

_PATTERNS = ("EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", ",", ".", "0", "9", "B", "C", "D", "G", "L", "S", "V")
_MAX_FORMAT = 1_000
_MAX_ROMAN = 3999
_ROMAN_WIDTH = 15
_ROMAN = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
    (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip
_FLOAT4_DIGITS = 6
_FLOAT8_DIGITS = 15


class FormatItem(NamedTuple):
    pattern: str
    """The pattern in upper case; empty for a character that is copied."""
    text: str


@dataclass
class NumberFormat:
    """A parsed format: its items, and what they say about the number as a whole."""

    items: list[FormatItem] = field(default_factory=list)
    before: int = 0
    after: int = 0
    shifted: int = 0
    """The digits behind `V`."""
    zero_start: int = 0
    zero_end: int = 0
    sign_before: int = 0
    sign: str = ""
    """Where `S` stands: `before`, `after` or nowhere."""
    flags: frozenset[str] = frozenset()

    def has(self, flag: str) -> bool:
        return flag in self.flags


def _syntax(message: str) -> NumericError:
    return NumericError(f"[42601] {message}")


@lru_cache(256)
def parsed(text: str) -> NumberFormat:
    if len(text) > _MAX_FORMAT:
        raise NumericError(f"[0A000] a format of more than {_MAX_FORMAT} characters is not supported")
    result = NumberFormat()
    at = 0
    while at < len(text):
        rest = text[at:]
        found = next((one for one in _PATTERNS if rest.startswith((one, one.lower()))), None)
        if found is not None:
            written = rest[: len(found)]
            _note(result, found)
            result.items.append(FormatItem(found, written))
            at += len(found)
        elif rest[0] == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                if text[at] == "\\" and at + 1 < len(text):
                    at += 1
                result.items.append(FormatItem("", text[at]))
                at += 1
            at += 1
        else:
            if rest.startswith('\\"'):
                at += 1
            result.items.append(FormatItem("", text[at]))
            at += 1
    return result


def _note(form: NumberFormat, pattern: str) -> None:
    """Take note of what a pattern means for the whole number."""
    flags = set(form.flags)
    if "EEEE" in flags and pattern != "EEEE":
        raise _syntax('"EEEE" must be the last pattern used')
    if "S" in flags and pattern in ("MI", "PL", "SG", "S"):
        raise _syntax(f'cannot use "S" and "{pattern}" together')
    match pattern:
        case "9" | "0":
            if "PR" in flags:
                raise _syntax(f'"{pattern}" must be ahead of "PR"')
            if pattern == "9" and "V" in flags:
                form.shifted += 1
                return
            if pattern == "0" and "0" not in flags and "." not in flags:
                flags.add("0")
                form.zero_start = form.before + 1
            if "." in flags:
                form.after += 1
            else:
                form.before += 1
            if pattern == "0":
                form.zero_end = form.before + form.after
        case "B":
            if not form.before and not form.after and "0" not in flags:
                flags.add("B")
        case "D" | ".":
            if "." in flags:
                raise _syntax("multiple decimal points")
            if "V" in flags:
                raise _syntax('cannot use "V" and decimal point together')
            flags.add(".")
        case "S":
            if flags & {"PL", "MI", "PR"}:
                raise _syntax('cannot use "S" and "PL"/"MI"/"SG"/"PR" together')
            flags.add("S")
            form.sign = "after" if "." in flags else "before"
            form.sign_before = form.before
        case "SG":
            flags |= {"MI", "PL"}
        case "PR" if flags & {"S", "PL", "MI"}:
            raise _syntax('cannot use "PR" and "S"/"PL"/"MI"/"SG" together')
        case "RN" if "RN" in flags:
            raise _syntax('cannot use "RN" twice')
        case "V" if "." in flags:
            raise _syntax('cannot use "V" and decimal point together')
        case "EEEE":
            if "EEEE" in flags:
                raise _syntax('cannot use "EEEE" twice')
            if flags & {"B", "FM", "S", "PR", "MI", "PL", "RN", "V"}:
                raise _syntax('"EEEE" is incompatible with other formats')
            flags.add("EEEE")
        case "MI" | "PL" | "PR" | "FM" | "RN" | "V":
            flags.add(pattern)
    if pattern in ("PR", "RN", "V"):
        flags.add(pattern)
    if "RN" in flags and flags - {"RN", "FM"}:
        raise _syntax('"RN" is incompatible with other formats')
    form.flags = frozenset(flags)


def format_numeric(text: str, form_text: str) -> str:
    """Return `to_char(numeric, format)`."""
    if not form_text:
        return ""
    form = parsed(form_text)
    value = Decimal(text)
    if form.has("RN"):
        return _written(form, _roman(int(rounded(value, 0)) if value.is_finite() else 0), 0, form.before, "")
    if form.has("EEEE"):
        if not value.is_finite():
            return _scientific("", form, False)
        # As in PostgreSQL, a mantissa that rounding makes 10 stays so.
        exponent = value.adjusted() if value else 0
        mantissa = at_scale(value.scaleb(-exponent, EXACT), form.after)
        return _scientific(f"{mantissa:+f}e{exponent:+03}", form, True)
    if form.has("V"):
        value = multiply(value, Decimal(10) ** form.shifted)
    return _laid_out(form, text_of(rounded(value, form.after)), form.after)


def format_integer(value: int, form_text: str, bits: int) -> str:
    """Return `to_char(integer, format)`."""
    if not form_text:
        return ""
    form = parsed(form_text)
    if form.has("RN"):
        return _written(form, _roman(value), 0, form.before, "")
    if form.has("EEEE"):
        if bits == 32:
            return _scientific(f"{float(value):+.{form.after}e}", form, True)
        return format_numeric(str(value), form_text)
    if form.has("V"):
        value *= 10**form.shifted
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise NumericError("[0A000] to_char: the number shifted by V is too large")
    digits = str(value)
    return _laid_out(form, f"{digits}.{'0' * form.after}" if form.after else digits, form.after)


def format_float(value: float, form_text: str, digits: int = _FLOAT8_DIGITS) -> str:
    """Return `to_char(double precision, format)`."""
    if not form_text:
        return ""
    form = parsed(form_text)
    is_finite = value - value == 0
    if form.has("RN"):
        return _written(form, _roman(round(value) if is_finite else 0), 0, form.before, "")
    if form.has("EEEE"):
        return _scientific(f"{value:+.{form.after}e}", form, is_finite)
    if form.has("V"):
        value *= 10.0**form.shifted
    whole = len(f"{abs(value):.0f}") if is_finite else len("Infinity") if abs(value) > 0 else len("NaN")
    after = 0 if whole >= digits else min(form.after, digits - whole)
    if not is_finite:
        text = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return _laid_out(form, text, after)
    return _laid_out(form, f"{value:.{after}f}", after)


def format_float4(value: float, form_text: str) -> str:
    return format_float(value, form_text, _FLOAT4_DIGITS)


def _scientific(text: str, form: NumberFormat, is_finite: bool) -> str:
    if not is_finite:
        return " " + "#" * form.before + "." + "#" * (form.after + 4)
    mantissa, _, exponent = text.lower().partition("e")
    mantissa = " " + mantissa[1:] if mantissa[0] == "+" else mantissa
    return f"{mantissa}e{exponent[0]}{exponent[1:].zfill(2)}"


def _roman(value: int) -> str:
    if not 1 <= value <= _MAX_ROMAN:
        return "#" * _ROMAN_WIDTH
    text = ""
    for size, letters in _ROMAN:
        count, value = divmod(value, size)
        text += letters * count
    return text


def _laid_out(form: NumberFormat, text: str, after: int) -> str:
    """Return a number that is written with its sign, in the places of the format."""
    sign = "-" if text.startswith("-") else "+"
    digits = text.removeprefix("-")
    whole = len(digits.partition(".")[0])
    before = form.before + (form.shifted if form.has("V") else 0)
    spaces = max(before - whole, 0)
    if whole > before:
        marks = "#" * (before + after + 1)
        digits = marks[:before] + "." + marks[before + 1 :]
    return _written(form, digits, spaces, before, sign, after)


def _written(form: NumberFormat, digits: str, spaces: int, before: int, sign: str, after: int | None = None) -> str:
    return _Writer(form, digits, spaces, before, sign, form.after if after is None else after).run()


class _Writer:
    """Fills one number into a format. `at` is the place in its digits, `place` that in the format."""

    def __init__(self, form: NumberFormat, digits: str, spaces: int, before: int, sign: str, after: int) -> None:
        self._form = form
        self._digits = digits
        self._spaces = spaces
        self._sign = sign
        self._after = after
        self._fill = form.has("FM")
        self._zero_start = max(form.zero_start - 1, 0)
        self._bracket = form.has("PR")
        self._sign_at = form.sign
        self._out: list[str] = []
        self._at = 0
        self._place = 0
        self._in_number = False
        self._last: int | None = None
        if form.has("PL") or form.has("MI"):
            self._sign_done = form.has("MI")
        else:
            self._bracket = self._bracket and not (sign != "-" and self._fill)
            self._sign_done = sign == "+" and self._fill and not form.has("S")
            if form.sign == "before" and before == form.sign_before:
                self._sign_at = "after"
        self._count = after + before - 1
        if self._fill and form.has("."):
            self._last = self._last_relevant()
        if not self._sign_done and not spaces:
            self._count += 1

    def _last_relevant(self) -> int | None:
        point = self._digits.find(".")
        if point < 0:
            return None
        last = max(point, len(self._digits.rstrip("0")) - 1)
        if self._form.zero_end > self._spaces:
            last = max(last, min(len(self._digits) - 1, self._form.zero_end - self._spaces))
        return last

    def run(self) -> str:
        for item in self._form.items:
            self._item(item)
        # Where the digits of the number do not reach the end of the format, the text ends.
        return "".join(self._out).partition("\0")[0]

    def _item(self, item: FormatItem) -> None:
        out = self._out
        is_negative = self._sign == "-"
        match item.pattern:
            case "":
                out.append(item.text)
            case "9" | "0" | "." | "D":
                self._number(item.pattern)
            case "," | "G":
                if self._in_number:
                    out.append(",")
                elif not self._fill:
                    out.append(" ")
            case "L":
                out.append(" ")
            case "RN":
                text = self._digits.lower() if item.text == "rn" else self._digits
                out.append(text if self._fill else text.rjust(_ROMAN_WIDTH))
            case "TH":
                if not (self._form.has("RN") or self._digits[:1] == "#" or is_negative or self._form.has(".")):
                    ending = _ordinal(self._digits)
                    out.append(ending.upper() if item.text == "TH" else ending)
            case "MI":
                out.append("-" if is_negative else "" if self._fill else " ")
            case "PL":
                out.append("+" if not is_negative else "" if self._fill else " ")
            case "SG":
                out.append(self._sign)

    def _is_bare_zero(self) -> bool:
        """Return whether the next digit is the zero before a point, which is not written."""
        return not self._form.has("0") and self._at == 0 and self._digits.startswith("0") and self._after != 0

    def _number(self, pattern: str) -> None:
        if self._form.has("RN"):
            return
        form, out = self._form, self._out
        self._in_number = False
        has_zero = form.has("0")
        ends_at_point = self._last is not None and self._digits[self._last] == "."
        if (
            not self._sign_done
            and (self._place >= self._spaces or (has_zero and self._zero_start == self._place))
            and (not self._is_bare_zero() or ends_at_point)
        ):
            self._write_sign()
        if self._place < self._spaces:
            if not has_zero or self._zero_start > self._place:
                out.append("" if self._fill else " ")
            else:
                out.append("0")
                self._in_number = True
        else:
            self._digit(pattern, ends_at_point)
        end = self._count + (1 if self._spaces else 0) + (1 if form.has(".") else 0)
        if self._last is not None and self._last == self._at:
            end = self._place
        if self._place + 1 == end:
            if self._sign_done and self._bracket:
                out.append(" " if self._sign == "+" else ">")
            elif form.has("S") and self._sign_at == "after":
                out.append(self._sign)
        self._place += 1

    def _digit(self, pattern: str, ends_at_point: bool) -> None:
        out = self._out
        char = self._digits[self._at] if self._at < len(self._digits) else ""
        if char == ".":
            if not ends_at_point or self._fill:
                out.append(".")
        elif self._last is not None and self._at > self._last and pattern != "0":
            pass
        elif self._is_bare_zero():
            out.append(" " if not self._fill else "0" if ends_at_point else "")
        else:
            out.append(char or "\0")
            self._in_number = True
        if char:
            self._at += 1

    def _write_sign(self) -> None:
        if self._form.has("S"):
            if self._sign_at == "before":
                self._out.append(self._sign)
                self._sign_done = True
            return
        if self._bracket:
            self._out.append(" " if self._sign == "+" else "<")
        elif self._sign == "+":
            self._out.append("" if self._fill else " ")
        else:
            self._out.append("-")
        self._sign_done = True


def _ordinal(digits: str) -> str:
    if not digits[-1:].isdigit():
        raise NumericError(f'[22P02] "{digits}" is not a number')
    if digits[-2:-1] == "1":
        return "th"
    return {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1:], "th")
