"""Splits the texts of dates, times and intervals into fields, as PostgreSQL does before it reads them.

The kinds of fields are PostgreSQL's: a `DATE` has separators inside (`2026-01-31`), a `TIME` has colons, a `TZ` begins with a
sign and a digit, a `STRING` is a word. The names of units and words are cut to ten letters, as PostgreSQL's are.
"""

import re
from typing import Literal, NamedTuple

FieldKind = Literal["DATE", "TIME", "TZ", "NUMBER", "STRING", "SPECIAL"]
_SPACES = " \t\n\r\v\f"
_MAX_FIELDS = 25
_MAX_WORD = 10

_NUMBER_START = re.compile(r"[0-9]+")
_TIME_REST = re.compile(r":[0-9:.]*")
_SIGNED_NUMBER = re.compile(r"[0-9][0-9:.\-]*")
_ZONE_REST = re.compile(r"[+\-/_.:a-zA-Z0-9]*")
_LETTERS = re.compile(r"[a-zA-Z]+")
_FRACTION = re.compile(r"\.[0-9]*")

MONTHS = {
    name: at
    for at, names in enumerate(
        (
            "jan january", "feb february", "mar march", "apr april", "may", "jun june", "jul july", "aug august",
            "sep sept september", "oct october", "nov november", "dec december",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
DAYS_OF_WEEK = frozenset(
    (
        "mon", "monday", "tue", "tues", "tuesday", "wed", "weds", "wednesday", "thu", "thur", "thurs", "thursday", "fri",
        "friday", "sat", "saturday", "sun", "sunday",
    )
)  # fmt: skip
_UNITS = {
    "microsecond": "microsecon us usec usecond useconds usecs",
    "millisecond": "millisecon ms msec mseconds msecs",
    "second": "s sec second seconds secs",
    "minute": "m min mins minute minutes",
    "hour": "h hour hours hr hrs",
    "day": "d day days",
    "week": "w week weeks",
    "month": "mon mons month months",
    "quarter": "qtr quarter",
    "year": "y year years yr yrs",
    "decade": "dec decade decades decs",
    "century": "c cent centuries century",
    "millennium": "mil millennia millennium mils",
    "timezone": "timezone",
    "timezone_hour": "timezone_h",
    "timezone_minute": "timezone_m",
}
UNITS = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_OTHER_FIELDS = {
    "dow": "dow", "isodow": "isodow", "doy": "doy", "isoyear": "isoyear", "epoch": "epoch",
    "julian": "julian", "jd": "julian", "j": "julian", "mm": "minute",
}  # fmt: skip
_KEYWORDS = frozenset(
    (*MONTHS, *DAYS_OF_WEEK, "ad", "allballs", "am", "at", "bc", "d", "dow", "doy", "dst", "epoch", "h", "infinity", "isodow",
     "isoyear", "j", "jd", "julian", "m", "mm", "now", "on", "pm", "s", "t", "today", "tomorrow", "y", "yesterday")
)  # fmt: skip


class DatetimeField(NamedTuple):
    kind: FieldKind
    text: str


def unit_of(word: str) -> str | None:
    """Return the unit of time that a word names, in the singular."""
    return UNITS.get(word.lower()[:_MAX_WORD])


def field_of(name: str) -> str | None:
    """Return the field that `extract` and `date_trunc` name: a unit of time or one such as `dow`."""
    word = name.lower()[:_MAX_WORD]
    return UNITS.get(word) or _OTHER_FIELDS.get(word)


def split_fields(text: str) -> list[DatetimeField] | None:
    """Return the fields of a text, with its words in lower case; `None` if it has no such form."""
    fields: list[DatetimeField] = []
    at = 0
    while at < len(text):
        if text[at] in _SPACES:
            at += 1
            continue
        if not text[at].isascii() or not text[at].isprintable():
            return None
        if not (text[at].isalnum() or text[at] in "+-."):
            at += 1  # other punctuation only separates
            continue
        found = _field(text, at)
        if found is None or len(fields) == _MAX_FIELDS:
            return None
        field, at = found
        fields.append(field)
    return fields


def _field(text: str, at: int) -> tuple[DatetimeField, int] | None:
    first = text[at]
    if first.isdigit():
        return _number_or_date(text, at)
    if first == ".":
        end = _end(_FRACTION, text, at)
        return DatetimeField("NUMBER", text[at:end]), end
    if first.isalpha():
        end = _end(_LETTERS, text, at)
        following = text[end : end + 1]
        word = text[at:end].lower()
        is_date = following in ("-", "/", ".") or (
            (following == "+" or following.isdigit()) and word[:_MAX_WORD] not in _KEYWORDS
        )
        if following and is_date:
            end = _end(_ZONE_REST, text, end)
            return DatetimeField("DATE", text[at:end].lower()), end
        return DatetimeField("STRING", word), end
    after = at + 1
    while after < len(text) and text[after] in _SPACES:
        after += 1
    for pattern, kind in ((_SIGNED_NUMBER, "TZ"), (_LETTERS, "SPECIAL")):
        found = pattern.match(text, after)
        if found is not None:
            return DatetimeField(kind, first + found[0].lower()), found.end()  # type: ignore[arg-type]
    return None


def _number_or_date(text: str, at: int) -> tuple[DatetimeField, int]:
    end = _end(_NUMBER_START, text, at)
    separator = text[end : end + 1]
    if separator == ":":
        end = _end(_TIME_REST, text, end)
        return DatetimeField("TIME", text[at:end]), end
    if not separator or separator not in "-/.":
        return DatetimeField("NUMBER", text[at:end]), end
    end += 1
    if not text[end : end + 1].isdigit():
        end = _end(re.compile(rf"[a-zA-Z0-9{re.escape(separator)}]*"), text, end)
        return DatetimeField("DATE", text[at:end].lower()), end
    kind: FieldKind = "NUMBER" if separator == "." else "DATE"
    end = _end(_NUMBER_START, text, end)
    if text[end : end + 1] == separator:
        kind = "DATE"
        end = _end(re.compile(rf"[0-9{re.escape(separator)}]*"), text, end)
    return DatetimeField(kind, text[at:end]), end


def _end(pattern: "re.Pattern[str]", text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()
