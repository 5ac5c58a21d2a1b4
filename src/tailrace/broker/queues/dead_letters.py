"""Where records go that were delivered too often: `<topic>.dead_letters`, whole, with what happened to them in headers.

The topic is made when there is something to put into it. Letters are appended in the frame that takes the record out of its
queue, so it is always in one of the two, and never in both.
"""

from collections.abc import Sequence

from tailrace.broker.commits import Draft
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Append
from tailrace.model.errors import InvalidTopicNameError, UnknownTopicError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.model.names import check_topic_name, is_reserved
from tailrace.model.queue import (
    CAUSE_HEADER,
    DEAD_LETTERS,
    DELIVERIES_HEADER,
    GROUP_HEADER,
    ORIGIN_MESSAGE_ID_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_TOPIC_HEADER,
)
from tailrace.model.record import MESSAGE_ID_HEADER, Record
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import encode_batch

LETTER_HEADERS = frozenset(
    (
        *(CAUSE_HEADER, GROUP_HEADER, DELIVERIES_HEADER),
        *(ORIGIN_TOPIC_HEADER, ORIGIN_PARTITION_HEADER, ORIGIN_OFFSET_HEADER, ORIGIN_MESSAGE_ID_HEADER),
    )
)
_MOST_CAUSE_BYTES = 1_000


class DeadLetterTopics:
    def __init__(self, context: PublishContext) -> None:
        self._context = context
        self.letters = 0
        """Records that were put among the dead letters."""

    async def make_room(self, topic: str) -> None:
        """After this the topic for the dead letters of this topic is there."""
        name = dead_letter_topic(topic, self._context.limits)
        if self._context.topics.find(name) is None:
            await self._context.topics.create(name)

    def has_origin(self, partition: PartitionId) -> bool:
        """Whether the topic of this partition is there; nothing is written for one that is being deleted."""
        return self._context.topics.by_id(partition.topic_id) is not None

    def append(self, draft: Draft, origin: PartitionId, letters: Sequence[Record]) -> list[Append]:
        """Put letters for records of one partition into a draft."""
        live = self._topic_for(origin)
        by_partition: dict[PartitionId, list[Record]] = {}
        for letter in letters:
            by_partition.setdefault(_partition_for(live, letter), []).append(letter)
        appends = []
        for partition, records in by_partition.items():
            append = encode_append(live, partition, records, self._context.clock.now_ms(), draft)
            draft.append(append)
            appends.append(append)
        return appends

    def arrived(self, append: Append) -> None:
        self.letters += append.records
        live = self._context.topics.by_id(append.partition.topic_id)
        if live is not None:
            self._context.arrived(live, append.partition, append.records, len(append.batch))

    def _topic_for(self, origin: PartitionId) -> LiveTopic:
        live = self._context.topics.by_id(origin.topic_id)
        if live is None:
            raise UnknownTopicError("the topic was deleted, and its queue with it")
        return self._context.topics.get(dead_letter_topic(live.topic.name, self._context.limits))


def dead_letter_topic(topic: str, limits: Limits) -> str:
    """The topic for dead letters of this topic. Long names and the server's own topics share one."""
    name = f"{topic}.{DEAD_LETTERS}"
    if is_reserved(name):
        return DEAD_LETTERS
    try:
        check_topic_name(name, limits)
    except InvalidTopicNameError:
        return DEAD_LETTERS
    return name


def is_dead_letter_topic(topic: str) -> bool:
    return topic.rpartition(".")[2] == DEAD_LETTERS


def dead_letter(record: Record, topic: str, partition: int, group: str, deliveries: int, cause: str) -> Record:
    """The record as a dead letter: what it was, and what happened to it."""
    kept = [(name, value) for name, value in record.headers if name not in LETTER_HEADERS]
    message_id = next((value for name, value in record.headers if name == MESSAGE_ID_HEADER), None)
    told = [
        (CAUSE_HEADER, cause.encode()[:_MOST_CAUSE_BYTES]),
        (GROUP_HEADER, group.encode()),
        (DELIVERIES_HEADER, str(deliveries).encode()),
        (ORIGIN_TOPIC_HEADER, topic.encode()),
        (ORIGIN_PARTITION_HEADER, str(partition).encode()),
        (ORIGIN_OFFSET_HEADER, str(record.offset).encode()),
    ]
    if message_id is not None:
        told.append((ORIGIN_MESSAGE_ID_HEADER, message_id))
    return record._replace(headers=[*kept, *told])


def encode_append(live: LiveTopic, partition: PartitionId, records: Sequence[Record], now_ms: int, draft: Draft) -> Append:
    """One batch at the end of a partition. The server's own, so limits for senders do not count."""
    append_time = now_ms if live.topic.settings.timestamps == "append" else None
    newest = now_ms if append_time is not None else max(record.timestamp for record in records)
    batch = encode_batch(records, append_time=append_time)
    return Append(partition, batch, len(records), newest, Offset(draft.next_offset(partition)))


def _partition_for(live: LiveTopic, record: Record) -> PartitionId:
    number = partition_for_key(record.key, len(live.partitions)) if record.key is not None else 0
    return live.partitions[number]
