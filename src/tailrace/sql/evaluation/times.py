"""Dates, times and intervals: arithmetic, parts, truncation and time zones.

Python's dates are of the years 1 to 9999; a result outside of them is refused, though PostgreSQL has more.
"""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import wraps
from typing import Any

from tailrace.sql.analysis.interval_texts import FULL_RANGE, Interval, IntervalRange, restricted
from tailrace.sql.analysis.time_zones import to_instant, to_local
from tailrace.sql.evaluation.casts import RANGES, date_as_timestamp, microseconds_of, time_of
from tailrace.sql.evaluation.comparisons import interval_key
from tailrace.sql.evaluation.functions import Entry, EvaluationError, Function, TakesNulls, coded, expanded
from tailrace.sql.evaluation.time_parts import parts_of, truncated, truncated_interval
from tailrace.sql.functions import datetime_formats, datetime_readers

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_DAYS_PER_MONTH = 30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


def in_zone(moment: datetime, zone: str) -> datetime:
    """Return the local time of a zone."""
    return _LOCAL_EPOCH + timedelta(microseconds=to_local(_since_epoch(moment), zone))


def to_utc(local: datetime, zone: str) -> datetime:
    """Return the instant of a local time."""
    return _EPOCH + timedelta(microseconds=to_instant(_since_epoch(local), zone))


def _in_range(operate: Callable[..., Any]) -> Function:
    """Return a function that refuses results that Python's dates can't hold."""

    @wraps(operate)
    def function(*values: Any) -> Any:
        try:
            return operate(*values)
        except (OverflowError, ValueError):
            raise EvaluationError("0A000", "times outside of the years 1 to 9999 are not supported") from None

    return function


def checked_interval(months: int, days: int, microseconds: int) -> Interval:
    """Return an interval. Raises `EvaluationError` if a field is out of range."""
    low, high = RANGES["int4"]
    big_low, big_high = RANGES["int8"]
    if not (low <= months <= high and low <= days <= high and big_low <= microseconds <= big_high):
        raise EvaluationError("22008", "interval out of range")
    return Interval(months, days, microseconds)


def plus_interval(moment: datetime, interval: Interval) -> datetime:
    """Return a time with the months, then the days, then the rest of an interval added."""
    if interval.months:
        months = moment.year * 12 + moment.month - 1 + interval.months
        year, month = months // 12, months % 12 + 1
        moment = moment.replace(year=year, month=month, day=min(moment.day, _days_of_month(year, month)))
    return moment + timedelta(days=interval.days, microseconds=interval.microseconds)


def _days_of_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def negated(interval: Interval) -> Interval:
    return checked_interval(-interval.months, -interval.days, -interval.microseconds)


def _minus_interval(moment: datetime, interval: Interval) -> datetime:
    return plus_interval(moment, negated(interval))


def _difference(a: datetime, b: datetime) -> Interval:
    microseconds = (a - b) // timedelta(microseconds=1)
    days = int(abs(microseconds) // _DAY) * (1 if microseconds >= 0 else -1)
    return Interval(0, days, microseconds - days * _DAY)


def _sum(a: Interval, b: Interval) -> Interval:
    return checked_interval(a.months + b.months, a.days + b.days, a.microseconds + b.microseconds)


def _minus(a: Interval, b: Interval) -> Interval:
    return checked_interval(a.months - b.months, a.days - b.days, a.microseconds - b.microseconds)


def _rounded_seconds(value: float) -> float:
    return round(value * _SECOND) / _SECOND


def _scaled(interval: Interval, scale: Callable[[int], float]) -> Interval:
    """Return a multiple of an interval. Fractions of months become days, fractions of days seconds."""
    exact_months, exact_days, exact_rest = scale(interval.months), scale(interval.days), scale(interval.microseconds)
    if not (math.isfinite(exact_months) and math.isfinite(exact_days) and math.isfinite(exact_rest)):
        raise EvaluationError("22008", "interval out of range")
    months, days = int(exact_months), int(exact_days)
    more_days = _rounded_seconds((exact_months - months) * _DAYS_PER_MONTH)
    seconds = _rounded_seconds((exact_days - days + more_days - int(more_days)) * 86_400)
    if abs(seconds) >= 86_400:
        days += int(seconds / 86_400)
        seconds -= int(seconds / 86_400) * 86_400
    days += int(more_days)
    return checked_interval(months, days, round(exact_rest + seconds * _SECOND))


def _times(interval: Interval, factor: float) -> Interval:
    return _scaled(interval, lambda amount: amount * factor)


def _divided(interval: Interval, divisor: float) -> Interval:
    if divisor == 0:
        raise EvaluationError("22012", "division by zero")
    return _scaled(interval, lambda amount: amount / divisor)


def _justified_days(interval: Interval) -> Interval:
    months = _toward_zero(interval.days, _DAYS_PER_MONTH)
    return _same_sign_days(interval.months + months, interval.days - months * _DAYS_PER_MONTH, interval.microseconds)


def _same_sign_days(months: int, days: int, microseconds: int) -> Interval:
    if months > 0 and days < 0:
        months, days = months - 1, days + _DAYS_PER_MONTH
    elif months < 0 and days > 0:
        months, days = months + 1, days - _DAYS_PER_MONTH
    return checked_interval(months, days, microseconds)


def _justified_hours(interval: Interval) -> Interval:
    days = _toward_zero(interval.microseconds, _DAY)
    rest = interval.microseconds - days * _DAY
    days += interval.days
    if days > 0 and rest < 0:
        days, rest = days - 1, rest + _DAY
    elif days < 0 and rest > 0:
        days, rest = days + 1, rest - _DAY
    return checked_interval(interval.months, days, rest)


def _justified(interval: Interval) -> Interval:
    rest_days = _toward_zero(interval.microseconds, _DAY)
    rest = interval.microseconds - rest_days * _DAY
    days = interval.days + rest_days
    more = _toward_zero(days, _DAYS_PER_MONTH)
    months, days = interval.months + more, days - more * _DAYS_PER_MONTH
    if months > 0 and (days < 0 or (days == 0 and rest < 0)):
        months, days = months - 1, days + _DAYS_PER_MONTH
    elif months < 0 and (days > 0 or (days == 0 and rest > 0)):
        months, days = months + 1, days - _DAYS_PER_MONTH
    if days > 0 and rest < 0:
        days, rest = days - 1, rest + _DAY
    elif days < 0 and rest > 0:
        days, rest = days + 1, rest - _DAY
    return checked_interval(months, days, rest)


def _toward_zero(amount: int, unit: int) -> int:
    return abs(amount) // unit * (1 if amount >= 0 else -1)


def _age(later: datetime, earlier: datetime) -> Interval:
    """Return the difference in years, months and days, as one counts by a calendar."""
    if later < earlier:
        return negated(_age_forward(earlier, later))
    return _age_forward(later, earlier)


def _age_forward(later: datetime, earlier: datetime) -> Interval:
    months = (later.year - earlier.year) * 12 + later.month - earlier.month
    days = later.day - earlier.day
    rest = microseconds_of(later.time()) - microseconds_of(earlier.time())
    if rest < 0:
        rest, days = rest + _DAY, days - 1
    while days < 0:
        days += _days_of_month(earlier.year, earlier.month)
        months -= 1
    return checked_interval(months, days, rest)


def _date_plus(value: date, days: int) -> date:
    return value + timedelta(days=days)


def _make_date(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        raise EvaluationError("22008", f"date field value out of range: {year}-{month:02}-{day:02}") from None


def _make_time(hour: int, minute: int, second: float) -> time:
    microseconds = round(second * _SECOND)
    is_valid = 0 <= hour <= 24 and 0 <= minute <= 59 and second == second and 0 <= microseconds <= 60 * _SECOND
    total = (hour * 3600 + minute * 60) * _SECOND + microseconds if is_valid else -1
    if not 0 <= total <= _DAY:
        raise EvaluationError("22008", f"time field value out of range: {hour}:{minute:02}:{second:02g}")
    if total == _DAY:
        raise EvaluationError("0A000", "the time 24:00:00 is not supported")
    return time_of(total)


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> datetime:
    return datetime.combine(_make_date(year, month, day), _make_time(hour, minute, second))


def _make_timestamptz(year: int, month: int, day: int, hour: int, minute: int, second: float, zone: str = "UTC") -> datetime:
    return to_utc(_make_timestamp(year, month, day, hour, minute, second), zone)


def _make_interval(
    years: int = 0, months: int = 0, weeks: int = 0, days: int = 0, hours: int = 0, minutes: int = 0, seconds: float = 0.0
) -> Interval:
    if not math.isfinite(seconds):
        raise EvaluationError("22008", "interval out of range")
    return checked_interval(
        years * 12 + months, weeks * 7 + days, (hours * 3600 + minutes * 60) * _SECOND + round(seconds * _SECOND)
    )


def _from_epoch(seconds: float) -> datetime:
    if not math.isfinite(seconds):
        raise EvaluationError("0A000", "infinite times are not supported")
    return _EPOCH + timedelta(microseconds=round(seconds * _SECOND))


def _bin(width: Interval, moment: datetime, origin: datetime) -> datetime:
    if width.months:
        raise EvaluationError("0A000", "timestamps cannot be binned into intervals containing months or years")
    step = interval_key(width)
    if step <= 0:
        raise EvaluationError("22008", "stride must be greater than zero")
    distance = (moment - origin) // timedelta(microseconds=1)
    return origin + timedelta(microseconds=distance // step * step)


def _plus_in_zone(moment: datetime, interval: Interval, zone: str) -> datetime:
    local = in_zone(moment, zone)
    days_later = plus_interval(local, interval._replace(microseconds=0))
    return to_utc(days_later, zone) + timedelta(microseconds=interval.microseconds)


def _overlaps(a: Any, b: Any, c: Any, d: Any) -> bool | None:
    """Return whether two spans overlap. Each is two times, or a time and an interval; nulls may leave it unknown."""
    first, second = _span(a, b), _span(c, d)
    if first is None or second is None:
        return None
    (start, end), (other_start, other_end) = first, second
    if start > other_start:
        if other_end is None:
            return None
        if start < other_end:
            return True
        return None if end is None else False
    if start < other_start:
        if end is None:
            return None
        if other_start < end:
            return True
        return None if other_end is None else False
    return None if end is None or other_end is None else True


def _span(start: Any, end: Any) -> tuple[Any, Any] | None:
    if isinstance(end, Interval) and start is not None:
        end = (
            _in_range(plus_interval)(start, end)
            if isinstance(start, datetime)
            else time_of(microseconds_of(start) + end.microseconds)
        )
    if start is None:
        return None if end is None else (end, None)
    if end is None:
        return start, None
    return (start, end) if start <= end else (end, start)


def _date_part(field: str, value: Any) -> float | None:
    """Return a part as a float. Unlike `extract`, this takes a date as the time at which it begins."""
    is_date = isinstance(value, date) and not isinstance(value, datetime)
    found = parts_of(date_as_timestamp(value) if is_date else value, field)
    return None if found is None else float(found)


def _part(field: str, value: Any) -> Decimal | None:
    return parts_of(value, field)


def _truncated_in_zone(field: str, moment: datetime, zone: str) -> datetime:
    return to_utc(truncated(field, in_zone(moment, zone)), zone)


def _time_plus(value: time, interval: Interval) -> time:
    return time_of(microseconds_of(value) + interval.microseconds)


def _time_minus(value: time, interval: Interval) -> time:
    return time_of(microseconds_of(value) - interval.microseconds)


def _at_offset(interval: Interval, moment: datetime) -> datetime:
    if interval.months or interval.days:
        raise EvaluationError("22023", "interval time zone must not include months or days")
    shift = timedelta(microseconds=interval.microseconds)
    return (moment + shift).replace(tzinfo=None) if moment.tzinfo else (moment - shift).replace(tzinfo=UTC)


def _since_epoch(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def _formatted(moment: datetime, picture: str) -> str:
    return datetime_formats.timestamp_chars(_since_epoch(moment), picture, "UTC" if moment.tzinfo else "")


def _interval_formatted(value: Interval, picture: str) -> str:
    return datetime_formats.interval_chars(value.months, value.days, value.microseconds, picture)


def _read(text: str, picture: str) -> datetime:
    return _EPOCH + timedelta(microseconds=datetime_readers.read_chars(text, picture))


def _rounded(microseconds: int, digits: int) -> int:
    step: int = 10 ** (6 - min(digits, 6))
    whole = (abs(microseconds) + step // 2) // step * step
    return whole if microseconds >= 0 else -whole


def _rounded_moment(moment: datetime, digits: int) -> datetime:
    rounded = _EPOCH + timedelta(microseconds=_rounded(_since_epoch(moment), digits))
    return rounded.replace(tzinfo=moment.tzinfo)


def _rounded_time(value: time, digits: int) -> time:
    return time_of(_rounded(microseconds_of(value), digits))


def _restricted(value: Interval, modifier: int) -> Interval:
    """Return an interval of some units only, or with fewer digits of its seconds."""
    units, digits = modifier >> 16, modifier & 0xFFFF
    if units != FULL_RANGE:
        value = restricted(value, IntervalRange(units))
    return value._replace(microseconds=_rounded(value.microseconds, digits)) if digits < 6 else value


_ENTRIES: dict[str, Entry] = {
    "to_char({zoned}, text)": coded(_formatted),
    "to_char(interval, text)": coded(_interval_formatted),
    "to_timestamp(text, text)": _in_range(coded(_read)),
    "to_date(text, text)": _in_range(coded(lambda text, picture: _read(text, picture).date())),
    "timestamp(timestamp, int4)": _in_range(_rounded_moment),
    "timestamptz(timestamptz, int4)": _in_range(_rounded_moment),
    "time(time, int4)": _rounded_time,
    "interval(interval, int4)": _restricted,
    "date + int4": _in_range(_date_plus),
    "int4 + date": _in_range(lambda days, value: _date_plus(value, days)),
    "date - int4": _in_range(lambda value, days: _date_plus(value, -days)),
    "date - date": lambda a, b: (a - b).days,
    "date + interval": _in_range(lambda value, interval: plus_interval(date_as_timestamp(value), interval)),
    "interval + date": _in_range(lambda interval, value: plus_interval(date_as_timestamp(value), interval)),
    "date - interval": _in_range(lambda value, interval: _minus_interval(date_as_timestamp(value), interval)),
    "date + time": datetime.combine,
    "time + date": lambda value, day: datetime.combine(day, value),
    "{zoned} + interval": _in_range(plus_interval),
    "interval + {zoned}": _in_range(lambda interval, moment: plus_interval(moment, interval)),
    "{zoned} - interval": _in_range(_minus_interval),
    "timestamp - timestamp": _difference,
    "timestamptz - timestamptz": _difference,
    "time + interval": _time_plus,
    "interval + time": lambda interval, value: _time_plus(value, interval),
    "time - interval": _time_minus,
    "time - time": lambda a, b: Interval(0, 0, microseconds_of(a) - microseconds_of(b)),
    "interval + interval": _sum,
    "interval - interval": _minus,
    "- interval": negated,
    "interval * float8": _times,
    "float8 * interval": lambda factor, interval: _times(interval, factor),
    "interval / float8": _divided,
    "justify_days(interval)": _justified_days,
    "justify_hours(interval)": _justified_hours,
    "justify_interval(interval)": _justified,
    "age(timestamp, timestamp)": _age,
    "age(timestamptz, timestamptz)": _age,
    "extract(text, date)": _part,
    "extract(text, {zoned})": _part,
    "extract(text, time)": _part,
    "extract(text, interval)": _part,
    "date_part(text, date)": _date_part,
    "date_part(text, {zoned})": _date_part,
    "date_part(text, time)": _date_part,
    "date_part(text, interval)": _date_part,
    "date_trunc(text, {zoned})": _in_range(truncated),
    "date_trunc(text, timestamptz, text)": _in_range(_truncated_in_zone),
    "date_trunc(text, interval)": truncated_interval,
    "date_bin(interval, {zoned}, {zoned})": _in_range(_bin),
    "date_add(timestamptz, interval)": _in_range(plus_interval),
    "date_add(timestamptz, interval, text)": _in_range(_plus_in_zone),
    "date_subtract(timestamptz, interval)": _in_range(_minus_interval),
    "date_subtract(timestamptz, interval, text)": _in_range(
        lambda moment, interval, zone: _plus_in_zone(moment, negated(interval), zone)
    ),
    "timezone(text, timestamptz)": _in_range(lambda zone, moment: in_zone(moment, zone)),
    "timezone(text, timestamp)": _in_range(lambda zone, moment: to_utc(moment, zone)),
    "timezone(interval, {zoned})": _in_range(_at_offset),
    "timezone(timestamptz)": lambda moment: moment.replace(tzinfo=None),
    "timezone(timestamp)": lambda moment: moment.replace(tzinfo=UTC),
    "make_date(int4, int4, int4)": _make_date,
    "make_time(int4, int4, float8)": _make_time,
    "make_timestamp(int4, int4, int4, int4, int4, float8)": _make_timestamp,
    "make_timestamptz(int4, int4, int4, int4, int4, float8)": _make_timestamptz,
    "make_timestamptz(int4, int4, int4, int4, int4, float8, text)": _in_range(_make_timestamptz),
    "make_interval(int4, int4, int4, int4, int4, int4, float8)": _make_interval,
    "to_timestamp(float8)": _in_range(_from_epoch),
    "isfinite({moment})": lambda moment: True,
    "isfinite(interval)": lambda interval: True,
    "clock_timestamp()": lambda: datetime.now(UTC),
    **{
        f"overlaps({one}, {end}, {one}, {other})": TakesNulls(_overlaps)
        for one in ("time", "timestamp", "timestamptz")
        for end in (one, "interval")
        for other in (one, "interval")
    },
}
TIMES: dict[str, Entry] = expanded(_ENTRIES)
