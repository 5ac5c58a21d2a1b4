"""SQL functions on dates and timestamps, which SQLite stores as text: intervals, `date_trunc` and `extract`."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import apsw

from tailrace.model.errors import SqlError
from tailrace.sql.tables.values import InvalidValueError, shown, store_date, store_timestamp

_PARTS = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+)")
_SECONDS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 7 * 86_400,
}
_SHORT = {"us": "microsecond", "ms": "millisecond", "s": "second", "sec": "second", "min": "minute", "h": "hour", "d": "day"}
_MONTHS = {"month": 1, "mon": 1, "quarter": 3, "year": 12, "y": 12, "decade": 120, "century": 1200}
_DATE_CHARACTERS = 10

_Value = Any
"""What SQLite passes to a function: a number, text, bytes or `None`."""


def register_timestamps(connection: apsw.Connection) -> None:
    functions: tuple[tuple[str, Callable[..., Any], int], ...] = (
        ("shift", _shift, 3),
        ("trunc", _truncate, 2),
        ("part", _part, 2),
        ("days", _days, 2),
    )
    for name, function, arguments in functions:
        connection.create_scalar_function(f"tr_{name}", function, arguments, deterministic=True)


def _shift(value: _Value, sign: Any, interval: _Value) -> str | None:
    """Return a timestamp moved by an interval such as `1 day 2 hours`. A date moved by whole days stays a date."""
    if value is None or interval is None:
        return None
    months, seconds = _length(str(interval))
    timestamp = _timestamp(value)
    try:
        moved = _add_months(timestamp, sign * months) + timedelta(seconds=sign * seconds)
    except (OverflowError, ValueError):
        raise SqlError(f"{shown(value)} moved by {shown(interval)} is not a valid date") from None
    is_date = isinstance(value, str) and len(value) == _DATE_CHARACTERS and seconds % _SECONDS["day"] == 0
    return store_date(moved) if is_date else store_timestamp(moved)


def _length(interval: str) -> tuple[int, float]:
    months = 0
    seconds = 0.0
    text = interval.strip().lower()
    rest = _PARTS.sub("", text).strip(" ,")
    found = _PARTS.findall(text)
    if rest or not found:
        raise SqlError(f"{shown(interval)} is not an interval; write '1 day' or '2 hours 30 minutes'")
    for amount, word in found:
        unit = _SHORT.get(word, word if word in _MONTHS or word in _SECONDS else word.removesuffix("s"))
        if unit in _MONTHS:
            months += int(float(amount) * _MONTHS[unit])
        elif unit in _SECONDS:
            seconds += float(amount) * _SECONDS[unit]
        else:
            raise SqlError(f"{word!r} is not a unit of time; use one of {', '.join((*_SECONDS, *_MONTHS))}")
    return months, seconds


def _add_months(timestamp: datetime, months: int) -> datetime:
    """Return the same day of another month, or its last day if the month is shorter."""
    year, month = divmod(timestamp.year * 12 + timestamp.month - 1 + months, 12)
    day = timestamp.day
    while day > 28:
        try:
            return timestamp.replace(year=year, month=month + 1, day=day)
        except ValueError:
            day -= 1
    return timestamp.replace(year=year, month=month + 1, day=day)


_TRUNCATIONS: dict[str, Callable[[datetime], datetime]] = {
    "millisecond": lambda m: m.replace(microsecond=m.microsecond // 1000 * 1000),
    "second": lambda m: m.replace(microsecond=0),
    "minute": lambda m: m.replace(second=0, microsecond=0),
    "hour": lambda m: m.replace(minute=0, second=0, microsecond=0),
    "day": lambda m: _midnight(m),
    "week": lambda m: _midnight(m) - timedelta(days=m.weekday()),
    "month": lambda m: _midnight(m).replace(day=1),
    "quarter": lambda m: _midnight(m).replace(month=(m.month - 1) // 3 * 3 + 1, day=1),
    "year": lambda m: _midnight(m).replace(month=1, day=1),
}


def _midnight(timestamp: datetime) -> datetime:
    return timestamp.replace(hour=0, minute=0, second=0, microsecond=0)


def _truncate(unit: _Value, value: _Value) -> str | None:
    if value is None:
        return None
    truncation = _TRUNCATIONS.get(str(unit).lower())
    if truncation is None:
        raise SqlError(f"date_trunc does not know the unit {shown(unit)}; use one of {', '.join(_TRUNCATIONS)}")
    return store_timestamp(truncation(_timestamp(value)))


_EXTRACTS: dict[str, Callable[[datetime], int | float]] = {
    "epoch": lambda m: m.timestamp(),
    "year": lambda m: m.year,
    "quarter": lambda m: (m.month - 1) // 3 + 1,
    "month": lambda m: m.month,
    "week": lambda m: m.isocalendar().week,
    "day": lambda m: m.day,
    "dow": lambda m: m.isoweekday() % 7,
    "isodow": lambda m: m.isoweekday(),
    "doy": lambda m: m.timetuple().tm_yday,
    "hour": lambda m: m.hour,
    "minute": lambda m: m.minute,
    "second": lambda m: m.second + m.microsecond / 1e6,
    "millisecond": lambda m: m.second * 1000 + m.microsecond / 1000,
    "microsecond": lambda m: m.second * 1_000_000 + m.microsecond,
}


def _part(unit: _Value, value: _Value) -> int | float | None:
    if value is None:
        return None
    name = str(unit).lower()
    extract = _EXTRACTS.get(name) or _EXTRACTS.get(name.removesuffix("s"))
    if extract is None:
        raise SqlError(f"extract does not know the field {shown(unit)}; use one of {', '.join(_EXTRACTS)}")
    return extract(_timestamp(value))


def _days(left: _Value, right: _Value) -> int | None:
    """Return the days between two dates."""
    if left is None or right is None:
        return None
    return (date.fromisoformat(store_date(_timestamp(left))) - date.fromisoformat(store_date(_timestamp(right)))).days


def _timestamp(value: _Value) -> datetime:
    try:
        return datetime.fromisoformat(store_timestamp(value)).astimezone(UTC)
    except InvalidValueError as why:
        raise SqlError(f"{shown(value)} is not a timestamp: {why}") from None
