"""Offsets of time zones: by name (`Europe/Berlin`), by abbreviation (`EST`) and by PostgreSQL's and POSIX's offsets.

Instants and local times are microseconds since 1970. Zones are those of the machine's database, or of the package `tzdata`.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import timezone as fixed_zone
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from tailrace.sql.analysis.errors import INVALID_PARAMETER, AnalysisError

_MICROSECOND = 1
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_CYCLE = 146_097
"""The days of the 400 years after which the calendar repeats."""
_FIRST_DAY = -62_000
_LAST_DAY = 800_000
"""Days since 1970 between which the database is asked: 1800 to 4160. Before there are no transitions, after it they repeat."""
_HOUR = 3600
_ABBREVIATIONS = {
    "utc": 0, "ut": 0, "uct": 0, "gmt": 0, "z": 0, "zulu": 0, "wet": 0,
    "bst": _HOUR, "cet": _HOUR, "met": _HOUR, "cest": 2 * _HOUR, "mest": 2 * _HOUR, "eet": 2 * _HOUR, "eest": 3 * _HOUR,
    "ist": 2 * _HOUR, "sast": 2 * _HOUR, "jst": 9 * _HOUR, "kst": 9 * _HOUR,
    "acst": 34_200, "aest": 10 * _HOUR, "aedt": 11 * _HOUR, "awst": 8 * _HOUR, "nzst": 12 * _HOUR, "nzdt": 13 * _HOUR,
    "est": -5 * _HOUR, "edt": -4 * _HOUR, "cst": -6 * _HOUR, "cdt": -5 * _HOUR, "mst": -7 * _HOUR, "mdt": -6 * _HOUR,
    "pst": -8 * _HOUR, "pdt": -7 * _HOUR, "akst": -9 * _HOUR, "akdt": -8 * _HOUR, "hst": -10 * _HOUR,
}  # fmt: skip
"""PostgreSQL's default abbreviations whose offset never changed, in seconds."""
_POSIX = re.compile(r"(?:[a-zA-Z]{3,}|<[^<>]+>)?([+-]?)([0-9]{1,3})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?")


def zone_of(name: str) -> tzinfo:
    """Return the zone that AT TIME ZONE names. Raises `AnalysisError` if there is none."""
    seconds = abbreviated_offset(name)
    if seconds is not None:
        return fixed_zone(timedelta(seconds=seconds))
    found = _named(name)
    if found is None:
        raise AnalysisError(INVALID_PARAMETER, f'time zone "{name}" not recognized')
    return found


def abbreviated_offset(name: str) -> int | None:
    """Return the seconds east of Greenwich of an abbreviation such as EST."""
    return _ABBREVIATIONS.get(name.lower())


def to_local(instant: int, name: str) -> int:
    """Return the local time of an instant."""
    return instant + _offset_at(name, instant)


def to_instant(local: int, name: str) -> int:
    """Return the instant of a local time. One that a change of the clock skips counts from before it, one that occurs twice
    is the second of the two.
    """
    near = [_offset_at(name, local - _DAY), _offset_at(name, local + _DAY)]
    if near[0] == near[1]:
        # Two changes within two days are not known to have happened.
        return local - near[0]
    before, after = near
    fits = [offset for offset in (before, after) if _offset_at(name, local - offset) == offset]
    if not fits:
        return local - before
    return local - fits[-1]


def _offset_at(name: str, instant: int) -> int:
    day = instant // _DAY
    whole = _offset_of_day(name, day)
    return _offset_within(zone_of(name), instant) if whole is None else whole


@lru_cache(65_536)
def _offset_of_day(name: str, day: int) -> int | None:
    """Return the offset at all times of a day in UTC, or `None` if it changes."""
    zone = zone_of(name)
    first, last = _offset_within(zone, day * _DAY), _offset_within(zone, (day + 1) * _DAY - _MICROSECOND)
    return first if first == last else None


def _offset_within(zone: tzinfo, instant: int) -> int:
    day, rest = divmod(instant, _DAY)
    if day < _FIRST_DAY:
        day = _FIRST_DAY
    elif day > _LAST_DAY:
        day -= (day - _LAST_DAY + _CYCLE - 1) // _CYCLE * _CYCLE
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day, microseconds=rest)
    offset = moment.astimezone(zone).utcoffset()
    return 0 if offset is None else (offset.days * 86_400 + offset.seconds) * _SECOND


@cache
def _names() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


@lru_cache(1024)
def _named(name: str) -> tzinfo | None:
    found = _names().get(name.lower())
    if found is not None:
        return ZoneInfo(found)
    posix = _POSIX.fullmatch(name)
    if posix is None:
        return None
    hours, minutes, seconds = int(posix[2]), int(posix[3] or 0), int(posix[4] or 0)
    if hours > 24 or minutes > 59 or seconds > 59:
        return None
    west = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if west >= timedelta(days=1):
        return None
    # POSIX counts westwards: UTC+3 is three hours behind.
    return fixed_zone(west if posix[1] == "-" else -west)
