"""What the log holds right now, in memory: partitions, the newest batches, and what a checkpoint has yet to save.

The same calls build it when a group is written and when frames are replayed. Callers hold the log's lock to change it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from tailrace.log.batch_location import pack_location
from tailrace.log.index import IndexReader, PartitionIndex
from tailrace.log.segment import SegmentUsage
from tailrace.model.clock import Hlc
from tailrace.model.commit import Buffer, Changes
from tailrace.model.errors import InvariantError, invariant
from tailrace.model.ids import Cursor, PartitionId, Position, TopicId
from tailrace.model.stats import StoreStats

_COUNTERS_AT_MOST = 2
"""Saved counters for each partition, before all are saved afresh."""


class LogEnd(NamedTuple):
    """A place between two frames."""

    position: Position
    cursor: Cursor
    hlc: Hlc


class CheckpointData(NamedTuple):
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


NewBatch = tuple[PartitionId, int, int, int, int, int, int, Buffer | None]
"""Partition, base offset, records, length, position, newest timestamp, cursor, and the bytes if they shall be cached."""


class Catalog:
    def __init__(
        self,
        partitions: dict[PartitionId, PartitionIndex],
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

    def index_cursor(self, cursor: Cursor, position: Position) -> None:
        """A frame with records begins here. Some of these places are kept, to find a cursor without reading the whole log."""
        if not self._marks or position - self._marks[-1][1] >= self._stride:
            self._marks.append((cursor, position))

    def change(self, changes: Changes) -> None:
        for topic_id, count in changes.creates:
            for number in range(count):
                partition = PartitionId(topic_id, number)
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
            index.places.append(pack_location(base, records, length, position, timestamp, cursor, running, before))
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

    def take_unsaved(self) -> CheckpointData:
        """Take all that is not saved yet."""
        changed = [index for index in self._dirty if not index.is_dropped]
        dropped = self._dropped
        self._dirty, self._dropped = [], []
        for index in changed:
            index.is_dirty = False
        counts_all = bool(dropped) or (bool(changed) and self._has_many_counters(len(changed)))
        return CheckpointData(
            self.end,
            [(index, index.places[index.saved :]) for index in changed],
            [index.pack_counters() for index in (self.partitions.values() if counts_all else changed)],
            counts_all,
            dropped,
            [(usage, usage.pack()) for usage in self.usages.values()],
            list(self._marks),
        )

    def release_saved(self, data: CheckpointData) -> None:
        """The cut is on disk: let go of what need not stay in memory."""
        for index, places in data.partitions:
            if not index.is_dropped:
                index.saved += len(places)
                self.unsaved_batches -= len(places)
        self._forget_places(index for index, _ in data.partitions)
        if data.has_all_counters:
            self._counted = 0
        if self._counted is not None:
            self._counted += len(data.counters)
        self._marks = self._marks[len(data.marks) :]
        for usage, packed in data.usages:
            if SegmentUsage.was_closed(packed):
                del self.usages[usage.base]

    def _forget_places(self, saved: Iterable[PartitionIndex]) -> None:
        """Let go of what is saved and no longer cached, of these partitions and of those that had to wait for it."""
        oldest = self.cache.oldest()
        cursor = self.end.cursor if oldest is None else oldest
        self._lingering = {index for index in chain(saved, self._lingering) if index.forget_saved(cursor)}

    def put_back_unsaved(self, data: CheckpointData) -> None:
        """The cut could not be saved: the next one must take it along."""
        for index, _ in data.partitions:
            self._will_save(index)
        self._dropped[:0] = data.dropped

    def _has_many_counters(self, new: int) -> bool:
        """Whether so many on top of those that are saved would be more than it is worth to read them all."""
        return self._counted is None or self._counted + new > _COUNTERS_AT_MOST * len(self.partitions)


_BATCH_OVERHEAD = 512
_RUNS = 32
"""How many have room in the cache at least, unless batches come in groups that are larger."""


class _Held(NamedTuple):
    """The lists only grow. They are replaced to let go of some runs, so that who reads them is safe."""

    firsts: list[int]
    """The first cursor of each run."""
    runs: list[dict[int, Buffer]]
    sizes: list[int]


class TailCache:
    def __init__(self, most_bytes: int, stats: StoreStats) -> None:
        self._most_bytes = most_bytes
        self._run_bytes = most_bytes // _RUNS
        self._stats = stats
        self._held = _Held([], [], [])
        self._is_full = True
        """Whether the newest run is, so that the next batches begin one. So it is when the cache is empty: a newest run leaves
        only if it is larger than the whole cache, or if nothing has come since `age`."""
        self._aged = 0
        """How many runs, from the oldest on, were there when their age was last looked at."""

    def add(self, batches: dict[int, Buffer]) -> None:
        """These are the newest now, in their order."""
        if not batches:
            return
        firsts, runs, sizes = self._held
        size = sum(map(len, batches.values())) + len(batches) * _BATCH_OVERHEAD
        if self._is_full:
            runs.append(batches)
            sizes.append(size)
            firsts.append(next(iter(batches)))  # the last of the three, because readers begin with it
        else:
            runs[-1].update(batches)
            sizes[-1] += size
        self._is_full = sizes[-1] >= self._run_bytes
        self._stats.cached_bytes += size

    def run_with(self, cursor: int) -> Mapping[int, Buffer]:
        """Batches by their cursors, among them the one that begins with this cursor if it is in memory."""
        firsts, runs, _ = self._held
        at = bisect_right(firsts, cursor)
        return runs[at - 1] if at else {}

    def oldest(self) -> int | None:
        """The first cursor that is in memory."""
        firsts = self._held.firsts
        return firsts[0] if firsts else None

    def shrink(self) -> None:
        """Let the oldest go until what is left may stay."""
        if self._stats.cached_bytes > self._most_bytes:
            excess, count = self._stats.cached_bytes - self._most_bytes, 0
            while excess > 0:
                excess -= self._held.sizes[count]
                count += 1
            self._evict(count)

    def evict_aged(self) -> bool:
        """Let a run go that was there at the last `age`; says whether there are more of them."""
        self._evict(min(1, self._aged))
        return self._aged > 0

    def age(self) -> None:
        """What is there now is old when this is called again."""
        self._aged = len(self._held.runs)
        self._is_full = True

    def _evict(self, count: int) -> None:
        """Let so many of the oldest runs go."""
        firsts, runs, sizes = self._held
        self._held = _Held(firsts[count:], runs[count:], sizes[count:])
        self._stats.cached_bytes -= sum(sizes[:count])
        self._aged = max(0, self._aged - count)
