"""A topic in service: what it is, and what has passed through it since the start."""

from collections.abc import Sequence

from tailrace.model.commit import Buffer
from tailrace.model.errors import UnknownPartitionError
from tailrace.model.ids import PartitionId
from tailrace.model.limits import Limits
from tailrace.model.names import is_reserved
from tailrace.model.topic import Topic
from tailrace.wire.batch import read_header


class LiveTopic:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "dedup_evictions",
        "dedup_hits",
        "is_reserved",
        "max_batch_bytes",
        "messages_in",
        "messages_out",
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
        self.next_partition = 0
        """Where the next record without a key goes."""
        self.become(topic, limits)

    def become(self, topic: Topic, limits: Limits) -> None:
        self.topic = topic
        self.is_reserved = is_reserved(topic.name)
        self.partitions = tuple(PartitionId(topic.id, number) for number in range(topic.partitions))
        self.takes_batches_as_they_are = topic.settings.dedup is None and topic.settings.timestamps == "create"
        self.max_batch_bytes = topic.settings.max_message_bytes or limits.batch_bytes

    def partition(self, number: int) -> PartitionId:
        if not 0 <= number < len(self.partitions):
            raise UnknownPartitionError(
                f"topic {self.topic.name!r} has partitions 0 to {len(self.partitions) - 1}, and no partition {number}"
            )
        return self.partitions[number]

    def count_out(self, batches: Sequence[Buffer]) -> None:
        """These, of one partition and in their order, were handed to a reader."""
        first = read_header(batches[0])
        last = read_header(batches[-1])
        self.messages_out += last.base_offset + last.records - first.base_offset
        self.bytes_out += sum(map(len, batches))
