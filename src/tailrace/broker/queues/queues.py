"""Queues: consumers of a group share the records of all topics that match a pattern, each record to one of them.

A record is handed out for a time, the visibility time-out. Within it the consumer says that it is done (`acknowledge`), gives
it back (`release`) or asks for more time (`extend`); if it says nothing, the record comes back by itself. A record that was
handed out `max_deliveries` times and came back goes to the dead letters. What is durable when is told in `state`.

The rules and words are those of Kafka's share groups (KIP-932): a share is what is called share-partition there.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence

from tailrace.broker.commits import Committer
from tailrace.broker.deadlines import Deadlines
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.queues.acknowledgement import Acknowledgements, ReceiptOutcome, ReceiptOutcomes
from tailrace.broker.queues.archiving import Archiver
from tailrace.broker.queues.dead_letters import DeadLetterTopics
from tailrace.broker.queues.delivery import AcquiredDeliveries, Receiver, RecordAcquirer, UndoneDeliveries
from tailrace.broker.queues.registry import Queue, QueueRegistry, RegistryListener
from tailrace.broker.queues.share import Share
from tailrace.broker.queues.state import OpenRecord, OpenRecordCounter, ShareState
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.broker.topics.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.errors import InvalidRequestError, LimitExceededError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name
from tailrace.model.queue import Delivery, QueueStatus, ReceiveRequest, RecordState, SettleResult, ShareStatus
from tailrace.store.contract import Store

_RETRY_MS = 5_000
_NACKED = "given back by the consumer"
_TIMED_OUT = "the visibility time-out has passed"
_EXHAUSTED = "handed out as often as max_deliveries allows"

Due = tuple[str, PartitionId, Offset]


class Queues:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        committed: CommittedReader,
        context: PublishContext,
        clock: Clock,
        limits: Limits,
        first_token: Callable[[], int] = lambda: secrets.randbits(62),
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._open = OpenRecordCounter()
        self.dead_letters = DeadLetterTopics(context)
        fates = ReceiptOutcomes(first_token(), limits.queue_receipts)
        self.taker = RecordAcquirer(store, committed, topics, limits, self._open, fates)
        self._burials = Archiver(committed, topics, self.dead_letters, self._missed, self._not_buried)
        self._registry = QueueRegistry(
            store,
            committer,
            topics,
            clock,
            limits,
            self._open,
            RegistryListener(self._enter, self._leave, self._bury_all_exhausted),
        )
        self.settlements = Acknowledgements(self._registry, fates, limits, self._now_ms)
        self._reception = Receiver(self._registry, self.taker, topics, limits, self._now_ms, self._hand_out, self._undo)
        self._is_closed = False
        self.delivered = 0
        self.repeated = 0
        """Of these, the ones that were delivered before."""
        self.acknowledged = 0

    def start(self) -> None:
        """Read what is stored. Every open record is available again."""
        self._deadlines: Deadlines[Due] = Deadlines(self._clock, self._committer.loop.call_later, self._due)
        self._registry.load()

    async def close(self) -> None:
        self._is_closed = True
        self._reception.close()
        await self._burials.close()
        self._deadlines.close()

    def __len__(self) -> int:
        return len(self._registry)

    @property
    def waiters(self) -> int:
        """Consumers that wait for a record."""
        return self._reception.waiters

    @property
    def refused(self) -> int:
        """Receipts that did not count."""
        return self.settlements.refused

    @property
    def in_flight(self) -> int:
        return self._open.records

    async def receive(self, asked: ReceiveRequest, answer: ReadAnswer | None = None) -> list[Delivery]:
        """Records for one consumer, as soon as there is one; none when the time is up."""
        check_receive(asked, self._limits)
        with self.taker.answers.held(answer) as held:
            return await self._reception.receive(asked, held)

    async def acknowledge(self, group: str, receipts: Sequence[str]) -> SettleResult:
        """These records are done. Durable when answered."""

        def acknowledge(queue: Queue, share: Share, record: OpenRecord) -> "asyncio.Future[None]":
            record.state = RecordState.ACKNOWLEDGED
            self._deadlines.set((queue.name, share.partition, record.offset), None)
            return share.write()

        return await self.settlements.settle(group, receipts, ReceiptOutcome.ACKNOWLEDGED, acknowledge)

    async def release(
        self, group: str, receipts: Sequence[str], delay_ms: int = 0, reason: str = "", *, unseen: bool = False
    ) -> SettleResult:
        """Hand these records out again, after a while; or put them among the dead letters if that was the last time.

        If they are `unseen`, nobody has tried to deal with them, and the delivery does not count.
        """
        check_time("delay_ms", delay_ms, 0, self._limits)

        def release(queue: Queue, share: Share, record: OpenRecord) -> "asyncio.Future[None] | None":
            if unseen:
                self._take_back(queue, share, record, delay_ms)
                # Not waited for: a crash before it is written counts the delivery after all.
                share.write()
                return None
            if record.deliveries >= queue.record.max_deliveries:
                return self._burials.bury(share, record.offset, reason or _NACKED)
            self._give_back(queue, share, record, delay_ms)
            return None

        return await self.settlements.settle(group, receipts, ReceiptOutcome.RELEASED, release)

    async def extend(self, group: str, receipts: Sequence[str], visibility_ms: int) -> SettleResult:
        """Keep these records for so long from now on. Not stored: after a restart they are handed out again."""
        check_time("visibility_ms", visibility_ms, 1, self._limits)

        def extend(queue: Queue, share: Share, record: OpenRecord) -> None:
            record.due_ms = self._now_ms() + visibility_ms
            self._deadlines.set((queue.name, share.partition, record.offset), record.due_ms)

        return await self.settlements.settle(group, receipts, ReceiptOutcome.OPEN, extend)

    async def delete(self, group: str) -> None:
        """Forget the queue and how far it has come."""
        await self._registry.delete(group)

    def forget_partition(self, partition: PartitionId) -> None:
        """Its topic is deleted, and all state with it."""
        self._registry.forget_partition(partition)

    def all(self) -> list[QueueStatus]:
        return [self.describe(queue.name) for queue in sorted(self._registry, key=lambda queue: queue.name)]

    def describe(self, group: str) -> QueueStatus:
        return queue_status(self._registry.get(group), self._store, self._topics)

    def arrived(self, partition: PartitionId) -> None:
        """There is more to read in the partition."""
        self._reception.arrived(partition)

    def expire_due(self) -> None:
        """Take back what is overdue. The timer does that by itself."""
        self._deadlines.run_due()

    def _hand_out(self, queue: Queue, taken: AcquiredDeliveries) -> None:
        for share, delivery in taken:
            record = share.state.get(delivery.record.offset)
            if record is not None:
                self._deadlines.set((queue.name, share.partition, record.offset), record.due_ms)
        self.delivered += len(taken)
        self.repeated += sum(delivery.deliveries > 1 for _, delivery in taken)
        # Not waited for: a crash before it is written counts one delivery too few.
        for share in {share for share, _ in taken}:
            share.write()

    def _undo(self, queue: Queue, undone: UndoneDeliveries) -> None:
        for share, record in undone:
            self._take_back(queue, share, record, 0)
        # Not waited for, as when they were handed out.
        for share in {share for share, _ in undone}:
            share.write()

    def _bury_all_exhausted(self, queue: Queue) -> None:
        for share in queue.shares.values():
            for offset in share.state.exhausted(queue.record.max_deliveries, self._now_ms()):
                self._burials.bury(share, offset, _EXHAUSTED)

    def _enter(self, queue: Queue, partition: PartitionId, state: ShareState) -> None:
        share = Share(queue.name, partition, state, self._store, self._committer, self.dead_letters, self._done, self._not_done)
        queue.shares[partition] = share
        state.count_in(queue.tally)
        for record in state:
            if record.state is RecordState.ARCHIVING:
                self._try_later(share, record)
            elif record.due_ms:
                self._deadlines.set((queue.name, partition, record.offset), record.due_ms)
        for offset in state.exhausted(queue.record.max_deliveries, self._now_ms()):
            self._deadlines.set((queue.name, partition, offset), self._now_ms())

    def _leave(self, shares: Iterable[Share]) -> None:
        for share in shares:
            share.is_gone = True
            share.state.count_in(OpenRecordCounter())
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

    def _take_back(self, queue: Queue, share: Share, record: OpenRecord, delay_ms: int) -> None:
        """The same as if the record had not been handed out."""
        record.deliveries -= 1
        self._give_back(queue, share, record, delay_ms)

    def _give_back(self, queue: Queue, share: Share, record: OpenRecord, delay_ms: int) -> None:
        due_ms = self._now_ms() + delay_ms if delay_ms else 0
        share.state.release(record, due_ms)
        self._deadlines.set((queue.name, share.partition, record.offset), due_ms or None)
        if not delay_ms:
            queue.wake(share.partition.topic_id)

    def _done(self, share: Share, records: Sequence[OpenRecord]) -> None:
        """There is room for more, and others of the same keys may follow."""
        self.acknowledged += sum(record.state is RecordState.ACKNOWLEDGED for record in records)
        queue = self._registry.find(share.group)
        if not records or queue is None:
            return
        if self._open.records + len(records) >= self._limits.queues_in_flight:
            for each in self._registry:
                each.wake_all()
        elif queue.tally.records + len(records) >= self._limits.queue_group_in_flight:
            queue.wake_all()
        else:
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

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)


def check_receive(asked: ReceiveRequest, limits: Limits) -> None:
    check_group_name(asked.group, limits)
    if not 1 <= asked.max_records <= limits.queue_batch:
        raise LimitExceededError(f"{asked.max_records} records were asked for; queue_batch allows 1 to {limits.queue_batch}")
    if not 0 <= asked.wait_ms <= limits.fetch_wait_ms:
        raise LimitExceededError(f"the wait is {asked.wait_ms} ms; fetch_wait_ms allows up to {limits.fetch_wait_ms}")
    check_time("visibility_ms", asked.visibility_ms, 1, limits)
    if len(asked.owner) > limits.group_name_length:
        raise LimitExceededError(
            f"the consumer's name has {len(asked.owner)} characters, more than group_name_length allows"
            f" ({limits.group_name_length})"
        )
    if len(asked.attempt) > limits.group_name_length:
        raise LimitExceededError(
            f"the attempt's name has {len(asked.attempt)} characters, more than group_name_length allows"
            f" ({limits.group_name_length})"
        )
    if asked.is_repeated and not asked.attempt:
        raise InvalidRequestError("a receive that is repeated needs the name of its attempt")
    wanted = asked.max_deliveries
    if wanted is not None and not 1 <= wanted <= limits.queue_deliveries:
        raise LimitExceededError(f"max_deliveries is {wanted}; queue_deliveries allows 1 to {limits.queue_deliveries}")


def check_time(name: str, milliseconds: int, least: int, limits: Limits) -> None:
    if not least <= milliseconds <= limits.queue_hold_ms:
        raise LimitExceededError(f"{name} is {milliseconds}; queue_hold_ms allows {least} to {limits.queue_hold_ms}")


_REPEATED = (RecordState.AVAILABLE, RecordState.ARCHIVING)


def queue_status(queue: Queue, store: Store, topics: Topics) -> QueueStatus:
    shares = [status for share in queue.shares.values() if (status := _share_status(share, store, topics)) is not None]
    shares.sort(key=lambda status: (status.topic, status.partition))
    return QueueStatus(queue.name, queue.record.max_deliveries, len(queue.waiters), shares)


def _share_status(share: Share, store: Store, topics: Topics) -> ShareStatus | None:
    live = topics.by_id(share.partition.topic_id)
    if live is None:
        return None
    end = store.bounds(share.partition).end
    state = share.state
    acquired = sum(record.state is RecordState.ACQUIRED for record in state)
    repeat = sum(record.state in _REPEATED for record in state)
    lag = max(0, end - state.end) + len(state)
    return ShareStatus(live.topic.name, share.partition.number, state.start, state.end, end, acquired, repeat, lag)
