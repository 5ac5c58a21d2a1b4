"""Queues: consumers of a group share the records of all topics that match a pattern, each record to one of them.

A record is handed out for a time, the visibility time-out. Within it the consumer says that it is done (`acknowledge`), gives
it back (`release`) or asks for more time (`extend`); if it says nothing, the record comes back by itself. A record that was
handed out `max_deliveries` times and came back goes to the dead letters. What is durable when is told in `state`.

The rules and words are those of Kafka's share groups (KIP-932): a share is what is called share-partition there.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence

from tailrace.broker.commit import Committer
from tailrace.broker.fetch import Fetcher
from tailrace.broker.groups.deadlines import Deadlines
from tailrace.broker.intake import Intake
from tailrace.broker.queues.burials import Burials
from tailrace.broker.queues.dead_letters import DeadLetters
from tailrace.broker.queues.group import Queue, Waiter, Wanted
from tailrace.broker.queues.receipts import read_receipt
from tailrace.broker.queues.registry import Changed, QueueRegistry
from tailrace.broker.queues.requests import check_receipts, check_receive, check_time
from tailrace.broker.queues.share import Share
from tailrace.broker.queues.state import OpenRecord, ShareState
from tailrace.broker.queues.taking import Taker, Terms, open_states, size_of
from tailrace.broker.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    LateReceiptError,
    OverloadedError,
    StoreClosedError,
    TailraceError,
    UnknownTopicError,
)
from tailrace.model.ids import Offset, Partition, TopicId
from tailrace.model.limits import Limits
from tailrace.model.pattern import parse_pattern
from tailrace.model.queue import Delivery, QueueStatus, ReceiveRequest, RecordState, Refusal, Settled, ShareStatus
from tailrace.store.contract import Store

_RETRY_MS = 5_000
_NACKED = "given back by the consumer"
_TIMED_OUT = "the visibility time-out has passed"
_EXHAUSTED = "handed out as often as max_deliveries allows"

Due = tuple[str, Partition, Offset]


class Queues:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        fetcher: Fetcher,
        intake: Intake,
        clock: Clock,
        limits: Limits,
        first_token: Callable[[], int] = lambda: secrets.randbits(62),
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self.dead_letters = DeadLetters(intake)
        self.taker = Taker(store, fetcher, topics, limits, first_token())
        self._burials = Burials(fetcher, topics, self.dead_letters, self._missed, self._not_buried)
        self._registry = QueueRegistry(
            store, committer, topics, clock, limits, Changed(self._enter, self._leave, self._bury_all_exhausted)
        )
        self._news: set[TopicId] = set()
        self._is_closed = False
        self.waiters = 0
        self.delivered = 0
        self.repeated = 0
        """Of these, the ones that were delivered before."""
        self.acknowledged = 0
        self.refused = 0
        """Receipts that did not count."""

    def start(self) -> None:
        """Read what is stored. Every open record is available again."""
        self._deadlines: Deadlines[Due] = Deadlines(self._clock, self._committer.loop.call_later, self._due)
        self._registry.load()

    async def close(self) -> None:
        self._is_closed = True
        for queue in self._registry:
            queue.wake_all()
        await self._burials.close()
        self._deadlines.close()

    def __len__(self) -> int:
        return len(self._registry)

    @property
    def in_flight(self) -> int:
        return sum(len(share.state) for queue in self._registry for share in queue.shares.values())

    async def receive(self, asked: ReceiveRequest) -> list[Delivery]:
        """Records for one consumer, as soon as there is one; none when the time is up."""
        check_receive(asked, self._limits)
        wanted = Wanted(parse_pattern(asked.pattern, self._limits), self._topics)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + asked.wait_ms / 1000
        while True:
            if self._is_closed:
                raise StoreClosedError("the server is about to stop; receive again after the restart")
            queue = await self._registry.queue_for(asked)
            waiter = Waiter(wanted, loop.create_future())
            # Before the look, so that whatever comes after it wakes the waiter.
            queue.waiters.add(waiter)
            try:
                found = await self._take(queue, wanted, asked)
                if found or loop.time() >= deadline:
                    return found
                await self._wait(waiter, deadline)
            finally:
                queue.waiters.discard(waiter)

    async def acknowledge(self, group: str, receipts: Sequence[str]) -> Settled:
        """These records are done. Durable when answered."""

        def acknowledge(queue: Queue, share: Share, record: OpenRecord) -> "asyncio.Future[None]":
            record.state = RecordState.ACKNOWLEDGED
            self._deadlines.set((queue.name, share.partition, record.offset), None)
            return share.write()

        settled = await self._settle(group, receipts, acknowledge)
        self.acknowledged += settled.accepted
        return settled

    async def release(self, group: str, receipts: Sequence[str], delay_ms: int = 0, reason: str = "") -> Settled:
        """Hand these records out again, after a while; or put them among the dead letters if that was the last time."""
        check_time("delay_ms", delay_ms, 0, self._limits)

        def release(queue: Queue, share: Share, record: OpenRecord) -> "asyncio.Future[None] | None":
            if record.deliveries >= queue.record.max_deliveries:
                return self._burials.bury(share, record.offset, reason or _NACKED)
            self._give_back(queue, share, record, delay_ms)
            return None

        return await self._settle(group, receipts, release)

    async def extend(self, group: str, receipts: Sequence[str], visibility_ms: int) -> Settled:
        """Keep these records for so long from now on. Not stored: after a restart they are handed out again."""
        check_time("visibility_ms", visibility_ms, 1, self._limits)

        def extend(queue: Queue, share: Share, record: OpenRecord) -> None:
            record.due_ms = self._now_ms() + visibility_ms
            self._deadlines.set((queue.name, share.partition, record.offset), record.due_ms)

        return await self._settle(group, receipts, extend)

    async def delete(self, group: str) -> None:
        """Forget the queue and how far it has come."""
        await self._registry.delete(group)

    def forget_partition(self, partition: Partition) -> None:
        """Its topic is deleted, and all state with it."""
        self._registry.forget_partition(partition)

    def all(self) -> list[QueueStatus]:
        return [self.describe(queue.name) for queue in sorted(self._registry, key=lambda queue: queue.name)]

    def describe(self, group: str) -> QueueStatus:
        queue = self._registry.get(group)
        shares = [status for share in queue.shares.values() if (status := self._status(share)) is not None]
        shares.sort(key=lambda status: (status.topic, status.partition))
        return QueueStatus(group, queue.record.max_deliveries, len(queue.waiters), shares)

    def arrived(self, partition: Partition) -> None:
        """There is more to read in the partition. Those who wait are told once for all that comes in one turn of the loop."""
        if not self.waiters:
            return
        if not self._news:
            self._committer.loop.call_soon(self._tell)
        self._news.add(partition.topic_id)

    def expire_due(self) -> None:
        """Take back what is overdue. The timer does that by itself."""
        self._deadlines.run_due()

    def _tell(self) -> None:
        news, self._news = self._news, set()
        for queue in self._registry:
            if queue.waiters:
                for topic_id in news:
                    queue.wake(topic_id)

    async def _take(self, queue: Queue, wanted: Wanted, asked: ReceiveRequest) -> list[Delivery]:
        shares = await self._registry.shares_for(queue, wanted)
        found: list[Delivery] = []
        touched: list[tuple[Share, Delivery]] = []
        if shares:
            queue.turn = (queue.turn + 1) % len(shares)
        try:
            for share in (*shares[queue.turn :], *shares[: queue.turn]):
                if len(found) == asked.max_records or size_of(found) >= self._limits.fetch_bytes:
                    break
                now = self._now_ms()
                terms = Terms(
                    asked.max_records,
                    now,
                    now + asked.visibility_ms,
                    asked.order_by_key,
                    queue.record.max_deliveries,
                    asked.owner,
                )
                before = len(found)
                try:
                    await self.taker.take(share, terms, found)
                except UnknownTopicError:
                    # Deleted meanwhile, and its records with it.
                    del found[before:]
                finally:
                    touched += [(share, delivery) for delivery in found[before:]]
        except BaseException:
            # Nobody gets them, so nobody could give them back.
            for share, delivery in touched:
                self._undo(queue, share, delivery)
            raise
        self._hand_out(queue, touched)
        return found

    def _hand_out(self, queue: Queue, taken: "Sequence[tuple[Share, Delivery]]") -> None:
        for share, delivery in taken:
            record = share.state.get(delivery.record.offset)
            if record is not None:
                self._deadlines.set((queue.name, share.partition, record.offset), record.due_ms)
        self.delivered += len(taken)
        self.repeated += sum(delivery.deliveries > 1 for _, delivery in taken)
        # Not waited for: a crash before it is written counts one delivery too few.
        for share in {share for share, _ in taken}:
            share.write()

    def _undo(self, queue: Queue, share: Share, delivery: Delivery) -> None:
        record = share.state.get(delivery.record.offset)
        if record is not None:
            record.deliveries -= 1
            self._give_back(queue, share, record, 0)

    def _bury_all_exhausted(self, queue: Queue) -> None:
        for share in queue.shares.values():
            for offset in share.state.exhausted(queue.record.max_deliveries, self._now_ms()):
                self._burials.bury(share, offset, _EXHAUSTED)

    async def _wait(self, waiter: Waiter, deadline: float) -> None:
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

    async def _settle(
        self, group: str, receipts: Sequence[str], settle: "Callable[[Queue, Share, OpenRecord], asyncio.Future[None] | None]"
    ) -> Settled:
        check_receipts(receipts, self._limits)
        queue = self._registry.get(group)
        read = [read_receipt(text) for text in receipts]
        refused: list[Refusal] = []
        writes: dict[asyncio.Future[None], list[str]] = {}
        for text, receipt in zip(receipts, read, strict=True):
            share = queue.shares.get(receipt.partition)
            try:
                if share is None:
                    raise LateReceiptError("the topic of this record was deleted, or the receipt is of another group")
                record = share.state.held(receipt.offset, receipt.token, self._now_ms())
            except LateReceiptError as error:
                refused.append(Refusal(text, str(error)))
                continue
            write = settle(queue, share, record)
            if write is not None:
                writes.setdefault(write, []).append(text)
        if refused:
            self.refused += len(refused)
            if len(refused) == len(receipts):
                raise LateReceiptError(_summary(refused), refused)
        # Shielded, because others wait for the same writes.
        failures = await asyncio.shield(asyncio.gather(*writes, return_exceptions=True)) if writes else []
        for failure, texts in zip(failures, writes.values(), strict=True):
            if isinstance(failure, TailraceError):
                refused += [Refusal(text, str(failure)) for text in texts]
                if len(refused) == len(receipts):
                    raise failure
            elif failure is not None:
                raise failure
        return Settled(len(receipts) - len(refused), refused)

    def _enter(self, queue: Queue, partition: Partition, state: ShareState) -> None:
        share = Share(queue.name, partition, state, self._store, self._committer, self.dead_letters, self._done, self._not_done)
        queue.shares[partition] = share
        for offset in state.exhausted(queue.record.max_deliveries, self._now_ms()):
            self._deadlines.set((queue.name, partition, offset), self._now_ms())

    def _leave(self, shares: Iterable[Share]) -> None:
        for share in shares:
            share.is_gone = True
            for record in share.state:
                self._deadlines.set((share.group, share.partition, record.offset), None)

    def _due(self, due: Due) -> None:
        name, partition, offset = due
        queue = self._registry.find(name)
        share = None if queue is None else queue.shares.get(partition)
        record = None if share is None else share.state.get(offset)
        if queue is None or share is None or record is None:
            return
        if record.state not in (RecordState.ACQUIRED, RecordState.AVAILABLE) or record.due_ms > self._now_ms():
            return
        if record.deliveries >= queue.record.max_deliveries:
            self._burials.bury(share, offset, _TIMED_OUT)
        else:
            self._give_back(queue, share, record, 0)

    def _give_back(self, queue: Queue, share: Share, record: OpenRecord, delay_ms: int) -> None:
        due_ms = self._now_ms() + delay_ms if delay_ms else 0
        share.state.release(record, due_ms)
        self._deadlines.set((queue.name, share.partition, record.offset), due_ms or None)
        if not delay_ms:
            queue.wake(share.partition.topic_id)

    def _done(self, share: Share, records: Sequence[OpenRecord]) -> None:
        """There is room for more, and others of the same keys may follow."""
        queue = self._registry.find(share.group)
        if records and queue is not None:
            queue.wake(share.partition.topic_id)

    def _not_done(self, share: Share, records: Sequence[OpenRecord]) -> None:
        for record in records:
            due = share.group, share.partition, record.offset
            if record.state is RecordState.ACKNOWLEDGED:
                record.state = RecordState.ACQUIRED
                self._deadlines.set(due, record.due_ms)
            else:
                self._try_later(share, record)

    def _not_buried(self, share: Share, offsets: Sequence[Offset]) -> None:
        for offset in offsets:
            record = share.state.get(offset)
            if record is not None and record.state is RecordState.ARCHIVING:
                self._try_later(share, record)

    def _try_later(self, share: Share, record: OpenRecord) -> None:
        share.state.release(record, self._now_ms() + _RETRY_MS)
        if not self._is_closed:
            self._deadlines.set((share.group, share.partition, record.offset), record.due_ms)

    def _missed(self, count: int) -> None:
        self.taker.missed += count

    def _status(self, share: Share) -> ShareStatus | None:
        live = self._topics.by_id(share.partition.topic_id)
        if live is None:
            return None
        end = self._store.bounds(share.partition).end
        state = share.state
        acquired, repeat = open_states(list(state))
        lag = max(0, end - state.end) + len(state)
        return ShareStatus(live.topic.name, share.partition.number, state.start, state.end, end, acquired, repeat, lag)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)


def _summary(refused: Sequence[Refusal]) -> str:
    first = refused[0].detail
    return first if len(refused) == 1 else f"none of the {len(refused)} receipts counts; the first: {first}"
