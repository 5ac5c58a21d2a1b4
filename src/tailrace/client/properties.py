"""Settings from names and values: typed, under their own names or Kafka's, each wrong one refused with what is allowed."""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from tailrace.model.errors import ConfigurationError

_TRUE = frozenset(("true", "1", "yes", "on"))
_FALSE = frozenset(("false", "0", "no", "off"))


class AutoOffsetReset(StrEnum):
    """Where a group begins in a partition in which it has committed nothing. An offset is another way."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere by itself: that there is no committed offset is an error."""


class CorruptBatches(StrEnum):
    """What becomes of stored batches that can't be decoded."""

    REPORT = "report"
    """An error, once everything that comes before them was handed out."""
    SKIP = "skip"
    """They are left out, with a warning in the log."""


class Setting(NamedTuple):
    """One field: the name that Kafka has for it, how its value is read, and what is allowed, in words."""

    alias: str
    read: Callable[[Any], Any]
    """Raises `ValueError` or `TypeError` for what is not allowed."""
    allowed: str


def read_properties(given: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The fields by their own names. Where a setting is given under both names, its own counts, not Kafka's."""
    names = {setting.alias: name for name, setting in settings.items()}
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = key if key in settings else names.get(key)
        if name is None:
            raise ConfigurationError(f"there is no setting {key!r}; the settings are {', '.join(sorted(settings))}")
        if key == name or name not in given:
            found[name] = read_setting(key, value, settings[name])
    return found


def read_setting(name: str, value: Any, setting: Setting) -> Any:
    try:
        return setting.read(value)
    except (ValueError, TypeError, OverflowError):
        raise ConfigurationError(f"{name} is {value!r}; allowed is {setting.allowed}") from None


def text(longest: int = 255) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= longest:
            raise ValueError
        return value

    return read


def file_name(value: Any) -> str:
    """Text, or a path."""
    name = os.fspath(value)
    if not isinstance(name, str) or not name:
        raise ValueError
    return name


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise TypeError
        number = int(value)
        if not least <= number <= most:
            raise ValueError
        return number

    return read


def truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError


def duration(least_ms: int, most_ms: int) -> Callable[[Any], timedelta]:
    """A timedelta, or a whole number of milliseconds."""
    count = whole_number(least_ms, most_ms)

    def read(value: Any) -> timedelta:
        if not isinstance(value, timedelta):
            return timedelta(milliseconds=count(value))
        if not timedelta(milliseconds=least_ms) <= value <= timedelta(milliseconds=most_ms):
            raise ValueError
        return value

    return read


def offset_reset(value: Any) -> AutoOffsetReset | int:
    if isinstance(value, str) and value in tuple(AutoOffsetReset):
        return AutoOffsetReset(value)
    return whole_number(0, 2**63 - 1)(value)


def edge(value: Any) -> AutoOffsetReset:
    """One end or the other."""
    if value == AutoOffsetReset.NONE:
        raise ValueError
    return AutoOffsetReset(value)


def one_of(values: type[StrEnum]) -> Callable[[Any], StrEnum]:
    return lambda value: values(value)


def seconds_of(given: float | timedelta | None, otherwise: timedelta, name: str = "timeout") -> float:
    """What a caller gave as seconds or as a timedelta."""
    if given is None:
        return otherwise.total_seconds()
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if not seconds >= 0:
        raise ConfigurationError(f"{name} is {given!r}; allowed is a timedelta or seconds, from 0 on")
    return seconds
