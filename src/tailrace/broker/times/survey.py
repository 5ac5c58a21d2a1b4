"""A background job: looks at all records once and saves how old they are at most, so that queries need not.

It works in slices of a millisecond or less, in a thread, and rests after each, so that it takes no more than its share of one
core and nobody waits long for the interpreter's lock. What readers find in memory it finds there too, and what it reads from
disk stays in no cache of ours. A partition is surveyed in runs: a 64th part of it, at least 64 KiB and at most 4 MiB. What is
less than a run, at its end, waits until there is more; a query reads that much beside what it wants. What a query has
learned is not looked at again.

A run with a batch that can't be decoded counts as older than anything: queries read it, and say what is wrong with it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

from tailrace.broker.commits.commit import Committer
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.times.oldest_times import OldestTimes
from tailrace.broker.times.runs import Run
from tailrace.broker.times.survey_notes import SurveyNotes
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Buffer, OffsetBounds
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
from tailrace.wire.oldest_time import LONG_AGO_MS, oldest_time

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
        self._notes = SurveyNotes(store, committer, topics)
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
        run: Run | None = None
        offset, size = place.offset, 0
        while size < place.run_bytes and offset < place.bounds.end:
            max_bytes = min(place.run_bytes - size, place.slice_bytes)
            part, part_bytes = await self._slice(self._look, partition, offset, max_bytes)
            run = part if run is None else Run(run.start, part.end, min(run.oldest_ms, part.oldest_ms))
            offset, size = part.end, size + part_bytes
        if run is not None:
            self._notes.add(partition, run)
        return place._replace(offset=offset, rest_bytes=place.rest_bytes - size)

    def _look(self, partition: PartitionId, offset: Offset, max_bytes: int) -> tuple[Run, int]:
        """Whole batches from the offset on, and their bytes."""
        learned = self._oldest_times.learned(partition, offset)
        if learned is not None:
            size = self._store.size(partition, offset) - self._store.size(partition, learned.end)
            if size <= _MOST_RUN_BYTES:
                return learned, size
        batches = self._store.fetch(partition, offset, max_bytes).batches
        first, last = read_header(batches[0]), read_header(batches[-1])
        run = Run(Offset(first.base_offset), Offset(last.base_offset + last.records), min(map(self._oldest, batches)))
        return run, sum(map(len, batches))

    def _oldest(self, batch: Buffer) -> int:
        try:
            return oldest_time(batch, self._limits)
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
