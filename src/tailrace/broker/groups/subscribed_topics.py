"""The topics that members of the consumer protocol subscribe to, by name or by a regular expression.

Expressions are RE2's, which Kafka takes too: they are matched in time that is linear in the length of the name, and nothing in
them can make the server backtrack. A topic matches if its whole name does. Expressions are compiled in a thread, because a
large one takes some hundred milliseconds.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from uuid import UUID

from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import InvalidRegularExpressionError, InvalidTopicNameError, UnknownTopicError, UnknownTopicIdError
from tailrace.model.limits import Limits

_HASH_BYTES = 8

PatternMatches = Mapping[str, frozenset[UUID]]
"""The topics that each regular expression matches."""


class SubscribedTopics:
    def __init__(self, topics: Topics, threads: ReadThreads, limits: Limits) -> None:
        self._topics = topics
        self._threads = threads
        self._limits = limits

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
        wanted = tuple(patterns)
        if not wanted:
            return {}
        for pattern in wanted:
            size = len(pattern.encode())
            if size > self._limits.topic_pattern_bytes:
                raise InvalidRegularExpressionError(
                    f"the regular expression has {size} bytes, more than topic_pattern_bytes allows"
                    f" ({self._limits.topic_pattern_bytes})"
                )
        names = {live.topic.name: live.topic.uuid for live in self._topics}
        return await self._threads.run(_match, wanted, names)


def hash_topics(partitions: Mapping[UUID, int]) -> bytes:
    """Return a hash of topics and their numbers of partitions."""
    parts = (topic.bytes + count.to_bytes(4) for topic, count in sorted(partitions.items()))
    return blake2b(b"".join(parts), digest_size=_HASH_BYTES).digest()


def _match(patterns: tuple[str, ...], names: Mapping[str, UUID]) -> PatternMatches:
    # Not needed by a server whose clients use no regular expressions.
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.array(names, pa.string())
    # Of an array without elements no pattern is compiled.
    nothing = pa.array([""])
    uuids = tuple(names.values())
    found: dict[str, frozenset[UUID]] = {}
    for pattern in patterns:
        try:
            # By itself, too: a closing parenthesis that opens nowhere would end the group around the pattern.
            pc.match_substring_regex(nothing, pattern)
            matches = pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
        except pa.ArrowInvalid as error:
            raise InvalidRegularExpressionError(f"the regular expression {pattern!r} is not valid: {error}") from error
        found[pattern] = frozenset(uuid for uuid, is_match in zip(uuids, matches.to_pylist(), strict=True) if is_match)
    return found
