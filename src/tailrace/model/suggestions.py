"""The name that was probably meant, for messages about an unknown one: SQL, settings, options and query parameters share it."""

from collections.abc import Iterable
from difflib import get_close_matches

_MAX_COMPARED = 1_000
_MAX_CHARACTERS = 200
_LIKENESS = 0.7
"""Allows two letters in the wrong order in a word of four, and no more."""


def closest_name(name: str, known: Iterable[str], likeness: float = _LIKENESS) -> str | None:
    """Return the known name that is most like this one, whatever its case. A name without its namespace is closest of all.

    >>> closest_name("mesages", ["chat.messages", "chat.users", "messages"])
    'messages'
    >>> closest_name("users", ["chat.messages", "chat.users"])
    'chat.users'
    """
    by_lower = {one.lower(): one for one, _ in zip(known, range(_MAX_COMPARED), strict=False)}
    wanted = name[:_MAX_CHARACTERS].lower()
    close = [lower for lower in by_lower if lower.endswith(f".{wanted}")] or get_close_matches(wanted, by_lower, 1, likeness)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'chat.messages'?`, or nothing if no known name is close."""
    closest = closest_name(name, known)
    return "" if closest is None else f"; did you mean {closest!r}?"
