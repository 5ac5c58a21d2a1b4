"""Record batches to write, built before the clock starts and numbered.

Every batch carries its number in its first record, so a reader notices one that is lost, duplicated or out of place.
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
    """How many records a batch has, and how large they are."""

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
    """Batches of one shape, each in its own memory, so that writing them one after the other finds cold caches."""

    batches: Sequence[Buffer]
    records: int
    batch_bytes: int
    number_at: int

    def megabytes(self, batches: float) -> float:
        return batches * self.batch_bytes / 1e6

    def number_of(self, batch: Buffer) -> int:
        """Return the number of a batch of the ring."""
        return int(_NUMBER.unpack_from(batch, self.number_at)[0])


def ring_of_bytes(shape: Shape, total_bytes: int) -> Ring:
    """Make as many batches as fill `total_bytes`. The store may change them in place. See `Scale.ring_bytes`."""
    size = len(_template(shape))
    return _ring(shape, max(1, total_bytes // size), bytearray)


def ring_of_copies(shape: Shape, count: int) -> Ring:
    """Make batches that the store must copy before it sets their offset, so that they can be reused at once."""
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
    """Yields batches for some partitions in turn. They are appended in this order, so that all can be checked later."""

    def __init__(self, partitions: Sequence[PartitionId], ring: Ring, appended: int = 0) -> None:
        self.partitions = partitions
        self.ring = ring
        self._batches = ring.batches
        self.appended = appended
        """The number of batches yielded so far."""

    def next(self) -> Changes:
        number = self.appended
        self.appended = number + 1
        partition = self.partitions[number % len(self.partitions)]
        batch = self._batches[number % len(self._batches)]
        return Changes(appends=(Append(partition, batch, self.ring.records, TIMESTAMP),))

    def each(self, count: int) -> Iterator[Changes]:
        """Yield the next batches, each made when it is needed."""
        return (self.next() for _ in range(count))

    def take(self, count: int) -> list[Changes]:
        """Make the next batches at once, before the clock starts."""
        return list(self.each(count))

    def take_raw(self, topic: str, count: int) -> list[RawBatch]:
        """Make the next batches for the broker, which takes topics by name."""
        return [RawBatch(topic, only.partition.number, only.batch) for changes in self.each(count) for only in changes.appends]

    @property
    def records(self) -> int:
        return self.appended * self.ring.records

    @property
    def bytes(self) -> int:
        return self.appended * self.ring.batch_bytes

    def batches_in(self, nth: int) -> int:
        """Return how many batches the nth partition has."""
        return (self.appended - nth + len(self.partitions) - 1) // len(self.partitions)

    def offset_of(self, place: int) -> Offset:
        """Return the base offset of a batch by its place in the partition."""
        return Offset(place * self.ring.records)

    def number_at(self, nth: int, place: int) -> int:
        """Return the number of the batch at this place in the nth partition."""
        return (nth + place * len(self.partitions)) % len(self.ring.batches)
