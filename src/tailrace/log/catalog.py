"""What the log holds right now, in memory: partitions, the newest batches, and what the next checkpoint has to save.

The same calls build it when a group is written and when frames are replayed. Callers hold the log's lock to change it.

`TailCache` holds the bytes of the newest batches, so that readers at the tail need no disk. Batches of all partitions are kept
together, in runs, each a map by the cursor of a batch's first record. Whole runs are evicted in the order in which they came.
So evicting a batch costs next to nothing and touches nothing of its partition; there may be more partitions than the
processor's caches hold.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from tailrace.log.batch_location import pack_location
from tailrace.log.index import IndexReader, PartitionIndex, describe_partition
from tailrace.log.segment import SegmentUsage
from tailrace.model.clock import Hlc
from tailrace.model.commit import Buffer, Changes
from tailrace.model.errors import InvariantError, invariant
from tailrace.model.ids import Cursor, PartitionId, Position, TopicId
from tailrace.model.stats import StoreStats

_MAX_SAVED_COUNTERS = 2
"""Saved counters for each partition, on average, before all are saved again and the old ones are deleted."""
_BATCH_OVERHEAD_BYTES = 512
_MIN_RUNS = 32
"""How many runs fit into the cache at least, unless batches come in groups that are larger than a run."""


class LogEnd(NamedTuple):
    """A point between two frames."""

    position: Position
    cursor: Cursor
    hlc: Hlc


class CheckpointData(NamedTuple):
    """Everything that a checkpoint saves, as it was at `end`."""

    end: LogEnd
    partitions: Sequence[tuple[PartitionIndex, Sequence[bytes]]]
    """Each partition that has changed, with its unsaved locations, packed."""
    counters: Sequence[bytes]
    """The counters of these partitions, or of all partitions, packed."""
    has_all_counters: bool
    dropped: Sequence[TopicId]
    usages: Sequence[tuple[SegmentUsage, bytes]]
    """Each with its packed value as of `end`."""
    cursor_entries: Sequence[tuple[int, int]]
    """Cursor and position of some frames, in order."""


NewBatch = tuple[PartitionId, int, int, int, int, int, int, int, Buffer | None]
"""Partition, base offset, records, length, position, newest and oldest timestamp, cursor, and the bytes if they are to be
cached."""


class Catalog:
    """Changed under the log's lock, read by any thread."""

    def __init__(
        self,
        partitions: dict[PartitionId, PartitionIndex],
        end: LogEnd,
        reader: IndexReader,
        stats: StoreStats,
        cache_bytes: int,
        cursor_stride_bytes: int,
    ) -> None:
        self.partitions = partitions
        self.usages: dict[Position, SegmentUsage] = {}
        """The usage of the active segment and of closed segments that are not saved yet."""
        self.end = end
        """The end of the log for readers."""
        self.unsaved_batches = 0
        self.cache = TailCache(cache_bytes, stats)
        self._reader = reader
        self._active: SegmentUsage | None = None
        self._dirty: list[PartitionIndex] = []
        self._saved_counters: int | None = None
        """How many counters are saved, obsolete ones included. Not known until all were saved once."""
        self._dropped: list[TopicId] = []
        self._cursor_entries: list[tuple[int, int]] = []
        self._with_saved_locations: set[PartitionIndex] = set()
        """Partitions with many saved locations in memory, which stay there as long as their batches are cached."""
        self._cursor_stride_bytes = cursor_stride_bytes

    @property
    def active(self) -> SegmentUsage:
        """The usage of the segment that batches are appended to."""
        invariant(self._active, "an open log has an active segment")
        return self._active  # type: ignore[return-value]

    @property
    def has_unsaved_segments(self) -> bool:
        """Whether segments have been closed since the last checkpoint."""
        return len(self.usages) > 1

    def enter_segment(self, usage: SegmentUsage) -> None:
        """Close the active segment; batches are appended to this one from now on."""
        if self._active is not None:
            self._active.close(usage.base - self._active.base)
        self.usages[usage.base] = self._active = usage

    def index_cursor(self, cursor: Cursor, position: Position) -> None:
        """Remember where a frame with records begins, for one frame in each stride, so that a scan can start near a cursor."""
        if not self._cursor_entries or position - self._cursor_entries[-1][1] >= self._cursor_stride_bytes:
            self._cursor_entries.append((cursor, position))

    def change(self, changes: Changes) -> None:
        """Apply everything but the appends."""
        for topic_id, count in changes.creates:
            for number in range(count):
                partition = PartitionId(topic_id, number)
                if partition not in self.partitions:
                    self.partitions[partition] = index = PartitionIndex(partition)
                    self._mark_dirty(index)
        for topic_id in changes.drops:
            for partition in [partition for partition in self.partitions if partition.topic_id == topic_id]:
                index = self.partitions.pop(partition)
                index.is_dropped = True
                self.unsaved_batches -= len(index.locations) - index.saved
            self._dropped.append(topic_id)
        for partition, start in changes.trims:
            index = self.partitions[partition]
            if start > index.start:
                held = next(self._reader.walk(index, start), None)
                index.start_bytes = held.bytes_before if held else index.end_bytes
                index.start = start
                self._mark_dirty(index)

    def recount(self, index: PartitionIndex) -> None:
        """Count the bytes before the start again, after a compaction has changed how the bytes of the partition are counted."""
        held = next(self._reader.walk(index, index.start), None)
        index.start_bytes = held.bytes_before if held else index.end_bytes
        self._mark_dirty(index)
        # The log may be where it was at the last checkpoint, whose counters the next one would replace by these alone.
        self._saved_counters = None

    def _mark_dirty(self, index: PartitionIndex) -> None:
        """Have the next checkpoint save the partition."""
        if not index.is_dirty:
            index.is_dirty = True
            self._dirty.append(index)

    def append(self, batches: Iterable[NewBatch]) -> None:
        """Add batches that are in the log now. This is the busiest loop of the log, so it calls as little as possible."""
        partitions, active = self.partitions, self.active
        segment = active.base
        cached: dict[int, Buffer] = {}
        count = 0
        for partition, base, records, length, position, timestamp, oldest, cursor, data in batches:
            index = partitions[partition]
            if base != index.end:
                raise InvariantError(f"{describe_partition(partition)} ends at {index.end}, a batch came for {base}")
            if not index.is_dirty:
                self._mark_dirty(index)
            if index.segment != segment:
                active.enter(index)
            before = index.end_bytes
            index.end_bytes = before + length
            running = index.running
            if timestamp > running:
                index.running = running = timestamp
            index.locations.append(pack_location(base, records, length, position, timestamp, cursor, running, before, oldest))
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

    def age(self) -> None:
        """Mark what is cached now as old, and drop saved locations whose batches are no longer cached."""
        self.cache.age()
        self._release_locations(())

    def cursor_entry_before(self, cursor: int) -> tuple[int, int] | None:
        """Return cursor and position of the last unsaved entry at or before the cursor."""
        entries = self._cursor_entries
        at = bisect_right(entries, cursor, key=lambda entry: entry[0])
        return entries[at - 1] if at else None

    def take_unsaved(self) -> CheckpointData:
        """Take all that is not saved yet, for a checkpoint."""
        changed = [index for index in self._dirty if not index.is_dropped]
        dropped = self._dropped
        self._dirty, self._dropped = [], []
        for index in changed:
            index.is_dirty = False
        counts_all = bool(dropped) or (bool(changed) and self._has_many_counters(len(changed)))
        return CheckpointData(
            self.end,
            [(index, index.locations[index.saved :]) for index in changed],
            [index.pack_counters() for index in (self.partitions.values() if counts_all else changed)],
            counts_all,
            dropped,
            [(usage, usage.pack()) for usage in self.usages.values()],
            list(self._cursor_entries),
        )

    def release_saved(self, data: CheckpointData) -> None:
        """Drop what need not stay in memory, once the checkpoint is on disk."""
        for index, locations in data.partitions:
            if not index.is_dropped:
                index.saved += len(locations)
                self.unsaved_batches -= len(locations)
        self._release_locations(index for index, _ in data.partitions)
        if data.has_all_counters:
            self._saved_counters = 0
        if self._saved_counters is not None:
            self._saved_counters += len(data.counters)
        self._cursor_entries = self._cursor_entries[len(data.cursor_entries) :]
        for usage, packed in data.usages:
            if SegmentUsage.was_closed(packed):
                del self.usages[usage.base]

    def _release_locations(self, saved: Iterable[PartitionIndex]) -> None:
        """Drop locations that are saved and whose batches are no longer cached."""
        oldest = self.cache.oldest()
        cursor = self.end.cursor if oldest is None else oldest
        partitions = chain(saved, self._with_saved_locations)
        self._with_saved_locations = {index for index in partitions if index.forget_saved(cursor)}

    def put_back_unsaved(self, data: CheckpointData) -> None:
        """Leave it to the next checkpoint, because this one could not be saved."""
        for index, _ in data.partitions:
            self._mark_dirty(index)
        self._dropped[:0] = data.dropped

    def _has_many_counters(self, new: int) -> bool:
        """Return whether this many on top of the saved ones make it worth to save all counters again."""
        return self._saved_counters is None or self._saved_counters + new > _MAX_SAVED_COUNTERS * len(self.partitions)


class _Runs(NamedTuple):
    """The lists only grow. They are replaced to evict runs, so that reading them needs no lock."""

    firsts: list[int]
    """The first cursor of each run."""
    runs: list[dict[int, Buffer]]
    sizes: list[int]


class TailCache:
    """Callers hold the log's lock to change it; any thread may call `run_with`."""

    def __init__(self, most_bytes: int, stats: StoreStats) -> None:
        self._most_bytes = most_bytes
        self._run_bytes = most_bytes // _MIN_RUNS
        self._stats = stats
        self._cached = _Runs([], [], [])
        self._is_full = True
        """Whether the newest run is full, so that the next batches begin another. True when the cache is empty: the newest
        run is evicted only if it is larger than the whole cache, or if nothing has come since `age`."""
        self._aged = 0
        """How many runs, from the oldest on, were there at the last `age`."""

    def add(self, batches: dict[int, Buffer]) -> None:
        """Add the newest batches, in their order."""
        if not batches:
            return
        firsts, runs, sizes = self._cached
        size = sum(map(len, batches.values())) + len(batches) * _BATCH_OVERHEAD_BYTES
        if self._is_full:
            runs.append(batches)
            sizes.append(size)
            firsts.append(next(iter(batches)))  # last of the three, because readers look here first
        else:
            runs[-1].update(batches)
            sizes[-1] += size
        self._is_full = sizes[-1] >= self._run_bytes
        self._stats.cached_bytes += size

    def run_with(self, cursor: int) -> Mapping[int, Buffer]:
        """Return the run that holds the batch that begins with this cursor, if it is cached."""
        firsts, runs, _ = self._cached
        at = bisect_right(firsts, cursor)
        return runs[at - 1] if at else {}

    def oldest(self) -> int | None:
        """Return the first cursor that is cached."""
        firsts = self._cached.firsts
        return firsts[0] if firsts else None

    def shrink(self) -> None:
        """Evict the oldest runs until the rest fits into the cache."""
        if self._stats.cached_bytes > self._most_bytes:
            excess, count = self._stats.cached_bytes - self._most_bytes, 0
            while excess > 0:
                excess -= self._cached.sizes[count]
                count += 1
            self._evict(count)

    def evict_aged(self) -> bool:
        """Evict one run that was there at the last `age`. Return whether there are more of them."""
        self._evict(min(1, self._aged))
        return self._aged > 0

    def age(self) -> None:
        """Mark all runs as old. What comes from now on begins a new run."""
        self._aged = len(self._cached.runs)
        self._is_full = True

    def _evict(self, count: int) -> None:
        """Evict this many of the oldest runs."""
        firsts, runs, sizes = self._cached
        self._cached = _Runs(firsts[count:], runs[count:], sizes[count:])
        self._stats.cached_bytes -= sum(sizes[:count])
        self._aged = max(0, self._aged - count)
