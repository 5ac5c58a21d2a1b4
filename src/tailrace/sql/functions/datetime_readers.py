"""Reads dates and times in a format such as `DD.MM.YYYY`: to_date and to_timestamp."""

from calendar import isleap
from datetime import date, timedelta

from tailrace.sql.analysis.errors import DATETIME_OVERFLOW, INVALID_DATETIME
from tailrace.sql.functions.datetime_formats import (
    DAY_NAMES,
    MONTH_NAMES,
    DatetimeFormatError,
    Pattern,
    is_separator,
    patterns_of,
)

_NOT_DIGITS = frozenset(("A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "DAY", "DY", "MONTH", "MON", "OF", "P.M.", "PM", "RM", "TZ"))
_MAX_TEXT = 10_000


def read_chars(text: str, picture: str) -> int:
    """Return the microseconds since 1970 of a text in a format."""
    if len(text) > _MAX_TEXT:
        raise DatetimeFormatError("[0A000] a text of more than 10,000 characters is not read as a date")
    reader = _FormatReader(text)
    reader.read(patterns_of(picture))
    return reader.micros()


class _FormatReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._parts: dict[str, int] = {}
        self._is_afternoon: bool | None = None
        self._has_12_hours = False

    def read(self, parts: tuple[Pattern, ...]) -> None:
        skipped = 0
        for index, part in enumerate(parts):
            if self._at >= len(self._text):
                return
            if part.name or index == 0:
                skipped += self._skip_spaces()
                if self._at >= len(self._text) and part.name:
                    return
            if part.is_separator:
                skipped -= 1
                character = self._text[self._at : self._at + 1]
                if character and (character in " \t\n\r\v\f" or is_separator(character)):
                    self._at += 1
                    skipped += 1
            elif not part.name:
                if skipped > 0:
                    skipped -= 1
                else:
                    self._at += 1
            else:
                self._field(part, _is_delimited(parts, index))
                skipped = self._skip_spaces()

    def micros(self) -> int:
        # A part that is zero counts as not given.
        parts = self._parts
        of_day = parts.get("seconds of day", 0)
        hour = parts.get("hour") or of_day // 3600
        minute = parts.get("minute") or of_day // 60 % 60
        second = parts.get("second") or of_day % 60
        if self._has_12_hours:
            if not 1 <= hour <= 12:
                raise DatetimeFormatError(f'[{INVALID_DATETIME}] hour "{hour}" is invalid for the 12-hour clock')
            hour = hour % 12 + (12 if self._is_afternoon else 0)
        fraction = parts.get("ms", 0) * 1000 + parts.get("us", 0)
        if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= fraction < 1_000_000):
            raise self._overflow()
        day = self._date().toordinal() - date(1970, 1, 1).toordinal()
        return (((day * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction

    def _date(self) -> date:
        parts = self._parts
        year, month, day = parts.get("year", 0), parts.get("month") or 1, parts.get("day") or 1
        if not 1 <= year <= 9999:
            raise DatetimeFormatError(f'[0A000] the date "{self._text}" is outside of the years 1 to 9999')
        if parts.get("day of year"):
            if parts.get("month") or parts.get("day"):
                raise DatetimeFormatError("[0A000] DDD together with a month or a day is not supported")
            if not 1 <= parts["day of year"] <= 365 + isleap(year):
                raise self._overflow()
            return date(year, 1, 1) + timedelta(days=parts["day of year"] - 1)
        try:
            return date(year, month, day)
        except ValueError:
            raise self._overflow() from None

    def _field(self, part: Pattern, is_delimited: bool) -> None:
        key = part.name.upper()
        if part.ordinal or key == "FX":
            raise DatetimeFormatError(f"[0A000] {part.ordinal or key} is not supported in formats that are read")
        if key in _READ_NUMBERS:
            name, width = _READ_NUMBERS[key]
            value, length = self._integer(width, part.name, is_delimited or part.is_fill)
            if key in ("HH", "HH12"):
                self._has_12_hours = True
            self._set(name, value)
            if key in ("YYY", "YY", "Y") and length < 4:
                self._parts[name] = _full_year(value)
            if key in ("MS", "US") and length < width:
                self._parts[name] *= 10 ** (width - length)
        elif key in ("MONTH", "MON"):
            self._set("month", 1 + self._word([name if key == "MONTH" else name[:3] for name in MONTH_NAMES], part.name))
        elif key in ("DAY", "DY"):
            if "weekday" in self._parts:
                raise DatetimeFormatError("[0A000] two days of the week in a format are not supported")
            self._parts["weekday"] = self._word([name if key == "DAY" else name[:3] for name in DAY_NAMES], part.name)
        elif key in ("AM", "PM", "A.M.", "P.M."):
            if self._is_afternoon is not None:
                raise DatetimeFormatError("[0A000] AM or PM twice in a format is not supported")
            halves = ("A.M.", "P.M.") if "." in key else ("AM", "PM")
            self._is_afternoon = bool(self._word(halves, part.name))
            self._has_12_hours = True
        else:
            raise DatetimeFormatError(f"[0A000] the pattern {part.name} is not supported in formats that are read")

    def _set(self, name: str, value: int) -> None:
        known = self._parts.get(name, 0)
        self._parts[name] = value
        if known not in (0, value):
            raise DatetimeFormatError(f'[{INVALID_DATETIME}] conflicting values for "{name}" field in formatting string')

    def _integer(self, width: int, name: str, is_delimited: bool) -> tuple[int, int]:
        """Read a number: all digits if something else follows it, else exactly as many as the pattern has."""
        self._skip_spaces()
        start = self._at
        end = start + 1 if self._text[start : start + 1] in ("+", "-") else start
        limit = len(self._text) if is_delimited else min(start + width, len(self._text))
        first = end
        while end < limit and self._text[end] in "0123456789":
            end += 1
        if not is_delimited and len(self._text) - start < width:
            raise DatetimeFormatError(f'[{INVALID_DATETIME}] source string too short for "{name}" formatting field')
        if end == first or (not is_delimited and end - start < width):
            shown = self._text[start : start + width]
            raise DatetimeFormatError(f'[{INVALID_DATETIME}] invalid value "{shown}" for "{name}"')
        if end - first > 9:
            raise DatetimeFormatError(f'[{DATETIME_OVERFLOW}] value for "{name}" in source string is out of range')
        self._at = end
        return int(self._text[start:end]), end - start

    def _word(self, words: "list[str] | tuple[str, ...]", name: str) -> int:
        rest = self._text[self._at :].lower()
        for at, word in enumerate(words):
            if rest.startswith(word.lower()):
                self._at += len(word)
                return at
        raise DatetimeFormatError(f'[{INVALID_DATETIME}] invalid value "{self._text[self._at :][:10]}" for "{name}"')

    def _skip_spaces(self) -> int:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in " \t\n\r\v\f":
            self._at += 1
        return self._at - start

    def _overflow(self) -> DatetimeFormatError:
        return DatetimeFormatError(f'[{DATETIME_OVERFLOW}] date/time field value out of range: "{self._text}"')


_READ_NUMBERS = {
    "YYYY": ("year", 4), "YYY": ("year", 3), "YY": ("year", 2), "Y": ("year", 1), "MM": ("month", 2), "DD": ("day", 2),
    "DDD": ("day of year", 3), "HH24": ("hour", 2), "HH12": ("hour", 2), "HH": ("hour", 2), "MI": ("minute", 2),
    "SS": ("second", 2), "MS": ("ms", 3), "US": ("us", 6), "SSSS": ("seconds of day", 4), "SSSSS": ("seconds of day", 5),
}  # fmt: skip


def _full_year(year: int) -> int:
    """Return the year of fewer than four digits that is nearest to 2020."""
    return year + (2000 if year < 70 else 1900 if year < 100 else 2000 if year < 520 else 1000)


def _is_delimited(parts: tuple[Pattern, ...], index: int) -> bool:
    """Return whether a number ends where its digits do, because no digit can follow it."""
    if index + 1 == len(parts):
        return True
    following = parts[index + 1]
    if following.name:
        return following.name.upper() in _NOT_DIGITS
    return not following.text.isdigit()
