"""Where one batch is in the log, as a value and packed to bytes.

The index keeps locations packed, in memory as on disk. So a checkpoint only concatenates them, each takes a quarter of the
memory of a tuple, and the garbage collector need not visit any. Packed locations sort by their base offset, which comes first.

A chunk is what the saved index keeps of some batches: their concatenated locations and one byte, so that its length is odd.
Chunks of formats 1 and 2 are locations without the last field, whose length is even. Their oldest timestamps are unknown.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from tailrace.model.commit import UNKNOWN_TIMESTAMP
from tailrace.model.ids import Position

_LOCATION = Struct(">QIIQqQqQq")
_OLD_LOCATION = Struct(">QIIQqQqQ")
_CHUNK_END = b"\x03"
_OLDEST_IN_CHUNK = Struct(f">{_OLD_LOCATION.size}xq")
_BASE = Struct(">Q")
_RUNNING = Struct(">q")
_CURSOR = Struct(f">{Struct('>QIIQq').size}xQ")
_POSITION_AT = Struct(">QII").size
_RUNNING_AT = Struct(">QIIQqQ").size
_BYTES_AT = Struct(">QIIQqQq").size

BASE_BYTES = _BASE.size
"""A packed location begins with this many bytes of base offset."""


class BatchLocation(NamedTuple):
    """The offsets of one batch, and where it is in the log."""

    base_offset: int
    records: int
    """How many offsets it takes. Compaction may have removed some of their records."""
    length: int
    """Its bytes; 0 if compaction has removed the batch. Then the location stands for the offsets of one or more batches."""
    position: int
    max_timestamp: int
    cursor: int
    running_timestamp: int
    """The newest timestamp of the partition up to and including this batch."""
    bytes_before: int
    """Bytes of all batches that the partition ever held before this one, deleted ones too."""
    oldest_timestamp: int
    """No record of the batch has a timestamp before this one."""

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.records


_FIELDS = len(BatchLocation._fields)

pack_location = _LOCATION.pack
"""Takes the fields of a `BatchLocation`."""


unpack_recent = _LOCATION.unpack
"""Returns a bare tuple, as `unpack_fields` does."""


def unpack_location(packed: bytes) -> BatchLocation:
    return BatchLocation._make(_LOCATION.unpack(packed))


def pack_chunk(locations: Sequence[bytes]) -> bytes:
    """Return the chunk of packed locations."""
    return b"".join((*locations, _CHUNK_END))


def join_chunks(chunks: Sequence[bytes]) -> bytes:
    """Return one chunk with the locations of several, in their order."""
    return b"".join((*map(_packed_locations, chunks), _CHUNK_END))


def unpack_chunk(chunk: bytes, offset: int = 0) -> Iterator[BatchLocation]:
    """Unpack the locations of a chunk, from the one that holds the offset on; all of them if they are above it."""
    return map(_location, unpack_fields(chunk, offset))


def unpack_fields(chunk: bytes, offset: int = 0) -> Iterator[tuple[int, ...]]:
    """Do the same, but yield bare tuples, which takes half as long. Those of old formats have no last field."""
    form, end = _layout(chunk)
    above = bisect_right(range(0, end, form.size), offset, key=lambda at: _BASE.unpack_from(chunk, at)[0])
    return form.iter_unpack(memoryview(chunk)[max(0, above - 1) * form.size : end])


def last_location(chunk: bytes) -> BatchLocation:
    """Return the last location of a chunk."""
    form, end = _layout(chunk)
    return _location(form.unpack_from(chunk, end - form.size))


def oldest_in_chunk(chunk: bytes) -> int:
    """Return a timestamp that no record of the chunk's batches is before."""
    form, end = _layout(chunk)
    if form is _OLD_LOCATION:
        return UNKNOWN_TIMESTAMP
    oldest: int = min(_OLDEST_IN_CHUNK.iter_unpack(memoryview(chunk)[:end]))[0]
    return oldest


def _layout(chunk: bytes) -> tuple[Struct, int]:
    """Return the format of the locations in a chunk, and where they end."""
    return (_LOCATION, len(chunk) - 1) if len(chunk) % 2 else (_OLD_LOCATION, len(chunk))


def _packed_locations(chunk: bytes) -> bytes:
    form, end = _layout(chunk)
    if form is _LOCATION:
        return chunk[:end]
    return b"".join(pack_location(*location) for location in unpack_chunk(chunk))


def _location(fields: tuple[int, ...]) -> BatchLocation:
    return BatchLocation._make(fields if len(fields) == _FIELDS else (*fields, UNKNOWN_TIMESTAMP))


def base_offset_of(packed: bytes) -> int:
    base: int = _BASE.unpack_from(packed)[0]
    return base


unpack_cursor = _CURSOR.unpack_from
"""Returns a tuple of one, which is quicker than `cursor_of` in a loop."""


def cursor_of(packed: bytes) -> int:
    cursor: int = _CURSOR.unpack_from(packed)[0]
    return cursor


def position_of(packed: bytes) -> Position:
    position: Position = _BASE.unpack_from(packed, _POSITION_AT)[0]
    return position


def running_timestamp_of(packed: bytes) -> int:
    running: int = _RUNNING.unpack_from(packed, _RUNNING_AT)[0]
    return running


def oldest_timestamp_of(packed: bytes) -> int:
    oldest: int = _OLDEST_IN_CHUNK.unpack_from(packed)[0]
    return oldest


def bytes_before_of(packed: bytes) -> int:
    before: int = _BASE.unpack_from(packed, _BYTES_AT)[0]
    return before


def index_above(locations: Sequence[bytes], offset: int) -> int:
    """Return the index of the first packed location whose base offset is above `offset`, or their number if there is none."""
    return bisect_right(locations, _BASE.pack(offset + 1))


def index_holding(locations: Sequence[bytes], offset: int) -> int:
    """Return the index of the packed location that holds the offset; 0 if all are above it."""
    return max(0, index_above(locations, offset) - 1)
