"""Dead-letter topics: `<topic>.dead_letters` takes the records of a topic that were delivered too often.

A dead letter is the whole record, with headers that say where it comes from and why it was given up. The topic is created
when the first letter is written. A letter is appended in the frame that takes its record out of the queue, so that the record
is always in exactly one of the two.
"""

from collections.abc import Sequence

from tailrace.broker.commits import Draft
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Append
from tailrace.model.errors import UnknownTopicError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.queue import (
    CAUSE_HEADER,
    DEAD_LETTERS,
    DELIVERIES_HEADER,
    GROUP_HEADER,
    ORIGIN_MESSAGE_ID_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_TOPIC_HEADER,
    dead_letter_topic,
)
from tailrace.model.record import MESSAGE_ID_HEADER, Record
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import encode_batch

_LETTER_HEADERS = frozenset(
    (
        *(CAUSE_HEADER, GROUP_HEADER, DELIVERIES_HEADER),
        *(ORIGIN_TOPIC_HEADER, ORIGIN_PARTITION_HEADER, ORIGIN_OFFSET_HEADER, ORIGIN_MESSAGE_ID_HEADER),
    )
)
_MAX_CAUSE_BYTES = 1_000


class DeadLetterTopics:
    def __init__(self, context: PublishContext) -> None:
        self._context = context
        self.letters = 0
        """Dead letters written since the start of the server."""

    async def create_for(self, topic: str) -> None:
        """Create the dead-letter topic of a topic unless it exists. Raises if it takes no letters now."""
        name = dead_letter_topic(topic, self._context.limits)
        if self._context.topics.find(name) is None:
            await self._context.topics.create(name, by_server=True)
        self._context.topics.get(name).check_takes_records()

    def has_source(self, partition: PartitionId) -> bool:
        """Return whether the topic of this partition exists. Nothing is written for one that is being deleted."""
        return self._context.topics.by_id(partition.topic_id) is not None

    def append(self, draft: Draft, source: PartitionId, letters: Sequence[Record]) -> list[Append]:
        """Put the dead letters of one partition into a draft."""
        live = self._topic_for(source)
        live.check_takes_records()
        by_partition: dict[PartitionId, list[Record]] = {}
        for letter in letters:
            by_partition.setdefault(partition_by_key(live, letter), []).append(letter)
        appends = []
        for partition, records in by_partition.items():
            append = encode_append(live, partition, records, self._context.clock.now_ms(), draft)
            draft.append(append)
            appends.append(append)
        return appends

    def appended(self, append: Append) -> None:
        """Count an append that is durable and wake the readers of its partition."""
        self.letters += append.records
        live = self._context.topics.by_id(append.partition.topic_id)
        if live is not None:
            self._context.arrived(live, append.partition, append.records, len(append.batch))

    def _topic_for(self, source: PartitionId) -> LiveTopic:
        live = self._context.topics.by_id(source.topic_id)
        if live is None:
            raise UnknownTopicError("the topic was deleted, and its queue with it")
        return self._context.topics.get(dead_letter_topic(live.topic.name, self._context.limits))


def is_dead_letter_topic(topic: str) -> bool:
    return topic.rpartition(".")[2] == DEAD_LETTERS


def dead_letter(record: Record, topic: str, partition: int, group: str, deliveries: int, cause: str) -> Record:
    """Return the record with headers that say where it comes from and why it is a dead letter."""
    kept = [(name, value) for name, value in record.headers if name not in _LETTER_HEADERS]
    message_id = next((value for name, value in record.headers if name == MESSAGE_ID_HEADER), None)
    added = [
        (CAUSE_HEADER, cause.encode()[:_MAX_CAUSE_BYTES]),
        (GROUP_HEADER, group.encode()),
        (DELIVERIES_HEADER, str(deliveries).encode()),
        (ORIGIN_TOPIC_HEADER, topic.encode()),
        (ORIGIN_PARTITION_HEADER, str(partition).encode()),
        (ORIGIN_OFFSET_HEADER, str(record.offset).encode()),
    ]
    if message_id is not None:
        added.append((ORIGIN_MESSAGE_ID_HEADER, message_id))
    return record._replace(headers=[*kept, *added])


def encode_append(live: LiveTopic, partition: PartitionId, records: Sequence[Record], now_ms: int, draft: Draft) -> Append:
    """Return an append of one batch at the end of a partition. The server writes it, so limits of producers do not apply."""
    append_time = now_ms if live.topic.settings.timestamps == "append" else None
    timestamps = [record.timestamp for record in records] if append_time is None else [append_time]
    batch = encode_batch(records, append_time=append_time)
    offset = Offset(draft.next_offset(partition))
    return Append(partition, batch, len(records), max(timestamps), offset, min(timestamps))


def partition_by_key(live: LiveTopic, record: Record) -> PartitionId:
    """Return the partition of the record's key, or the first one if it has no key."""
    number = partition_for_key(record.key, len(live.partitions)) if record.key is not None else 0
    return live.partitions[number]
