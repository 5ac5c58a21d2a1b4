"""Subscriptions: the events of all topics that match a pattern, in the order of the log, from any cursor on.

A subscriber pulls: it has a position and no queue. At the end of the log it shares the batches that `SubscriptionTail` has
decoded for all. Further back it reads the log by itself, a few batches at a time, in the reader threads. Batches that were read
and not sent are kept for the next pull, within a bound for all subscribers together. A subscriber that does not pull falls
behind.

Subscribers that are behind take turns on the event loop, one in each iteration for a few milliseconds, so that a hundred of
them that catch up over small batches do not delay publishers.

Only committed records are sent, and always in order. A subscription therefore stops at a matching record whose transaction is
open, and continues when that has ended. Topics that are created later are included when they match. Records that retention or
a deletion removed before they were read are skipped.
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
from tailrace.broker.security.permissions import Permissions
from tailrace.broker.security.principals import current_principal
from tailrace.broker.subscriptions.shared_batch import BatchVisibility, SharedBatch
from tailrace.broker.subscriptions.tail import SubscribedPattern, SubscriptionTail, Waiters
from tailrace.broker.topics.registry import LiveTopic
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
from tailrace.model.security import SERVER, Principal
from tailrace.store.contract import Store
from tailrace.wire.records import RECORD_OVERHEAD_BYTES

_DELIVERY_BYTES = 64 * KIB
_TURN_SECONDS = 0.002
"""How long a subscriber may decode events before the next one gets its turn."""
_MIN_SCAN_BYTES = 64 * KIB
_DEFAULT_SCAN_BYTES = 512 * KIB
_MAX_SCAN_BYTES = 4 * MIB
_SCAN_BATCHES = 1_000
"""A scan that finds more batches than this makes the next one smaller."""
_NEAR_RECORDS = 1_000
"""A subscriber this close to the end of the log needs no turn."""
_BUSY_SECONDS = 0.1


class Subscriptions:
    def __init__(
        self,
        store: Store,
        reader: Reader,
        tail: SubscriptionTail,
        stable: StableOffsets,
        aborted: AbortedTransactions,
        answers: AnswerMemory,
        permissions: Permissions,
        limits: Limits,
    ) -> None:
        self.answers = answers
        self.permissions = permissions
        permissions.observers.append(self._rights_changed)
        self._store = store
        self._tail = tail
        self._stable = stable
        self._aborted = aborted
        self._blocked = Waiters()
        self.reader = reader
        self.limits = limits
        self.turns = _Turns()
        """Taken by subscribers that are behind the end of the log."""
        self._scans = asyncio.Semaphore(max(1, limits.read_threads // 2))
        """Leaves reader threads to others when many subscribers are behind."""
        self.ahead_bytes = 0
        """Bytes of the batches that all subscribers have read and not sent."""
        self.is_closed = False
        self.delivered = 0
        self.cut = 0
        """Subscribers that were closed because they were too slow."""

    @property
    def subscribers(self) -> int:
        return self._tail.subscribers

    def subscribe(self, pattern: TopicPattern, start: StartCursor, *, by_server: bool = False) -> "Subscription":
        """Return a subscription, which the caller closes.

        It has the events of the topics that the principal of the request may consume, at the time when they are read; with
        `by_server` those of all topics. A pattern without wildcards needs `consume` on its topic.
        """
        subscriber = SERVER if by_server else current_principal()
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
        subscription = Subscription(self, self._tail, self._tail.join(pattern), position, subscriber)
        try:
            subscription.check_allowed()
        except TailraceError:
            subscription.close()
            raise
        return subscription

    def transaction_ended(self) -> None:
        """Wake subscribers, because a transaction has ended or a partition was deleted."""
        self._blocked.wake()

    def _rights_changed(self) -> None:
        self._tail.wake_all()
        self._blocked.wake()

    def close(self) -> None:
        """Wake all subscribers; their reads raise from now on."""
        self.is_closed = True
        self._tail.wake_all()
        self.transaction_ended()

    def visibility(self, batch: SharedBatch) -> BatchVisibility:
        if batch.visibility is BatchVisibility.UNDECIDED:
            batch.visibility = self._decide(batch)
        return batch.visibility

    def _decide(self, batch: SharedBatch) -> BatchVisibility:
        header = batch.header
        if header.is_control:
            return BatchVisibility.HIDDEN
        if not header.is_transactional:
            return BatchVisibility.VISIBLE
        try:
            bounds = self._store.bounds(batch.partition)
        except UnknownPartitionError:
            return BatchVisibility.HIDDEN
        if self._stable.of(batch.partition, bounds) <= batch.base_offset:
            return BatchVisibility.UNDECIDED
        end = Offset(batch.base_offset + header.last_offset_delta + 1)
        # Transactions of one producer do not overlap, so an aborted one with offsets in this batch is the batch's own.
        aborted = self._aborted.between(batch.partition, batch.base_offset, end)
        return (
            BatchVisibility.HIDDEN
            if any(each.producer_id == header.producer_id for each in aborted)
            else BatchVisibility.VISIBLE
        )

    async def scan(self, subscribed: SubscribedPattern, cursor: Cursor, max_bytes: int) -> "_Scan":
        async with self._scans:
            try:
                return await self.reader.threads.run(self._scan, subscribed, cursor, max_bytes)
            except asyncio.CancelledError:
                if self.is_closed:
                    # The reader threads were closed, not the subscriber.
                    raise _closed() from None
                raise

    def _scan(self, subscribed: SubscribedPattern, cursor: Cursor, max_bytes: int) -> "_Scan":
        batches, next_cursor = self._store.scan(cursor, max_bytes)
        matching = [
            SharedBatch(at, partition, base, records, data)
            for at, partition, base, records, _, data in batches
            if subscribed.topic_of(partition) is not None
        ]
        return _Scan(matching, next_cursor, len(batches))

    async def wait_for_transaction(self, deadline: float) -> None:
        """Wait until a transaction has ended, or until the deadline."""
        await self._blocked.wait(deadline)


class Subscription:
    """One subscriber, which calls `read` repeatedly and then `close`."""

    def __init__(
        self,
        shared: Subscriptions,
        tail: SubscriptionTail,
        subscribed: SubscribedPattern,
        position: Cursor,
        subscriber: Principal,
    ) -> None:
        self.position = position
        """The next cursor to read: all matching events below it were returned."""
        self._shared = shared
        self._tail = tail
        self._subscribed = subscribed
        self._subscriber = subscriber
        self._scan_bytes = _DEFAULT_SCAN_BYTES
        self._ahead = _NOTHING_AHEAD
        self._is_blocked = False
        """Whether an open transaction blocks the next event."""
        self._is_open = True
        self._missing_bytes = 0
        """Memory that the next events need and that was not available."""

    def check_allowed(self) -> None:
        """Raise `TopicForbiddenError` if the pattern names one topic, and its subscriber may not consume that."""
        pattern = self._subscribed.pattern
        if self._shared.permissions.is_on and pattern.is_literal and not self._subscribed.may_consume(self._subscriber):
            raise self._shared.permissions.refusal(self._subscriber, "consume", "topic", pattern.text)

    async def read(self, wait_seconds: float, answer: ReadAnswer | None = None) -> Sequence[EventBatch]:
        """Return the next few events, or nothing if none came in time. Raises once the broker closes.

        Their memory is reserved in `answer`, which the caller closes when they are sent.
        """
        with self._shared.answers.held(answer) as held:
            return await self._read(wait_seconds, held)

    async def _read(self, wait_seconds: float, answer: ReadAnswer) -> Sequence[EventBatch]:
        deadline = asyncio.get_running_loop().time() + wait_seconds
        shared, tail = self._shared, self._tail
        while True:
            if shared.is_closed or not self._is_open:
                raise _closed()
            self.check_allowed()
            try:
                if tail.holds(self._subscribed, self.position):
                    found = await self._from_tail(answer)
                else:
                    found = await self._from_log(answer)
                if not found and self._missing_bytes:
                    # No memory is held during the wait; the batches are read again.
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
            if self._is_blocked:
                await shared.wait_for_transaction(deadline)
            elif self.position >= tail.end:
                self.position = max(self.position, await tail.wait(self._subscribed, deadline))

    def close(self) -> None:
        """Close the subscription. Calling it again does nothing."""
        if self._is_open:
            self._is_open = False
            self._keep(_NOTHING_AHEAD)
            self._tail.leave(self._subscribed)

    def cut(self) -> None:
        """Close the subscription because its subscriber is too slow."""
        self._shared.cut += 1
        self.close()

    def _allowed(self, live: LiveTopic | None) -> LiveTopic | None:
        """Return the topic if the subscriber may consume it now."""
        permissions = self._shared.permissions
        if live is None or not permissions.is_on:
            return live
        return live if permissions.allows(self._subscriber, "consume", "topic", live.topic.name) else None

    async def _from_tail(self, answer: ReadAnswer) -> list[EventBatch]:
        end = self._tail.end
        if end - self.position <= _NEAR_RECORDS:
            return await self._gather(self._tail.kept_since(self.position), end, answer)
        await self._shared.turns.next()
        # The tail may have moved on while other subscribers had their turns.
        if not self._tail.holds(self._subscribed, self.position):
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
        matching, next_cursor, scanned = await self._shared.scan(self._subscribed, start, size)
        # The less of a scan matches, the larger is the next one, but the number of batches stays bounded.
        if scanned > _SCAN_BATCHES:
            self._scan_bytes = max(_MIN_SCAN_BYTES, size * _SCAN_BATCHES // scanned)
        elif 4 * sum(batch.size for batch in matching) < size:
            self._scan_bytes = min(_MAX_SCAN_BYTES, 2 * size)
        else:
            self._scan_bytes = min(_DEFAULT_SCAN_BYTES, 2 * size)
        return _Ahead(matching, start, next_cursor, 0)

    def _keep(self, ahead: "_Ahead") -> None:
        """Keep the batches for the next read if there is memory for them."""
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
        """Decode matching events of these batches, as many as one read returns. No other batch matches up to `end`."""
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + _TURN_SECONDS
        found: list[EventBatch] = []
        size = 0
        self._is_blocked = False
        self._missing_bytes = 0
        for batch in batches:
            live = self._allowed(self._subscribed.topic_of(batch.partition))
            visibility = BatchVisibility.HIDDEN if live is None else self._shared.visibility(batch)
            if visibility is BatchVisibility.UNDECIDED:
                self._is_blocked = True
                self.position = max(self.position, batch.cursor)
                return found
            if visibility is BatchVisibility.HIDDEN or live is None:
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
                    # Retention or a deletion removed the record before its payload was read.
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
                events = _from_cursor(events, self.position)
                if not events.records:
                    # Compaction has removed all records of this part.
                    self.position = part_end
                    continue
                found.append(events)
                live.messages_out += len(found[-1].records)
                part_bytes = sum(len(record.key or b"") + len(record.value or b"") for record in found[-1].records)
                size += part_bytes
                answer.keep(part_bytes + len(found[-1].records) * RECORD_OVERHEAD_BYTES)
                self.position = part_end
        self.position = max(self.position, end)
        return found


class _Turns:
    """Lets waiting tasks continue in order, one in each iteration of the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self) -> None:
        """Wait for the caller's turn, which lasts until it awaits something else."""
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


class _Scan(NamedTuple):
    """The result of a scan of the log."""

    matching: Sequence[SharedBatch]
    next_cursor: Cursor
    scanned: int
    """The number of batches, matching or not."""


class _Ahead(NamedTuple):
    """Batches that were read from the log and not sent."""

    batches: Sequence[SharedBatch]
    """All batches that the pattern matches from `start` up to `end`."""
    start: Cursor
    end: Cursor
    size: int
    """Bytes counted in `Subscriptions.ahead_bytes`."""


_NOTHING_AHEAD = _Ahead((), Cursor(0), Cursor(0), 0)


def _from_cursor(events: EventBatch, cursor: Cursor) -> EventBatch:
    if not events.records or events.records[0].cursor >= cursor:
        return events
    return EventBatch(events.topic, events.partition, [record for record in events.records if record.cursor >= cursor])


def _closed() -> StoreClosedError:
    return StoreClosedError("the server is stopping; subscribe again from the last cursor")
