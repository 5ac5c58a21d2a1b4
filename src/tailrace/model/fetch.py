"""Reading a partition: where to begin, what is requested, and what is returned."""

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
    """Which records of transactions a reader sees, by Kafka's numbers."""

    READ_UNCOMMITTED = 0
    """All records."""
    READ_COMMITTED = 1
    """Records before the first open transaction, and a list of the aborted transactions that the reader must skip."""


class PartitionFetch(NamedTuple):
    """A request to read one partition from an offset on."""

    topic: str
    """Name or alias."""
    partition: int
    offset: Offset
    max_bytes: int


class PartitionBatches(NamedTuple):
    """Whole batches of one partition, or the error. The first batch may begin below the requested offset."""

    topic: str
    partition: int
    batches: Sequence[Buffer]
    bounds: OffsetBounds
    error: TailraceError | None
    last_stable_offset: Offset = NO_OFFSET
    """The offset up to which no transaction is open."""
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions with records in these batches, for readers of committed records."""
    cursors: Sequence[Cursor] = ()
    """The cursor of the first record of each batch."""


class CommittedBatches(NamedTuple):
    """Whole batches of one partition without markers and aborted transactions, and the offset to continue at."""

    batches: Sequence[Buffer]
    cursors: Sequence[Cursor]
    """The cursor of the first record of each batch."""
    next_offset: Offset
    bounds: OffsetBounds


class CorruptBatch(NamedTuple):
    """A stored batch whose records can't be decoded. A reader stops there, or skips it if it was told to."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    reason: str

    @property
    def error(self) -> UnreadableBatchError:
        """The error for a reader that does not skip it."""
        return UnreadableBatchError(
            f"offsets {self.first_offset} to {self.last_offset} of {self.topic!r}, partition {self.partition}, can't be"
            f" decoded: {self.reason}. Go on at {self.last_offset + 1}, or skip corrupt batches",
            self.last_offset + 1,
        )


class PartitionRecords(NamedTuple):
    """Decoded records of one partition, and the offset to continue at."""

    records: Sequence[Record]
    next_offset: Offset
    bounds: OffsetBounds
    has_more: bool
    """Whether more records can be read right now."""


class StartEdge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"

    @classmethod
    def _missing_(cls, value: object) -> "StartEdge | None":
        """Accept capital letters too, as SQL does."""
        lower = value.lower() if isinstance(value, str) else None
        return next((edge for edge in cls if edge.value == lower), None)


class AtOffset(NamedTuple):
    offset: int


class AtTime(NamedTuple):
    """The first record with this timestamp or a later one."""

    timestamp_ms: int


StartAt = StartEdge | AtOffset | AtTime
