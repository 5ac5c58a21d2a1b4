"""Oldest times on disk: for runs of offsets, how old their records are at most.

What is said of a run holds for ever, because an offset names one record for ever and a topic that is made anew has another id.
Runs are of whole batches, so that no two of them share one. Those that touch are kept together under one state key, so that a
query reads thousands of runs with a few looks. A key is written to the log behind the records that it tells of: no crash, and
no write that was never synced, can leave it there without them.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.reading.scan import Range
from tailrace.model.ids import Offset, PartitionId
from tailrace.store.contract import Store

_RUN = Struct(">qq")
_CHUNK_RUNS = 64
_CHUNKS_AT_ONCE = 256


class Run(NamedTuple):
    """No record from offset `start` up to but without `end` is older than `oldest_ms`."""

    start: Offset
    end: Offset
    oldest_ms: int


class Chunk(NamedTuple):
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

    def runs(self) -> Iterator[Run]:
        start = self.first
        for end, oldest_ms in _RUN.iter_unpack(self.packed):
            yield Run(start, end, oldest_ms)
            start = end


class SavedTimes:
    """May be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def runs(self, partition: PartitionId) -> Iterator[Run]:
        """In the order of offsets, none upon another."""
        for chunk in self.chunks(partition):
            yield from chunk.runs()

    def chunks(self, partition: PartitionId) -> Iterator[Chunk]:
        prefix = keys.times_of_partition(partition)
        start = b""
        while found := self._store.range(prefix, start, _CHUNKS_AT_ONCE):
            for key, packed in found:
                yield Chunk(keys.first_offset_of_times(key), packed)
            start = found[-1][0][len(prefix) :] + b"\0"

    def chunk(self, partition: PartitionId, first: Offset) -> Chunk | None:
        packed = self._store.get(keys.times_key(partition, first))
        return None if packed is None else Chunk(first, packed)


def extended(last: Chunk | None, runs: Iterable[Run]) -> Sequence[Chunk]:
    """The chunks that are new or not as they were once these runs follow on the last one there is."""
    changed: list[Chunk] = []
    for run in runs:
        packed = _RUN.pack(run.end, run.oldest_ms)
        if last is None or last.is_full or last.end != run.start:
            last = Chunk(run.start, packed)
            changed.append(last)
        else:
            last = Chunk(last.first, last.packed + packed)
            changed[-1:] = [last]
    return changed


def without_later(runs: Iterable[Run], time_ms: int, wanted: Range) -> Iterator[Range]:
    """What is left of the wanted offsets without the runs, given in order, whose records are all later than this time."""
    left = wanted.start
    for start, end, oldest_ms in runs:
        if start >= wanted.end:
            break
        if oldest_ms > time_ms and end > left:
            if left < start:
                yield Range(left, start)
            left = end
    if left < wanted.end:
        yield Range(left, wanted.end)
