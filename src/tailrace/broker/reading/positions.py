"""Where to begin to read: earliest, latest, an offset or a time, as the offset that it means now."""

from typing import NamedTuple

from tailrace.broker.isolation import StableOffsets
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import OffsetBounds
from tailrace.model.errors import InvalidRequestError, OffsetOutOfRangeError
from tailrace.model.fetch import AtOffset, Isolation, StartAt, StartEdge
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.records import first_record_at

_MAX_TIMESTAMP = (1 << 63) - 1


class TimedOffset(NamedTuple):
    offset: Offset
    timestamp: int


class Positions:
    def __init__(self, store: Store, threads: ReadThreads, topics: Topics, stable: StableOffsets, limits: Limits) -> None:
        self._store = store
        self._threads = threads
        self._topics = topics
        self._stable = stable
        self._limits = limits

    async def resolve(
        self, topic: str, partition: int, start: StartAt, *, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> Offset:
        """The offset to read from. After the last record of a time in the future, and of `latest`, that is the end.

        For readers of committed records the end is the last stable offset.
        """
        target = self._topics.get(topic).partition(partition)
        bounds = self._store.bounds(target)
        if start is StartEdge.EARLIEST:
            return bounds.start
        end = self._stable.of(target, bounds) if isolation else bounds.end
        if start is StartEdge.LATEST:
            return end
        if isinstance(start, AtOffset):
            if not bounds.start <= start.offset <= bounds.end:
                raise OffsetOutOfRangeError(
                    f"partition {partition} of {topic!r} holds offsets {bounds.start} to {bounds.end}, not {start.offset}",
                    bounds.start,
                    bounds.end,
                )
            return Offset(start.offset)
        found = await self._first_at(target, start.timestamp_ms)
        return end if found is None or (isolation and found.offset >= end) else found.offset

    async def at_time(
        self, topic: str, partition: int, timestamp_ms: int, *, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> TimedOffset | None:
        """The first record with this timestamp or a later one, among those that the reader may see."""
        target = self._topics.get(topic).partition(partition)
        found = await self._first_at(target, timestamp_ms)
        if found is not None and isolation and found.offset >= self._stable.of(target, self._store.bounds(target)):
            return None
        return found

    async def newest(self, topic: str, partition: int) -> TimedOffset | None:
        """The first record with the highest timestamp of the partition."""
        target = self._topics.get(topic).partition(partition)
        return await self._threads.run(self._look_up_newest, target)

    def bounds(self, topic: str, partition: int) -> OffsetBounds:
        return self._store.bounds(self._topics.get(topic).partition(partition))

    def size(self, topic: str, partition: int) -> int:
        """Bytes of the partition's batches."""
        return self._store.size(self._topics.get(topic).partition(partition))

    async def _first_at(self, partition: PartitionId, timestamp_ms: int) -> TimedOffset | None:
        return await self._threads.run(self._look_up, partition, timestamp_ms)

    def _look_up_newest(self, partition: PartitionId) -> TimedOffset | None:
        # The index tells which batch has a time or a later one, so the highest time is found by halving.
        low, high = -1, _MAX_TIMESTAMP
        while low < high:
            middle = (low + high + 1) // 2
            if self._store.batch_for_time(partition, middle) is None:
                high = middle - 1
            else:
                low = middle
        return None if low < 0 else self._look_up(partition, low)

    def _look_up(self, partition: PartitionId, timestamp_ms: int) -> TimedOffset | None:
        base = self._store.batch_for_time(partition, timestamp_ms)
        if base is None:
            return None
        first = max(base, self._store.bounds(partition).start)
        batches = self._store.fetch(partition, first, 1).batches
        if batches:
            start = read_header(batches[0]).base_offset
            try:
                found = first_record_at(batches[0], timestamp_ms, self._limits, first=first - start)
            except InvalidRequestError:
                found = None
            if found is not None:
                return TimedOffset(Offset(start + found.number), found.timestamp)
        # The batch promises a later time than its records have. To begin with it shows too much rather than too little.
        return TimedOffset(first, timestamp_ms)
