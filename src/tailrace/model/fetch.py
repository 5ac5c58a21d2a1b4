"""What a reader asks for, and what it gets."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import NamedTuple

from tailrace.model.commit import Buffer, OffsetBounds
from tailrace.model.errors import TailraceError, UnreadableBatchError
from tailrace.model.ids import Cursor, Offset
from tailrace.model.record import Record
from tailrace.model.transaction import AbortedTransaction

NO_OFFSET = Offset(-1)
NO_BOUNDS = OffsetBounds(Offset(-1), Offset(-1))


class Isolation(IntEnum):
    """What a reader gets to see of transactions, by Kafka's numbers."""

    READ_UNCOMMITTED = 0
    """All there is."""
    READ_COMMITTED = 1
    """Nothing of an open transaction, nor of what comes after its first record, and a list of the aborted ones to skip."""


class PartitionFetch(NamedTuple):
    """Where to read."""

    topic: str
    """Name or alias."""
    partition: int
    offset: Offset
    max_bytes: int


class PartitionBatches(NamedTuple):
    """Whole batches of one partition; the first may begin below the offset that was asked for. Or why there are none."""

    topic: str
    partition: int
    batches: Sequence[Buffer]
    bounds: OffsetBounds
    error: TailraceError | None
    last_stable_offset: Offset = NO_OFFSET
    """Up to here no transaction is open."""
    aborted: Sequence[AbortedTransaction] = ()
    """For readers of committed records: the aborted transactions that have records in these batches."""
    cursors: Sequence[Cursor] = ()
    """Of each batch, the cursor of its first record."""


class CommittedBatches(NamedTuple):
    """Whole batches of one partition without markers and aborted transactions, and where to go on."""

    batches: Sequence[Buffer]
    cursors: Sequence[Cursor]
    """Of each batch, the cursor of its first record."""
    next_offset: Offset
    bounds: OffsetBounds


class CorruptBatch(NamedTuple):
    """A stored batch whose records can't be decoded: in the way of a reader, or skipped by its choice."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    reason: str

    @property
    def error(self) -> UnreadableBatchError:
        """What a reader is told that does not skip it."""
        return UnreadableBatchError(
            f"offsets {self.first_offset} to {self.last_offset} of {self.topic!r}, partition {self.partition}, can't be"
            f" decoded: {self.reason}. Go on at {self.last_offset + 1}, or skip corrupt batches",
            self.last_offset + 1,
        )


class PartitionRecords(NamedTuple):
    """Decoded records of one partition, and where to go on."""

    records: Sequence[Record]
    next_offset: Offset
    bounds: OffsetBounds
    has_more: bool
    """Whether there is more to read right now."""


class StartEdge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"

    @classmethod
    def _missing_(cls, value: object) -> "StartEdge | None":
        """In any case, as in SQL."""
        lower = value.lower() if isinstance(value, str) else None
        return next((edge for edge in cls if edge.value == lower), None)


class AtOffset(NamedTuple):
    offset: int


class AtTime(NamedTuple):
    """The first record with this timestamp or a later one."""

    timestamp_ms: int


StartAt = StartEdge | AtOffset | AtTime
