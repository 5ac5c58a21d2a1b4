"""Queues: the consumers of a group share the records of all topics that match a pattern, each record to one of them.

A record is delivered for a limited time, the visibility timeout. Within it the consumer acknowledges the record
(`acknowledge`), releases it (`release`) or asks for more time (`extend`); otherwise the record becomes available again. A
record that was delivered `max_deliveries` times without an acknowledgement becomes a dead letter. What is stored, and when,
is described in `state`.

The rules and words are those of Kafka's share groups (KIP-932).
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
_RELEASED = "given back by the consumer"
_TIMED_OUT = "the visibility timeout has passed"
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
        self._permissions = topics.permissions
        self._clock = clock
        self._limits = limits
        self._open = OpenRecordCounter()
        self.dead_letters = DeadLetterTopics(context)
        outcomes = ReceiptOutcomes(first_token(), limits.queue_receipts)
        self._acquirer = RecordAcquirer(store, committed, topics, limits, self._open, outcomes)
        self._archiver = Archiver(committed, topics, self.dead_letters, self._missed, self._not_archived)
        listener = RegistryListener(self._share_added, self._shares_removed, self._archive_exhausted)
        self._registry = QueueRegistry(store, committer, topics, clock, limits, self._open, listener)
        self._acknowledgements = Acknowledgements(self._registry, outcomes, limits, self._now_ms)
        self._receiver = Receiver(self._registry, self._acquirer, topics, limits, self._now_ms, self._acquired, self._undo)
        self._is_closed = False
        self.delivered = 0
        self.repeated = 0
        """Deliveries of records that were delivered before."""
        self.acknowledged = 0

    def start(self) -> None:
        """Load the stored queues. Every open record is available again."""
        self._deadlines: Deadlines[Due] = Deadlines(self._clock, self._committer.loop.call_later, self._due)
        self._registry.load()

    async def close(self) -> None:
        self._is_closed = True
        self._receiver.close()
        await self._archiver.close()
        self._deadlines.close()

    def __len__(self) -> int:
        return len(self._registry)

    @property
    def waiters(self) -> int:
        """The number of consumers that wait for a record."""
        return self._receiver.waiters

    @property
    def refused(self) -> int:
        """The number of receipts that did not count."""
        return self._acknowledgements.refused

    @property
    def missed(self) -> int:
        """The number of records that were deleted, or could not be decoded, before they were done."""
        return self._acquirer.missed

    @property
    def in_flight(self) -> int:
        return self._open.records

    async def receive(self, request: ReceiveRequest, answer: ReadAnswer | None = None) -> list[Delivery]:
        """Return records for one consumer as soon as there are any, or none when the request's wait is over."""
        _check_receive(request, self._limits)
        with self._acquirer.answers.held(answer) as held:
            return await self._receiver.receive(request, held)

    async def acknowledge(self, group: str, receipts: Sequence[str]) -> SettleResult:
        """Mark these records as done. Returns when that is durable."""
        self._permissions.require("consume", "queue", group)

        def acknowledge(queue: Queue, share: Share, record: OpenRecord) -> "asyncio.Future[None]":
            record.state = RecordState.ACKNOWLEDGED
            self._deadlines.set((queue.name, share.partition, record.offset), None)
            return share.write()

        return await self._acknowledgements.apply(group, receipts, ReceiptOutcome.ACKNOWLEDGED, acknowledge)

    async def release(
        self, group: str, receipts: Sequence[str], delay_ms: int = 0, reason: str = "", *, unseen: bool = False
    ) -> SettleResult:
        """Make these records available again after a delay, or dead letters if this was their last delivery.

        `unseen` says that nobody has tried to process them: then the delivery does not count.
        """
        self._permissions.require("consume", "queue", group)
        _check_time("delay_ms", delay_ms, 0, self._limits)

        def release(queue: Queue, share: Share, record: OpenRecord) -> "asyncio.Future[None] | None":
            if unseen:
                self._undo_delivery(queue, share, record, delay_ms)
                # Not waited for: after a crash before this write, the delivery counts after all.
                share.write()
                return None
            if record.deliveries >= queue.stored.max_deliveries:
                return self._archiver.archive(share, record.offset, reason or _RELEASED)
            self._release(queue, share, record, delay_ms)
            return None

        return await self._acknowledgements.apply(group, receipts, ReceiptOutcome.RELEASED, release)

    async def extend(self, group: str, receipts: Sequence[str], visibility_ms: int) -> SettleResult:
        """Keep these records acquired for this long from now on. Not stored: after a restart they are delivered again."""
        self._permissions.require("consume", "queue", group)
        _check_time("visibility_ms", visibility_ms, 1, self._limits)

        def extend(queue: Queue, share: Share, record: OpenRecord) -> None:
            record.due_ms = self._now_ms() + visibility_ms
            self._deadlines.set((queue.name, share.partition, record.offset), record.due_ms)

        return await self._acknowledgements.apply(group, receipts, ReceiptOutcome.OPEN, extend)

    async def delete(self, group: str) -> None:
        """Delete the queue and its progress."""
        self._permissions.require("drop", "queue", group)
        await self._registry.delete(group)

    def forget_partition(self, partition: PartitionId) -> None:
        """Remove the shares of a partition whose topic was deleted."""
        self._registry.forget_partition(partition)

    def all(self) -> list[QueueStatus]:
        """Return the queues that the principal of the request may describe, by name."""
        names = sorted(queue.name for queue in self._registry if self._permissions.may("describe", "queue", queue.name))
        return [_queue_status(self._registry.get(name), self._store, self._topics) for name in names]

    def describe(self, group: str) -> QueueStatus:
        self._permissions.require("describe", "queue", group)
        return _queue_status(self._registry.get(group), self._store, self._topics)

    def arrived(self, partition: PartitionId) -> None:
        """Wake the consumers that wait for records of this partition."""
        self._receiver.appended(partition)

    def expire_due(self) -> None:
        """Release or archive the records whose visibility timeout has passed. Only tests that move the clock need it."""
        self._deadlines.run_due()

    def _acquired(self, queue: Queue, acquired: AcquiredDeliveries) -> None:
        for share, delivery in acquired:
            record = share.state.get(delivery.record.offset)
            if record is not None:
                self._deadlines.set((queue.name, share.partition, record.offset), record.due_ms)
        self.delivered += len(acquired)
        self.repeated += sum(delivery.deliveries > 1 for _, delivery in acquired)
        # Not waited for: a crash before this write counts one delivery too few.
        for share in {share for share, _ in acquired}:
            share.write()

    def _undo(self, queue: Queue, undone: UndoneDeliveries) -> None:
        for share, record in undone:
            self._undo_delivery(queue, share, record, 0)
        # Not waited for, like the write of the delivery.
        for share in {share for share, _ in undone}:
            share.write()

    def _archive_exhausted(self, queue: Queue) -> None:
        for share in queue.shares.values():
            for offset in share.state.exhausted(queue.stored.max_deliveries, self._now_ms()):
                self._archiver.archive(share, offset, _EXHAUSTED)

    def _share_added(self, queue: Queue, partition: PartitionId, state: ShareState) -> None:
        share = Share(
            queue.name, partition, state, self._store, self._committer, self.dead_letters, self._written, self._not_written
        )
        queue.shares[partition] = share
        state.count_in(queue.counter)
        for record in state:
            if record.state is RecordState.ARCHIVING:
                self._try_later(share, record)
            elif record.due_ms:
                self._deadlines.set((queue.name, partition, record.offset), record.due_ms)
        for offset in state.exhausted(queue.stored.max_deliveries, self._now_ms()):
            self._deadlines.set((queue.name, partition, offset), self._now_ms())

    def _shares_removed(self, shares: Iterable[Share]) -> None:
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
        if record.deliveries >= queue.stored.max_deliveries:
            self._archiver.archive(share, offset, _TIMED_OUT)
        else:
            self._release(queue, share, record, 0)

    def _undo_delivery(self, queue: Queue, share: Share, record: OpenRecord, delay_ms: int) -> None:
        """Release the record as if it had not been delivered."""
        record.deliveries -= 1
        self._release(queue, share, record, delay_ms)

    def _release(self, queue: Queue, share: Share, record: OpenRecord, delay_ms: int) -> None:
        due_ms = self._now_ms() + delay_ms if delay_ms else 0
        share.state.release(record, due_ms)
        self._deadlines.set((queue.name, share.partition, record.offset), due_ms or None)
        if not delay_ms:
            queue.wake(share.partition.topic_id)

    def _written(self, share: Share, records: Sequence[OpenRecord]) -> None:
        """Wake consumers: limits may allow more open records, and the next records of the same keys may follow."""
        self.acknowledged += sum(record.state is RecordState.ACKNOWLEDGED for record in records)
        queue = self._registry.find(share.group)
        if not records or queue is None:
            return
        if self._open.records + len(records) >= self._limits.queues_in_flight:
            for each in self._registry:
                each.wake_all()
        elif queue.counter.records + len(records) >= self._limits.queue_group_in_flight:
            queue.wake_all()
        else:
            queue.wake(share.partition.topic_id)

    def _not_written(self, share: Share, records: Sequence[OpenRecord]) -> None:
        for record in records:
            due = share.group, share.partition, record.offset
            if record.state is RecordState.ACKNOWLEDGED:
                record.state = RecordState.ACQUIRED
                self._deadlines.set(due, record.due_ms)
            else:
                self._try_later(share, record)

    def _not_archived(self, share: Share, offsets: Sequence[Offset]) -> None:
        for offset in offsets:
            record = share.state.get(offset)
            if record is not None and record.state is RecordState.ARCHIVING:
                self._try_later(share, record)

    def _try_later(self, share: Share, record: OpenRecord) -> None:
        share.state.release(record, self._now_ms() + _RETRY_MS)
        if not self._is_closed:
            self._deadlines.set((share.group, share.partition, record.offset), record.due_ms)

    def _missed(self, count: int) -> None:
        self._acquirer.missed += count

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)


def _queue_status(queue: Queue, store: Store, topics: Topics) -> QueueStatus:
    shares = [status for share in queue.shares.values() if (status := _share_status(share, store, topics)) is not None]
    shares.sort(key=lambda status: (status.topic, status.partition))
    return QueueStatus(queue.name, queue.stored.max_deliveries, len(queue.waiters), shares)


def _share_status(share: Share, store: Store, topics: Topics) -> ShareStatus | None:
    live = topics.by_id(share.partition.topic_id)
    if live is None:
        return None
    end = store.bounds(share.partition).end
    state = share.state
    acquired = sum(record.state is RecordState.ACQUIRED for record in state)
    to_repeat = sum(record.state in (RecordState.AVAILABLE, RecordState.ARCHIVING) for record in state)
    lag = max(0, end - state.end) + len(state)
    return ShareStatus(live.topic.name, share.partition.number, state.start, state.end, end, acquired, to_repeat, lag)


def _check_receive(request: ReceiveRequest, limits: Limits) -> None:
    """Raise if the request exceeds a limit. The message names the limit."""
    check_group_name(request.group, limits)
    if not 1 <= request.max_records <= limits.queue_batch:
        raise LimitExceededError(f"{request.max_records} records were asked for; queue_batch allows 1 to {limits.queue_batch}")
    if not 0 <= request.wait_ms <= limits.fetch_wait_ms:
        raise LimitExceededError(f"the wait is {request.wait_ms} ms; fetch_wait_ms allows up to {limits.fetch_wait_ms}")
    _check_time("visibility_ms", request.visibility_ms, 1, limits)
    if len(request.owner) > limits.group_name_length:
        raise LimitExceededError(
            f"the consumer's name has {len(request.owner)} characters, more than group_name_length allows"
            f" ({limits.group_name_length})"
        )
    if len(request.attempt) > limits.group_name_length:
        raise LimitExceededError(
            f"the attempt's name has {len(request.attempt)} characters, more than group_name_length allows"
            f" ({limits.group_name_length})"
        )
    if request.is_repeated and not request.attempt:
        raise InvalidRequestError("a receive that is repeated needs the name of its attempt")
    max_deliveries = request.max_deliveries
    if max_deliveries is not None and not 1 <= max_deliveries <= limits.queue_deliveries:
        raise LimitExceededError(f"max_deliveries is {max_deliveries}; queue_deliveries allows 1 to {limits.queue_deliveries}")


def _check_time(name: str, milliseconds: int, least: int, limits: Limits) -> None:
    if not least <= milliseconds <= limits.queue_hold_ms:
        raise LimitExceededError(f"{name} is {milliseconds}; queue_hold_ms allows {least} to {limits.queue_hold_ms}")
