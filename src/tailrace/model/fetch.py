"""What a reader asks for, and what it gets."""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model.changes import Bounds, Buffer
from tailrace.model.errors import TailraceError
from tailrace.model.ids import Offset
from tailrace.model.record import Record

NO_BOUNDS = Bounds(Offset(-1), Offset(-1))


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
    bounds: Bounds
    error: TailraceError | None


class PartitionRecords(NamedTuple):
    """Decoded records of one partition, and where to go on."""

    records: Sequence[Record]
    next_offset: Offset
    bounds: Bounds
