"""Subscriptions: the events of all topics that match a pattern, in the order of the log, from any cursor on.

A subscriber pulls. It has a position and no queue. At the end of the log it shares what `LogTail` has decoded for all; further
back it reads the log by itself, a piece at a time, in the reader threads, and what it has read and not sent is kept for its
next pull as long as all of them together keep little. One that does not pull falls behind.

Those who are behind take turns on the event loop: one of them in each round of it, for a few milliseconds, so that a hundred
subscribers who catch up over small batches hold up nobody who publishes.

Only committed records are sent, and none is ever sent out of order; so a subscription stops at a record whose transaction
is still open, in a topic that it matches, and goes on when that has ended. Topics that are made later are included when they
match. What retention or a deletion took away before it was read is not shown.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from tailrace.broker.isolation import AbortedTransactions, StableOffsets
from tailrace.broker.reading.answers import AnswerMemory, ReadAnswer
from tailrace.broker.reading.reader import Reader
from tailrace.broker.subscriptions.shared_batch import BatchVisibility, SharedBatch
from tailrace.broker.subscriptions.tail import LogTail, PatternSubscribers, Waiters
from tailrace.model.consume import EventBatch, LogEdge, StartCursor
from tailrace.model.errors import (
    CursorOutOfRangeError,
    OffsetOutOfRangeError,
    OverloadedError,
    StoreClosedError,
    TailraceError,
    UnknownPartitionError,
    UnreadableBatchError,
)
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.names import TopicPattern
from tailrace.store.contract import Store
from tailrace.wire.records import RECORD_OVERHEAD_BYTES

_DELIVERY_BYTES = 64 * KIB
_TURN_SECONDS = 0.002
"""How long a subscriber gathers events before others get their turn."""
_LEAST_SCAN_BYTES = 64 * KIB
_USUAL_SCAN_BYTES = 512 * KIB
_MOST_SCAN_BYTES = 4 * MIB
_SCAN_BATCHES = 1_000
"""A scan that finds more batches than this was too large."""
_NEAR_RECORDS = 1_000
"""Who is closer to the end of the log than this needs no turn."""
_BUSY_SECONDS = 0.1


class Subscriptions:
    def __init__(
        self,
        store: Store,
        reader: Reader,
        tail: LogTail,
        stable: StableOffsets,
        aborted: AbortedTransactions,
        answers: AnswerMemory,
        limits: Limits,
    ) -> None:
        self.answers = answers
        self._store = store
        self._tail = tail
        self._stable = stable
        self._aborted = aborted
        self._undecided = Waiters()
        self.reader = reader
        self.limits = limits
        self.turns = _Turns()
        """For the subscribers who are behind the end of the log."""
        self._scans = asyncio.Semaphore(max(1, limits.read_threads // 2))
        """So that subscribers far behind leave threads to other readers."""
        self.ahead_bytes = 0
        """What subscribers keep of what they have read, all together."""
        self.is_closed = False
        self.delivered = 0
        self.cut = 0
        """Subscribers that were too slow."""

    @property
    def subscribers(self) -> int:
        return self._tail.subscribers

    def subscribe(self, pattern: TopicPattern, start: StartCursor) -> "Subscription":
        """To be closed by whoever asked for it."""
        if self.is_closed:
            raise _closed()
        if self.subscribers >= self.limits.subscribers:
            raise OverloadedError(f"there are {self.subscribers} subscribers, as many as subscribers allows; try again later")
        end = self._store.end_cursor()
        if start is LogEdge.BEGINNING:
            position = Cursor(0)
        elif start is LogEdge.LATEST:
            position = end
        else:
            position = Cursor(int(start))
            if not 0 <= position <= end:
                raise CursorOutOfRangeError(f"cursor {position} is not in the log, which ends at {end}", end)
        return Subscription(self, self._tail, self._tail.join(pattern), position)

    def stabilized(self) -> None:
        """A transaction has ended, or its partition is gone."""
        self._undecided.wake()

    def close(self) -> None:
        """Tell all subscribers to come again."""
        self.is_closed = True
        self._tail.wake_all()
        self.stabilized()

    def fate(self, batch: SharedBatch) -> BatchVisibility:
        if batch.fate is BatchVisibility.UNDECIDED:
            batch.fate = self._decide(batch)
        return batch.fate

    def _decide(self, batch: SharedBatch) -> BatchVisibility:
        header = batch.header
        if header.is_control:
            return BatchVisibility.HIDDEN
        if not header.is_transactional:
            return BatchVisibility.SHOWN
        try:
            bounds = self._store.bounds(batch.partition)
        except UnknownPartitionError:
            return BatchVisibility.HIDDEN
        if self._stable.of(batch.partition, bounds) <= batch.base_offset:
            return BatchVisibility.UNDECIDED
        end = Offset(batch.base_offset + header.records)
        # Transactions of one producer follow each other, so one that has offsets among the batch's is the batch's own.
        aborted = self._aborted.between(batch.partition, batch.base_offset, end)
        return (
            BatchVisibility.HIDDEN if any(each.producer_id == header.producer_id for each in aborted) else BatchVisibility.SHOWN
        )

    async def scan(self, audience: PatternSubscribers, cursor: Cursor, max_bytes: int) -> "_Found":
        async with self._scans:
            try:
                return await self.reader.threads.run(self._scan, audience, cursor, max_bytes)
            except asyncio.CancelledError:
                if self.is_closed:
                    # The threads are gone, and the subscriber is not.
                    raise _closed() from None
                raise

    def _scan(self, audience: PatternSubscribers, cursor: Cursor, max_bytes: int) -> "_Found":
        batches, next_cursor = self._store.scan(cursor, max_bytes)
        wanted = [
            SharedBatch(at, partition, base, records, data)
            for at, partition, base, records, _, data in batches
            if audience.topic_of(partition) is not None
        ]
        return _Found(wanted, next_cursor, len(batches))

    async def until_decided(self, deadline: float) -> None:
        """Until some transaction has ended, or until the deadline."""
        await self._undecided.wait(deadline)


class Subscription:
    """One subscriber: `read` again and again, then `close`."""

    def __init__(self, shared: Subscriptions, tail: LogTail, audience: PatternSubscribers, position: Cursor) -> None:
        self.position = position
        """The next cursor to look at: all that the pattern matches below it has been handed out."""
        self._shared = shared
        self._tail = tail
        self._audience = audience
        self._scan_bytes = _USUAL_SCAN_BYTES
        self._ahead = _NOTHING_AHEAD
        self._is_held = False
        """Whether an open transaction is in the way."""
        self._is_open = True
        self._missing_bytes = 0
        """Room that the next events need and that was not there."""

    async def read(self, wait_seconds: float, answer: ReadAnswer | None = None) -> Sequence[EventBatch]:
        """The next events, a small part at a time; nothing if none came in time. Raises once the broker closes.

        They take the room of `answer`, which is closed when they are sent.
        """
        with self._shared.answers.held(answer) as held:
            return await self._read(wait_seconds, held)

    async def _read(self, wait_seconds: float, answer: ReadAnswer) -> Sequence[EventBatch]:
        deadline = asyncio.get_running_loop().time() + wait_seconds
        shared, tail = self._shared, self._tail
        while True:
            if shared.is_closed or not self._is_open:
                raise _closed()
            try:
                if tail.holds(self._audience, self.position):
                    found = await self._from_tail(answer)
                else:
                    found = await self._from_log(answer)
                if not found and self._missing_bytes:
                    # Nothing is held while it waits; what was read of the log is read again.
                    self._keep(_NOTHING_AHEAD)
                    await answer.reserve(self._missing_bytes)
                    continue
            except OverloadedError:
                if asyncio.get_running_loop().time() >= deadline:
                    return ()
                await asyncio.sleep(_BUSY_SECONDS)
                continue
            answer.trim()
            if found or (answer.corrupt and answer.skips_corrupt):
                shared.delivered += sum(len(events.records) for events in found)
                return found
            if asyncio.get_running_loop().time() >= deadline:
                return found
            if self._is_held:
                await shared.until_decided(deadline)
            elif self.position >= tail.end:
                self.position = max(self.position, await tail.wait(self._audience, deadline))

    def close(self) -> None:
        """Calling it again does nothing."""
        if self._is_open:
            self._is_open = False
            self._keep(_NOTHING_AHEAD)
            self._tail.leave(self._audience)

    def cut(self) -> None:
        """Close it because the subscriber is too slow."""
        self._shared.cut += 1
        self.close()

    async def _from_tail(self, answer: ReadAnswer) -> list[EventBatch]:
        end = self._tail.end
        if end - self.position <= _NEAR_RECORDS:
            return await self._gather(self._tail.kept_since(self.position), end, answer)
        await self._shared.turns.next()
        # Others had their turns meanwhile, and the tail went on.
        if not self._tail.holds(self._audience, self.position):
            return []
        end = self._tail.end
        return await self._gather(self._tail.kept_since(self.position), end, answer)

    async def _from_log(self, answer: ReadAnswer) -> list[EventBatch]:
        ahead, self._ahead = self._ahead, _NOTHING_AHEAD
        self._shared.ahead_bytes -= ahead.size
        if not ahead.batches or not ahead.start <= self.position < ahead.end:
            ahead = await self._scan()
        await self._shared.turns.next()
        found = await self._gather(ahead.batches, ahead.end, answer)
        if self.position < ahead.end and self._is_open:
            self._keep(ahead)
        return found

    async def _scan(self) -> "_Ahead":
        start, size = self.position, self._scan_bytes
        wanted, next_cursor, scanned = await self._shared.scan(self._audience, start, size)
        # The less of what is read is wanted, the more is read at once; but never many batches, however small they are.
        if scanned > _SCAN_BATCHES:
            self._scan_bytes = max(_LEAST_SCAN_BYTES, size * _SCAN_BATCHES // scanned)
        elif 4 * sum(batch.size for batch in wanted) < size:
            self._scan_bytes = min(_MOST_SCAN_BYTES, 2 * size)
        else:
            self._scan_bytes = min(_USUAL_SCAN_BYTES, 2 * size)
        return _Ahead(wanted, start, next_cursor, 0)

    def _keep(self, ahead: "_Ahead") -> None:
        """For the next time, if there is memory for it."""
        shared = self._shared
        batches = ahead.batches[bisect_right(ahead.batches, self.position, key=attrgetter("end")) :]
        size = sum(batch.size for batch in batches)
        shared.ahead_bytes -= self._ahead.size
        if shared.ahead_bytes + size > shared.limits.subscription_ahead_bytes:
            self._ahead = _NOTHING_AHEAD
        else:
            self._ahead = _Ahead(batches, self.position, ahead.end, size)
            shared.ahead_bytes += size

    async def _gather(self, batches: Sequence[SharedBatch], end: Cursor, answer: ReadAnswer) -> list[EventBatch]:
        """What the pattern matches of these batches, which are all that it matches up to `end`; as much as is sent at once."""
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + _TURN_SECONDS
        found: list[EventBatch] = []
        size = 0
        self._is_held = False
        self._missing_bytes = 0
        for batch in batches:
            live = self._audience.topic_of(batch.partition)
            fate = BatchVisibility.HIDDEN if live is None else self._shared.fate(batch)
            if fate is BatchVisibility.UNDECIDED:
                self._is_held = True
                self.position = max(self.position, batch.cursor)
                return found
            if fate is BatchVisibility.HIDDEN or live is None:
                continue
            for number, part_end in batch.parts_from(self.position):
                if size >= _DELIVERY_BYTES or (found and loop.time() > turn_ends):
                    return found
                bound = batch.bound(self._shared.limits)
                if not answer.try_reserve(bound):
                    self._missing_bytes = bound
                    return found
                try:
                    events = await batch.part(number, live.topic.name, self._shared.reader, self._shared.limits)
                except (OffsetOutOfRangeError, UnknownPartitionError):
                    # Retention or a deletion took the record before its payload was read.
                    self.position = part_end
                    continue
                except UnreadableBatchError as error:
                    if answer.skips_corrupt:
                        answer.note(batch.corrupt(live.topic.name, error.__cause__))
                        self.position = batch.end
                        break
                    if found:
                        return found
                    raise
                except TailraceError:
                    if found:
                        return found
                    raise
                found.append(_from_cursor(events, self.position))
                live.messages_out += len(found[-1].records)
                part_bytes = sum(len(record.key or b"") + len(record.value or b"") for record in found[-1].records)
                size += part_bytes
                answer.keep(part_bytes + len(found[-1].records) * RECORD_OVERHEAD_BYTES)
                self.position = part_end
        self.position = max(self.position, end)
        return found


class _Turns:
    """Lets those who wait go on one at a time, one in each round of the event loop, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self) -> None:
        """Wait for one's turn. It lasts until the caller waits for something else."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(future)
        self._schedule(loop)
        await future

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._admit, loop)

    def _admit(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_scheduled = False
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                break
        if self._waiting:
            self._schedule(loop)


class _Found(NamedTuple):
    """What a scan of the log found."""

    wanted: Sequence[SharedBatch]
    next_cursor: Cursor
    scanned: int
    """Batches, wanted or not."""


class _Ahead(NamedTuple):
    """What was read of the log, and how far."""

    batches: Sequence[SharedBatch]
    """All that the pattern matches from `start` up to `end`."""
    start: Cursor
    end: Cursor
    size: int
    """Bytes, as they are counted among those of all subscribers."""


_NOTHING_AHEAD = _Ahead((), Cursor(0), Cursor(0), 0)


def _from_cursor(events: EventBatch, cursor: Cursor) -> EventBatch:
    if events.records[0].cursor >= cursor:
        return events
    return EventBatch(events.topic, events.partition, [record for record in events.records if record.cursor >= cursor])


def _closed() -> StoreClosedError:
    return StoreClosedError("the server is about to stop; subscribe again from the last cursor")
