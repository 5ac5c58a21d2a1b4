"""Legal names, and patterns of topic names. A topic name is a legal name of Kafka whose parts are separated by dots. Names of
tables and views may have any letters and signs.

In a pattern `*` stands for one part and `>` for all further parts: `orders.*` matches `orders.paid`, `orders.>` matches
`orders` and everything below it. Unlike in NATS, `>` stands for zero or more parts. The server's own topics, such as
`_changes.chat.messages`, match only patterns that spell out their first part: `>` does not show them, `_changes.>` does.
"""

import re

from tailrace.model.errors import (
    InvalidGroupNameError,
    InvalidPatternError,
    InvalidRequestError,
    InvalidTopicNameError,
    InvalidTransactionalIdError,
)
from tailrace.model.limits import Limits
from tailrace.model.route import ROUTES_TOPIC
from tailrace.model.security import AUDIT_TOPIC
from tailrace.model.source import HELD_PREFIX
from tailrace.model.table import CHANGES_PREFIX

_SYSTEM_PREFIXES = ("system.", "information_schema.", "pg_catalog.", HELD_PREFIX)

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_LEGAL_PART = re.compile(r"[a-zA-Z0-9_-]+")

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]|_(?=u[0-9a-f]{4,6}_)")
_NOT_IN_RELATIONS = re.compile(r"[\x00-\x1f\x7f\"\\\ud800-\udfff]")

ONE_SEGMENT = "*"
REMAINING_SEGMENTS = ">"
_PARTITIONS = "@"
_COUNT = re.compile(r"[1-9][0-9]{0,8}")


def without_public(name: str) -> str:
    """Return a name without the schema `public`, which is that of names without one. `public.a.b` is another name."""
    schema, dot, base = name.partition(".")
    return base if dot and schema.lower() == "public" and base and "." not in base else name


def check_topic_name(name: str, limits: Limits) -> None:
    """Raise `InvalidTopicNameError` unless this can be the name or alias of a topic."""
    if not name:
        raise InvalidTopicNameError("a topic's name can't be empty")
    if len(name) > limits.topic_name_length:
        raise InvalidTopicNameError(
            f"the topic name {name[:32]!r}... has {len(name)} characters, more than topic_name_length allows"
            f" ({limits.topic_name_length})"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicNameError(f"the topic name {name!r} has characters other than letters, digits, '.', '_' and '-'")
    segments = name.split(".")
    if not all(segments):
        raise InvalidTopicNameError(
            f"the topic name {name!r} has an empty part; there must be characters before and after each dot"
        )
    if len(segments) > limits.topic_segments:
        raise InvalidTopicNameError(
            f"the topic name {name!r} has {len(segments)} parts, more than topic_segments allows ({limits.topic_segments})"
        )


def topic_form(name: str) -> str:
    """Return the name of a table or view as one that a topic can have, the same for all names that a topic can have.

    Other characters become `_u`, the number of the character in at least four hexadecimal digits, and `_`: `größe` is
    `gr_u00f6__u00df_e`. No two names have the same form, because an underscore that looks like the beginning of such a group is
    written like that too.
    """
    return _ILLEGAL.sub(lambda found: f"_u{ord(found[0]):04x}_", name)


def check_relation_name(name: str, limits: Limits) -> None:
    """Raise `InvalidTopicNameError` unless this can be the name of a table or view."""
    if _NOT_IN_RELATIONS.search(name):
        raise InvalidTopicNameError(f"the name {name!r} has a quote, a backslash or a character that can't be printed")
    check_topic_name(topic_form(name), limits)


def is_reserved(name: str) -> bool:
    """Return whether the name is the server's own: changes of tables, routes, the audit, held transactions, system tables of
    queries.
    """
    return name in (ROUTES_TOPIC, AUDIT_TOPIC) or name.startswith((CHANGES_PREFIX, *_SYSTEM_PREFIXES))


def check_group_name(name: str, limits: Limits) -> None:
    if not name:
        raise InvalidGroupNameError("a group's name can't be empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidGroupNameError(f"the group name {name!r} is not valid Unicode") from None
    if size > limits.group_name_length:
        raise InvalidGroupNameError(
            f"the group name {name[:32]!r}... has {size} bytes, more than group_name_length allows ({limits.group_name_length})"
        )


def check_transactional_id(name: str, limits: Limits) -> None:
    if not name:
        raise InvalidTransactionalIdError("a transactional id can't be empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidTransactionalIdError(f"the transactional id {name!r} is not valid Unicode") from None
    if size > limits.transactional_id_length:
        raise InvalidTransactionalIdError(
            f"the transactional id {name[:32]!r}... has {size} bytes, more than transactional_id_length allows"
            f" ({limits.transactional_id_length})"
        )


def check_pipeline_name(name: str, limits: Limits) -> None:
    if not _LEGAL.fullmatch(name) or len(name) > limits.pipeline_name_length:
        raise InvalidRequestError(
            f"the pipeline name {name[:32]!r} must have letters, digits, '.', '_' and '-', at most pipeline_name_length"
            f" ({limits.pipeline_name_length}) of them"
        )


class TopicPattern:
    """A legal pattern, made by `parse_pattern`."""

    __slots__ = ("_expression", "_names_its_root", "_parts", "is_literal", "text")

    def __init__(self, text: str, parts: list[str]) -> None:
        self.text = text
        self.is_literal = not {ONE_SEGMENT, REMAINING_SEGMENTS}.intersection(parts)
        """Whether it is a plain name, which may be an alias."""
        self._parts = tuple(parts)
        self._names_its_root = parts[0] not in (ONE_SEGMENT, REMAINING_SEGMENTS)
        self._expression = re.compile(_expression(parts))

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None and (self._names_its_root or not is_reserved(name))

    def overlaps(self, other: "TopicPattern") -> bool:
        """Return whether there can be a topic whose name both patterns match."""
        for one, another in ((self, other), (other, self)):
            root = another._parts[0]
            if not one._names_its_root and another._names_its_root and is_reserved(f"{root}."):
                # Below it are the server's own topics, which the first pattern leaves out.
                return one.matches(root) and another.matches(root)
        return _overlap(self._parts, other._parts)


def _overlap(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    if not first or not second:
        return (first or second) in ((), (REMAINING_SEGMENTS,))
    if REMAINING_SEGMENTS in (first[0], second[0]):
        return True
    return (ONE_SEGMENT in (first[0], second[0]) or first[0] == second[0]) and _overlap(first[1:], second[1:])


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
        if part == REMAINING_SEGMENTS and place < len(parts) - 1:
            raise InvalidPatternError(f"the pattern {text!r} continues after '>', which must be the last part")
        if part not in (ONE_SEGMENT, REMAINING_SEGMENTS) and not _LEGAL_PART.fullmatch(part):
            raise InvalidPatternError(
                f"the pattern {text!r} has the part {part!r}; a part is '*', '>' or letters, digits, '_' and '-'"
            )
    return TopicPattern(text, parts)


def is_pattern_topic(name: str) -> bool:
    """Return whether a Kafka client that asks for a topic of this name means a pattern. No topic can have such a name."""
    return ONE_SEGMENT in name or REMAINING_SEGMENTS in name


def parse_pattern_topic(name: str, limits: Limits) -> tuple[TopicPattern, int]:
    """Return the pattern and the number of partitions of `orders.>` or `orders.>@4`. Raises `InvalidTopicNameError`."""
    text, separator, count = name.partition(_PARTITIONS)
    if separator and not (_COUNT.fullmatch(count) and int(count) <= limits.pattern_topic_partitions):
        raise InvalidTopicNameError(
            f"the pattern {name[:64]!r} asks for {count[:16]!r} partitions; pattern_topic_partitions allows 1 to"
            f" {limits.pattern_topic_partitions}"
        )
    try:
        pattern = parse_pattern(text, limits)
    except InvalidPatternError as error:
        raise InvalidTopicNameError(str(error)) from None
    if pattern.is_literal:
        raise InvalidTopicNameError(f"{name!r} is neither the name of a topic nor a pattern with the part '*' or '>'")
    return pattern, int(count) if separator else 1


def _expression(parts: list[str]) -> str:
    *before, last = ["[^.]+" if part == ONE_SEGMENT else re.escape(part) for part in parts]
    if last != re.escape(REMAINING_SEGMENTS):
        return r"\.".join((*before, last))
    return r"\.".join(before) + r"(?:\..+)?" if before else ".+"
