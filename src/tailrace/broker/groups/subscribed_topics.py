"""The topics that members of the consumer protocol subscribe to, by name or by a regular expression."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from uuid import UUID

from tailrace.broker.regular_expressions import RegularExpressions
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import InvalidTopicNameError, UnknownTopicError, UnknownTopicIdError

_HASH_BYTES = 8

PatternMatches = Mapping[str, frozenset[UUID]]
"""The topics that each regular expression matches."""


class SubscribedTopics:
    def __init__(self, topics: Topics, expressions: RegularExpressions) -> None:
        self._topics = topics
        self._expressions = expressions

    @property
    def version(self) -> int:
        """Changes whenever a topic is made, changed or deleted."""
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

    async def match(self, patterns: Iterable[str]) -> PatternMatches:
        """Return the topics that match each pattern. Raises `InvalidRegularExpressionError`."""
        names = {live.topic.name: live.topic.uuid for live in self._topics}
        found = await self._expressions.match(patterns, names)
        return {pattern: frozenset(names[name] for name in matching) for pattern, matching in found.items()}


def hash_topics(partitions: Mapping[UUID, int]) -> bytes:
    """Return a hash of topics and their numbers of partitions."""
    parts = (topic.bytes + count.to_bytes(4) for topic, count in sorted(partitions.items()))
    return blake2b(b"".join(parts), digest_size=_HASH_BYTES).digest()
