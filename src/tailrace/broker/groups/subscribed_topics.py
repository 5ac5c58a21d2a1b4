"""The topics that members of the consumer protocol subscribe to, by name or by a regular expression.

What an expression matches is kept until a topic is made, changed or deleted.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from uuid import UUID

from tailrace.broker.regular_expressions import RegularExpressions
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import InvalidTopicNameError, UnknownTopicError, UnknownTopicIdError

_HASH_BYTES = 8
_KEPT_PATTERNS = 1_000

PatternMatches = Mapping[str, frozenset[UUID]]
"""The topics that each regular expression matches."""


class SubscribedTopics:
    def __init__(self, topics: Topics, expressions: RegularExpressions) -> None:
        self._topics = topics
        self._expressions = expressions
        self._turn = asyncio.Lock()
        self._found: dict[str, frozenset[UUID]] = {}
        """The topics that each pattern matched at `_found_version`."""
        self._found_version = self._topics.version

    @property
    def version(self) -> int:
        """Changes whenever a topic is made, changed or deleted, and when somebody's rights may have changed."""
        return self._topics.version

    def find(self, name: str) -> LiveTopic | None:
        """Return the topic with this name or alias, or the pattern that is read as a topic."""
        with suppress(UnknownTopicError, InvalidTopicNameError):
            return self._topics.readable(name)
        return None

    def find_by_uuid(self, uuid: UUID) -> LiveTopic | None:
        with suppress(UnknownTopicIdError):
            return self._topics.readable_by_uuid(uuid)
        return None

    def require(self, names: Iterable[str]) -> None:
        """Raise `TopicForbiddenError` unless the principal of the request may describe the topics that it subscribes to."""
        if self._topics.permissions.is_on:
            for name in names:
                self._topics.require("describe", name)

    def check_pattern(self, pattern: str) -> None:
        """Raise `InvalidRegularExpressionError` if the expression is too large for a subscription."""
        self._expressions.check(pattern)

    async def match(self, patterns: Iterable[str]) -> PatternMatches:
        """Return the topics that match each pattern, and that the principal of the request may describe.

        Raises `InvalidRegularExpressionError`.
        """
        matches = await self._match(frozenset(patterns))
        if not self._topics.permissions.is_on:
            return matches
        visible = frozenset(live.topic.uuid for live in self._topics.visible())
        return {pattern: topics & visible for pattern, topics in matches.items()}

    async def _match(self, wanted: frozenset[str]) -> PatternMatches:
        if (known := self._known(wanted)) is not None:
            return known
        async with self._turn:
            if (known := self._known(wanted)) is not None:
                return known
            version, before = self._topics.version, self._found
            missing = tuple(wanted - before.keys())
            names = {live.topic.name: live.topic.uuid for live in self._topics}
            matching = await self._expressions.match(missing, names)
            found = {**before, **{pattern: frozenset(names[name] for name in each) for pattern, each in matching.items()}}
            if version == self._topics.version:
                self._found = dict(islice(found.items(), max(0, len(found) - _KEPT_PATTERNS), None))
            return {pattern: found[pattern] for pattern in wanted}

    def _known(self, patterns: frozenset[str]) -> PatternMatches | None:
        if self._found_version != self._topics.version:
            self._found_version = self._topics.version
            self._found = {}
        return {pattern: self._found[pattern] for pattern in patterns} if patterns <= self._found.keys() else None


def hash_topics(partitions: Mapping[UUID, int]) -> bytes:
    """Return a hash of topics and their numbers of partitions."""
    parts = (topic.bytes + count.to_bytes(4) for topic, count in sorted(partitions.items()))
    return blake2b(b"".join(parts), digest_size=_HASH_BYTES).digest()
