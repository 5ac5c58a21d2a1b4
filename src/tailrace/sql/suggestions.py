"""A word of help where a name is unknown: the one that was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

_MOST_COMPARED = 1_000
_LIKENESS = 0.7
"""Enough for two letters in the wrong order in a word of four, and no more."""

CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "UNION", "VALUES", "SET", "RETURNING")
"""What may follow where a statement goes on."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'chat.messages'?`, or nothing. A name without its namespace is the nearest of all."""
    by_lower = {one.lower(): one for one, _ in zip(known, range(_MOST_COMPARED), strict=False)}
    wanted = name.lower()
    near = [lower for lower in by_lower if lower.endswith(f".{wanted}")] or get_close_matches(wanted, by_lower, 1, _LIKENESS)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def tables_and_topics(broker: "Broker") -> Iterable[str]:
    """What a statement can name."""
    yield from (table.name for table in broker.tables)
    for live in broker.topics:
        if not live.is_reserved:
            yield live.topic.name
            if live.topic.alias is not None:
                yield live.topic.alias
