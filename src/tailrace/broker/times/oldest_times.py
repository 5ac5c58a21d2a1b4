"""Oldest times on disk: for runs of offsets, how old their records are at most.

What is said of a run holds for ever, because an offset names one record for ever and a topic that is made anew has another id.
Runs are of whole batches, so that no two of them share one. Those that touch are kept together under one state key, so that a
query reads thousands of runs with a few looks. A key is written to the log behind the records that it tells of: no crash, and
no write that was never synced, can leave it there without them.
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
from tailrace.store.contract import Store

_RUN = Struct(">qq")
_CHUNK_RUNS = 64
_CHUNKS_AT_ONCE = 256


class TimeRun(NamedTuple):
    """No record from offset `start` up to but without `end` is older than `oldest_ms`."""

    start: Offset
    end: Offset
    oldest_ms: int


class TimeRunChunk(NamedTuple):
    """Runs that touch, from the offset `first` on: of each its end and its oldest time, packed."""

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


class SavedTimes:
    """May be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def runs(self, partition: PartitionId) -> Iterator[TimeRun]:
        """In the order of offsets, none upon another."""
        for chunk in self.chunks(partition):
            yield from chunk.runs()

    def chunks(self, partition: PartitionId) -> Iterator[TimeRunChunk]:
        prefix = keys.times_of_partition(partition)
        start = b""
        while found := self._store.range(prefix, start, _CHUNKS_AT_ONCE):
            for key, packed in found:
                yield TimeRunChunk(keys.first_offset_of_times(key), packed)
            start = found[-1][0][len(prefix) :] + b"\0"

    def chunk(self, partition: PartitionId, first: Offset) -> TimeRunChunk | None:
        packed = self._store.get(keys.times_key(partition, first))
        return None if packed is None else TimeRunChunk(first, packed)


def extended(last: TimeRunChunk | None, runs: Iterable[TimeRun]) -> Sequence[TimeRunChunk]:
    """The chunks that are new or not as they were once these runs follow on the last one there is."""
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
    """What is left of the wanted offsets without the runs, given in order, whose records are all later than this time."""
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


_PARTITION_RUNS = 4_096
"""More than that of one partition are joined: a run then takes a thousandth of it."""


class OldestTimes:
    """Of all partitions: what is saved, and what was learned besides. May be called from any thread."""

    def __init__(self, store: Store, most_learned: int) -> None:
        self._saved = SavedTimes(store)
        self._most_learned = most_learned
        self._lock = threading.Lock()
        self._runs = 0
        self._learned: OrderedDict[PartitionId, LearnedTimes] = OrderedDict()
        """The one that was asked for last comes last."""

    def not_after(self, time_ms: int, partition: PartitionId, wanted: ScanRange) -> Sequence[ScanRange]:
        """What is left of the wanted offsets without those whose records are all known to be later than this time."""
        left = list(without_later(self._saved.runs(partition), time_ms, wanted))
        with self._lock:
            learned = self._learned.get(partition)
            if learned is None:
                return left
            self._learned.move_to_end(partition)
            return [part for whole in left for part in learned.not_after(time_ms, whole)]

    def learn(self, partition: PartitionId, offsets: ScanRange, oldest_ms: int) -> None:
        """That no record of these offsets is older."""
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
        """What was learned of this offset and those after it, and is not forgotten."""
        with self._lock:
            learned = self._learned.get(partition)
            return None if learned is None else learned.holding(offset)

    def forget_learned(self, partition: PartitionId, end: Offset) -> None:
        """Up to this offset all is saved."""
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
    """Of one partition: runs in order, none upon another."""

    __slots__ = ("_ends", "_most_runs", "_oldest", "_starts")

    def __init__(self, most_runs: int) -> None:
        self._most_runs = most_runs
        self._starts = array("q")
        self._ends = array("q")
        self._oldest = array("q")

    def __len__(self) -> int:
        return len(self._starts)

    def learn(self, run: TimeRun) -> None:
        """Of what is known already nothing changes."""
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
        """From this offset on."""
        at = bisect_right(self._ends, offset)
        return self._run(at)._replace(start=offset) if at < len(self) and self._starts[at] <= offset else None

    def forget(self, end: Offset) -> None:
        """All runs that end there or before."""
        gone = bisect_right(self._ends, end)
        for column in (self._starts, self._ends, self._oldest):
            del column[:gone]

    def _run(self, at: int) -> TimeRun:
        return TimeRun(Offset(self._starts[at]), Offset(self._ends[at]), self._oldest[at])

    def _insert(self, at: int, run: TimeRun) -> None:
        for column, value in zip((self._starts, self._ends, self._oldest), run, strict=True):
            column.insert(at, value)

    def _join(self) -> None:
        """Runs that touch, as long as they are short together. Where gaps keep too many apart, all begins anew."""
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
