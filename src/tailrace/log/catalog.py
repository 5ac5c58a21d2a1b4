"""What the log holds right now, in memory: partitions, the newest batches, and what a checkpoint has yet to save.

The same calls build it when a group is written and when frames are replayed. Callers hold the log's lock to change it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from tailrace.log.index import IndexReader, PartitionIndex
from tailrace.log.place import pack_place
from tailrace.log.tail_cache import TailCache
from tailrace.log.usage import SegmentUsage
from tailrace.model.changes import Buffer, Changes
from tailrace.model.clock import Hlc
from tailrace.model.ids import Cursor, Partition, Position, TopicId
from tailrace.model.invariant import InvariantError, invariant
from tailrace.model.stats import StoreStats

_COUNTERS_AT_MOST = 2
"""Saved counters for each partition, before all are saved afresh."""


class LogEnd(NamedTuple):
    """A place between two frames."""

    position: Position
    cursor: Cursor
    hlc: Hlc


class Cut(NamedTuple):
    """Everything that a checkpoint saves, as it was at `end`."""

    end: LogEnd
    partitions: Sequence[tuple[PartitionIndex, Sequence[bytes]]]
    """What has changed: the partition, and its places that are not saved yet, packed."""
    counters: Sequence[bytes]
    """Of these partitions or of all of them, packed."""
    has_all_counters: bool
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
        self.cache = TailCache(cache_bytes, stats)
        self._reader = reader
        self._active: SegmentUsage | None = None
        self._dirty: list[PartitionIndex] = []
        self._counted: int | None = None
        """How many counters are saved, old ones of the same partitions included. Not known at first."""
        self._dropped: list[TopicId] = []
        self._marks: list[tuple[int, int]] = []
        self._lingering: set[PartitionIndex] = set()
        """Those of which many places are saved, but stay in memory because their batches do."""
        self._stride = mark_stride_bytes

    @property
    def active(self) -> SegmentUsage:
        """The segment that batches go to."""
        invariant(self._active, "a log that is open has an active segment")
        return self._active  # type: ignore[return-value]

    def enter_segment(self, usage: SegmentUsage) -> None:
        """Batches go to this segment from now on."""
        if self._active is not None:
            self._active.close(usage.base - self._active.base)
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
                    self._will_save(index)
        for topic_id in changes.drops:
            for partition in [partition for partition in self.partitions if partition.topic_id == topic_id]:
                index = self.partitions.pop(partition)
                index.is_dropped = True
                self.unsaved_batches -= len(index.places) - index.saved
            self._dropped.append(topic_id)
        for partition, start in changes.trims:
            index = self.partitions[partition]
            if start > index.start:
                held = next(self._reader.walk(index, start), None)
                index.start_bytes = held.bytes_before if held else index.end_bytes
                index.start = start
                self._will_save(index)

    def _will_save(self, index: PartitionIndex) -> None:
        """The next checkpoint has to save it."""
        if not index.is_dirty:
            index.is_dirty = True
            self._dirty.append(index)

    def append(self, batches: Iterable[NewBatch]) -> None:
        """Batches are in the log now. This is the busiest loop of the log: everything that it needs is at hand."""
        partitions, active = self.partitions, self.active
        segment = active.base
        cached: dict[int, Buffer] = {}
        count = 0
        for partition, base, records, length, position, timestamp, cursor, data in batches:
            index = partitions[partition]
            if base != index.end:
                raise InvariantError(f"{partition} ends at {index.end}, a batch came for {base}")
            if not index.is_dirty:
                self._will_save(index)
            if index.segment != segment:
                active.enter(index)
            before = index.end_bytes
            index.end_bytes = before + length
            running = index.running
            if timestamp > running:
                index.running = running = timestamp
            index.places.append(pack_place(base, records, length, position, timestamp, cursor, running, before))
            index.end = base + records
            count += 1
            if data is not None:
                cached[cursor] = data
        self.unsaved_batches += count
        self.cache.add(cached)

    def advance(self, end: LogEnd) -> None:
        """Show everything up to `end` to readers."""
        self.end = end
        self.cache.shrink()

    def evict_aged(self) -> bool:
        """Let some batches go that were cached at the last `age`; says whether there are more of them."""
        return self.cache.evict_aged()

    def age(self) -> None:
        """What is cached now is old when this is called again."""
        self.cache.age()
        self._forget_places(())

    def mark_before(self, cursor: int) -> tuple[int, int] | None:
        """The last unsaved mark at or before the cursor."""
        marks = self._marks
        at = bisect_right(marks, cursor, key=lambda mark: mark[0])
        return marks[at - 1] if at else None

    def cut(self) -> Cut:
        """Take all that is not saved yet."""
        changed = [index for index in self._dirty if not index.is_dropped]
        dropped = self._dropped
        self._dirty, self._dropped = [], []
        for index in changed:
            index.is_dirty = False
        counts_all = bool(dropped) or (bool(changed) and self._has_many_counters(len(changed)))
        return Cut(
            self.end,
            [(index, index.places[index.saved :]) for index in changed],
            [index.pack_counters() for index in (self.partitions.values() if counts_all else changed)],
            counts_all,
            dropped,
            [(usage, usage.pack()) for usage in self.usages.values()],
            list(self._marks),
        )

    def saved(self, cut: Cut) -> None:
        """The cut is on disk: let go of what need not stay in memory."""
        for index, places in cut.partitions:
            if not index.is_dropped:
                index.saved += len(places)
                self.unsaved_batches -= len(places)
        self._forget_places(index for index, _ in cut.partitions)
        if cut.has_all_counters:
            self._counted = 0
        if self._counted is not None:
            self._counted += len(cut.counters)
        self._marks = self._marks[len(cut.marks) :]
        for usage, packed in cut.usages:
            if SegmentUsage.was_closed(packed):
                del self.usages[usage.base]

    def _forget_places(self, saved: Iterable[PartitionIndex]) -> None:
        """Let go of what is saved and no longer cached, of these partitions and of those that had to wait for it."""
        oldest = self.cache.oldest()
        cursor = self.end.cursor if oldest is None else oldest
        self._lingering = {index for index in chain(saved, self._lingering) if index.forget_saved(cursor)}

    def not_saved(self, cut: Cut) -> None:
        """The cut could not be saved: the next one must take it along."""
        for index, _ in cut.partitions:
            self._will_save(index)
        self._dropped[:0] = cut.dropped

    def _has_many_counters(self, new: int) -> bool:
        """Whether so many on top of those that are saved would be more than it is worth to read them all."""
        return self._counted is None or self._counted + new > _COUNTERS_AT_MOST * len(self.partitions)
