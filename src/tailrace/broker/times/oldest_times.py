"""How old the records of a run of offsets are at most: what queries with an upper bound of time need not read.

The head of a batch tells the newest time in it and not the oldest, and a producer may give its records any time. So the survey
looks at all records once and saves what it finds (`broker/times/survey.py`). Where it has not been yet, a query has to look by
itself; what it learns is remembered in memory, for other queries and for the survey.

Forgetting is always right: the survey comes by, and until then the next query learns again.
"""

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from tailrace.broker.reading.scan import Range
from tailrace.broker.times.runs import Run, SavedTimes, without_later
from tailrace.model.ids import Offset, PartitionId
from tailrace.store.contract import Store

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

    def not_after(self, time_ms: int, partition: PartitionId, wanted: Range) -> Sequence[Range]:
        """What is left of the wanted offsets without those whose records are all known to be later than this time."""
        left = list(without_later(self._saved.runs(partition), time_ms, wanted))
        with self._lock:
            learned = self._learned.get(partition)
            if learned is None:
                return left
            self._learned.move_to_end(partition)
            return [part for whole in left for part in learned.not_after(time_ms, whole)]

    def learn(self, partition: PartitionId, offsets: Range, oldest_ms: int) -> None:
        """That no record of these offsets is older."""
        with self._lock:
            learned = self._learned.setdefault(partition, LearnedTimes(_PARTITION_RUNS))
            self._learned.move_to_end(partition)
            self._runs -= len(learned)
            learned.learn(Run(*offsets, oldest_ms))
            self._keep(partition, learned)
            while self._runs > self._most_learned:
                _, forgotten = self._learned.popitem(last=False)
                self._runs -= len(forgotten)

    def learned(self, partition: PartitionId, offset: Offset) -> Run | None:
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

    def learn(self, run: Run) -> None:
        """Of what is known already nothing changes."""
        at = bisect_right(self._ends, run.start)
        start: int = run.start
        while start < run.end:
            end = min(run.end, self._starts[at]) if at < len(self) else run.end
            if start < end:
                self._insert(at, Run(Offset(start), Offset(end), run.oldest_ms))
            start = self._ends[at]
            at += 1
        if len(self) > self._most_runs:
            self._join()

    def not_after(self, time_ms: int, wanted: Range) -> Iterator[Range]:
        first = bisect_right(self._ends, wanted.start)
        return without_later(map(self._run, range(first, len(self))), time_ms, wanted)

    def holding(self, offset: Offset) -> Run | None:
        """From this offset on."""
        at = bisect_right(self._ends, offset)
        return self._run(at)._replace(start=offset) if at < len(self) and self._starts[at] <= offset else None

    def forget(self, end: Offset) -> None:
        """All runs that end there or before."""
        gone = bisect_right(self._ends, end)
        for column in (self._starts, self._ends, self._oldest):
            del column[:gone]

    def _run(self, at: int) -> Run:
        return Run(Offset(self._starts[at]), Offset(self._ends[at]), self._oldest[at])

    def _insert(self, at: int, run: Run) -> None:
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
                joined[-1] = Run(last.start, run.end, min(last.oldest_ms, run.oldest_ms))
            else:
                joined.append(run)
        if len(joined) > self._most_runs:
            joined.clear()
        self._starts, self._ends, self._oldest = (
            array("q", column) for column in (zip(*joined, strict=True) if joined else ((), (), ()))
        )
