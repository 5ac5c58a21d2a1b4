"""Record batches to write: built before the clock runs, and told apart when they are read back.

Every batch carries its number in its first record. A batch that was lost, written twice or put in the wrong place shows by
the numbers being out of turn.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tailrace.model.commit import Append, Buffer, Changes
from tailrace.model.errors import invariant
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.record import RawBatch, Record
from tailrace.wire.batch import CHECKED_FROM
from tailrace.wire.records import encode_batch

TIMESTAMP = 1_700_000_000_000

_NUMBER = Struct(">Q")
_CRC = Struct(">I")
_CRC_AT = 17
_MARK = b"\xa5" * _NUMBER.size


class Shape(NamedTuple):
    """A kind of batch."""

    name: str
    records: int
    value_bytes: int


BYTES_100 = Shape("100 B", 1, 32)
BYTES_200 = Shape("200 B", 1, 130)
KB_1 = Shape("1 KB", 1, 930)
KB_16 = Shape("16 KB", 16, 990)
MB_1 = Shape("1 MB", 1_000, 990)

SHAPES = {shape.name: shape for shape in (BYTES_100, BYTES_200, KB_1, KB_16, MB_1)}


class Ring(NamedTuple):
    """Batches of one shape, each in memory of its own, so that writing them one after the other finds no cache warm."""

    batches: Sequence[Buffer]
    records: int
    batch_bytes: int
    number_at: int

    def megabytes(self, batches: float) -> float:
        return batches * self.batch_bytes / 1e6

    def number_of(self, batch: Buffer) -> int:
        """Which batch of the ring this is."""
        return int(_NUMBER.unpack_from(batch, self.number_at)[0])


def ring_of_bytes(shape: Shape, total_bytes: int) -> Ring:
    """As many batches as fill `total_bytes`, which the store may change in place. See `Scale.ring_bytes`."""
    size = len(_template(shape))
    return _ring(shape, max(1, total_bytes // size), bytearray)


def ring_of_copies(shape: Shape, count: int) -> Ring:
    """Batches that the store has to copy before it can set their offset, so that they can be used again at once."""
    return _ring(shape, count, bytes)


def _ring(shape: Shape, count: int, kind: type[bytearray] | type[bytes]) -> Ring:
    template = _template(shape)
    number_at = template.index(_MARK)
    invariant(template.count(_MARK) == 1, "the mark of a batch's number is in it once")
    batches = []
    for number in range(count):
        _NUMBER.pack_into(template, number_at, number)
        _CRC.pack_into(template, _CRC_AT, crc32c(memoryview(template)[CHECKED_FROM:]))
        batches.append(kind(template))
    return Ring(batches, shape.records, len(template), number_at)


def _template(shape: Shape) -> bytearray:
    values = [bytes([number % 128]) * shape.value_bytes for number in range(shape.records)]
    values[0] = _MARK + values[0][len(_MARK) :]
    return encode_batch([Record(None, value, (), TIMESTAMP) for value in values])


class Stream:
    """Batches for some partitions in turn. Whoever appends them keeps to the order, so that all can be checked later."""

    def __init__(self, partitions: Sequence[PartitionId], ring: Ring, appended: int = 0) -> None:
        self.partitions = partitions
        self.ring = ring
        self._batches = ring.batches
        self.appended = appended
        """Batches handed out so far."""

    def next(self) -> Changes:
        number = self.appended
        self.appended = number + 1
        partition = self.partitions[number % len(self.partitions)]
        batch = self._batches[number % len(self._batches)]
        return Changes(appends=(Append(partition, batch, self.ring.records, TIMESTAMP),))

    def each(self, count: int) -> Iterator[Changes]:
        """The next so many, each made when it is asked for."""
        return (self.next() for _ in range(count))

    def take(self, count: int) -> list[Changes]:
        """The same made at once, before the clock runs."""
        return list(self.each(count))

    def take_raw(self, topic: str, count: int) -> list[RawBatch]:
        """The same for the broker, which knows topics by name."""
        return [RawBatch(topic, only.partition.number, only.batch) for changes in self.each(count) for only in changes.appends]

    @property
    def records(self) -> int:
        return self.appended * self.ring.records

    @property
    def bytes(self) -> int:
        return self.appended * self.ring.batch_bytes

    def batches_in(self, nth: int) -> int:
        """How many batches the nth partition has got."""
        return (self.appended - nth + len(self.partitions) - 1) // len(self.partitions)

    def offset_of(self, place: int) -> Offset:
        """Base offset of the batch at this place in its partition."""
        return Offset(place * self.ring.records)

    def number_at(self, nth: int, place: int) -> int:
        """Which batch of the ring is at this place in the nth partition."""
        return (nth + place * len(self.partitions)) % len(self.ring.batches)
