"""Reads the texts of intervals: `1 year 2 months`, `1-2`, `3 04:05:06`, `@ 1 minute ago`, `P1Y2MT3H`, and `5` with a unit."""

import re
from typing import NamedTuple

from tailrace.sql.analysis.datetime_fields import DatetimeField, split_fields, unit_of
from tailrace.sql.analysis.errors import INVALID_DATETIME, AnalysisError, UnsupportedError

_OVERFLOW = "22015"
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_MAX_INT32 = 2**31 - 1
MAX_INTERVAL_MICROSECONDS = 2**63 // 1000 - 1
"""Hours, minutes and seconds of an interval: 292 years. Arrow counts them in nanoseconds."""
_MICROSECONDS = {"microsecond": 1, "millisecond": 1_000, "second": _SECOND, "minute": 60 * _SECOND, "hour": 3_600 * _SECOND}
_YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
_MASKS = {"month": 2, "year": 4, "day": 8, "hour": 1024, "minute": 2048, "second": 4096}
FULL_RANGE = 0x7FFF
_SECONDS_FIELDS = frozenset(("second", "millisecond", "microsecond"))
_CLOCK_FIELDS = frozenset(("hour", "minute", *_SECONDS_FIELDS))
_ISO_PART = re.compile(r"(-?[0-9]*)(\.[0-9]*)?([YMWDHS])")
_ISO_DATE_UNITS = {"Y": "year", "M": "month", "W": "week", "D": "day"}
_ISO_TIME_UNITS = {"H": "hour", "M": "minute", "S": "second"}


class Interval(NamedTuple):
    months: int = 0
    days: int = 0
    microseconds: int = 0


class IntervalRange(NamedTuple):
    """The units that `interval day to minute` allows, as PostgreSQL's bits, and the digits of its seconds."""

    units: int = FULL_RANGE
    digits: int | None = None

    @property
    def smallest(self) -> str:
        """Return the smallest unit, which a number without one has."""
        if self.units == FULL_RANGE:
            return "second"
        order = ("second", "minute", "hour", "day", "month", "year")
        return next(unit for unit in order if self.units & _MASKS[unit])

    @property
    def is_minute_to_second(self) -> bool:
        return self.units == _MASKS["minute"] | _MASKS["second"]


ANY_UNITS = IntervalRange()


def read_interval(text: str, allowed: IntervalRange = ANY_UNITS) -> Interval:
    """Return the value of a text. Raises `AnalysisError` as PostgreSQL does."""
    fields = split_fields(text)
    builder = _Builder(text, allowed)
    if text.startswith("P") and fields:
        builder.read_iso()
    elif fields:
        builder.read(fields)
    else:
        raise builder.invalid()
    return restricted(builder.result(), allowed)


def interval_text(value: Interval) -> str:
    """Return an interval as PostgreSQL prints it: `1 year 2 mons -3 days +04:05:06`."""
    months, days, microseconds = value
    years = abs(months) // 12 * (1 if months >= 0 else -1)
    parts = []
    after_negative = False
    for amount, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if amount:
            plus = "+" if after_negative and amount > 0 else ""
            parts.append(f"{plus}{amount} {unit}{'' if amount == 1 else 's'}")
            after_negative = amount < 0
    if microseconds or not parts:
        sign = "-" if microseconds < 0 else "+" if after_negative else ""
        seconds, fraction = divmod(abs(microseconds), _SECOND)
        clock = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        parts.append(f"{clock}.{fraction:06}".rstrip("0") if fraction else clock)
    return " ".join(parts)


def restricted(value: Interval, allowed: IntervalRange) -> Interval:
    """Return the interval without what is smaller than the allowed units."""
    months, days, micros = value
    match allowed.smallest if allowed.units != FULL_RANGE else "second":
        case "year":
            return Interval(_truncated(months, 12))
        case "month":
            return Interval(months)
        case "day":
            return Interval(months, days)
        case "hour" | "minute" as unit:
            return Interval(months, days, _truncated(micros, _MICROSECONDS[unit]))
    if allowed.digits is not None and allowed.digits < 6:
        step = 10 ** (6 - allowed.digits)
        size = (abs(micros) + step // 2) // step * step
        micros = -size if micros < 0 else size
    return Interval(months, days, micros)


class _Builder:
    def __init__(self, text: str, allowed: IntervalRange) -> None:
        self._text = text
        self._allowed = allowed
        self._months = 0
        self._days = 0
        self._micros = 0
        self._seen: set[str] = set()

    def invalid(self) -> AnalysisError:
        return AnalysisError(INVALID_DATETIME, f'invalid input syntax for type interval: "{self._text}"')

    def result(self) -> Interval:
        if not all(-_MAX_INT32 - 1 <= field <= _MAX_INT32 for field in (self._months, self._days)):
            raise AnalysisError(_OVERFLOW, f'interval field value out of range: "{self._text}"')
        if abs(self._micros) > MAX_INTERVAL_MICROSECONDS:
            raise UnsupportedError(f'the interval "{self._text}" has more than 292 years in hours')
        return Interval(self._months, self._days, self._micros)

    def read(self, fields: list[DatetimeField]) -> None:
        """Read the fields from right to left, so that a unit comes before its number."""
        unit: str | None = None
        has_open_unit = False
        is_ago = False
        for at in range(len(fields) - 1, -1, -1):
            kind, text = fields[at]
            if kind == "TIME" or (kind == "TZ" and ":" in text):
                self._clock(text)
                unit = "day"
            elif kind in ("TZ", "DATE", "NUMBER"):
                unit = self._number(text, unit or self._allowed.smallest)
                has_open_unit = False
            elif text == "ago" and at == len(fields) - 1:
                is_ago = True
            elif text in ("infinity", "+infinity", "-infinity"):
                raise UnsupportedError("infinite intervals are not supported")
            else:
                unit = unit_of(text) if kind == "STRING" else None
                if has_open_unit or unit is None:
                    raise self.invalid()
                has_open_unit = True
        if has_open_unit or not self._seen:
            raise self.invalid()
        if is_ago:
            self._months, self._days, self._micros = -self._months, -self._days, -self._micros

    def read_iso(self) -> None:
        """Read the form of ISO 8601 with designators."""
        at = 1
        units = _ISO_DATE_UNITS
        while at < len(self._text):
            if self._text[at] == "T" and units is _ISO_DATE_UNITS:
                units = _ISO_TIME_UNITS
                at += 1
                continue
            found = _ISO_PART.match(self._text, at)
            if found is None and re.fullmatch(r"P[0-9T:.-]+", self._text):
                raise UnsupportedError(f'the interval "{self._text}" is not supported in this form; write it as P1Y2M3DT4H5M6S')
            if found is None or found[3] not in units or not re.search("[0-9]", found[0]):
                raise self.invalid()
            # The fraction is what is left of the float, not its own digits: 2.8 months are 2 months, 23 days and 24 hours.
            value = float(f"{found[1] or '0'}{found[2] or ''}")
            self._add(int(value), value - int(value), units[found[3]])
            self._seen.add("iso")
            at = found.end()
        if not self._seen:
            raise self.invalid()

    def _clock(self, text: str) -> None:
        found = re.fullmatch(r"([+-]?)([0-9]+):([0-9]+)(?::([0-9]+))?(\.[0-9]*)?", text)
        if found is None or self._seen & _CLOCK_FIELDS:
            raise self.invalid()
        hours, minutes, seconds = int(found[2]), int(found[3]), int(found[4] or 0)
        if found[4] is None and (found[5] is not None or self._allowed.is_minute_to_second):
            hours, minutes, seconds = 0, hours, minutes
        if minutes > 59 or seconds > 60:
            raise AnalysisError(_OVERFLOW, f'interval field value out of range: "{self._text}"')
        size = (hours * 3600 + minutes * 60 + seconds) * _SECOND + round(float(f"0{found[5]}0" if found[5] else 0) * _SECOND)
        self._micros += -size if found[1] == "-" else size
        self._seen |= _CLOCK_FIELDS

    def _number(self, text: str, unit: str) -> str:
        """Add a number of units and return the unit."""
        years = re.fullmatch(r"([+-]?)([0-9]+)-([0-9]+)", text)
        if years is not None:
            if int(years[3]) > 11:
                raise AnalysisError(_OVERFLOW, f'interval field value out of range: "{self._text}"')
            self._mark({"month"})
            size = int(years[2]) * 12 + int(years[3])
            self._months += -size if years[1] == "-" else size
            return "month"
        found = re.fullmatch(r"([+-]?)([0-9]*)(\.[0-9]*)?", text)
        if found is None or not (found[2] or found[3]):
            raise self.invalid()
        sign = -1 if found[1] == "-" else 1
        fraction = sign * float(f"0{found[3]}0" if found[3] else 0)
        self._mark(_SECONDS_FIELDS if unit == "second" and fraction else {unit})
        self._add(sign * int(found[2] or 0), fraction, unit)
        return unit

    def _mark(self, units: "frozenset[str] | set[str]") -> None:
        if self._seen & units:
            raise self.invalid()
        self._seen |= units

    def _add(self, whole: int, fraction: float, unit: str) -> None:
        if unit in _MICROSECONDS:
            self._micros += whole * _MICROSECONDS[unit]
            self._add_micros(fraction * _MICROSECONDS[unit])
        elif unit == "day":
            self._days += whole
            self._add_micros(fraction * _DAY)
        elif unit == "week":
            self._days += whole * 7
            self._add_days(fraction * 7)
        elif unit == "month":
            self._months += whole
            self._add_days(fraction * 30)
        elif unit in _YEARS:
            self._months += whole * 12 * _YEARS[unit] + round(fraction * _YEARS[unit] * 12)
        else:
            raise self.invalid()

    def _add_days(self, days: float) -> None:
        self._days += int(days)
        self._add_micros((days - int(days)) * _DAY)

    def _add_micros(self, micros: float) -> None:
        rest = micros - int(micros)
        self._micros += int(micros) + (1 if rest > 0.5 else -1 if rest < -0.5 else 0)


def _truncated(value: int, step: int) -> int:
    size = abs(value) // step * step
    return -size if value < 0 else size
