"""Functions of dates, times and intervals that DuckDB calls in Python. Instants are microseconds since 1970."""

from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar

from tailrace.sql.analysis import time_zones
from tailrace.sql.analysis.datetime_texts import read_date, read_time, read_timestamp, read_timestamptz
from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.interval_texts import Interval, interval_text, read_interval

_T = TypeVar("_T")
_DAY = 86_400_000_000
_DAYS_PER_MONTH = 30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_ROWS = 10_000_000


class TimeError(Exception):
    """The message begins with PostgreSQL's code in brackets."""


def _run(call: Callable[..., _T], *arguments: object) -> _T:
    try:
        return call(*arguments)
    except AnalysisError as error:
        raise TimeError(f"[{error.sqlstate}] {error.message}") from None


def _read(read: Callable[[str], _T]) -> Callable[[str], _T]:
    return lambda text: _run(read, text)


def _without_zone(text: str) -> datetime:
    return read_timestamptz(text).replace(tzinfo=None)


date_of_text: Callable[[str], date] = _read(read_date)
time_of_text: Callable[[str], time] = _read(read_time)
timestamp_of_text: Callable[[str], datetime] = _read(read_timestamp)
timestamptz_of_text: Callable[[str], datetime] = _read(_without_zone)
interval_of_text: Callable[[str], Sequence[int]] = _read(lambda text: list(read_interval(text)))


def local_microseconds(instant: int, zone: str) -> int:
    return _run(time_zones.to_local, instant, zone)


def instant_microseconds(local: int, zone: str) -> int:
    return _run(time_zones.to_instant, local, zone)


def interval_parts_text(months: int, days: int, micros: int) -> str:
    return interval_text(Interval(months, days, micros))


def justified_hours(months: int, days: int, micros: int) -> list[int]:
    """Return the parts of an interval with each 24 hours as a day."""
    whole, micros = _split(micros, _DAY)
    days, micros = _same_sign(days + whole, micros, _DAY)
    return [months, days, micros]


def justified_days(months: int, days: int, micros: int) -> list[int]:
    """Return the parts of an interval with each 30 days as a month."""
    whole, days = _split(days, _DAYS_PER_MONTH)
    months, days = _same_sign(months + whole, days, _DAYS_PER_MONTH)
    return [months, days, micros]


def justified_interval(months: int, days: int, micros: int) -> list[int]:
    """Return the parts of an interval with each 24 hours as a day and each 30 days as a month, and all of one sign."""
    whole, micros = _split(micros, _DAY)
    whole, days = _split(days + whole, _DAYS_PER_MONTH)
    months += whole
    if months > 0 and (days < 0 or (days == 0 and micros < 0)):
        months, days = months - 1, days + _DAYS_PER_MONTH
    elif months < 0 and (days > 0 or (days == 0 and micros > 0)):
        months, days = months + 1, days - _DAYS_PER_MONTH
    days, micros = _same_sign(days, micros, _DAY)
    return [months, days, micros]


def stepped_months(start: int, stop: int, step: Sequence[int]) -> list[int]:
    """Return a series whose step has months. Each value is the one before it plus the step."""
    months, days, micros = step
    is_rising = (months * _DAYS_PER_MONTH + days) * _DAY + micros > 0
    result: list[int] = []
    current = start
    while current <= stop if is_rising else current >= stop:
        result.append(current)
        if len(result) > _MAX_ROWS:
            raise TimeError("[0A000] a series of more than 10 million rows is not supported")
        following = _plus(current, months, days, micros)
        if following == current:
            raise TimeError("[0A000] a series whose step adds nothing is not supported")
        current = following
    return result


def _plus(instant: int, months: int, days: int, micros: int) -> int:
    try:
        moment = _EPOCH + timedelta(microseconds=instant)
        count = moment.year * 12 + moment.month - 1 + months
        year, month = divmod(count, 12)
        moved = moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))
        return (moved + timedelta(days=days, microseconds=micros) - _EPOCH) // timedelta(microseconds=1)
    except (OverflowError, ValueError):
        raise TimeError("[0A000] a series by months outside of the years 1 to 9999 is not supported") from None


def _split(value: int, size: int) -> tuple[int, int]:
    """Return the quotient, rounded towards zero, and the rest."""
    whole = abs(value) // size
    whole = -whole if value < 0 else whole
    return whole, value - whole * size


def _same_sign(large: int, small: int, size: int) -> tuple[int, int]:
    if large > 0 and small < 0:
        return large - 1, small + size
    if large < 0 and small > 0:
        return large + 1, small - size
    return large, small
