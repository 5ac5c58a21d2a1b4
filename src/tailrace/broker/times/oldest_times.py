"""The oldest timestamp in runs of offsets: tells a query with an upper time bound which batches it need not read.

The header of a batch has its newest timestamp and not its oldest, and producers may set any timestamps. So the survey reads all
records once and saves what it finds (`SavedTimes`; `survey.py`). Where the survey has not been yet, a query has to read by
itself; what it learns is kept in memory for other queries and for the survey (`LearnedTimes`). Forgetting is always safe: the
survey will find it, and until then the next query learns it again.

What is known of a run stays true, because an offset names one record forever and a topic that is created again has another id.
Runs consist of whole batches, so no two of them share one. Adjacent runs are stored in chunks, each under one state key, so
that a query reads thousands of runs with a few lookups. A key is written to the log after the records that it describes, so no
crash can leave it there without them.
"""

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.reading.scan import ScanRange
from tailrace.model.ids import Offset, PartitionId
from tailrace.store.contract import Store, range_pages

_RUN = Struct(">qq")
_CHUNK_RUNS = 64
_CHUNKS_AT_ONCE = 256
_PARTITION_RUNS = 4_096
"""More runs of one partition than this are joined: a run then covers a thousandth of it."""


class TimeRun(NamedTuple):
    """No record from offset `start` up to, not including, `end` is older than `oldest_ms`."""

    start: Offset
    end: Offset
    oldest_ms: int


class TimeRunChunk(NamedTuple):
    """Adjacent runs from the offset `first` on: the packed end and oldest timestamp of each."""

    first: Offset
    packed: bytes

    @property
    def end(self) -> Offset:
        end: Offset = _RUN.unpack_from(self.packed, len(self.packed) - _RUN.size)[0]
        return end

    @property
    def is_full(self) -> bool:
        return len(self.packed) >= _CHUNK_RUNS * _RUN.size

    def runs(self) -> Iterator[TimeRun]:
        start = self.first
        for end, oldest_ms in _RUN.iter_unpack(self.packed):
            yield TimeRun(start, end, oldest_ms)
            start = end


class OldestTimes:
    """What is saved and learned of all partitions. May be called from any thread."""

    def __init__(self, store: Store, most_learned: int) -> None:
        self._saved = SavedTimes(store)
        self._most_learned = most_learned
        self._lock = threading.Lock()
        self._runs = 0
        self._learned: OrderedDict[PartitionId, LearnedTimes] = OrderedDict()
        """The most recently used partition comes last."""

    def not_after(self, time_ms: int, partition: PartitionId, wanted: ScanRange) -> Sequence[ScanRange]:
        """Return the wanted offsets without those whose records are all known to be later than this time."""
        left = list(without_later(self._saved.runs(partition), time_ms, wanted))
        with self._lock:
            learned = self._learned.get(partition)
            if learned is None:
                return left
            self._learned.move_to_end(partition)
            return [part for whole in left for part in learned.not_after(time_ms, whole)]

    def learn(self, partition: PartitionId, offsets: ScanRange, oldest_ms: int) -> None:
        """Remember that no record of these offsets is older than `oldest_ms`."""
        with self._lock:
            learned = self._learned.setdefault(partition, LearnedTimes(_PARTITION_RUNS))
            self._learned.move_to_end(partition)
            self._runs -= len(learned)
            learned.learn(TimeRun(*offsets, oldest_ms))
            self._keep(partition, learned)
            while self._runs > self._most_learned:
                _, forgotten = self._learned.popitem(last=False)
                self._runs -= len(forgotten)

    def learned(self, partition: PartitionId, offset: Offset) -> TimeRun | None:
        """Return what was learned of this offset and those after it, if it is not forgotten."""
        with self._lock:
            learned = self._learned.get(partition)
            return None if learned is None else learned.holding(offset)

    def forget_learned(self, partition: PartitionId, end: Offset) -> None:
        """Forget what was learned up to this offset, because it is saved now."""
        with self._lock:
            learned = self._learned.get(partition)
            if learned is not None:
                self._runs -= len(learned)
                learned.forget(end)
                self._keep(partition, learned)

    def _keep(self, partition: PartitionId, learned: "LearnedTimes") -> None:
        self._runs += len(learned)
        if not learned:
            del self._learned[partition]


class LearnedTimes:
    """What was learned of one partition: runs in order that do not overlap."""

    __slots__ = ("_ends", "_most_runs", "_oldest", "_starts")

    def __init__(self, most_runs: int) -> None:
        self._most_runs = most_runs
        self._starts = array("q")
        self._ends = array("q")
        self._oldest = array("q")

    def __len__(self) -> int:
        return len(self._starts)

    def learn(self, run: TimeRun) -> None:
        """Add a run. Parts of it that are known already do not change."""
        at = bisect_right(self._ends, run.start)
        start: int = run.start
        while start < run.end:
            end = min(run.end, self._starts[at]) if at < len(self) else run.end
            if start < end:
                self._insert(at, TimeRun(Offset(start), Offset(end), run.oldest_ms))
            start = self._ends[at]
            at += 1
        if len(self) > self._most_runs:
            self._join()

    def not_after(self, time_ms: int, wanted: ScanRange) -> Iterator[ScanRange]:
        first = bisect_right(self._ends, wanted.start)
        return without_later(map(self._run, range(first, len(self))), time_ms, wanted)

    def holding(self, offset: Offset) -> TimeRun | None:
        """Return the run that holds this offset, from there on."""
        at = bisect_right(self._ends, offset)
        return self._run(at)._replace(start=offset) if at < len(self) and self._starts[at] <= offset else None

    def forget(self, end: Offset) -> None:
        """Forget all runs that end at this offset or before."""
        gone = bisect_right(self._ends, end)
        for column in (self._starts, self._ends, self._oldest):
            del column[:gone]

    def _run(self, at: int) -> TimeRun:
        return TimeRun(Offset(self._starts[at]), Offset(self._ends[at]), self._oldest[at])

    def _insert(self, at: int, run: TimeRun) -> None:
        for column, value in zip((self._starts, self._ends, self._oldest), run, strict=True):
            column.insert(at, value)

    def _join(self) -> None:
        """Join adjacent runs as long as the result is short. If gaps leave too many runs, forget them all."""
        longest = 4 * (self._ends[-1] - self._starts[0]) // self._most_runs
        runs = list(map(self._run, range(len(self))))
        joined = runs[:1]
        for run in runs[1:]:
            last = joined[-1]
            if last.end == run.start and run.end - last.start <= longest:
                joined[-1] = TimeRun(last.start, run.end, min(last.oldest_ms, run.oldest_ms))
            else:
                joined.append(run)
        if len(joined) > self._most_runs:
            joined.clear()
        self._starts, self._ends, self._oldest = (
            array("q", column) for column in (zip(*joined, strict=True) if joined else ((), (), ()))
        )


class SavedTimes:
    """What the survey has saved in the store. May be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def runs(self, partition: PartitionId) -> Iterator[TimeRun]:
        """Return the runs of a partition in the order of offsets. They do not overlap."""
        for chunk in self.chunks(partition):
            yield from chunk.runs()

    def chunks(self, partition: PartitionId) -> Iterator[TimeRunChunk]:
        for page in range_pages(self._store, keys.times_of_partition(partition), _CHUNKS_AT_ONCE):
            for key, packed in page:
                yield TimeRunChunk(keys.first_offset_of_times(key), packed)

    def chunk(self, partition: PartitionId, first: Offset) -> TimeRunChunk | None:
        packed = self._store.get(keys.times_key(partition, first))
        return None if packed is None else TimeRunChunk(first, packed)


def extended(last: TimeRunChunk | None, runs: Iterable[TimeRun]) -> Sequence[TimeRunChunk]:
    """Return the chunks that are new or changed when these runs are added after the last chunk."""
    changed: list[TimeRunChunk] = []
    for run in runs:
        packed = _RUN.pack(run.end, run.oldest_ms)
        if last is None or last.is_full or last.end != run.start:
            last = TimeRunChunk(run.start, packed)
            changed.append(last)
        else:
            last = TimeRunChunk(last.first, last.packed + packed)
            changed[-1:] = [last]
    return changed


def without_later(runs: Iterable[TimeRun], time_ms: int, wanted: ScanRange) -> Iterator[ScanRange]:
    """Return the wanted offsets without those of the runs, given in order, whose records are all later than this time."""
    left = wanted.start
    for start, end, oldest_ms in runs:
        if start >= wanted.end:
            break
        if oldest_ms > time_ms and end > left:
            if left < start:
                yield ScanRange(left, start)
            left = end
    if left < wanted.end:
        yield ScanRange(left, wanted.end)
