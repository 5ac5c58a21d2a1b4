"""What the survey writes down: how far it is in each partition, what it has found there, and what may be forgotten.

Findings are saved some dozens at a time, in commits of their own. What could not be saved stays here and goes with the next.
Called by one at a time, by the survey.
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


class _PartitionProgress(NamedTuple):
    seen: OffsetBounds
    """Of the partition when all of it was dealt with."""
    start: Offset
    """What was saved of offsets before it is forgotten."""
    end: Offset
    """Up to here its times are saved."""
    last_chunk: Offset | None


class SurveyProgress:
    def __init__(self, store: Store, committer: Committer, topics: Topics) -> None:
        self._committer = committer
        self._topics = topics
        self._saved = SavedTimes(store)
        self._progress: dict[PartitionId, _PartitionProgress] = {}
        self._found: dict[PartitionId, list[TimeRun]] = {}
        self._gone: set[tuple[PartitionId, Offset]] = set()
        """Chunks of records that are gone."""

    @property
    def unsaved(self) -> int:
        return len(self._gone) + sum(map(len, self._found.values()))

    def keep_only(self, partitions: Sequence[PartitionId]) -> None:
        """The others are gone."""
        for gone in self._progress.keys() - set(partitions):
            del self._progress[gone]

    def is_done(self, partition: PartitionId, bounds: OffsetBounds) -> bool:
        """Whether all of the partition was dealt with when it had these bounds."""
        progress = self._progress.get(partition)
        return bounds.start == bounds.end if progress is None else progress.seen == bounds

    def done(self, partition: PartitionId, bounds: OffsetBounds) -> None:
        self._progress[partition] = self._progress[partition]._replace(seen=bounds)

    def end(self, partition: PartitionId, bounds: OffsetBounds) -> Offset:
        """Up to where the partition is surveyed. Reads from the disk."""
        progress = self._progress.get(partition)
        if progress is None:
            progress = self._load(partition)
        if progress.start != bounds.start:
            chunks = self._saved.chunks(partition)
            self._gone.update((partition, chunk.first) for chunk in chunks if chunk.end <= bounds.start)
            progress = self._progress[partition] = progress._replace(start=bounds.start)
        found = self._found.get(partition)
        return max(found[-1].end if found else progress.end, bounds.start)

    def add(self, partition: PartitionId, run: TimeRun) -> None:
        self._found.setdefault(partition, []).append(run)

    def changed_chunks(self) -> Mapping[PartitionId, Sequence[TimeRunChunk]]:
        """All that was found, as it is to be saved. Reads from the disk."""
        return {partition: extended(self._last_chunk(partition), runs) for partition, runs in self._found.items()}

    async def save(self, chunks: Mapping[PartitionId, Sequence[TimeRunChunk]]) -> None:
        """Save these, which are all that was found, and forget what is gone."""

        def decide() -> Changes | None:
            puts: list[tuple[bytes, bytes | None]] = [
                (keys.times_key(partition, first), None) for partition, first in self._gone if self._is_alive(partition)
            ]
            for partition, changed in chunks.items():
                if self._is_alive(partition):
                    puts += ((keys.times_key(partition, chunk.first), chunk.packed) for chunk in changed)
            return Changes(puts=puts) if puts else None

        await self._committer.submit(Change(decide, lambda _: None))
        self._found = {}
        self._gone = set()
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
        return None if first is None or (partition, first) in self._gone else self._saved.chunk(partition, first)

    def _is_alive(self, partition: PartitionId) -> bool:
        """Of a topic that is being deleted all times go with it, and none must come after."""
        return self._topics.by_id(partition.topic_id) is not None


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
"""After so many it is the turn of the next partition."""
_SAVED_AT_ONCE = 64


class _Place(NamedTuple):
    """Where the survey of a partition goes on."""

    bounds: OffsetBounds
    offset: Offset
    rest_bytes: int
    run_bytes: int
    slice_bytes: int

    @property
    def is_due(self) -> bool:
        return self.rest_bytes >= self.run_bytes


class Survey:
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
        self._rest = 100 / percent - 1
        """Seconds of rest for each of work."""
        self._notes = SurveyProgress(store, committer, topics)
        self._behind: dict[PartitionId, int] = {}

    @property
    def unsurveyed_bytes(self) -> int:
        """Of partitions that had a run to survey when they were last looked at."""
        return sum(self._behind.values())

    async def run_once(self) -> None:
        """Survey all that is due."""
        try:
            await self._save()
            self._behind.clear()
            waiting = deque(await self._slice(self._changed))
            while waiting:
                due = await self._slice(self._next_due, waiting)
                if due is not None and await self._turn(*due):
                    waiting.append(due[0])
            await self._save()
        except (OverloadedError, StorageFullError) as error:
            _log.info("the survey stops until its next turn: %s", error)

    def _changed(self) -> list[PartitionId]:
        """Partitions that are not as they were when all of them was dealt with."""
        partitions = [partition for partition in self._store.partitions() if self._topics.of_partition(partition) is not None]
        self._notes.keep_only(partitions)
        return [partition for partition in partitions if self._is_changed(partition)]

    def _is_changed(self, partition: PartitionId) -> bool:
        try:
            return not self._notes.is_done(partition, self._store.bounds(partition))
        except UnknownPartitionError:
            return False

    def _next_due(self, waiting: deque[PartitionId]) -> tuple[PartitionId, _Place] | None:
        """Take partitions from the queue up to one with a run to survey, if that does not take long."""
        stop_at = time.thread_time() + _SLICE_SECONDS
        while waiting and time.thread_time() < stop_at:
            partition = waiting.popleft()
            try:
                place = self._place(partition)
            except UnknownPartitionError:
                continue
            if place.is_due:
                return partition, place
            self._notes.done(partition, place.bounds)
        return None

    async def _turn(self, partition: PartitionId, place: _Place) -> bool:
        """Survey some runs of a partition; says whether there are more."""
        try:
            for _ in range(_TURN_RUNS):
                self._behind[partition] = place.rest_bytes
                place = await self._survey_run(partition, place)
                if self._notes.unsaved >= _SAVED_AT_ONCE:
                    await self._save()
                if not place.is_due:
                    break
            else:
                return True
            self._notes.done(partition, place.bounds)
        except (UnknownPartitionError, OffsetOutOfRangeError):
            pass  # its topic was deleted, or retention was faster: the next look finds what there is
        except CorruptionError as error:
            _log.warning("the survey can't read %s: %s", self._store.topic_names.of(partition), error)
            self._notes.done(partition, place.bounds)
        del self._behind[partition]
        return False

    def _place(self, partition: PartitionId) -> _Place:
        bounds = self._store.bounds(partition)
        offset = self._notes.end(partition, bounds)
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

    async def _survey_run(self, partition: PartitionId, place: _Place) -> _Place:
        """Note one run, and go on behind it."""
        run: TimeRun | None = None
        offset, size = place.offset, 0
        while size < place.run_bytes and offset < place.bounds.end:
            max_bytes = min(place.run_bytes - size, place.slice_bytes)
            part, part_bytes = await self._slice(self._look, partition, offset, max_bytes)
            run = part if run is None else TimeRun(run.start, part.end, min(run.oldest_ms, part.oldest_ms))
            offset, size = part.end, size + part_bytes
        if run is not None:
            self._notes.add(partition, run)
        return place._replace(offset=offset, rest_bytes=place.rest_bytes - size)

    def _look(self, partition: PartitionId, offset: Offset, max_bytes: int) -> tuple[TimeRun, int]:
        """Whole batches from the offset on, and their bytes."""
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
        if not self._notes.unsaved:
            return
        chunks = await self._slice(self._notes.changed_chunks)
        await self._notes.save(chunks)
        for partition, changed in chunks.items():
            self._oldest_times.forget_learned(partition, changed[-1].end)

    async def _slice(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it in a thread, and then rest for as long as that takes at this share of a core."""

        def timed() -> tuple[T, float]:
            began = time.thread_time()
            return work(*args, **kwargs), time.thread_time() - began

        done, seconds = await self._threads.run(timed)
        await asyncio.sleep(seconds * self._rest)
        return done
