"""Keeps the part of the saved index where readers are, so that the next read of a partition finds its batches in memory.

A reader that is behind the newest batches reads on where it stopped. The chunks there are loaded once for many of its reads.
What is kept is as the index was between two moves of batches, and counts only until the next one.
"""

import threading
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from tailrace.log.batch_location import (
    base_offset_of,
    index_above,
    index_holding,
    join_chunks,
    last_location,
    unpack_fields,
    unpack_recent,
)
from tailrace.log.index import PartitionIndex, SavedIndex
from tailrace.log.segment import SegmentFolder
from tailrace.model.ids import PartitionId

_CHUNKS = 4
"""Chunks that are loaded at once: with 256 batches in each, 60 KB."""


class _Part(NamedTuple):
    """Locations of batches that follow each other, as one chunk."""

    start: int
    end: int
    chunk: bytes
    moves: int


class ChunkCache:
    """Any thread may call it."""

    PARTS = 64
    """The most parts that are kept: one for each reader of old records, at each partition."""

    def __init__(self, saved: SavedIndex, segments: SegmentFolder) -> None:
        self._saved = saved
        self._segments = segments
        self._lock = threading.Lock()
        self._parts: dict[PartitionId, tuple[_Part, ...]] = {}
        self._loaded: deque[tuple[PartitionId, _Part]] = deque()
        """All parts, in the order in which they were loaded."""

    def walk(self, index: PartitionIndex, offset: int) -> Iterator[tuple[int, ...]] | None:
        """Yield locations in order from the batch that holds `offset` on, as many as are in memory; `None` if that is not.

        They are tuples with the fields of `BatchLocation`.
        """
        recent = index.locations
        if recent and offset >= base_offset_of(recent[0]):
            return _unpacked_from(recent, index_holding(recent, offset))
        moves = self._segments.moves
        for part in self._parts.get(index.partition, ()):
            if part.start <= offset < part.end and part.moves == moves:
                located = unpack_fields(part.chunk, offset)
                goes_on = recent and part.end >= base_offset_of(recent[0])
                return chain(located, _unpacked_from(recent, index_above(recent, part.end - 1))) if goes_on else located
        return None

    def load(self, index: PartitionIndex, offset: int) -> None:
        """Load what a read from this offset on needs, unless it is in memory. Reads the disk."""
        if offset >= index.end or self.walk(index, offset) is not None:
            return
        moves = self._segments.moves
        chunks = list(islice(self._saved.packed_chunks(index.partition, offset), _CHUNKS))
        if chunks and not self._segments.moved_since(moves):
            start, end = base_offset_of(chunks[0]), last_location(chunks[-1]).end_offset
            self._keep(index.partition, _Part(start, end, join_chunks(chunks), moves))

    def _keep(self, partition: PartitionId, part: _Part) -> None:
        with self._lock:
            self._parts[partition] = (*self._parts.get(partition, ()), part)
            self._loaded.append((partition, part))
            while len(self._loaded) > self.PARTS:
                oldest = self._loaded.popleft()
                left = tuple(each for each in self._parts[oldest[0]] if each is not oldest[1])
                if left:
                    self._parts[oldest[0]] = left
                else:
                    del self._parts[oldest[0]]


def _unpacked_from(recent: list[bytes], first: int) -> Iterator[tuple[int, ...]]:
    # The list may be long, so it is not copied.
    return map(unpack_recent, map(recent.__getitem__, range(first, len(recent))))
