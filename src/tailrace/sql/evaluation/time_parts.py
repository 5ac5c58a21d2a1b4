"""Parts of times, as `extract` and `date_part` return them, and times cut off by `date_trunc`."""

from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any

from tailrace.sql.analysis.interval_texts import Interval
from tailrace.sql.evaluation.casts import date_as_timestamp, microseconds_of
from tailrace.sql.evaluation.functions import EvaluationError
from tailrace.sql.functions import numerics

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
_JULIAN_EPOCH = 1_721_425
"""The Julian day before the first day of Python's calendar."""
_UNITS = {
    alias: unit
    for unit, aliases in {
        "microseconds": "microsecond us usec usecs usecond useconds microsecon",
        "milliseconds": "millisecond ms msec msecs mseconds millisecon",
        "second": "s sec secs seconds",
        "minute": "m min mins minutes",
        "hour": "h hr hrs hours",
        "day": "d days",
        "week": "w weeks",
        "month": "mon mons months",
        "quarter": "qtr",
        "year": "y yr yrs years",
        "decade": "dec decs decades",
        "century": "c cent centuries",
        "millennium": "mil mils millennia",
    }.items()
    for alias in (unit, *aliases.split())
}
_CLOCK = ("microseconds", "milliseconds", "second", "minute", "hour")
_ZONE_PARTS = ("timezone", "timezone_hour", "timezone_minute")


def _unit(field: str) -> str:
    return _UNITS.get(field.lower(), field.lower())


def _names(value: Any) -> str:
    match value:
        case datetime():
            return "timestamp with time zone" if value.tzinfo else "timestamp without time zone"
        case time():
            return "time without time zone"
        case Interval():
            return "interval"
    return "date"


def _not_supported(field: str, value: Any, *, is_known: bool) -> EvaluationError:
    if is_known:
        return EvaluationError("0A000", f'unit "{field}" not supported for type {_names(value)}')
    return EvaluationError("22023", f'unit "{field}" not recognized for type {_names(value)}')


def parts_of(value: Any, field: str) -> Decimal:
    """Return a part of a date, a time, a time stamp or an interval."""
    unit = _unit(field)
    if isinstance(value, Interval):
        found = _interval_part(value, unit)
    elif isinstance(value, time):
        found = _clock_part(microseconds_of(value), unit)
        if unit == "epoch":
            found = _scaled(microseconds_of(value), 6)
    elif isinstance(value, datetime):
        found = _timestamp_part(value, unit)
    else:
        found = None if unit in _CLOCK else _timestamp_part(date_as_timestamp(value), unit)
        if unit in ("epoch", "julian") and found is not None:
            found = found.to_integral_value()
    if found is None:
        is_known = unit in _UNITS.values() or unit in (*_ZONE_PARTS, "dow", "isodow", "doy", "isoyear", "julian", "epoch")
        raise _not_supported(field, value, is_known=is_known)
    return found


def _scaled(microseconds: int, scale: int) -> Decimal:
    return Decimal(microseconds).scaleb(-6).quantize(Decimal(1).scaleb(-scale))


def _clock_part(microseconds: int, unit: str) -> Decimal | None:
    """Return a part of the time of a day, or of an interval, whose parts may be negative."""
    sign = -1 if microseconds < 0 else 1
    seconds, _ = divmod(abs(microseconds), _SECOND)
    in_minute = abs(microseconds) % (60 * _SECOND) * sign
    match unit:
        case "microseconds":
            return Decimal(in_minute)
        case "milliseconds":
            return Decimal(in_minute).scaleb(-3)
        case "second":
            return Decimal(in_minute).scaleb(-6)
        case "minute":
            return Decimal(seconds // 60 % 60 * sign)
        case "hour":
            return Decimal(seconds // 3600 * sign)
    return None


def _timestamp_part(value: datetime, unit: str) -> Decimal | None:
    local = value.replace(tzinfo=None)
    year, week, weekday = local.isocalendar()
    whole: int | None = None
    match unit:
        case "day":
            whole = local.day
        case "week":
            whole = week
        case "month":
            whole = local.month
        case "quarter":
            whole = (local.month + 2) // 3
        case "year":
            whole = local.year
        case "decade":
            whole = local.year // 10
        case "century":
            whole = (local.year + 99) // 100
        case "millennium":
            whole = (local.year + 999) // 1000
        case "isoyear":
            whole = year
        case "dow":
            whole = weekday % 7
        case "isodow":
            whole = weekday
        case "doy":
            whole = local.timetuple().tm_yday
        case "epoch":
            return Decimal((local - _EPOCH) // timedelta(microseconds=1)).scaleb(-6)
        case "julian":
            day = Decimal(local.toordinal() + _JULIAN_EPOCH)
            return numerics.add(day, numerics.divide(Decimal(microseconds_of(local.time())), Decimal(_DAY)))
        case "timezone" | "timezone_hour" | "timezone_minute" if value.tzinfo is not None:
            whole = 0
        case _:
            return _clock_part(microseconds_of(local.time()), unit)
    return Decimal(whole)


def _interval_part(value: Interval, unit: str) -> Decimal | None:
    years = abs(value.months) // 12 * (1 if value.months >= 0 else -1)
    months = value.months - years * 12
    match unit:
        case "day":
            return Decimal(value.days)
        case "week":
            return Decimal(int(value.days / 7))
        case "month":
            return Decimal(months)
        case "quarter":
            return Decimal(months // 3 + 1 if value.months >= 0 else -(-months // 3 + 1))
        case "year":
            return Decimal(years)
        case "decade":
            return Decimal(int(years / 10))
        case "century":
            return Decimal(int(years / 100))
        case "millennium":
            return Decimal(int(years / 1000))
        case "epoch":
            days = Decimal(years) * Decimal("365.25") + months * 30 + value.days
            return (days * 86_400 + Decimal(value.microseconds).scaleb(-6)).quantize(Decimal("0.000001"))
    return _clock_part(value.microseconds, unit)


def truncated(field: str, value: datetime) -> datetime:
    """Return a time stamp cut off after a unit."""
    unit = _unit(field)
    midnight = value.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "microseconds":
            return value
        case "milliseconds":
            return value.replace(microsecond=value.microsecond // 1000 * 1000)
        case "second":
            return value.replace(microsecond=0)
        case "minute":
            return value.replace(second=0, microsecond=0)
        case "hour":
            return value.replace(minute=0, second=0, microsecond=0)
        case "day":
            return midnight
        case "week":
            return midnight - timedelta(days=value.weekday())
        case "month":
            return midnight.replace(day=1)
        case "quarter":
            return midnight.replace(month=(value.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return midnight.replace(month=1, day=1)
        case "decade":
            return midnight.replace(year=value.year // 10 * 10, month=1, day=1)
        case "century":
            return midnight.replace(year=(value.year - 1) // 100 * 100 + 1, month=1, day=1)
        case "millennium":
            return midnight.replace(year=(value.year - 1) // 1000 * 1000 + 1, month=1, day=1)
    is_known = unit in (*_ZONE_PARTS, "dow", "isodow", "doy", "isoyear", "julian", "epoch")
    raise _not_supported(field, value, is_known=is_known)


def truncated_interval(field: str, value: Interval) -> Interval:
    """Return an interval cut off after a unit."""
    unit = _unit(field)
    months = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12000}.get(unit)
    if months is not None:
        return Interval(_cut(value.months, months), 0, 0)
    if unit == "day":
        return Interval(value.months, value.days, 0)
    sizes = {
        "microseconds": 1, "milliseconds": 1000, "second": _SECOND, "minute": 60 * _SECOND, "hour": 3600 * _SECOND,
    }  # fmt: skip
    if unit not in sizes:
        raise _not_supported(field, value, is_known=unit == "week")
    return Interval(value.months, value.days, _cut(value.microseconds, sizes[unit]))


def _cut(amount: int, unit: int) -> int:
    return abs(amount) // unit * unit * (1 if amount >= 0 else -1)
