"""Where one batch is in the log, as a value and packed to bytes.

The index keeps locations packed, in memory as on disk. So a checkpoint only concatenates them, each takes a quarter of the
memory of a tuple, and the garbage collector need not visit any. Packed locations sort by their base offset, which comes first.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

_LOCATION = Struct(">QIIQqQqQ")
_BASE = Struct(">Q")
_RUNNING = Struct(">q")
_CURSOR = Struct(f">{Struct('>QIIQq').size}xQ")
_RUNNING_AT = Struct(">QIIQqQ").size
_BYTES_AT = Struct(">QIIQqQq").size

BASE_BYTES = _BASE.size
"""A packed location begins with this many bytes of base offset."""


class BatchLocation(NamedTuple):
    """The offsets of one batch, and where it is in the log."""

    base_offset: int
    records: int
    length: int
    position: int
    max_timestamp: int
    cursor: int
    running_timestamp: int
    """The newest timestamp of the partition up to and including this batch."""
    bytes_before: int
    """Bytes of all batches that the partition ever held before this one, deleted ones too."""


pack_location = _LOCATION.pack
"""Takes the fields of a `BatchLocation`."""


def unpack_location(packed: bytes) -> BatchLocation:
    return BatchLocation._make(_LOCATION.unpack(packed))


def unpack_locations(packed: bytes, offset: int = 0) -> Iterator[BatchLocation]:
    """Unpack concatenated locations, from the one that holds the offset on; all of them if they are above it."""
    size = _LOCATION.size
    above = bisect_right(range(0, len(packed), size), offset, key=lambda at: _BASE.unpack_from(packed, at)[0])
    return map(BatchLocation._make, _LOCATION.iter_unpack(memoryview(packed)[max(0, above - 1) * size :]))


def last_location(packed: bytes) -> BatchLocation:
    """Return the last entry of concatenated packed locations."""
    return BatchLocation._make(_LOCATION.unpack_from(packed, len(packed) - _LOCATION.size))


def base_offset_of(packed: bytes) -> int:
    base: int = _BASE.unpack_from(packed)[0]
    return base


unpack_cursor = _CURSOR.unpack_from
"""Returns a tuple of one, which is quicker than `cursor_of` in a loop."""


def cursor_of(packed: bytes) -> int:
    cursor: int = _CURSOR.unpack_from(packed)[0]
    return cursor


def running_timestamp_of(packed: bytes) -> int:
    running: int = _RUNNING.unpack_from(packed, _RUNNING_AT)[0]
    return running


def bytes_before_of(packed: bytes) -> int:
    before: int = _BASE.unpack_from(packed, _BYTES_AT)[0]
    return before


def index_above(locations: Sequence[bytes], offset: int) -> int:
    """Return the index of the first packed location whose base offset is above `offset`, or their number if there is none."""
    return bisect_right(locations, _BASE.pack(offset + 1))


def index_holding(locations: Sequence[bytes], offset: int) -> int:
    """Return the index of the packed location that holds the offset; 0 if all are above it."""
    return max(0, index_above(locations, offset) - 1)
