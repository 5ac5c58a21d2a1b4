"""What a compaction does to the index of a partition once its segments are rewritten.

The index counts the bytes of a partition from its beginning (`BatchLocation.bytes_before`), and segments name their bytes by
that count (`SegmentUsage`). Compaction removes bytes, so the batches before them are counted again: the count of what is above
stays as it is, and that of what is below rises. A crash may leave this half done. Then too much is counted, never too little,
because the segments learn of it first, the batches from the newest to the oldest, and the start of the partition last. So no
segment is taken for empty that is not.

Removed batches whose offsets are next to each other become one location.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tailrace.log.batch_location import BatchLocation
from tailrace.log.catalog import Catalog
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.index import IndexReader, PartitionIndex, SavedIndex
from tailrace.log.segment import SegmentFolder
from tailrace.log.state import SEGMENT, StateDb
from tailrace.model.ids import Position
from tailrace.model.killpoint import killpoint

_CHUNKS_AT_ONCE = 16
_MOST_OFFSETS = (1 << 32) - 1
"""Of one location."""


class IndexCompaction:
    """Runs while checkpoints and the cleaner are excluded."""

    def __init__(
        self,
        catalog: Catalog,
        saved: SavedIndex,
        lookup: IndexReader,
        checkpoints: Checkpoints,
        state: StateDb,
        segments: SegmentFolder,
        lock: "AbstractContextManager[object]",
    ) -> None:
        self._catalog = catalog
        self._saved = saved
        self._lookup = lookup
        self._checkpoints = checkpoints
        self._state = state
        self._segments = segments
        self._lock = lock

    def run(self, index: PartitionIndex, stop: int, rest: Callable[[], None]) -> None:
        """Count the bytes below the offset `stop` again. All batches below it are in closed segments.

        `rest` is called between pieces of work.
        """
        above = next((location for location in self._lookup.walk(index, stop) if location.base_offset >= stop), None)
        end = above.bytes_before if above else index.end_bytes
        with self._lock:
            # What is in memory is saved, and is not updated.
            index.forget_before(above.position if above else self._catalog.end.position)
        self._count_segments(index, stop, end, rest)
        killpoint("compact.removed")
        for chunks in self._groups(index, stop):
            rest()
            old = [location for chunk in chunks for location in chunk]
            new: list[BatchLocation] = []
            for location in reversed(old):
                if location.base_offset < stop:
                    end -= location.length
                    location = location._replace(bytes_before=end)
                    if new and _are_gap(location, new[-1], stop):
                        location = location._replace(
                            records=location.records + new[-1].records, running_timestamp=new.pop().running_timestamp
                        )
                new.append(location)
            new.reverse()
            if new != old:
                batch = self._state.batch()
                firsts = [chunk[0].base_offset for chunk in chunks]
                self._saved.replace_chunks(batch, index.partition, firsts, new)
                self._state.write(batch)
        with self._lock:
            if not index.is_dropped:
                self._catalog.recount(index)
        killpoint("compact.counted")

    def _count_segments(self, index: PartitionIndex, stop: int, end: int, rest: Callable[[], None]) -> None:
        """Tell the segments which bytes of the partition they hold."""
        sizes: dict[Position, int] = {}
        for locations in self._saved.chunks(index.partition, index.start):
            rest()
            for location in locations:
                if location.base_offset >= stop:
                    break
                if location.length:
                    base = self._segments.base_of(location.position)
                    sizes[base] = sizes.get(base, 0) + location.length
        batch = self._state.batch()
        newest = max(sizes, default=Position(-1))
        for base in sorted(sizes, reverse=True):
            first = end - sizes[base]
            usage = self._checkpoints.usage(base)
            if usage is not None and usage.size and index.partition in usage.spans:
                # The newest of them may hold batches above, too, which are counted as before.
                last = max(end, usage.spans[index.partition][1]) if base == newest else end
                usage.spans[index.partition] = (first, last)
                batch.put(SEGMENT + base.to_bytes(8), usage.pack())
            end = first
        for usage in self._checkpoints.usages():
            if usage.size and usage.base < newest and usage.base not in sizes and index.partition in usage.spans:
                del usage.spans[index.partition]
                batch.put(SEGMENT + usage.base.to_bytes(8), usage.pack())
        self._state.write(batch)

    def _groups(self, index: PartitionIndex, stop: int) -> Iterator[list[list[BatchLocation]]]:
        """Yield the saved chunks from the newest below `stop` down to the start, some at a time, each time in order."""
        below = stop - 1
        while below >= 0:
            chunks: list[list[BatchLocation]] = []
            while below >= 0 and len(chunks) < _CHUNKS_AT_ONCE:
                chunk = self._saved.chunk_holding(index.partition, below)
                if not chunk:
                    below = -1
                    break
                chunks.append(chunk)
                below = chunk[0].base_offset - 1
            if chunks:
                yield chunks[::-1]


def _are_gap(first: BatchLocation, second: BatchLocation, stop: int) -> bool:
    """Return whether two neighbours are removed batches that can share a location."""
    is_gap = not first.length and not second.length and second.base_offset < stop
    return is_gap and first.records + second.records <= _MOST_OFFSETS
