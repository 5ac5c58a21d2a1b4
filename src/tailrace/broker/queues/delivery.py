"""Delivery: consumers receive records, or wait until there may be some.

Records that were released or timed out come first, then new ones, both in the order of offsets. A share is locked while its
records are read, so that no two consumers read the same ones. A batch that can't be decoded is an error and nothing after it
is delivered, unless the consumer skips such batches.

A waiting consumer is woken by appends to the topics that it reads. All appends of one turn of the event loop wake it once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tailrace.broker.queues.acknowledgement import ReceiptOutcomes, write_receipt
from tailrace.broker.queues.registry import MatchingTopics, Queue, QueueRegistry, WaitingConsumer
from tailrace.broker.queues.share import READ_AHEAD_RECORDS, Share
from tailrace.broker.queues.state import OpenRecord, OpenRecordCounter, ShareState
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.broker.security.principals import current_principal
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import (
    LostPayloadError,
    OffsetOutOfRangeError,
    OverloadedError,
    StoreClosedError,
    TailraceError,
    UnknownTopicError,
    UnreadableBatchError,
)
from tailrace.model.fetch import PartitionRecords
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import MIB, Limits
from tailrace.model.names import parse_pattern
from tailrace.model.queue import Delivery, ReceiveRequest, RecordState
from tailrace.model.record import Record
from tailrace.store.contract import Store

_log = logging.getLogger(__name__)

_READ_BYTES = MIB

AcquiredDeliveries = Sequence[tuple[Share, Delivery]]
UndoneDeliveries = Sequence[tuple[Share, OpenRecord]]


class AcquireTerms(NamedTuple):
    """What a receive request asks for, at the time of the attempt."""

    most: int
    """Records in all, including those acquired from other shares."""
    now_ms: int
    due_ms: int
    order_by_key: bool
    max_deliveries: int
    owner: str
    attempt: str


class RecordAcquirer:
    """Reads the records of one share that can be delivered now, and acquires them."""

    def __init__(
        self,
        store: Store,
        committed: CommittedReader,
        topics: Topics,
        limits: Limits,
        open_records: OpenRecordCounter,
        outcomes: ReceiptOutcomes,
    ) -> None:
        self._store = store
        self._committed = committed
        self.answers = committed.answers
        self._topics = topics
        self._limits = limits
        self._open_records = open_records
        self._outcomes = outcomes
        self.missed = 0
        """Records that were deleted, or could not be decoded, before they were done."""

    async def acquire(self, share: Share, terms: AcquireTerms, found: list[Delivery], answer: ReadAnswer) -> None:
        """Acquire records of a share and add them to `found`, up to `terms.most`. After an error, `found` still counts."""
        async with share.lock:
            live = self._topics.by_id(share.partition.topic_id)
            if live is None or share.is_gone:
                return
            state = share.state
            self.missed += state.drop_below(self._store.bounds(share.partition).start)
            name = live.topic.name
            if terms.order_by_key and not await self._learn_keys(share, name, answer):
                return
            offsets = _candidates(share, terms, terms.most - len(found))
            if offsets:
                self._acquire(share, name, await self._read_open(share, name, offsets, answer), terms, found)
            while len(found) < terms.most and not answer.is_cut and not share.is_gone:
                before = state.end
                new = await self._read_new(share, name, terms.most - len(found), answer)
                self._acquire(share, name, new, terms, found)
                if state.end == before:
                    break

    def _acquire(
        self, share: Share, name: str, records: dict[Offset, Record], terms: AcquireTerms, found: list[Delivery]
    ) -> None:
        """Acquire those of the records that are still available."""
        if not records or share.is_gone:
            return
        for offset in _candidates(share, terms, len(share.state)):
            record = records.get(offset)
            if record is None or len(found) == terms.most:
                continue
            token = self._outcomes.new_token()
            acquired = share.state.acquire(offset, terms.owner, terms.attempt, token, terms.due_ms)
            receipt = write_receipt(share.partition, offset, token)
            found.append(Delivery(name, share.partition.number, record, receipt, acquired.deliveries))

    async def _learn_keys(self, share: Share, name: str, answer: ReadAnswer) -> bool:
        """Read the keys of open records, which are not known after a restart. Return whether there was memory for that."""
        left = 0
        is_cut = False
        while (unknown := share.state.without_key()) and len(unknown) != left:
            left = len(unknown)
            used = answer.used
            await self._read_open(share, name, unknown, answer)
            is_cut = answer.is_cut
            answer.forget(used)
        return not (unknown and is_cut)

    async def _read_open(self, share: Share, name: str, offsets: Sequence[Offset], answer: ReadAnswer) -> dict[Offset, Record]:
        """Return open records by offset, as many as the answer may hold. Those that are not in the log any more are dropped."""
        found: dict[Offset, Record] = {}
        end = Offset(0)
        for first, last in _runs(offsets):
            at = first
            while at <= last and not answer.is_cut:
                read = await self._read(share, name, at, last + 1 - at, answer)
                if read is not None and read.next_offset <= at and answer.is_cut:
                    break
                if read is None or read.next_offset <= at:
                    at = Offset(last + 1)
                    break
                found.update((record.offset, record) for record in read.records)
                at = read.next_offset
            if at > first:
                end = at
        for offset in offsets:
            if offset >= end:
                break
            kept = share.state.get(offset)
            record = found.get(offset)
            if kept is not None and record is not None:
                kept.key = record.key
            elif kept is not None and kept.state is RecordState.AVAILABLE:
                share.state.drop([offset])
                self.missed += 1
        return found

    async def _read_new(self, share: Share, name: str, most: int, answer: ReadAnswer) -> dict[Offset, Record]:
        """Return the next records that were never delivered, within the limits of open records, and open them."""
        state = share.state
        room = min(most, self._room(state))
        if room <= 0 or self._store.bounds(share.partition).end <= state.end:
            return {}
        new = share.read_ahead.take(state.end, room)
        if new is None:
            read = await self._read(share, name, state.end, max(room, READ_AHEAD_RECORDS), answer)
            if read is None:
                return {}
            share.read_ahead.keep(state.end, read.records, read.next_offset)
            # Consumers of other shares may have opened records meanwhile.
            new = share.read_ahead.take(state.end, max(0, min(room, self._room(state))))
        if new is None:
            return {}
        state.admit(new.records, new.end)
        return {record.offset: record for record in new.records}

    def _room(self, state: ShareState) -> int:
        """Return how many more records of a share may be open."""
        limits = self._limits
        return min(
            limits.queue_in_flight - len(state),
            limits.queue_group_in_flight - state.counter.records,
            limits.queues_in_flight - self._open_records.records,
        )

    async def _read(self, share: Share, name: str, offset: Offset, most: int, answer: ReadAnswer) -> PartitionRecords | None:
        number = share.partition.number
        known = len(answer.corrupt)
        try:
            read = await self._committed.read(
                name, number, offset, answer, max_records=min(most, self._limits.read_records), max_bytes=_READ_BYTES
            )
        except OffsetOutOfRangeError:
            return None
        except LostPayloadError as error:
            if error.next_offset is None:
                raise
            self._skipped(share, Offset(error.next_offset) - offset, error)
            return PartitionRecords((), Offset(error.next_offset), self._store.bounds(share.partition), True)
        for batch in answer.corrupt[known:] if answer.skips_corrupt else ():
            self._skipped(share, batch.last_offset + 1 - max(offset, batch.first_offset), batch.error)
        return read

    def _skipped(self, share: Share, records: int, error: TailraceError) -> None:
        self.missed += records
        _log.warning("the group %s skips %d records that can't be read: %s", share.group, records, error)


class Receiver:
    """Serves receive requests: acquires records from all shares of a queue, or waits for some."""

    def __init__(
        self,
        registry: QueueRegistry,
        acquirer: RecordAcquirer,
        topics: Topics,
        limits: Limits,
        now_ms: Callable[[], int],
        on_acquired: Callable[[Queue, AcquiredDeliveries], None],
        on_undone: Callable[[Queue, UndoneDeliveries], None],
    ) -> None:
        """`on_acquired` gets the records that a consumer receives, `on_undone` acquired records that it does not receive."""
        self._registry = registry
        self._acquirer = acquirer
        self._topics = topics
        self._limits = limits
        self._now_ms = now_ms
        self._on_acquired = on_acquired
        self._on_undone = on_undone
        self._appended: set[TopicId] = set()
        """Topics with new records that waiting consumers were not told of yet."""
        self._is_closed = False
        self.waiters = 0
        topics.permissions.observers.append(self._wake_all)

    def close(self) -> None:
        self._is_closed = True
        self._wake_all()

    async def receive(self, request: ReceiveRequest, answer: ReadAnswer) -> list[Delivery]:
        """Return records for one consumer as soon as there are any, or none when the request's wait is over."""
        topics = MatchingTopics(parse_pattern(request.pattern, self._limits), self._topics, current_principal())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_ms / 1000
        is_repeated = request.is_repeated
        while True:
            if self._is_closed:
                raise StoreClosedError("the server is stopping; receive again after the restart")
            # Again after each wait: rights may have been revoked.
            self._topics.permissions.require("consume", "queue", request.group)
            topics.require()
            queue = await self._registry.queue_for(request)
            if is_repeated:
                is_repeated = False
                self._on_undone(queue, _acquired_before(queue, request))
            waiter = WaitingConsumer(topics, loop.create_future())
            # Registered before the attempt, so that a record which arrives during it wakes the consumer.
            queue.waiters.add(waiter)
            try:
                found = await self._acquire(queue, topics, request, answer)
                if found or loop.time() >= deadline:
                    return found
                await self._wait(waiter, deadline)
            finally:
                queue.waiters.discard(waiter)

    def appended(self, partition: PartitionId) -> None:
        """Wake the consumers that wait for records of this partition."""
        if not self.waiters:
            return
        if not self._appended:
            asyncio.get_running_loop().call_soon(self._wake)
        self._appended.add(partition.topic_id)

    def _wake_all(self) -> None:
        for queue in self._registry:
            queue.wake_all()

    def _wake(self) -> None:
        topics, self._appended = self._appended, set()
        for queue in self._registry:
            if queue.waiters:
                for topic_id in topics:
                    queue.wake(topic_id)

    async def _acquire(
        self, queue: Queue, topics: MatchingTopics, request: ReceiveRequest, answer: ReadAnswer
    ) -> list[Delivery]:
        shares = await self._registry.shares_for(queue, topics)
        found: list[Delivery] = []
        acquired: list[tuple[Share, Delivery]] = []
        unreadable: UnreadableBatchError | None = None
        if shares:
            queue.first_share = (queue.first_share + 1) % len(shares)
        try:
            for share in (*shares[queue.first_share :], *shares[: queue.first_share]):
                if len(found) == request.max_records or answer.is_cut:
                    break
                before = len(found)
                try:
                    await self._acquirer.acquire(share, self._terms(queue, request), found, answer)
                except UnknownTopicError:
                    # The topic was deleted meanwhile, and its records with it.
                    del found[before:]
                except UnreadableBatchError as error:
                    # Raised only if there is nothing else to deliver.
                    unreadable = unreadable or error
                finally:
                    acquired += [(share, delivery) for delivery in found[before:]]
        except BaseException:
            # No consumer gets these records, so none could release them.
            records = [(share, share.state.get(delivery.record.offset)) for share, delivery in acquired]
            self._on_undone(queue, [(share, record) for share, record in records if record is not None])
            raise
        self._on_acquired(queue, acquired)
        if unreadable is not None and not found:
            raise unreadable
        return found

    def _terms(self, queue: Queue, request: ReceiveRequest) -> AcquireTerms:
        now = self._now_ms()
        return AcquireTerms(
            request.max_records,
            now,
            now + request.visibility_ms,
            request.order_by_key,
            queue.stored.max_deliveries,
            request.owner,
            request.attempt,
        )

    async def _wait(self, waiter: WaitingConsumer, deadline: float) -> None:
        if self.waiters >= self._limits.queue_waiters:
            raise OverloadedError(
                f"{self.waiters} consumers wait already, as many as queue_waiters allows; try again after a pause"
            )
        timer = asyncio.get_running_loop().call_at(deadline, waiter.wake)
        self.waiters += 1
        try:
            await waiter.future
        finally:
            self.waiters -= 1
            timer.cancel()


def _acquired_before(queue: Queue, request: ReceiveRequest) -> UndoneDeliveries:
    """Return the records that an earlier attempt of the same name acquired, whose response was lost."""
    return [
        (share, record) for share in queue.shares.values() for record in share.state.acquired_by(request.owner, request.attempt)
    ]


def _candidates(share: Share, terms: AcquireTerms, most: int) -> list[Offset]:
    return share.state.candidates(terms.now_ms, most, terms.max_deliveries, order_by_key=terms.order_by_key)


def _runs(offsets: Sequence[Offset]) -> Iterator[tuple[Offset, Offset]]:
    """Yield the first and last offset of each run of consecutive offsets."""
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            yield first, last
            first = offset
        last = offset
    yield first, last
