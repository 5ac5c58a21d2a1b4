"""Consumers that ask for records: each takes what there is, or waits until there may be something.

A consumer waits with its queue and is woken by news of topics that it wants. News are told once for all that comes in one turn
of the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence

from tailrace.broker.queues.group import Queue, Waiter, Wanted
from tailrace.broker.queues.registry import QueueRegistry
from tailrace.broker.queues.share import Share
from tailrace.broker.queues.state import OpenRecord
from tailrace.broker.queues.taking import Taker, Terms
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import OverloadedError, StoreClosedError, UnknownTopicError, UnreadableBatchError
from tailrace.model.ids import Partition, TopicId
from tailrace.model.limits import Limits
from tailrace.model.pattern import parse_pattern
from tailrace.model.queue import Delivery, ReceiveRequest

Taken = Sequence[tuple[Share, Delivery]]
Undone = Sequence[tuple[Share, OpenRecord]]


class Reception:
    def __init__(
        self,
        registry: QueueRegistry,
        taker: Taker,
        topics: Topics,
        limits: Limits,
        now_ms: Callable[[], int],
        on_taken: Callable[[Queue, Taken], None],
        on_undone: Callable[[Queue, Undone], None],
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
        wanted = Wanted(parse_pattern(asked.pattern, self._limits), self._topics)
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
            waiter = Waiter(wanted, loop.create_future())
            # Before the look, so that whatever comes after it wakes the waiter.
            queue.waiters.add(waiter)
            try:
                found = await self._take(queue, wanted, asked, answer)
                if found or loop.time() >= deadline:
                    return found
                await self._wait(waiter, deadline)
            finally:
                queue.waiters.discard(waiter)

    def arrived(self, partition: Partition) -> None:
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

    async def _take(self, queue: Queue, wanted: Wanted, asked: ReceiveRequest, answer: ReadAnswer) -> list[Delivery]:
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

    def _terms(self, queue: Queue, asked: ReceiveRequest) -> Terms:
        now = self._now_ms()
        return Terms(
            asked.max_records,
            now,
            now + asked.visibility_ms,
            asked.order_by_key,
            queue.record.max_deliveries,
            asked.owner,
            asked.attempt,
        )

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


def _taken_before(queue: Queue, asked: ReceiveRequest) -> Undone:
    """What an earlier attempt of the same name took, and nobody got."""
    return [
        (share, record) for share in queue.shares.values() for record in share.state.acquired_by(asked.owner, asked.attempt)
    ]
