"""Patterns that Kafka clients read as topics: `orders.>` has one partition, `orders.>@4` has four.

Such a topic needs no definition: any legal pattern is one, and its id is computed from its name. Only when a group commits an
offset in it does the pattern get a topic id of its own, in the same sequence as topics, so that offsets are stored alike.
"""

from collections.abc import Iterator
from uuid import NAMESPACE_OID, UUID, uuid5

import msgspec

from tailrace.broker import keys
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.errors import LimitExceededError
from tailrace.model.ids import TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import is_pattern_topic, parse_pattern_topic
from tailrace.model.topic import Topic, TopicSettings
from tailrace.store.contract import Store

NO_TOPIC_ID = TopicId(0)
"""The id of a pattern in which no group has committed an offset. No topic has it."""


class PatternTopic(LiveTopic):
    """A pattern as a topic. Its definition says how many partitions it has; its counters are not used."""

    __slots__ = ("pattern",)

    def __init__(self, name: str, topic_id: TopicId, namespace: UUID, limits: Limits) -> None:
        self.pattern, partitions = parse_pattern_topic(name, limits)
        topic = Topic(
            id=topic_id,
            uuid=uuid5(namespace, name),
            name=name,
            alias=None,
            partitions=partitions,
            settings=TopicSettings(),
            created_ms=0,
        )
        super().__init__(topic, limits)


class PatternTopics:
    """Finds patterns by name, and those that were asked for before by id."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._by_name: dict[str, PatternTopic] = {}
        self._by_uuid: dict[UUID, PatternTopic] = {}
        self._by_id: dict[TopicId, PatternTopic] = {}
        """Those with offsets of groups."""
        self._namespace: UUID | None = None

    def load(self) -> None:
        """Read the patterns with offsets from the store."""
        for key, value in self._store.range(keys.PATTERN_TOPICS):
            self._by_id[keys.pattern_topic_of(key)] = self._remember(value.decode(), keys.pattern_topic_of(key))

    def __iter__(self) -> Iterator[PatternTopic]:
        """Iterate over the patterns with offsets of groups, by name."""
        return iter(sorted(self._by_id.values(), key=lambda live: live.topic.name))

    def find(self, name: str) -> PatternTopic | None:
        """Return the pattern of this name, or None if it can't be one. Raises `InvalidTopicNameError`."""
        live = self._by_name.get(name)
        if live is None and is_pattern_topic(name):
            if len(self._by_name) - len(self._by_id) >= self._limits.topics:
                self._forget_unused()
            live = self._remember(name, NO_TOPIC_ID)
        return live

    def by_uuid(self, uuid: UUID) -> PatternTopic | None:
        """Return the pattern with this UUID, if it was found by its name before. Clients look up the name again if not."""
        return self._by_uuid.get(uuid)

    def by_id(self, topic_id: TopicId) -> PatternTopic | None:
        return self._by_id.get(topic_id)

    def check_room(self) -> None:
        """Raise `LimitExceededError` if no further pattern may have offsets."""
        if len(self._by_id) >= self._limits.topics:
            raise LimitExceededError(
                f"groups have offsets in {len(self._by_id)} patterns, as many as the limit topics allows; delete groups"
                " that are not needed and restart the server, or use patterns that have offsets already"
            )

    def registered(self, live: PatternTopic, topic_id: TopicId) -> None:
        """Give the pattern its topic id, which is durable."""
        live.become(msgspec.structs.replace(live.topic, id=topic_id), self._limits)
        # Also by name and UUID, because it may have been forgotten there meanwhile.
        self._by_id[topic_id] = self._by_name[live.topic.name] = self._by_uuid[live.topic.uuid] = live

    def removed(self, topic_id: TopicId) -> None:
        """Take the topic id away, because no group has an offset in the pattern."""
        live = self._by_id.pop(topic_id)
        live.become(msgspec.structs.replace(live.topic, id=NO_TOPIC_ID), self._limits)

    def _remember(self, name: str, topic_id: TopicId) -> PatternTopic:
        if self._namespace is None:
            self._namespace = uuid5(NAMESPACE_OID, (self._store.get(keys.IDENTITY) or b"").decode())
        live = PatternTopic(name, topic_id, self._namespace, self._limits)
        self._by_name[name] = self._by_uuid[live.topic.uuid] = live
        return live

    def _forget_unused(self) -> None:
        self._by_name = {live.topic.name: live for live in self._by_id.values()}
        self._by_uuid = {live.topic.uuid: live for live in self._by_id.values()}
