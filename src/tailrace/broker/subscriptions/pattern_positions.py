"""Positions in patterns that are read as topics: where they begin and end, and which record comes first at a time.

They are cursors, and the same in all partitions of a pattern. An open transaction holds the end for new readers, at whatever
isolation level, because its records are sent when it has committed.
"""

from contextlib import suppress

from tailrace.broker.isolation import StableOffsets
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.reading.consume import Positions, TimedOffset
from tailrace.broker.subscriptions.watched_patterns import WatchedPatterns
from tailrace.broker.topics.patterns import PatternTopic
from tailrace.model.errors import OffsetOutOfRangeError, UnknownTopicError
from tailrace.model.fetch import AtOffset, Isolation, StartAt, StartEdge
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.names import TopicPattern
from tailrace.store.contract import Store


class PatternPositions:
    def __init__(
        self, store: Store, watched: WatchedPatterns, positions: Positions, stable: StableOffsets, threads: ReadThreads
    ) -> None:
        self._store = store
        self._watched = watched
        self._positions = positions
        self._stable = stable
        self._threads = threads
        self.start = Offset(0)
        """The first cursor that is still in the log, as it was found last."""

    @property
    def log_end(self) -> Offset:
        """The end of the log, which no reader of any pattern is beyond."""
        return Offset(self._store.end_cursor())

    def start_of(self, partition: PartitionId) -> Offset:
        """Return the first offset of a partition of a topic. Raises `UnknownPartitionError`."""
        return self._store.bounds(partition).start

    def matched(self, pattern: TopicPattern) -> Offset:
        """Return the cursor after the last record that matches now. May be called from any thread; may read the disk."""
        return Offset(self._watched.matched(pattern))

    async def earliest(self, pattern: TopicPattern) -> Offset:
        """Return the first cursor that is still in the log, of any topic, or the end of the pattern if that is before it."""
        self.start = max(self.start, await self._threads.run(self._first_cursor))
        return min(self.start, Offset((await self._watched.watch(pattern)).end))

    async def latest(self, pattern: TopicPattern) -> Offset:
        """Return the cursor at which a reader of new records begins."""
        end = (await self._watched.watch(pattern)).end
        if not self._stable.held_partitions():
            return Offset(end)
        return Offset(await self._threads.run(self._stable_end, pattern, end))

    async def resolve(self, topic: PatternTopic, start: StartAt) -> Offset:
        """Return the cursor that a start means now. For `latest`, and for a time after the last record, that is the end."""
        if start is StartEdge.EARLIEST:
            return await self.earliest(topic.pattern)
        latest = await self.latest(topic.pattern)
        if start is StartEdge.LATEST:
            return latest
        if isinstance(start, AtOffset):
            if not 0 <= start.offset <= latest:
                raise OffsetOutOfRangeError(f"{topic.topic.name!r} ends at {latest}, before {start.offset}", 0, latest)
            return Offset(start.offset)
        found = await self.at_time(topic.pattern, start.timestamp_ms)
        return latest if found is None else found.offset

    async def at_time(self, pattern: TopicPattern, timestamp_ms: int) -> TimedOffset | None:
        """Return the first matching record with this timestamp or a later one, of what the principal may read."""
        found: list[TimedOffset] = []
        for live in self._watched.readable(pattern):
            for number in range(len(live.partitions)):
                with suppress(UnknownTopicError, OffsetOutOfRangeError):
                    at = await self._positions.at_time(
                        live.topic.name, number, timestamp_ms, isolation=Isolation.READ_COMMITTED
                    )
                    if at is not None:
                        found.append(await self._placed(live.partitions[number], at))
        return min(found, default=None)

    async def newest(self, pattern: TopicPattern) -> TimedOffset | None:
        """Return the first matching record with the highest timestamp, of what the principal of the request may read."""
        found: list[TimedOffset] = []
        for live in self._watched.readable(pattern):
            for number in range(len(live.partitions)):
                with suppress(UnknownTopicError, OffsetOutOfRangeError):
                    at = await self._positions.newest(live.topic.name, number)
                    if at is not None:
                        found.append(await self._placed(live.partitions[number], at))
        return min(found, key=lambda at: (-at.timestamp, at.offset), default=None)

    async def _placed(self, partition: PartitionId, at: TimedOffset) -> TimedOffset:
        cursor = await self._threads.run(self._watched.cursor_of, partition, at.offset)
        return TimedOffset(Offset(cursor), at.timestamp)

    def _stable_end(self, pattern: TopicPattern, end: Cursor) -> Cursor:
        """Return where readers stop: at this end, or at the first record of an open transaction. May read the disk."""
        held = set(self._stable.held_partitions())
        for partition in (each for live in self._watched.matching(pattern) for each in live.partitions if each in held):
            with suppress(UnknownTopicError, OffsetOutOfRangeError):
                bounds = self._store.bounds(partition)
                first = self._stable.of(partition, bounds)
                if first < bounds.end:
                    end = min(end, self._watched.cursor_of(partition, first))
        return end

    def _first_cursor(self) -> Offset:
        cursor = Cursor(self.start)
        while True:
            batches, next_cursor = self._store.scan(cursor, 1)
            if batches or next_cursor <= cursor:
                return Offset(batches[0].cursor if batches else next_cursor)
            cursor = next_cursor
