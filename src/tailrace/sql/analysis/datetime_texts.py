"""Reads the texts of dates, times and timestamps in the forms that PostgreSQL reads: ISO 8601, `Jan 31 2026`, `1/31/2026` with
the month first, `20260131T104500Z`, with offsets, abbreviations and names of zones.
"""

import re
from datetime import UTC, date, datetime, time, timedelta

from tailrace.sql.analysis.datetime_fields import DAYS_OF_WEEK, MONTHS, DatetimeField, split_fields
from tailrace.sql.analysis.errors import (
    DATETIME_OVERFLOW,
    INVALID_DATETIME,
    INVALID_PARAMETER,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.time_zones import abbreviated_offset, to_instant, zone_of
from tailrace.sql.analysis.types import SqlType

CURRENT_WORDS = frozenset(("now", "today", "tomorrow", "yesterday"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = frozenset(("year", "month", "day"))
_MAX_ZONE_HOURS = 15
_UNSUPPORTED_WORDS = frozenset(("d", "h", "m", "mm", "s", "y", "j", "jd", "julian", "dst", "isodow", "isoyear", "dow", "doy"))
_CLOCK = re.compile(r"([0-9]+):([0-9]+)(?::([0-9]+))?(\.[0-9]*)?")
_ZONE = re.compile(r"[+-]([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")
_ISO = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2}))?")


def read_date(text: str) -> date:
    """Return the value of a text. All functions raise `AnalysisError` as PostgreSQL does."""
    return _read(text, SqlType("date")).date()


def read_timestamp(text: str) -> datetime:
    return _read(text, SqlType("timestamp")).local()


def read_timestamptz(text: str) -> datetime:
    return _read(text, SqlType("timestamptz")).instant()


def read_time(text: str) -> time:
    found = _Reader(text, SqlType("time"))
    found.read_time()
    if found.micros == 86_400_000_000:
        raise UnsupportedError("the time 24:00:00 is not supported")
    return (_EPOCH + timedelta(microseconds=found.micros)).time()


def _read(text: str, wanted: SqlType) -> "_Reader":
    reader = _Reader(text, wanted)
    found = _ISO.fullmatch(text)
    if found is not None:
        reader.set_iso([int(part or 0) for part in found.groups()])
    else:
        reader.read()
    return reader


class _Reader:
    def __init__(self, text: str, wanted: SqlType) -> None:
        self._text = text
        self._wanted = wanted
        self._parts: dict[str, int] = {}
        self.micros = 0
        self._offset: int | None = None
        self._zone: str | None = None
        self._half_of_day: str | None = None
        self._is_short_year = False
        self._has_text_month = False
        self._is_bc = False
        self._seen: set[str] = set()

    def date(self) -> date:
        year, month, day = (self._parts[name] for name in ("year", "month", "day"))
        if self._is_bc or year > 9999:
            raise self._outside()
        try:
            return date(year, month, day)
        except ValueError:
            raise self._overflow() from None

    def local(self) -> datetime:
        """Return the date and time as written."""
        try:
            return datetime.combine(self.date(), time()) + timedelta(microseconds=self.micros)
        except OverflowError:
            raise self._outside() from None

    def instant(self) -> datetime:
        local = self.local()
        micros = (local.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
        micros = to_instant(micros, self._zone) if self._zone is not None else micros - (self._offset or 0) * 1_000_000
        try:
            return _EPOCH + timedelta(microseconds=micros)
        except OverflowError:
            raise self._outside() from None

    def set_iso(self, numbers: list[int]) -> None:
        year, month, day, hour, minute, second = numbers
        self._parts = {"year": year, "month": month, "day": day}
        self._set_time(hour, minute, second, 0)
        self._check()

    def read(self) -> None:
        """Read a date that may have a time and a zone."""
        fields = split_fields(self._text)
        if not fields:
            raise self._invalid()
        is_time_next = False
        for field in fields:
            seen = set(self._seen)
            self._seen = set()
            is_time_next = self._field(field, seen, is_time_next=is_time_next)
            if seen & self._seen:
                raise self._invalid()
            self._seen |= seen
        if is_time_next or not self._seen >= _DATE:
            raise self._invalid()
        self._apply_half_of_day()
        self._check()

    def read_time(self) -> None:
        """Read a time that may have a date before it."""
        fields = split_fields(self._text)
        if not fields:
            raise self._invalid()
        for at, (kind, text) in enumerate(fields):
            if kind == "TIME" and "time" not in self._seen:
                self._clock(text)
            elif kind == "STRING" and text in ("am", "pm") and self._half_of_day is None:
                self._half_of_day = text
            elif kind == "STRING" and text == "t" and at == 0:
                continue
            elif kind == "NUMBER" and len(text.partition(".")[0]) in (4, 6) and "time" not in self._seen:
                self._run_together(text, set(_DATE))
            elif kind == "TZ" and "time" in self._seen and at == len(fields) - 1:
                self._zone_offset(text)
            elif kind in ("DATE", "TZ", "NUMBER") or text in MONTHS or text in ("z", "utc", "gmt"):
                raise UnsupportedError(f'the time "{self._text}" is not supported in this form; write it as 13:45:00.5')
            else:
                raise self._invalid()
        if "time" not in self._seen:
            raise self._invalid()
        self._apply_half_of_day()

    # Fields

    def _field(self, field: DatetimeField, seen: set[str], *, is_time_next: bool) -> bool:
        """Read a field and return whether the next one must be a time, after the `T` of ISO 8601."""
        kind, text = field
        match kind:
            case "DATE" if _DATE - {"year"} <= seen or is_time_next:
                if text[0].isdigit():
                    clock, sign, zone = text.partition("-")
                    if not sign or "time" in seen:
                        raise self._invalid()
                    self._zone_offset(sign + zone)
                    self._run_together(clock, seen)
                elif is_time_next:
                    raise self._invalid()
                else:
                    self._zone_name(text)
            case "DATE":
                self._date(text)
            case "TIME":
                self._clock(text)
            case "TZ":
                self._zone_offset(text)
                return is_time_next
            case "NUMBER" if is_time_next:
                self._run_together(text, seen | _DATE)
            case "NUMBER":
                self._number_field(text, seen)
            case _:
                return self._word(text, seen, is_time_next=is_time_next)
        return False

    def _word(self, text: str, seen: set[str], *, is_time_next: bool) -> bool:
        offset = abbreviated_offset(text)
        word = text[:10]
        if offset is not None:
            self._offset = offset
            self._seen.add("zone")
        elif word in MONTHS:
            if "month" in seen and not self._has_text_month and "day" not in seen and self._parts["month"] <= 31:
                self._parts["day"] = self._parts["month"]
                self._seen.add("day")
            else:
                self._seen.add("month")
            self._has_text_month = True
            self._parts["month"] = MONTHS[word]
        elif word in DAYS_OF_WEEK:
            self._seen.add("weekday")
        elif word in ("at", "on"):
            return is_time_next
        elif word in ("am", "pm"):
            self._half_of_day = word
            self._seen.add("half of day")
        elif word in ("ad", "bc"):
            self._is_bc = word == "bc"
            self._seen.add("era")
        elif word == "t":
            if not seen >= _DATE or is_time_next:
                raise self._invalid()
            return True
        elif word == "epoch":
            self._parts = {"year": 1970, "month": 1, "day": 1}
            self._seen = {*_DATE, "time", "zone"}
        elif word == "allballs":
            self._seen = {"time", "zone"}
        elif word in CURRENT_WORDS or word.lstrip("+-") == "infinity":
            raise UnsupportedError(f'the {self._wanted} "{word}" is not supported; write a date, or use now()')
        elif word in _UNSUPPORTED_WORDS:
            raise UnsupportedError(
                f'the {self._wanted} "{self._text}" is not supported in this form; write it as 2026-01-31 13:45:00.5+02:00'
            )
        else:
            self._zone_name(text)
        return is_time_next

    def _zone_name(self, text: str) -> None:
        try:
            zone_of(text)
        except AnalysisError:
            code = INVALID_PARAMETER if "/" in text else INVALID_DATETIME
            raise AnalysisError(code, f'invalid input syntax for type {self._wanted}: "{self._text}"') from None
        self._zone = text
        self._seen.add("zone")

    def _zone_offset(self, text: str) -> None:
        found = _ZONE.fullmatch(text)
        if found is None:
            raise self._invalid()
        hours, minutes, seconds = int(found[1]), int(found[2] or 0), int(found[3] or 0)
        if found[2] is None and len(text) > 3:
            hours, minutes = divmod(hours, 100)
        if hours > _MAX_ZONE_HOURS or minutes > 59 or seconds > 59:
            raise AnalysisError("22009", f'time zone displacement out of range: "{self._text}"')
        size = hours * 3600 + minutes * 60 + seconds
        self._offset = -size if text[0] == "-" else size
        self._seen.add("zone")

    def _clock(self, text: str) -> None:
        found = _CLOCK.fullmatch(text)
        if found is None:
            raise self._invalid()
        hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
        if found[3] is None and found[4] is not None:
            hour, minute, second = 0, hour, minute
        self._set_time(hour, minute, second, _fraction(found[4]))

    def _set_time(self, hour: int, minute: int, second: int, micros: int) -> None:
        total = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
        if hour > 24 or minute > 59 or second > 60 or total > 86_400_000_000:
            raise self._overflow()
        self.micros = total
        self._seen.add("time")

    def _date(self, text: str) -> None:
        """Read a field with separators: three parts, of which one may be the name of a month."""
        parts = re.findall(r"[0-9]+|[a-z]+", text)
        if len(parts) > 3:
            raise self._invalid()
        seen: set[str] = set()
        for part in parts:
            if part.isalpha():
                if part[:10] not in MONTHS or self._has_text_month:
                    raise self._invalid()
                self._has_text_month = True
                self._parts["month"] = MONTHS[part[:10]]
                seen.add("month")
        for part in parts:
            if part.isdigit():
                seen.add(self._number(part, seen))
        if not seen >= _DATE:
            raise self._invalid()
        self._seen |= seen

    def _number_field(self, text: str, seen: set[str]) -> None:
        whole, point, _ = text.partition(".")
        if point and not seen & _DATE:
            self._date(text)
        elif (point and len(whole) > 2) or (len(text) >= 6 and not (seen & _DATE and "time" in seen)):
            self._run_together(text, seen)
        elif point:
            raise self._invalid()
        elif seen >= _DATE:
            self._run_together(text, seen)
        else:
            self._seen.add(self._number(text, seen))

    def _number(self, text: str, seen: set[str]) -> str:
        """Read a number of a date and return what it is: the month comes first unless the year does."""
        known = seen & _DATE
        if len(text) == 3 and known == {"year"} and 1 <= int(text) <= 366:
            raise UnsupportedError(f'the {self._wanted} "{self._text}" is not supported in this form: a day of the year')
        is_year = len(text) >= 3
        if not known:
            name = "year" if is_year else "month"
        elif known == {"year"} or known == {"day"}:
            name = "month"
        elif known == {"month"}:
            name = "year" if self._has_text_month and is_year else "day"
        elif known == {"year", "month"}:
            name = "day"
        elif known == {"month", "day"}:
            name = "year"
        else:
            raise self._invalid()
        self._parts[name] = int(text)
        if name == "year":
            self._is_short_year = len(text) <= 2
        return name

    def _run_together(self, text: str, seen: set[str]) -> None:
        """Read `20260131` as a date, and `104500` or `1045` as a time after one."""
        digits, point, fraction = text.partition(".")
        if not digits.isdigit():
            raise self._invalid()
        if not point and not seen >= _DATE and len(digits) >= 6:
            self._parts |= {"year": int(digits[:-4]), "month": int(digits[-4:-2]), "day": int(digits[-2:])}
            self._is_short_year = len(digits) == 6
            self._seen |= _DATE
        elif "time" not in seen and len(digits) in (4, 6):
            self._set_time(int(digits[:2]), int(digits[2:4]), int(digits[4:] or 0), _fraction(point + fraction))
        else:
            raise self._invalid()

    def _apply_half_of_day(self) -> None:
        if self._half_of_day is None:
            return
        hour = self.micros // 3_600_000_000
        if hour > 12:
            raise self._overflow()
        if hour == 12:
            self.micros -= 12 * 3_600_000_000
        if self._half_of_day == "pm":
            self.micros += 12 * 3_600_000_000

    def _check(self) -> None:
        year = self._parts["year"]
        if self._is_short_year and not self._is_bc:
            year += 2000 if year < 70 else 1900
        self._parts["year"] = year
        if year <= 0 or not 1 <= self._parts["month"] <= 12 or not 1 <= self._parts["day"] <= 31:
            raise self._overflow()

    def _outside(self) -> AnalysisError:
        return UnsupportedError(f'the {self._wanted} "{self._text}" is outside of the years 1 to 9999')

    def _invalid(self) -> AnalysisError:
        return AnalysisError(INVALID_DATETIME, f'invalid input syntax for type {self._wanted}: "{self._text}"')

    def _overflow(self) -> AnalysisError:
        return AnalysisError(DATETIME_OVERFLOW, f'date/time field value out of range: "{self._text}"')


def _fraction(text: str | None) -> int:
    return round(float(f"0{text}0") * 1_000_000) if text else 0
