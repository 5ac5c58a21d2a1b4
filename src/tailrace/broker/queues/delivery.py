"""Handing out records: which can be had now, read from the log, and acquired.

First those that came back, then new ones, both in the order of offsets. A share is locked while its records are read, so
that no two consumers read the same. A batch that can't be decoded is an error, and nothing behind it is handed out, unless
the consumer skips such batches.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tailrace.broker.queues.acknowledgement import ReceiptOutcomes, write_receipt
from tailrace.broker.queues.registry import MatchingTopics, Queue, QueueRegistry, WaitingConsumer
from tailrace.broker.queues.share import RECORDS_AHEAD, Share
from tailrace.broker.queues.state import OpenRecord, OpenRecordCounter, ShareState
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.committed_reader import CommittedReader
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


class AcquireTerms(NamedTuple):
    """How records are handed out."""

    most: int
    """In all, with those that were found before."""
    now_ms: int
    due_ms: int
    order_by_key: bool
    max_deliveries: int
    owner: str
    attempt: str


class RecordAcquirer:
    def __init__(
        self,
        store: Store,
        committed: CommittedReader,
        topics: Topics,
        limits: Limits,
        open_records: OpenRecordCounter,
        fates: ReceiptOutcomes,
    ) -> None:
        self._store = store
        self._committed = committed
        self.answers = committed.answers
        self._topics = topics
        self._limits = limits
        self._open_records = open_records
        self._fates = fates
        self.missed = 0
        """Records that were gone, or could not be decoded, before they were done."""

    async def take(self, share: Share, terms: AcquireTerms, found: list[Delivery], answer: ReadAnswer) -> None:
        """Add what can be had of a share now, up to so many. If it fails, what was added before is acquired all the same."""
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
                fresh = await self._read_fresh(share, name, terms.most - len(found), answer)
                self._acquire(share, name, fresh, terms, found)
                if state.end == before:
                    break

    def _acquire(
        self, share: Share, name: str, records: dict[Offset, Record], terms: AcquireTerms, found: list[Delivery]
    ) -> None:
        """Those of the records that can be had still."""
        if not records or share.is_gone:
            return
        for offset in _candidates(share, terms, len(share.state)):
            record = records.get(offset)
            if record is None or len(found) == terms.most:
                continue
            token = self._fates.new_token()
            taken = share.state.acquire(offset, terms.owner, terms.attempt, token, terms.due_ms)
            receipt = write_receipt(share.partition, offset, token)
            found.append(Delivery(name, share.partition.number, record, receipt, taken.deliveries))

    async def _learn_keys(self, share: Share, name: str, answer: ReadAnswer) -> bool:
        """After a restart, the keys of open records are in the log alone. `False`: there is no room to read them now."""
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
        """Open records by offset, as many as one answer may hold. Those that are not there any more are dropped."""
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

    async def _read_fresh(self, share: Share, name: str, most: int, answer: ReadAnswer) -> dict[Offset, Record]:
        """The next records that nobody had yet, as many as there is room for."""
        state = share.state
        room = min(most, self._room(state))
        if room <= 0 or self._store.bounds(share.partition).end <= state.end:
            return {}
        fresh = share.ahead.take(state.end, room)
        if fresh is None:
            read = await self._read(share, name, state.end, max(room, RECORDS_AHEAD), answer)
            if read is None:
                return {}
            share.ahead.keep(state.end, read.records, read.next_offset)
            # Others may have taken of the room meanwhile, in other shares.
            fresh = share.ahead.take(state.end, max(0, min(room, self._room(state))))
        if fresh is None:
            return {}
        state.admit(fresh.records, fresh.end)
        return {record.offset: record for record in fresh.records}

    def _room(self, state: ShareState) -> int:
        """How many more records of a share may be open."""
        limits = self._limits
        return min(
            limits.queue_in_flight - len(state),
            limits.queue_group_in_flight - state.tally.records,
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
            self._missed(share, Offset(error.next_offset) - offset, error)
            return PartitionRecords((), Offset(error.next_offset), self._store.bounds(share.partition), True)
        for batch in answer.corrupt[known:] if answer.skips_corrupt else ():
            self._missed(share, batch.last_offset + 1 - max(offset, batch.first_offset), batch.error)
        return read

    def _missed(self, share: Share, records: int, error: TailraceError) -> None:
        self.missed += records
        _log.warning("the group %s skips records that nobody can read: %s", share.group, error)


def _candidates(share: Share, terms: AcquireTerms, most: int) -> list[Offset]:
    return share.state.candidates(terms.now_ms, most, terms.max_deliveries, order_by_key=terms.order_by_key)


def _runs(offsets: Sequence[Offset]) -> Iterator[tuple[Offset, Offset]]:
    """First and last of offsets that follow each other."""
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            yield first, last
            first = offset
        last = offset
    yield first, last


AcquiredDeliveries = Sequence[tuple[Share, Delivery]]
UndoneDeliveries = Sequence[tuple[Share, OpenRecord]]


class Receiver:
    def __init__(
        self,
        registry: QueueRegistry,
        taker: RecordAcquirer,
        topics: Topics,
        limits: Limits,
        now_ms: Callable[[], int],
        on_taken: Callable[[Queue, AcquiredDeliveries], None],
        on_undone: Callable[[Queue, UndoneDeliveries], None],
    ) -> None:
        """`on_taken` learns what a consumer gets, `on_undone` what it does not get after all."""
        self._registry = registry
        self._taker = taker
        self._topics = topics
        self._limits = limits
        self._now_ms = now_ms
        self._on_taken = on_taken
        self._on_undone = on_undone
        self._news: set[TopicId] = set()
        self._is_closed = False
        self.waiters = 0

    def close(self) -> None:
        self._is_closed = True
        for queue in self._registry:
            queue.wake_all()

    async def receive(self, asked: ReceiveRequest, answer: ReadAnswer) -> list[Delivery]:
        """Records for one consumer, as soon as there is one; none when the time is up."""
        wanted = MatchingTopics(parse_pattern(asked.pattern, self._limits), self._topics)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + asked.wait_ms / 1000
        is_repeated = asked.is_repeated
        while True:
            if self._is_closed:
                raise StoreClosedError("the server is about to stop; receive again after the restart")
            queue = await self._registry.queue_for(asked)
            if is_repeated:
                is_repeated = False
                self._on_undone(queue, _taken_before(queue, asked))
            waiter = WaitingConsumer(wanted, loop.create_future())
            # Before the look, so that whatever comes after it wakes the waiter.
            queue.waiters.add(waiter)
            try:
                found = await self._take(queue, wanted, asked, answer)
                if found or loop.time() >= deadline:
                    return found
                await self._wait(waiter, deadline)
            finally:
                queue.waiters.discard(waiter)

    def arrived(self, partition: PartitionId) -> None:
        """There is more to read in the partition."""
        if not self.waiters:
            return
        if not self._news:
            asyncio.get_running_loop().call_soon(self._tell)
        self._news.add(partition.topic_id)

    def _tell(self) -> None:
        news, self._news = self._news, set()
        for queue in self._registry:
            if queue.waiters:
                for topic_id in news:
                    queue.wake(topic_id)

    async def _take(self, queue: Queue, wanted: MatchingTopics, asked: ReceiveRequest, answer: ReadAnswer) -> list[Delivery]:
        shares = await self._registry.shares_for(queue, wanted)
        found: list[Delivery] = []
        taken: list[tuple[Share, Delivery]] = []
        unreadable: UnreadableBatchError | None = None
        if shares:
            queue.turn = (queue.turn + 1) % len(shares)
        try:
            for share in (*shares[queue.turn :], *shares[: queue.turn]):
                if len(found) == asked.max_records or answer.is_cut:
                    break
                before = len(found)
                try:
                    await self._taker.take(share, self._terms(queue, asked), found, answer)
                except UnknownTopicError:
                    # Deleted meanwhile, and its records with it.
                    del found[before:]
                except UnreadableBatchError as error:
                    # The consumer is told when there is nothing else to hand out.
                    unreadable = unreadable or error
                finally:
                    taken += [(share, delivery) for delivery in found[before:]]
        except BaseException:
            # Nobody gets them, so nobody could give them back.
            records = [(share, share.state.get(delivery.record.offset)) for share, delivery in taken]
            self._on_undone(queue, [(share, record) for share, record in records if record is not None])
            raise
        self._on_taken(queue, taken)
        if unreadable is not None and not found:
            raise unreadable
        return found

    def _terms(self, queue: Queue, asked: ReceiveRequest) -> AcquireTerms:
        now = self._now_ms()
        return AcquireTerms(
            asked.max_records,
            now,
            now + asked.visibility_ms,
            asked.order_by_key,
            queue.record.max_deliveries,
            asked.owner,
            asked.attempt,
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


def _taken_before(queue: Queue, asked: ReceiveRequest) -> UndoneDeliveries:
    """What an earlier attempt of the same name took, and nobody got."""
    return [
        (share, record) for share in queue.shares.values() for record in share.state.acquired_by(asked.owner, asked.attempt)
    ]
