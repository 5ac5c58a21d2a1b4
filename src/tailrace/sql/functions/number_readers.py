"""`to_number`: reads a number by the template patterns of PostgreSQL in the locale "C"."""

from decimal import Decimal

from tailrace.sql.functions.number_formats import NumberFormat, parsed
from tailrace.sql.functions.numeric_functions import power
from tailrace.sql.functions.numerics import NumericError, multiply, of_type, read_numeric, text_of

_DATA = "0123456789.,+-"


def read_number(text: str, form_text: str) -> str | None:
    """Return `to_number(text, format)`."""
    if not form_text:
        return None
    form = parsed(form_text)
    if form.has("EEEE"):
        raise NumericError('[0A000] "EEEE" not supported for input')
    if form.has("RN"):
        raise NumericError('[0A000] to_number with "RN" is not supported')
    reader = _Reader(form, text)
    digits = reader.run()
    result = of_type(read_numeric(digits), form.before + form.shifted + reader.read_after, reader.read_after)
    if form.has("V"):
        result = text_of(multiply(Decimal(result), power(Decimal(10), Decimal(-form.shifted))))
    return result


class _Reader:
    def __init__(self, form: NumberFormat, text: str) -> None:
        self._form = form
        # Patterns read bytes; a character that they skip may have several.
        self._text = text.encode().decode("latin-1")
        self._at = 0
        self._sign = " "
        self._digits = ""
        self._has_point = False
        self._read_before = 0
        self.read_after = 0

    def run(self) -> str:
        """Return the digits that were read, with their sign."""
        for item in self._form.items:
            if self._is_over():
                break
            char = self._text[self._at]
            match item.pattern:
                case "":
                    self._at += self._size()
                    continue
                case "9" | "0" | "." | "D":
                    self._number(item.pattern)
                case "," | "G":
                    # Without a digit before it, a comma is not expected in fill mode.
                    if self._form.has("FM") or char != ",":
                        continue
                case "L":
                    self._skip(1)
                    continue
                case "TH":
                    if not self._form.has("."):
                        self._skip(2)
                    continue
                case "MI" | "PL" | "SG":
                    wanted = {"MI": "-", "PL": "+", "SG": "-+"}[item.pattern]
                    if char not in wanted:
                        self._skip(1)
                        continue
                    self._sign = char
                case _:
                    continue
            self._at += 1
        return self._sign + self._digits.removesuffix(".")

    def _is_over(self) -> bool:
        return self._at >= len(self._text)

    def _skip(self, count: int) -> None:
        while count and not self._is_over() and self._text[self._at] not in _DATA:
            self._at += self._size()
            count -= 1

    def _size(self) -> int:
        """Return the bytes of the character that begins here."""
        first = ord(self._text[self._at])
        return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4

    def _number(self, pattern: str) -> None:
        if self._text[self._at] == " ":
            self._at += 1
        if self._is_over():
            return
        if self._sign == " " and pattern in ("0", "9") and not self._read_before + self.read_after:
            self._leading_sign()
        if self._is_over():
            return
        char = self._text[self._at]
        is_read = False
        if char in "0123456789":
            if self._has_point and self.read_after == self._form.after:
                return
            self._digits += char
            if self._has_point:
                self.read_after += 1
            else:
                self._read_before += 1
            is_read = True
        elif self._form.has(".") and not self._has_point and char == ".":
            self._digits += "."
            self._has_point = is_read = True
        if self._sign == " " and self._read_before + self.read_after > 0:
            self._trailing_sign(is_read)

    def _leading_sign(self) -> None:
        char = self._text[self._at]
        is_locale = self._form.has("S") and self._form.sign == "before"
        if char in "+-":
            self._sign = char
        elif char == "<" and self._form.has("PR") and not is_locale:
            self._sign = "-"
        else:
            return
        self._at += 1

    def _trailing_sign(self, is_read: bool) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if self._form.has("S"):
            if is_read and following and following in "+-":
                self._at += 1
                self._sign = following
        elif not is_read and (self._form.has("PL") or self._form.has("MI")) and self._text[self._at] in "+-":
            self._sign = self._text[self._at]
