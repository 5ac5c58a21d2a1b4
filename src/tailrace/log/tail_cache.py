"""The bytes of the newest batches, so that readers at the tail need no disk.

Batches of all partitions are kept together, in runs, each a map by the cursor of a batch's first record. Whole runs leave
in the order in which they came. So to let a batch go costs next to nothing and touches nothing of its partition; there may be
more partitions than the processor's caches hold. Callers hold the log's lock to change it; `run_with` is for anybody.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from tailrace.model.changes import Buffer
from tailrace.model.stats import StoreStats

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
