"""What the log holds right now, in memory: partitions, the newest batches, and what a checkpoint has yet to save.

The same calls build it when a group is written and when frames are replayed. Callers hold the log's lock to change it.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.log.index import IndexReader, PartitionIndex
from tailrace.log.place import pack_place
from tailrace.log.usage import SegmentUsage
from tailrace.model.changes import Buffer, Changes
from tailrace.model.clock import Hlc
from tailrace.model.ids import Cursor, Partition, Position, TopicId
from tailrace.model.invariant import InvariantError, invariant
from tailrace.model.stats import StoreStats

_CACHED_BATCH_OVERHEAD = 512


class LogEnd(NamedTuple):
    """A place between two frames."""

    position: Position
    cursor: Cursor
    hlc: Hlc


class Cut(NamedTuple):
    """Everything that a checkpoint saves, as it was at `end`."""

    end: LogEnd
    partitions: Sequence[tuple[PartitionIndex, bytes, Sequence[bytes]]]
    """The partition, its counters and its places that are not saved yet, all packed."""
    dropped: Sequence[TopicId]
    usages: Sequence[tuple[SegmentUsage, bytes]]
    """Each with how it was when the cut was taken."""
    marks: Sequence[tuple[int, int]]


NewBatch = tuple[Partition, int, int, int, int, int, int, Buffer | None]
"""Partition, base offset, records, length, position, newest timestamp, cursor, and the bytes if they shall be cached."""


class Catalog:
    def __init__(
        self,
        partitions: dict[Partition, PartitionIndex],
        end: LogEnd,
        reader: IndexReader,
        stats: StoreStats,
        cache_bytes: int,
        mark_stride_bytes: int,
    ) -> None:
        self.partitions = partitions
        self.usages: dict[Position, SegmentUsage] = {}
        """The active segment's and those of closed segments that are not saved yet."""
        self.end = end
        """The end that readers see."""
        self.unsaved_batches = 0
        self._cache_bytes = cache_bytes
        self._reader = reader
        self._stats = stats
        self._active: SegmentUsage | None = None
        self._dirty: set[PartitionIndex] = set()
        self._dropped: list[TopicId] = []
        self._marks: list[tuple[int, int]] = []
        self._cached: deque[tuple[PartitionIndex, int]] = deque()
        self._aged = 0
        """How many of the cached batches, from the oldest on, were there when their age was last looked at."""
        self._stride = mark_stride_bytes

    @property
    def active(self) -> SegmentUsage:
        """The segment that batches go to."""
        invariant(self._active, "a log that is open has an active segment")
        return self._active  # type: ignore[return-value]

    def enter_segment(self, usage: SegmentUsage) -> None:
        """Batches go to this segment from now on."""
        if self._active is not None:
            self._active.size = usage.base - self._active.base
        self.usages[usage.base] = self._active = usage

    def mark(self, cursor: Cursor, position: Position) -> None:
        """A frame with records begins here. Some of these places are kept, to find a cursor without reading the whole log."""
        if not self._marks or position - self._marks[-1][1] >= self._stride:
            self._marks.append((cursor, position))

    def change(self, changes: Changes) -> None:
        for topic_id, count in changes.creates:
            for number in range(count):
                partition = Partition(topic_id, number)
                if partition not in self.partitions:
                    self.partitions[partition] = index = PartitionIndex(partition)
                    self._dirty.add(index)
        for topic_id in changes.drops:
            for partition in [partition for partition in self.partitions if partition.topic_id == topic_id]:
                index = self.partitions.pop(partition)
                self._dirty.discard(index)
                self.unsaved_batches -= len(index.recent.places) - index.saved
            self._dropped.append(topic_id)
        for partition, start in changes.trims:
            index = self.partitions[partition]
            if start > index.start:
                held = next(self._reader.walk(index, start), None)
                index.start_bytes = held.bytes_before if held else index.end_bytes
                index.start = start
                self._dirty.add(index)

    def append(self, batches: Iterable[NewBatch]) -> None:
        """Batches are in the log now. This is the busiest loop of the log: everything that it needs is at hand."""
        partitions, add_dirty = self.partitions, self._dirty.add
        spans = self.active.spans
        count = cached = 0
        for partition, base, records, length, position, timestamp, cursor, data in batches:
            index = partitions[partition]
            if base != index.end:
                raise InvariantError(f"{partition} ends at {index.end}, a batch came for {base}")
            before = index.end_bytes
            index.end_bytes = after = before + length
            span = spans.get(partition)
            if span is None:
                spans[partition] = [before, after]
            else:
                span[1] = after
            running = index.running
            if timestamp > running:
                index.running = running = timestamp
            recent = index.recent
            recent.data.append(data)
            recent.places.append(pack_place(base, records, length, position, timestamp, cursor, running, before))
            index.end = base + records
            add_dirty(index)
            count += 1
            if data is None:
                recent.evicted += 1
            else:
                size = length + _CACHED_BATCH_OVERHEAD
                self._cached.append((index, size))
                cached += size
        self.unsaved_batches += count
        self._stats.cached_bytes += cached

    def advance(self, end: LogEnd) -> None:
        """Show everything up to `end` to readers."""
        self.end = end
        self._evict(self._cache_bytes, len(self._cached))

    def evict_aged(self, most: int) -> bool:
        """Let up to so many go that were cached at the last `age`, oldest first; says whether there are more of them."""
        self._evict(0, min(most, self._aged))
        return self._aged > 0

    def age(self) -> None:
        """What is cached now is old when this is called again."""
        self._aged = len(self._cached)

    def _evict(self, keep_bytes: int, most: int) -> None:
        """Let the oldest go from memory, until so many bytes are left or so many have gone."""
        take_oldest = self._cached.popleft
        cached = self._stats.cached_bytes
        evicted = 0
        while cached > keep_bytes and evicted < most:
            index, size = take_oldest()
            index.evict()
            cached -= size
            evicted += 1
        self._stats.cached_bytes = cached
        self._aged = max(0, self._aged - evicted)

    def mark_before(self, cursor: int) -> tuple[int, int] | None:
        """The last unsaved mark at or before the cursor."""
        marks = self._marks
        at = bisect_right(marks, cursor, key=lambda mark: mark[0])
        return marks[at - 1] if at else None

    def cut(self) -> Cut:
        """Take all that is not saved yet."""
        dirty, self._dirty = self._dirty, set()
        dropped, self._dropped = self._dropped, []
        return Cut(
            self.end,
            [(index, index.pack_counters(), index.recent.places[index.saved :]) for index in dirty],
            dropped,
            [(usage, usage.pack()) for usage in self.usages.values()],
            list(self._marks),
        )

    def saved(self, cut: Cut) -> None:
        """The cut is on disk: let go of what need not stay in memory."""
        for index, _, places in cut.partitions:
            if self.partitions.get(index.partition) is index:
                index.saved += len(places)
                index.forget_saved()
                self.unsaved_batches -= len(places)
        self._marks = self._marks[len(cut.marks) :]
        for usage, packed in cut.usages:
            if SegmentUsage.was_closed(packed):
                del self.usages[usage.base]

    def not_saved(self, cut: Cut) -> None:
        """The cut could not be saved: the next one must take it along."""
        self._dirty.update(index for index, _, _ in cut.partitions if self.partitions.get(index.partition) is index)
        self._dropped[:0] = cut.dropped
