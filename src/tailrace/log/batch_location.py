"""Where one batch is, as a value and packed.

The index keeps places packed, in memory as on disk. So a checkpoint only joins them, each takes a quarter of the memory of a
tuple, and the garbage collector need not look at any. Packed places sort by their base offset, which comes first in them.
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
"""The first bytes of a packed place are its base offset."""


class BatchLocation(NamedTuple):
    """One batch: which offsets, and where in the log."""

    base_offset: int
    records: int
    length: int
    position: int
    max_timestamp: int
    cursor: int
    running_timestamp: int
    """The newest timestamp in the partition up to and with this batch."""
    bytes_before: int
    """Bytes of all batches that the partition ever held before this one."""


pack_location = _LOCATION.pack
"""Takes the fields of a `BatchLocation`."""


def unpack_location(packed: bytes) -> BatchLocation:
    return BatchLocation._make(_LOCATION.unpack(packed))


def unpack_locations(packed: bytes, offset: int = 0) -> Iterator[BatchLocation]:
    """Of many packed places, joined, those from the one that holds the offset on; all if they are above it."""
    size = _LOCATION.size
    above = bisect_right(range(0, len(packed), size), offset, key=lambda at: _BASE.unpack_from(packed, at)[0])
    return map(BatchLocation._make, _LOCATION.iter_unpack(memoryview(packed)[max(0, above - 1) * size :]))


def last_location(packed: bytes) -> BatchLocation:
    """Of many packed places, joined, the last one."""
    return BatchLocation._make(_LOCATION.unpack_from(packed, len(packed) - _LOCATION.size))


def base_offset_of(packed: bytes) -> int:
    base: int = _BASE.unpack_from(packed)[0]
    return base


unpack_cursor = _CURSOR.unpack_from
"""Gives a tuple of one, which is quicker than `cursor_of` where there are many."""


def cursor_of(packed: bytes) -> int:
    cursor: int = _CURSOR.unpack_from(packed)[0]
    return cursor


def running_timestamp_of(packed: bytes) -> int:
    running: int = _RUNNING.unpack_from(packed, _RUNNING_AT)[0]
    return running


def bytes_before_of(packed: bytes) -> int:
    before: int = _BASE.unpack_from(packed, _BYTES_AT)[0]
    return before


def index_above(places: Sequence[bytes], offset: int) -> int:
    """Index of the first packed place whose base offset is above `offset`; their number if there is none."""
    return bisect_right(places, _BASE.pack(offset + 1))


def index_holding(places: Sequence[bytes], offset: int) -> int:
    """Index of the packed place that holds the offset; the first one if all are above it."""
    return max(0, index_above(places, offset) - 1)
