"""What goes into the log in one frame, and what comes back.

`Changes` is all that one commit does, as data: batches for any number of partitions and changes of state. It takes effect
whole or not at all.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tailrace.model.clock import Hlc
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId

Buffer = bytes | bytearray | memoryview

ASSIGN = Offset(-1)
"""As `Append.base_offset`: whatever offset is next."""


class Append(NamedTuple):
    """One Kafka RecordBatch (v2) for one partition. Its bytes are checked already; the store gives it its base offset."""

    partition: PartitionId
    batch: Buffer
    records: int
    max_timestamp: int
    base_offset: Offset = ASSIGN
    """Where the sender expects it to go. The commit is refused if that is not the next offset."""


class Changes(NamedTuple):
    """Everything that one commit does. The order of effect is the order of the fields."""

    creates: Sequence[tuple[TopicId, int]] = ()
    """Topic and the number of partitions that it shall have; more than before makes it grow."""
    drops: Sequence[TopicId] = ()
    """Topics whose partitions and records go for good."""
    trims: Sequence[tuple[PartitionId, Offset]] = ()
    """Partition and its new first offset."""
    appends: Sequence[Append] = ()
    drop_prefixes: Sequence[bytes] = ()
    """State keys that start so are deleted."""
    puts: Sequence[tuple[bytes, bytes | None]] = ()
    """State key and its new value; `None` deletes the key."""

    @property
    def is_structural(self) -> bool:
        """Whether it does more than add: to what there is of topics, records or whole ranges of keys."""
        return bool(self.creates or self.drops or self.trims or self.drop_prefixes)


class CommitReceipt(NamedTuple):
    """Proof of a commit: it is as durable as the store's setting promises."""

    hlc: Hlc
    cursor: Cursor
    """The cursor of the first record, or the next one if the commit holds no record."""
    offsets: Sequence[Offset]
    """The base offset of each append, in the order of `Changes.appends`."""


class OffsetBounds(NamedTuple):
    """The offsets that a partition holds: from `start` up to but without `end`."""

    start: Offset
    end: Offset


class FetchedBatches(NamedTuple):
    """Whole batches of one partition, in order. The first may begin below the offset that was asked for."""

    batches: Sequence[Buffer]
    bounds: OffsetBounds
    cursors: Sequence[Cursor]
    """Of each batch, the cursor of its first record; those of the others follow it."""


class LogBatch(NamedTuple):
    """A batch as it stands in the global order."""

    cursor: Cursor
    partition: PartitionId
    base_offset: Offset
    records: int
    hlc: Hlc
    batch: Buffer


class ScannedBatches(NamedTuple):
    """Batches of all partitions in global order, and where to go on."""

    batches: Sequence[LogBatch]
    next_cursor: Cursor


Durability = Literal["fsync", "relaxed"]
"""`fsync`: when it is durable. `relaxed`: when it is written; it is synced soon after, and a power cut may lose it."""
