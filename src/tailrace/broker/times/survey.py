"""A background job that reads all records once and saves their oldest timestamps, so that queries need not.

It works in slices of a millisecond or less, in a thread, and pauses after each, so that it takes no more than its share of one
core and no one waits long for the interpreter's lock. It uses batches that are in memory for readers, and leaves nothing in
their cache. A partition is surveyed in runs of a 64th of its size, at least 64 KiB and at most 4 MiB. A rest smaller than a run
waits until there is more; a query reads that rest by itself. What a query has learned is not read again.

A run with a batch that can't be decoded counts as older than anything, so queries read it and report the error.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.times.oldest_times import OldestTimes, SavedTimes, TimeRun, TimeRunChunk, extended
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Buffer, Changes, OffsetBounds
from tailrace.model.errors import (
    CorruptionError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OverloadedError,
    StorageFullError,
    UnknownPartitionError,
)
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.record_timestamps import LONG_AGO_MS, oldest_timestamp

_NOWHERE = Offset(-1)
_UNSEEN = OffsetBounds(_NOWHERE, _NOWHERE)

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_LEAST_RUN_BYTES = 64 * KIB
_MOST_RUN_BYTES = 4 * MIB
_RUNS_IN_PARTITION = 64
_SLICE_RECORDS = 2_000
_SLICE_SECONDS = 0.001
_LEAST_SLICE_BYTES = 64 * KIB
_MOST_SLICE_BYTES = MIB
_TURN_RUNS = 16
"""After so many runs the next partition is surveyed."""
_SAVED_AT_ONCE = 64


class Survey:
    """Surveys all partitions, some runs of each in turn."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        threads: ReadThreads,
        oldest_times: OldestTimes,
        limits: Limits,
        percent: int,
    ) -> None:
        self._store = store
        self._topics = topics
        self._threads = threads
        self._oldest_times = oldest_times
        self._limits = limits
        self._pause_factor = 100 / percent - 1
        """Seconds of pause for each second of work."""
        self._progress = SurveyProgress(store, committer, topics)
        self._behind: dict[PartitionId, int] = {}

    @property
    def unsurveyed_bytes(self) -> int:
        """Bytes to survey in partitions that had at least one run left when they were last checked."""
        return sum(self._behind.values())

    async def run_once(self) -> None:
        """Survey all partitions that have new runs."""
        try:
            await self._save()
            self._behind.clear()
            waiting = deque(await self._slice(self._changed))
            while waiting:
                due = await self._slice(self._next_due, waiting)
                if due is not None and await self._survey_some(*due):
                    waiting.append(due[0])
            await self._save()
        except (OverloadedError, StorageFullError) as error:
            _log.info("the survey pauses until its next run: %s", error)

    def _changed(self) -> list[PartitionId]:
        """Return the partitions that changed since they were surveyed to their end."""
        partitions = [partition for partition in self._store.partitions() if self._topics.of_partition(partition) is not None]
        self._progress.keep_only(partitions)
        return [partition for partition in partitions if self._is_changed(partition)]

    def _is_changed(self, partition: PartitionId) -> bool:
        try:
            return not self._progress.is_done(partition, self._store.bounds(partition))
        except UnknownPartitionError:
            return False

    def _next_due(self, waiting: deque[PartitionId]) -> "tuple[PartitionId, _Place] | None":
        """Take partitions from the queue until one has a run to survey, or a time slice is over."""
        stop_at = time.thread_time() + _SLICE_SECONDS
        while waiting and time.thread_time() < stop_at:
            partition = waiting.popleft()
            try:
                place = self._place(partition)
            except UnknownPartitionError:
                continue
            if place.is_due:
                return partition, place
            self._progress.done(partition, place.bounds)
        return None

    async def _survey_some(self, partition: PartitionId, place: "_Place") -> bool:
        """Survey some runs of a partition, and return whether there are more."""
        try:
            for _ in range(_TURN_RUNS):
                self._behind[partition] = place.rest_bytes
                place = await self._survey_run(partition, place)
                if self._progress.unsaved >= _SAVED_AT_ONCE:
                    await self._save()
                if not place.is_due:
                    break
            else:
                return True
            self._progress.done(partition, place.bounds)
        except (UnknownPartitionError, OffsetOutOfRangeError):
            pass  # the topic was deleted, or retention was faster: the next run finds the current bounds
        except CorruptionError as error:
            _log.warning("the survey can't read %s: %s", self._store.topic_names.of(partition), error)
            self._progress.done(partition, place.bounds)
        del self._behind[partition]
        return False

    def _place(self, partition: PartitionId) -> "_Place":
        bounds = self._store.bounds(partition)
        offset = self._progress.end(partition, bounds)
        rest_bytes = self._store.size(partition, offset)
        run_bytes = self._store.size(partition) // _RUNS_IN_PARTITION
        slice_bytes = rest_bytes * _SLICE_RECORDS // max(1, bounds.end - offset)
        return _Place(
            bounds,
            offset,
            rest_bytes,
            min(max(run_bytes, _LEAST_RUN_BYTES), _MOST_RUN_BYTES),
            min(max(slice_bytes, _LEAST_SLICE_BYTES), _MOST_SLICE_BYTES),
        )

    async def _survey_run(self, partition: PartitionId, place: "_Place") -> "_Place":
        """Survey one run, and return where to continue."""
        run: TimeRun | None = None
        offset, size = place.offset, 0
        while size < place.run_bytes and offset < place.bounds.end:
            max_bytes = min(place.run_bytes - size, place.slice_bytes)
            part, part_bytes = await self._slice(self._read_run, partition, offset, max_bytes)
            run = part if run is None else TimeRun(run.start, part.end, min(run.oldest_ms, part.oldest_ms))
            offset, size = part.end, size + part_bytes
        if run is not None:
            self._progress.add(partition, run)
        return place._replace(offset=offset, rest_bytes=place.rest_bytes - size)

    def _read_run(self, partition: PartitionId, offset: Offset, max_bytes: int) -> tuple[TimeRun, int]:
        """Return a run of whole batches from the offset on, and their bytes."""
        learned = self._oldest_times.learned(partition, offset)
        if learned is not None:
            size = self._store.size(partition, offset) - self._store.size(partition, learned.end)
            if size <= _MOST_RUN_BYTES:
                return learned, size
        batches = self._store.fetch(partition, offset, max_bytes).batches
        first, last = read_header(batches[0]), read_header(batches[-1])
        run = TimeRun(Offset(first.base_offset), Offset(last.base_offset + last.records), min(map(self._oldest, batches)))
        return run, sum(map(len, batches))

    def _oldest(self, batch: Buffer) -> int:
        try:
            return oldest_timestamp(batch, self._limits)
        except InvalidRequestError:
            return LONG_AGO_MS

    async def _save(self) -> None:
        if not self._progress.unsaved:
            return
        chunks = await self._slice(self._progress.changed_chunks)
        await self._progress.save(chunks)
        for partition, changed in chunks.items():
            self._oldest_times.forget_learned(partition, changed[-1].end)

    async def _slice(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work in a thread, and then pause so long that the survey keeps to its share of a core."""

        def timed() -> tuple[T, float]:
            began = time.thread_time()
            return work(*args, **kwargs), time.thread_time() - began

        done, seconds = await self._threads.run(timed)
        await asyncio.sleep(seconds * self._pause_factor)
        return done


class _Place(NamedTuple):
    """Where the survey of a partition continues."""

    bounds: OffsetBounds
    offset: Offset
    rest_bytes: int
    run_bytes: int
    slice_bytes: int

    @property
    def is_due(self) -> bool:
        return self.rest_bytes >= self.run_bytes


class _PartitionProgress(NamedTuple):
    seen: OffsetBounds
    """The bounds of the partition when it was surveyed to its end."""
    start: Offset
    """Chunks before this offset are deleted."""
    end: Offset
    """Timestamps are saved up to this offset."""
    last_chunk: Offset | None


class SurveyProgress:
    """What the survey has found, how far it is in each partition, and which chunks can be deleted.

    Runs are saved some dozens at a time, in commits of their own. Runs that could not be saved are kept for the next commit.
    Calls must not overlap.
    """

    def __init__(self, store: Store, committer: Committer, topics: Topics) -> None:
        self._committer = committer
        self._topics = topics
        self._saved = SavedTimes(store)
        self._progress: dict[PartitionId, _PartitionProgress] = {}
        self._found: dict[PartitionId, list[TimeRun]] = {}
        self._deleted: set[tuple[PartitionId, Offset]] = set()
        """Chunks of deleted records."""

    @property
    def unsaved(self) -> int:
        return len(self._deleted) + sum(map(len, self._found.values()))

    def keep_only(self, partitions: Sequence[PartitionId]) -> None:
        """Drop the progress of all other partitions, which are deleted."""
        for gone in self._progress.keys() - set(partitions):
            del self._progress[gone]

    def is_done(self, partition: PartitionId, bounds: OffsetBounds) -> bool:
        """Return whether the partition was surveyed to its end when it had these bounds."""
        progress = self._progress.get(partition)
        return bounds.start == bounds.end if progress is None else progress.seen == bounds

    def done(self, partition: PartitionId, bounds: OffsetBounds) -> None:
        self._progress[partition] = self._progress[partition]._replace(seen=bounds)

    def end(self, partition: PartitionId, bounds: OffsetBounds) -> Offset:
        """Return the offset up to which the partition is surveyed. Reads the disk."""
        progress = self._progress.get(partition)
        if progress is None:
            progress = self._load(partition)
        if progress.start != bounds.start:
            chunks = self._saved.chunks(partition)
            self._deleted.update((partition, chunk.first) for chunk in chunks if chunk.end <= bounds.start)
            progress = self._progress[partition] = progress._replace(start=bounds.start)
        found = self._found.get(partition)
        return max(found[-1].end if found else progress.end, bounds.start)

    def add(self, partition: PartitionId, run: TimeRun) -> None:
        self._found.setdefault(partition, []).append(run)

    def changed_chunks(self) -> Mapping[PartitionId, Sequence[TimeRunChunk]]:
        """Return the chunks to save for all runs found. Reads the disk."""
        return {partition: extended(self._last_chunk(partition), runs) for partition, runs in self._found.items()}

    async def save(self, chunks: Mapping[PartitionId, Sequence[TimeRunChunk]]) -> None:
        """Save these chunks, which hold all runs found, and delete those of deleted records."""

        def decide() -> Changes | None:
            puts: list[tuple[bytes, bytes | None]] = [
                (keys.times_key(partition, first), None) for partition, first in self._deleted if self._is_alive(partition)
            ]
            for partition, changed in chunks.items():
                if self._is_alive(partition):
                    puts += ((keys.times_key(partition, chunk.first), chunk.packed) for chunk in changed)
            return Changes(puts=puts) if puts else None

        await self._committer.submit(Change(decide, lambda _: None))
        self._found = {}
        self._deleted = set()
        for partition, changed in chunks.items():
            first, end = changed[-1].first, changed[-1].end
            self._progress[partition] = self._progress[partition]._replace(end=end, last_chunk=first)

    def _load(self, partition: PartitionId) -> _PartitionProgress:
        last = None
        for last in self._saved.chunks(partition):  # noqa: B007  the last one is wanted
            pass
        if last is None:
            return _PartitionProgress(_UNSEEN, _NOWHERE, Offset(0), None)
        return _PartitionProgress(_UNSEEN, _NOWHERE, last.end, last.first)

    def _last_chunk(self, partition: PartitionId) -> TimeRunChunk | None:
        first = self._progress[partition].last_chunk
        return None if first is None or (partition, first) in self._deleted else self._saved.chunk(partition, first)

    def _is_alive(self, partition: PartitionId) -> bool:
        """Return whether the topic exists. Nothing may be saved for a topic after its deletion."""
        return self._topics.by_id(partition.topic_id) is not None
