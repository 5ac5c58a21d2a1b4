"""Time zones by their names, abbreviations and offsets."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tailrace.sql.evaluation.functions import EvaluationError

_OFFSET = re.compile(r"([+-]?)(\d{1,2})(?::?(\d{2}))?(?::(\d{2}))?")
_MAX_OFFSET_HOURS = 15
_UTC_NAMES = frozenset(("utc", "z", "gmt", "zulu", "uct"))


@cache
def _names() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


def zone_of(name: str) -> tzinfo:
    """Return a zone. An offset such as `+02` is counted to the west, as POSIX has it."""
    lowered = name.lower()
    if lowered in _UTC_NAMES:
        return UTC
    known = _names().get(lowered)
    if known is not None:
        try:
            return ZoneInfo(known)
        except (ZoneInfoNotFoundError, OSError):
            pass
    found = _OFFSET.fullmatch(name)
    if found is not None:
        sign, hours, minutes, seconds = found.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if offset <= timedelta(hours=_MAX_OFFSET_HOURS):
            return timezone(offset if sign == "-" else -offset)
    if re.fullmatch(r"[A-Za-z]{3,5}", name) or any(character.isdigit() for character in name):
        raise EvaluationError("0A000", f'the time zone "{name}" is not supported; use a name such as Europe/Berlin')
    raise EvaluationError("22023", f'time zone "{name}" not recognized')


def in_zone(moment: datetime, name: str) -> datetime:
    """Return the local time of a zone."""
    return moment.astimezone(zone_of(name)).replace(tzinfo=None)


def to_utc(local: datetime, name: str) -> datetime:
    """Return the moment of a local time. One that is skipped counts as before the change, one that comes twice as after it."""
    zone = zone_of(name)
    offsets = [local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1)]
    return (local - min(offsets)).replace(tzinfo=UTC)
