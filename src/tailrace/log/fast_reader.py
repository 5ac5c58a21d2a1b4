"""Fast path of `reader.py`: a fetch of few batches that are in the page cache, by the thread that asks for them.

The event loop may call it, because it never waits for a disk. To read a megabyte from the page cache and to check it takes
0.1 ms, and to hand the same work to a thread and wait for it takes as long again. What is not in memory, and what is not as it
should be, is left to `LogReader.fetch`. Every batch is checked here too. `tests/unit/log/test_fast_reader.py` holds both equal.
"""

import errno
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.log.chunk_cache import ChunkCache
from tailrace.log.frame import is_good_batch
from tailrace.log.index import PartitionIndex
from tailrace.log.options import LogOptions
from tailrace.log.page_cache import CAN_READ, new_buffer
from tailrace.log.segment import SegmentFolder, SegmentHandle
from tailrace.model.commit import Buffer
from tailrace.model.ids import Cursor
from tailrace.model.limits import KIB, MIB
from tailrace.model.stats import StoreStats

_MOST_BATCHES = 128
_MOST_BYTES = 4 * MIB
"""With more of either the event loop would be held up for longer than about a millisecond."""
_GAP_BYTES = 16 * KIB
"""Batches that are farther apart are read one by one: a call takes less than copying what is between them."""
_PIECE_BYTES = 256 * KIB
"""Bytes that are read before they are checked, while the processor's caches have them."""
_UNKNOWN_CALL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""What a system or file system answers that can't read without waiting."""

_Located = tuple[int, int, int, int]
"""Base offset, length, position and cursor of a batch."""


class _Piece(NamedTuple):
    """A piece of a segment, and which batches are in it."""

    handle: SegmentHandle
    position: int
    size: int
    first: int
    following: int


class FastReader:
    """Any thread may call it. The caller notices when the cleaner moves batches meanwhile."""

    def __init__(self, chunks: ChunkCache, segments: SegmentFolder, options: LogOptions, stats: StoreStats) -> None:
        self._chunks = chunks
        self._segments = segments
        self._gap_bytes = min(_GAP_BYTES, options.gap_bytes)
        self._stats = stats
        self._can_read = CAN_READ

    def read(
        self, index: PartitionIndex, offset: int, end: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[list[Buffer], list[Cursor]] | None:
        """Return batches from the one that holds `offset` on, and their cursors, up to the offset `end`."""
        located = self._locate(index, offset, end, max_bytes, at_least_one) if self._can_read else None
        if located is None:
            return None
        try:
            batches = self._read(located)
        except OSError as error:
            if error.errno in _UNKNOWN_CALL:
                self._can_read = False
            # An error of the disk is reported by the other path.
            return None
        return None if batches is None else (batches, [Cursor(cursor) for _, _, _, cursor in located])

    def start_reading(self, index: PartitionIndex, offset: int, end: int, max_bytes: int) -> None:
        """Have the disk read at the same time what would be read piece by piece. Reads the index."""
        self._chunks.load(index, offset)
        located = self._locate(index, offset, end, max_bytes, True)
        pieces = self._pieces(located) if located else None
        for handle, position, size, _, _ in pieces or ():
            handle.start_reading(position, size)

    def _locate(
        self, index: PartitionIndex, offset: int, end: int, max_bytes: int, at_least_one: bool
    ) -> list[_Located] | None:
        """Return the batches to read, if the index has all of them in memory."""
        walked = self._chunks.walk(index, offset)
        if walked is None:
            return None
        located: list[_Located] = []
        left, room = max_bytes, _MOST_BYTES
        known_end = offset
        for base, records, length, position, _, cursor, *_ in walked:
            if base != known_end and not (known_end == offset and base <= offset):
                return None
            known_end = base + records
            if not length:  # compaction has removed it
                continue
            left -= length
            if left < 0 and (located or not at_least_one):
                return located
            if base >= end:
                return located or None
            located.append((base, length, position, cursor))
            room -= length
            if room < 0 or len(located) > _MOST_BATCHES:
                return None
        return located if located and known_end >= end else None

    def _read(self, located: Sequence[_Located]) -> list[Buffer] | None:
        """Return the batches, if all of them are in the page cache, in segments that are open, and good."""
        pieces = self._pieces(located)
        if pieces is None:
            return None
        buffer = new_buffer(sum(piece.size for piece in pieces))
        data = buffer.toreadonly()
        last = pieces[-1] if pieces else None
        # The last one first: if anything is missing, it is the end of what a reader of old records asks for.
        if last is not None and not last.handle.read_cached(last.position, buffer[len(buffer) - last.size :]):
            return None
        batches: list[Buffer] = []
        begin = 0
        for piece in pieces:
            handle, position, size, first, following = piece
            if piece is not last and not handle.read_cached(position, buffer[begin : begin + size]):
                return None
            to_buffer = begin - position
            for base, length, place, _ in located[first:following]:
                at = place + to_buffer
                if not is_good_batch(data, at, at + length, base):
                    return None
                batches.append(data[at : at + length])
            begin += size
        self._stats.disk_reads += len(pieces)
        self._stats.disk_read_bytes += begin
        return batches

    def _pieces(self, located: Sequence[_Located]) -> list[_Piece] | None:
        """Return what to read for these batches, if their segments are open."""
        pieces: list[_Piece] = []
        first = begin = end = stop = 0
        handle: SegmentHandle | None = None
        for at, (_, length, position, _) in enumerate(located):
            is_near = 0 <= position - end <= self._gap_bytes and position < stop and end - begin < _PIECE_BYTES
            if not is_near:
                if handle is not None:
                    pieces.append(_Piece(handle, begin, end - begin, first, at))
                if not begin <= position < stop:
                    opened = self._segments.open_handle(position)
                    if opened is None:
                        return None
                    handle, stop = opened
                first, begin = at, position
            end = position + length
        if handle is not None:
            pieces.append(_Piece(handle, begin, end - begin, first, len(located)))
        return pieces
