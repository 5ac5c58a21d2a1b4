"""Patterns of topic names: `orders.*` is one part after `orders`, `orders.>` is `orders` and everything below it.

Unlike in NATS, `>` stands for zero or more parts: `orders.>` matches `orders` too. Topics of the server's own, such as
`_changes.chat.messages`, match only patterns that begin with their first part as it is written: `>` does not show them,
`_changes.>` does.
"""

import re

from tailrace.model.errors import InvalidPatternError
from tailrace.model.limits import Limits
from tailrace.model.names import is_reserved

ONE = "*"
REST = ">"

_LEGAL_PART = re.compile(r"[a-zA-Z0-9_-]+")


class TopicPattern:
    """A pattern that is known to be legal; `parse_pattern` makes it."""

    __slots__ = ("_expression", "_names_its_root", "is_literal", "text")

    def __init__(self, text: str, parts: list[str]) -> None:
        self.text = text
        self.is_literal = not {ONE, REST}.intersection(parts)
        """Whether it is just a name, which may be an alias as well."""
        self._names_its_root = parts[0] not in (ONE, REST)
        self._expression = re.compile(_expression(parts))

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None and (self._names_its_root or not is_reserved(name))


def parse_pattern(text: str, limits: Limits) -> TopicPattern:
    if len(text) > limits.topic_name_length:
        raise InvalidPatternError(
            f"the pattern {text[:32]!r}... has {len(text)} characters, more than topic_name_length allows"
            f" ({limits.topic_name_length})"
        )
    parts = text.split(".")
    if len(parts) > limits.topic_segments:
        raise InvalidPatternError(
            f"the pattern {text!r} has {len(parts)} parts, more than topic_segments allows ({limits.topic_segments})"
        )
    for place, part in enumerate(parts):
        if part == REST and place < len(parts) - 1:
            raise InvalidPatternError(f"the pattern {text!r} goes on after '>', which stands for all the rest")
        if part not in (ONE, REST) and not _LEGAL_PART.fullmatch(part):
            raise InvalidPatternError(
                f"the pattern {text!r} has the part {part!r}; a part is '*', '>' or letters, digits, '_' and '-'"
            )
    return TopicPattern(text, parts)


def _expression(parts: list[str]) -> str:
    *before, last = ["[^.]+" if part == ONE else re.escape(part) for part in parts]
    if last != re.escape(REST):
        return r"\.".join((*before, last))
    return r"\.".join(before) + r"(?:\..+)?" if before else ".+"
