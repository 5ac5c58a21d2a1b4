"""All topics, found by name, alias or id: the settled copy of what the store holds."""

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import msgspec

from tailrace.broker import keys
from tailrace.model.commit import Buffer
from tailrace.model.errors import (
    LimitExceededError,
    ReadOnlyTopicError,
    TailraceError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
    UnknownTopicIdError,
    invariant,
)
from tailrace.model.ids import PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import is_pattern_topic, is_reserved
from tailrace.model.topic import Topic
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.compression import Compression


class LiveTopic:
    """An existing topic, with counters of what was written to it and read from it since the start."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "codec",
        "dedup_evictions",
        "dedup_hits",
        "fence",
        "is_reserved",
        "max_batch_bytes",
        "messages_in",
        "messages_out",
        "needs_keys",
        "next_partition",
        "partitions",
        "takes_batches_as_they_are",
        "topic",
        "trimmed_records",
    )

    def __init__(self, topic: Topic, limits: Limits) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.messages_out = 0
        self.bytes_out = 0
        self.dedup_hits = 0
        self.dedup_evictions = 0
        self.trimmed_records = 0
        self.fence: TailraceError | None = None
        """Raised, as a copy, instead of appending records: a shadow cuts the topic over, or has. Whoever decides on an append
        looks at it, except for what was decided before."""
        self.next_partition = 0
        """The partition of the next record without a key."""
        self.become(topic, limits)

    def become(self, topic: Topic, limits: Limits) -> None:
        """Take the new definition of the topic."""
        self.topic = topic
        self.is_reserved = is_reserved(topic.name)
        self.partitions = tuple(PartitionId(topic.id, number) for number in range(topic.partitions))
        self.takes_batches_as_they_are = topic.settings.dedup is None and topic.settings.timestamps == "create"
        self.needs_keys = topic.settings.is_compacted
        self.max_batch_bytes = topic.settings.max_message_bytes or limits.batch_bytes
        compression = topic.settings.compression
        self.codec = None if compression is None else Compression[compression.upper()]
        """The codec with which batches are stored, or None for that of their producer."""

    def partition(self, number: int) -> PartitionId:
        """Return the id of a partition. Raises `UnknownPartitionError`."""
        if not 0 <= number < len(self.partitions):
            raise UnknownPartitionError(
                f"topic {self.topic.name!r} has partitions 0 to {len(self.partitions) - 1}, and no partition {number}"
            )
        return self.partitions[number]

    def check_takes_records(self) -> None:
        """Raise if the topic is fenced."""
        if self.fence is not None:
            raise self.fence.afresh()

    def count_out(self, batches: Sequence[Buffer]) -> None:
        """Count consecutive batches of one partition that were sent to a reader."""
        if self.needs_keys:
            self.messages_out += sum(read_header(batch).records for batch in batches)
        else:
            self.messages_out += read_header(batches[-1]).end_offset - read_header(batches[0]).base_offset
        self.bytes_out += sum(map(len, batches))


class TopicRegistry:
    """Finds topics. `Topics` adds and removes them."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._by_name: dict[str, LiveTopic] = {}
        """By name and by alias."""
        self._by_id: dict[TopicId, LiveTopic] = {}
        """Hidden topics are only here."""
        self._by_uuid: dict[UUID, LiveTopic] = {}
        self.fence_of: Callable[[LiveTopic], TailraceError | None] = lambda _: None
        """Returns the fence of a topic that appears. Set by those who fence topics."""
        self.version = 0
        """Changes whenever a topic is made, changed or deleted, and when somebody's rights may have changed."""

    def load(self) -> None:
        """Read the topics from the store."""
        there = set(self._store.partitions())
        for _, value in self._store.range(keys.TOPICS):
            topic = msgspec.msgpack.decode(value, type=Topic)
            live = LiveTopic(topic, self._limits)
            invariant(there.issuperset(live.partitions), f"the store lacks partitions of topic {topic.name!r}")
            self._add(live)

    def __iter__(self) -> Iterator[LiveTopic]:
        """Iterate over the topics that are not hidden, by name."""
        return iter(sorted(self._by_uuid.values(), key=lambda live: live.topic.name))

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def partition_count(self) -> int:
        return sum(len(live.partitions) for live in self._by_id.values())

    def get(self, name: str, uuid: UUID | None = None) -> LiveTopic:
        """Return the topic with this name or alias. With a UUID it must still be that topic, not a new one of the name."""
        live = self._by_name.get(name)
        if live is None:
            if is_pattern_topic(name):
                raise read_only_topic_error(name)
            raise UnknownTopicError(
                f"there is no topic or alias {name!r}; `tailrace topics list` lists them, CREATE TOPIC creates one"
            )
        if uuid is not None and uuid != live.topic.uuid:
            raise UnknownTopicIdError(
                f"topic {name!r} was deleted and created again: it is {live.topic.uuid} now, not {uuid}, and has offsets of its"
                " own; start reading it anew"
            )
        return live

    def find(self, name: str) -> LiveTopic | None:
        """Return the topic with this name or alias, if there is one."""
        return self._by_name.get(name)

    def find_folded(self, name: str) -> LiveTopic | None:
        """Return the topic with this name or alias, or the only one whose name or alias is this in lower case.

        SQL folds names without quotes, and topics may have capitals.
        """
        live = self._by_name.get(name)
        if live is not None:
            return live
        found = {id(one): one for known, one in self._by_name.items() if known.lower() == name}
        return next(iter(found.values())) if len(found) == 1 else None

    def by_id(self, topic_id: TopicId) -> LiveTopic | None:
        """Return the topic with this internal id, if it still exists."""
        return self._by_id.get(topic_id)

    def of_partition(self, partition: PartitionId) -> LiveTopic | None:
        """Return the topic of a partition that readers can see. None for deleted partitions, and for internal ones."""
        live = self._by_id.get(partition.topic_id)
        is_shown = live is not None and not live.topic.is_hidden and partition.number < len(live.partitions)
        return live if is_shown else None

    def by_uuid(self, uuid: UUID) -> LiveTopic:
        """Return the topic with this UUID. Raises `UnknownTopicIdError`."""
        live = self._by_uuid.get(uuid)
        if live is None:
            raise UnknownTopicIdError(f"there is no topic with the id {uuid}")
        return live

    def check_not_hidden(self, name: str) -> None:
        """Raise if the name is that of a hidden topic, or its alias."""
        if any(live.topic.is_hidden and name in (live.topic.name, live.topic.alias) for live in self._by_id.values()):
            raise TopicExistsError(f"{name!r} is the name of a table that is being created")

    def check_room(self, more: int) -> None:
        """Raise `LimitExceededError` if `more` partitions would exceed the limit."""
        there = self.partition_count
        if there + more > self._limits.partitions:
            raise LimitExceededError(
                f"there are {there} partitions, and {more} more would exceed the limit partitions ({self._limits.partitions})"
            )

    def _add(self, live: LiveTopic) -> None:
        """Make the topic visible, unless it is hidden."""
        topic = live.topic
        self.version += 1
        self._store.topic_names.learn(topic)
        self._by_id[topic.id] = live
        live.fence = self.fence_of(live)
        if topic.is_hidden:
            return
        self._by_name[topic.name] = live
        if topic.alias is not None:
            self._by_name[topic.alias] = live
        self._by_uuid[topic.uuid] = live

    def _remove(self, live: LiveTopic) -> None:
        """Make the topic invisible."""
        topic = live.topic
        self.version += 1
        self._store.topic_names.forget(topic)
        self._by_name.pop(topic.name, None)
        if topic.alias is not None:
            self._by_name.pop(topic.alias, None)
        self._by_id.pop(topic.id, None)
        self._by_uuid.pop(topic.uuid, None)


def read_only_topic_error(name: str) -> ReadOnlyTopicError:
    return ReadOnlyTopicError(
        f"{name!r} is a pattern: Kafka clients read the topics that match it as one topic, and nothing else can be done with"
        " it; name one of the topics"
    )
