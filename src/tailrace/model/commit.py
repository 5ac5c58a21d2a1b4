"""What one commit writes to the store, and what readers of the store get back.

`Changes` is everything that one commit does, as data: batches for any number of partitions and changes of state. It becomes
one frame of the log and takes effect as a whole or not at all.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tailrace.model.clock import Hlc
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId

Buffer = bytes | bytearray | memoryview

ASSIGN = Offset(-1)
"""The value of `Append.base_offset` that takes the next offset, whatever it is."""

UNKNOWN_TIMESTAMP = -1 << 63
"""The value of `Append.oldest_timestamp` of a batch whose records may have any timestamps. No timestamp is before it."""


class Append(NamedTuple):
    """One Kafka RecordBatch (v2) for one partition. Its bytes were checked before; the store assigns its base offset."""

    partition: PartitionId
    batch: Buffer
    records: int
    max_timestamp: int
    base_offset: Offset = ASSIGN
    """The offset that the sender expects. The commit is rejected if it is not the next one."""
    oldest_timestamp: int = UNKNOWN_TIMESTAMP
    """No record of the batch has a timestamp before this one. Readers by time skip the batch if it is after theirs."""


class Changes(NamedTuple):
    """Everything that one commit does. The fields take effect in their order."""

    creates: Sequence[tuple[TopicId, int]] = ()
    """Topics with their number of partitions. An existing topic with fewer gets the missing ones."""
    drops: Sequence[TopicId] = ()
    """Topics whose partitions and records are deleted."""
    trims: Sequence[tuple[PartitionId, Offset]] = ()
    """Partitions with their new first offset."""
    appends: Sequence[Append] = ()
    drop_prefixes: Sequence[bytes] = ()
    """Prefixes of state keys that are deleted."""
    puts: Sequence[tuple[bytes, bytes | None]] = ()
    """State keys with their new values. `None` deletes the key."""

    @property
    def is_structural(self) -> bool:
        """Whether it changes topics, trims records or deletes ranges of keys, and not only appends and puts."""
        return bool(self.creates or self.drops or self.trims or self.drop_prefixes)


class CommitReceipt(NamedTuple):
    """The result of a commit, which is now as durable as the store's setting promises."""

    hlc: Hlc
    cursor: Cursor
    """The cursor of its first record, or the next cursor if it has no record."""
    offsets: Sequence[Offset]
    """The base offset of each append, in the order of `Changes.appends`."""


class OffsetBounds(NamedTuple):
    """The offsets that a partition holds, from `start` up to but without `end`."""

    start: Offset
    end: Offset


class FetchedBatches(NamedTuple):
    """Whole batches of one partition, in order. The first may begin below the requested offset."""

    batches: Sequence[Buffer]
    bounds: OffsetBounds
    cursors: Sequence[Cursor]
    """The cursor of the first record of each batch. The other records of a batch have the cursors that follow."""


class LogBatch(NamedTuple):
    """A batch with its place in the whole log."""

    cursor: Cursor
    partition: PartitionId
    base_offset: Offset
    records: int
    hlc: Hlc
    batch: Buffer


class ScannedBatches(NamedTuple):
    """Batches of all partitions in the order of their cursors, and the cursor to continue at."""

    batches: Sequence[LogBatch]
    next_cursor: Cursor


Durability = Literal["fsync", "relaxed"]
"""When a commit is answered. `fsync`: when it is durable. `relaxed`: when it is written; it is synced soon after, and a power
cut may lose it."""
