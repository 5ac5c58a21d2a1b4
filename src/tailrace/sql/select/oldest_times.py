"""How old the records of a run of offsets are at most: what queries learned, so that later ones need not read to find out.

The head of a batch tells the newest time in it and not the oldest, and a producer may give its records any time. So a query
with an upper bound of time has to look at the times of whatever may be too late. What it finds holds for ever, because an
offset names one record for ever and a topic that is made anew has another id. Runs are of whole batches, so that no two of
them share one.

Forgetting is always right, and the next query learns again. Nothing of this is on disk: after a crash without a sync, offsets
that were never durable may name other records.
"""

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.broker.scan import Range
from tailrace.model.ids import Offset, Partition

_PARTITION_RUNS = 4_096
"""More than that of one partition are joined: a run then takes a thousandth of it."""


class OldestTimes:
    """Of all partitions. May be called from any thread."""

    def __init__(self, most_runs: int) -> None:
        self._most_runs = most_runs
        self._lock = threading.Lock()
        self._runs = 0
        self._partitions: OrderedDict[Partition, PartitionTimes] = OrderedDict()
        """The one that was asked for last comes last."""

    def learn(self, partition: Partition, offsets: Range, oldest_ms: int) -> None:
        """That no record of these offsets is older."""
        with self._lock:
            known = self._partitions.setdefault(partition, PartitionTimes(_PARTITION_RUNS))
            self._partitions.move_to_end(partition)
            self._runs -= len(known)
            known.learn(Run(*offsets, oldest_ms))
            self._runs += len(known)
            if not known:
                del self._partitions[partition]
            while self._runs > self._most_runs:
                _, forgotten = self._partitions.popitem(last=False)
                self._runs -= len(forgotten)

    def not_after(self, time_ms: int, partition: Partition, wanted: Range) -> Sequence[Range]:
        """What is left of the wanted offsets without those whose records are all known to be later than this time."""
        with self._lock:
            known = self._partitions.get(partition)
            if known is None:
                return (wanted,)
            self._partitions.move_to_end(partition)
            return list(known.not_after(time_ms, wanted))


class Run(NamedTuple):
    """No record from offset `start` up to but without `end` is older than `oldest_ms`."""

    start: int
    end: int
    oldest_ms: int


class PartitionTimes:
    """Of one partition: runs in order, none upon another."""

    __slots__ = ("_ends", "_most_runs", "_oldest", "_starts")

    def __init__(self, most_runs: int) -> None:
        self._most_runs = most_runs
        self._starts = array("q")
        self._ends = array("q")
        self._oldest = array("q")

    def __len__(self) -> int:
        return len(self._starts)

    def learn(self, run: Run) -> None:
        """Of what is known already nothing changes."""
        at = bisect_right(self._ends, run.start)
        start = run.start
        while start < run.end:
            end = min(run.end, self._starts[at]) if at < len(self) else run.end
            if start < end:
                self._insert(at, Run(start, end, run.oldest_ms))
            start = self._ends[at]
            at += 1
        if len(self) > self._most_runs:
            self._join()

    def not_after(self, time_ms: int, wanted: Range) -> Iterator[Range]:
        start = wanted.start
        for at in range(bisect_right(self._ends, start), len(self)):
            if self._starts[at] >= wanted.end:
                break
            if self._oldest[at] > time_ms:
                if start < self._starts[at]:
                    yield Range(start, Offset(self._starts[at]))
                start = Offset(self._ends[at])
        if start < wanted.end:
            yield Range(start, wanted.end)

    def _insert(self, at: int, run: Run) -> None:
        for column, value in zip((self._starts, self._ends, self._oldest), run, strict=True):
            column.insert(at, value)

    def _join(self) -> None:
        """Runs that touch, as long as they are short together. Where gaps keep too many apart, all begins anew."""
        longest = 4 * (self._ends[-1] - self._starts[0]) // self._most_runs
        runs = list(map(Run, self._starts, self._ends, self._oldest))
        joined = runs[:1]
        for run in runs[1:]:
            last = joined[-1]
            if last.end == run.start and run.end - last.start <= longest:
                joined[-1] = Run(last.start, run.end, min(last.oldest_ms, run.oldest_ms))
            else:
                joined.append(run)
        if len(joined) > self._most_runs:
            joined.clear()
        self._starts, self._ends, self._oldest = (
            array("q", column) for column in (zip(*joined, strict=True) if joined else ((), (), ()))
        )
