"""Record batches to write: built before the clock runs, and told apart when they are read back.

Every batch carries its number in its first record. A batch that was lost, written twice or put in the wrong place shows by
the numbers being out of turn.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tailrace.model.commit import Buffer
from tailrace.model.errors import invariant
from tailrace.model.record import Record
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
