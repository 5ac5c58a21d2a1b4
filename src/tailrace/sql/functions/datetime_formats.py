"""Formats of dates and times, such as `YYYY-MM-DD HH24:MI`, and to_char. `datetime_readers.py` reads texts in them.

A format is split into patterns and other characters as PostgreSQL splits it. Formats that DuckDB's `strftime` can express are
left to it; functions of Python write the others, pattern by pattern.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
_UPPER = (
    "A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "CC", "DAY", "DDD", "DD", "DY", "D", "FF1", "FF2", "FF3", "FF4", "FF5",
    "FF6", "FX", "HH24", "HH12", "HH", "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J", "MI", "MM", "MONTH", "MON",
    "MS", "OF", "P.M.", "PM", "Q", "RM", "SSSSS", "SSSS", "SS", "TZH", "TZM", "TZ", "US", "WW", "W", "Y,YYY", "YYYY",
    "YYY", "YY", "Y",
)  # fmt: skip
_PATTERNS = sorted({*_UPPER, *(name.lower() for name in _UPPER), "Day", "Dy", "Month", "Mon"}, key=len, reverse=True)
_STRFTIME = {
    "YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S",
    "MS": "%g", "US": "%f", "Mon": "%b", "Dy": "%a", "DDD": "%j", "YY": "%y", "AM": "%p", "PM": "%p",
    "IYYY": "%G", "IW": "%V", "ID": "%u",
}  # fmt: skip


class DatetimeFormatError(Exception):
    """The message begins with PostgreSQL's code in brackets."""


class Pattern(NamedTuple):
    """A part of a format: a pattern if it has a name, else one other character."""

    name: str
    text: str
    is_fill: bool = False
    """Whether `FM` stands before it: without padding."""
    ordinal: str = ""
    """`TH` or `th` after it."""
    is_quoted: bool = False

    @property
    def is_separator(self) -> bool:
        """Return whether it is a space or a punctuation mark, which may be missing in a text that is read."""
        return not self.name and not self.is_quoted and (self.text.isspace() or is_separator(self.text))


@lru_cache(256)
def patterns_of(picture: str) -> tuple[Pattern, ...]:
    """Return the parts of a format."""
    parts: list[Pattern] = []
    at = 0
    is_quoted = False
    while at < len(picture):
        if is_quoted or picture[at] == '"' or picture.startswith('\\"', at):
            if picture[at] == '"':
                is_quoted = not is_quoted
                at += 1
                continue
            if picture[at] == "\\" and at + 1 < len(picture):
                at += 1
            parts.append(Pattern("", picture[at], is_quoted=True))
            at += 1
            continue
        is_fill = False
        while picture[at : at + 2] in ("FM", "fm", "TM", "tm"):
            if picture[at] in "Tt":
                raise DatetimeFormatError("[0A000] the prefix TM of formats is not supported")
            is_fill = True
            at += 2
        name = next((one for one in _PATTERNS if picture.startswith(one, at)), "")
        if not name:
            if at < len(picture) and picture[at] not in '"' and not picture.startswith('\\"', at):
                parts.append(Pattern("", picture[at]))
                at += 1
            continue
        at += len(name)
        suffix = picture[at : at + 2]
        ordinal = suffix if suffix in ("TH", "th") else ""
        at += 2 if ordinal else 0
        parts.append(Pattern(name, name, is_fill, ordinal))
    return tuple(parts)


def strftime_of(picture: str) -> str | None:
    """Return the format for DuckDB's strftime that writes the same, if there is one."""
    result = ""
    for part in patterns_of(picture):
        if not part.name:
            result += "%%" if part.text == "%" else part.text
        elif part.ordinal or part.name not in _STRFTIME or part.is_fill:
            if part.name not in ("Month", "Day") or not part.is_fill or part.ordinal:
                return None
            result += "%B" if part.name == "Month" else "%A"
        else:
            result += _STRFTIME[part.name]
    return result


def timestamp_chars(micros: int, picture: str, zone: str) -> str:
    """Return a timestamp in a format. `zone` is the abbreviation that TZ shows."""
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise DatetimeFormatError("[0A000] to_char of a year outside of 1 to 9999 is not supported") from None
    return "".join(_with_ordinal(_shown(part, moment, zone), part) if part.name else part.text for part in patterns_of(picture))


def _with_ordinal(text: str, part: Pattern) -> str:
    if not part.ordinal or not text[-1:].isdigit():
        return text
    ending = "th" if text[-2:-1] == "1" else {"1": "st", "2": "nd", "3": "rd"}.get(text[-1], "th")
    return text + (ending.upper() if part.ordinal == "TH" else ending)


def _shown(part: Pattern, moment: datetime, zone: str) -> str:
    name = part.name
    key = name.upper()
    if key in _FRACTIONS:
        return f"{moment.microsecond // 10 ** (6 - _FRACTIONS[key]):0{_FRACTIONS[key]}}"
    write = _NUMBERS.get(key)
    if write is not None:
        value, width = write(moment)
        return str(value) if part.is_fill else f"{value:0{width}}"
    match key:
        case "AM" | "PM" | "A.M." | "P.M.":
            half = "PM" if moment.hour >= 12 else "AM"
            half = f"{half[0]}.M." if "." in key else half
            return half if name == key else half.lower()
        case "AD" | "BC" | "A.D." | "B.C.":
            era = "A.D." if "." in key else "AD"
            return era if name == key else era.lower()
        case "MONTH" | "DAY":
            word = _cased(MONTH_NAMES[moment.month - 1] if key == "MONTH" else DAY_NAMES[moment.weekday()], name)
            return word if part.is_fill else word.ljust(9)
        case "MON" | "DY":
            return _cased((MONTH_NAMES[moment.month - 1] if key == "MON" else DAY_NAMES[moment.weekday()])[:3], name)
        case "RM":
            roman = _ROMAN[moment.month - 1] if name == key else _ROMAN[moment.month - 1].lower()
            return roman if part.is_fill else roman.ljust(4)
        case "TZ":
            return zone if name == key else zone.lower()
        case "TZH" | "OF":
            return "+00"
        case "TZM":
            return "00"
        case "Y,YYY":
            return f"{moment.year // 1000},{moment.year % 1000:03}"
        case "FX":
            return ""
    raise DatetimeFormatError(f"[0A000] the pattern {name} of a format is not supported")


def _cased(word: str, name: str) -> str:
    return word.upper() if name.isupper() else word.lower() if name.islower() else word


def _seconds_of_day(moment: datetime) -> tuple[int, int]:
    return moment.hour * 3600 + moment.minute * 60 + moment.second, 1


def _iso_year(digits: int) -> Callable[[datetime], tuple[int, int]]:
    return lambda moment: (moment.isocalendar()[0] % 10**digits, digits)


def _iso_day_of_year(moment: datetime) -> tuple[int, int]:
    _, week, day = moment.isocalendar()
    return (week - 1) * 7 + day, 3


_NUMBERS: dict[str, Callable[[datetime], tuple[int, int]]] = {
    "HH24": lambda moment: (moment.hour, 2),
    "HH12": lambda moment: ((moment.hour + 11) % 12 + 1, 2),
    "HH": lambda moment: ((moment.hour + 11) % 12 + 1, 2),
    "MI": lambda moment: (moment.minute, 2),
    "SS": lambda moment: (moment.second, 2),
    "SSSS": _seconds_of_day,
    "SSSSS": _seconds_of_day,
    "MM": lambda moment: (moment.month, 2),
    "DD": lambda moment: (moment.day, 2),
    "DDD": lambda moment: (moment.timetuple().tm_yday, 3),
    "IDDD": _iso_day_of_year,
    "D": lambda moment: (moment.isoweekday() % 7 + 1, 1),
    "ID": lambda moment: (moment.isoweekday(), 1),
    "WW": lambda moment: ((moment.timetuple().tm_yday - 1) // 7 + 1, 2),
    "W": lambda moment: ((moment.day - 1) // 7 + 1, 1),
    "IW": lambda moment: (moment.isocalendar()[1], 2),
    "Q": lambda moment: ((moment.month - 1) // 3 + 1, 1),
    "CC": lambda moment: ((moment.year + 99) // 100, 2),
    "J": lambda moment: (moment.toordinal() + 1_721_425, 1),
    "YYYY": lambda moment: (moment.year, 4),
    "YYY": lambda moment: (moment.year % 1000, 3),
    "YY": lambda moment: (moment.year % 100, 2),
    "Y": lambda moment: (moment.year % 10, 1),
    "IYYY": _iso_year(4),
    "IYY": _iso_year(3),
    "IY": _iso_year(2),
    "I": _iso_year(1),
}
_FRACTIONS = {"MS": 3, "US": 6, **{f"FF{digits}": digits for digits in range(1, 7)}}
"""The digits of the patterns for parts of a second, which `FM` does not shorten."""


def interval_chars(months: int, days: int, micros: int, picture: str) -> str:
    """Return an interval in a format."""
    if min(months, days, micros) < 0:
        raise DatetimeFormatError("[0A000] to_char of a negative interval is not supported")
    seconds, fraction = divmod(micros, 1_000_000)
    hours = seconds // 3600
    on_dial = (hours + 11) % 12 + 1
    numbers = {
        "HH24": (hours, 2), "HH12": (on_dial, 2), "HH": (on_dial, 2),
        "MI": (seconds // 60 % 60, 2), "SS": (seconds % 60, 2), "SSSS": (seconds, 1), "SSSSS": (seconds, 1),
        "MS": (fraction // 1000, 3), "US": (fraction, 6), "DD": (days, 2), "MM": (months % 12, 2),
        "YYYY": (months // 12, 4), "YY": (months // 12 % 100, 2),
    }  # fmt: skip
    result = ""
    for part in patterns_of(picture):
        if not part.name:
            result += part.text
        elif part.name.upper() in numbers:
            value, width = numbers[part.name.upper()]
            is_padded = not part.is_fill or part.name.upper() in _FRACTIONS
            result += _with_ordinal(f"{value:0{width}}" if is_padded else str(value), part)
        else:
            raise DatetimeFormatError(f"[0A000] the pattern {part.name} is not supported for intervals")
    return result


def is_separator(character: str) -> bool:
    return " " < character < "\x7f" and not character.isalnum()
