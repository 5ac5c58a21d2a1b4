"""The registry of queues and their shares: queues are made by their first receive, and deleted on demand.

That a queue reads a partition is stored before anything is delivered, with the offset where it begins. A queue that begins at
the end of a topic therefore misses no later record, even if the server crashes.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.queues.dead_letters import is_dead_letter_topic
from tailrace.broker.queues.share import Share
from tailrace.broker.queues.state import OpenRecordCounter, ShareState, decode_state
from tailrace.broker.topics.matching import TopicMatcher
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import LimitExceededError, UnknownGroupError
from tailrace.model.fetch import StartEdge
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import TopicPattern
from tailrace.model.queue import DEAD_LETTERS, DEFAULT_MAX_DELIVERIES, ReceiveRequest
from tailrace.model.security import Principal
from tailrace.model.topic import Topic
from tailrace.store.contract import Store, scan_keys


class StoredQueue(msgspec.Struct, frozen=True):
    """A queue as it is stored."""

    created_ms: int
    start: StartEdge = StartEdge.EARLIEST
    max_deliveries: int = DEFAULT_MAX_DELIVERIES


class MatchingTopics:
    """The topics that a queue reads for one pattern.

    Wildcards do not match dead-letter topics: a consumer of `orders.>` does not want back what it could not process.
    """

    def __init__(self, pattern: TopicPattern, topics: Topics, consumer: Principal) -> None:
        """Wildcards match only topics that the consumer may consume."""
        includes_dead_letters = pattern.is_literal or pattern.text.rpartition(".")[2] == DEAD_LETTERS
        self._pattern = pattern
        self._topics = topics
        self._consumer = consumer
        self._matcher = TopicMatcher(pattern, topics, None if includes_dead_letters else is_dead_letter_topic)

    def includes(self, topic_id: TopicId) -> bool:
        live = self._topics.by_id(topic_id)
        return live is not None and self._matcher.matches(live.topic) and self._is_allowed(live)

    def partitions(self) -> list[PartitionId]:
        if self._pattern.is_literal:
            live = self._topics.find(self._pattern.text)
            return [] if live is None or not self._is_allowed(live) else list(live.partitions)
        matching = (live for live in self._topics if self._matcher.matches(live.topic) and self._is_allowed(live))
        return [partition for live in matching for partition in live.partitions]

    def require(self) -> None:
        """Raise `TopicForbiddenError` if the pattern is a name, and its consumer may not consume the topic."""
        if self._pattern.is_literal and not self._topics.allows(self._consumer, "consume", self._pattern.text):
            raise self._topics.permissions.refusal(self._consumer, "consume", "topic", self._pattern.text)

    def _is_allowed(self, live: LiveTopic) -> bool:
        permissions = self._topics.permissions
        return not permissions.is_on or permissions.allows(self._consumer, "consume", "topic", live.topic.name)


class WaitingConsumer:
    __slots__ = ("future", "topics")

    def __init__(self, topics: MatchingTopics, future: "asyncio.Future[None]") -> None:
        self.topics = topics
        self.future = future

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Queue:
    """The shares of one group, by partition, and its consumers that wait for records."""

    def __init__(self, name: str, stored: StoredQueue, counter: OpenRecordCounter) -> None:
        self.name = name
        self.stored = stored
        self.counter = counter
        """Counts the open records of all shares."""
        self.shares: dict[PartitionId, Share] = {}
        self.waiters: set[WaitingConsumer] = set()
        self.first_share = 0
        """The share where the next receive begins. It moves on with each receive, so that none of them starves."""

    def wake(self, topic_id: TopicId) -> None:
        """Wake the consumers of this topic, because it may have a record to deliver."""
        for waiter in self.waiters:
            if waiter.topics.includes(topic_id):
                waiter.wake()

    def wake_all(self) -> None:
        for waiter in self.waiters:
            waiter.wake()

    def first_offset(self, store: Store, partition: PartitionId, topic: Topic) -> Offset:
        """Return where the queue begins in a partition that it has not read before."""
        bounds = store.bounds(partition)
        is_newer = topic.created_ms >= self.stored.created_ms
        return bounds.start if is_newer or self.stored.start is StartEdge.EARLIEST else bounds.end


class RegistryListener(NamedTuple):
    """The callbacks of the registry."""

    share_added: Callable[[Queue, PartitionId, ShareState], None]
    """A queue reads one more partition."""
    shares_removed: Callable[[Iterable[Share]], None]
    queue_changed: Callable[[Queue], None]
    """The queue may have another `max_deliveries`."""


class QueueRegistry:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        topics: Topics,
        clock: Clock,
        limits: Limits,
        open_records: OpenRecordCounter,
        listener: RegistryListener,
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._open_records = open_records
        self._listener = listener
        self._queues: dict[str, Queue] = {}
        self._lock = asyncio.Lock()
        """Held while queues or shares are made."""

    def load(self) -> None:
        for key, value in scan_keys(self._store, keys.QUEUES):
            name = keys.queue_of(key)
            self._queues[name] = self._new(name, msgspec.msgpack.decode(value, type=StoredQueue))
        for key, value in scan_keys(self._store, keys.SHARES):
            partition, name = keys.read_share_key(key)
            self._listener.share_added(self._queues[name], partition, decode_state(value))

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    @property
    def shares(self) -> int:
        return sum(len(queue.shares) for queue in self._queues.values())

    def find(self, group: str) -> Queue | None:
        return self._queues.get(group)

    def get(self, group: str) -> Queue:
        queue = self._queues.get(group)
        if queue is None:
            raise _unknown(group)
        return queue

    async def queue_for(self, request: ReceiveRequest) -> Queue:
        """Return the queue of the request's group, made or changed as the request says."""
        queue = self._queues.get(request.group)
        max_deliveries = request.max_deliveries
        if queue is not None and max_deliveries in (None, queue.stored.max_deliveries):
            return queue
        async with self._lock:
            queue = self._queues.get(request.group)
            if queue is None:
                if len(self._queues) >= self._limits.queue_groups:
                    raise LimitExceededError(
                        f"there are {len(self._queues)} queues, as many as queue_groups allows; delete one first"
                    )
                stored = StoredQueue(self._clock.now_ms(), request.start)
            else:
                stored = queue.stored
            if max_deliveries is not None:
                stored = msgspec.structs.replace(stored, max_deliveries=max_deliveries)
            changes = Changes(puts=((keys.queue_key(request.group), msgspec.msgpack.encode(stored)),))

            def settled(_: CommitReceipt | None) -> Queue:
                made = self._queues.setdefault(request.group, self._new(request.group, stored))
                made.stored = stored
                self._listener.queue_changed(made)
                return made

            return await self._committer.submit(Change(lambda: changes, settled))

    async def shares_for(self, queue: Queue, topics: MatchingTopics) -> list[Share]:
        """Return the queue's shares of all partitions of these topics. Missing ones are made."""
        partitions = topics.partitions()
        new = [partition for partition in partitions if partition not in queue.shares]
        if new:
            async with self._lock:
                await self._make_shares(queue, [partition for partition in new if partition not in queue.shares])
        return [share for partition in partitions if (share := queue.shares.get(partition)) is not None]

    async def _make_shares(self, queue: Queue, partitions: Sequence[PartitionId]) -> None:
        if self.shares + len(partitions) > self._limits.queue_shares:
            raise LimitExceededError(
                f"queues read {self.shares} partitions; {len(partitions)} more would exceed queue_shares"
                f" ({self._limits.queue_shares})"
            )
        states: dict[PartitionId, ShareState] = {}

        def decide() -> Changes | None:
            states.clear()
            if self._queues.get(queue.name) is not queue:
                raise _unknown(queue.name)
            for partition in partitions:
                live = self._topics.by_id(partition.topic_id)
                if live is not None:
                    states[partition] = ShareState(queue.first_offset(self._store, partition, live.topic))
            return Changes(
                puts=tuple((keys.share_key(partition, queue.name), state.encode()) for partition, state in states.items())
            )

        def settled(_: CommitReceipt | None) -> None:
            for partition, state in states.items():
                if partition not in queue.shares and self._topics.by_id(partition.topic_id) is not None:
                    self._listener.share_added(queue, partition, state)

        if partitions:
            await self._committer.submit(Change(decide, settled))

    async def delete(self, group: str) -> None:
        queue = self.get(group)

        def decide() -> Changes:
            if self._queues.get(group) is not queue:
                raise _unknown(group)
            del self._queues[group]
            self._listener.shares_removed(queue.shares.values())
            prefixes = tuple(keys.shares_of_queue(live.topic.id, group) for live in self._topics)
            return Changes(drop_prefixes=prefixes, puts=((keys.queue_key(group), None),))

        def failed() -> None:
            if self._queues.setdefault(group, queue) is queue:
                for partition, share in list(queue.shares.items()):
                    self._listener.share_added(queue, partition, share.state)

        await self._committer.submit(Change(decide, lambda _: queue.wake_all(), failed))

    def forget_partition(self, partition: PartitionId) -> None:
        for queue in self._queues.values():
            share = queue.shares.pop(partition, None)
            if share is not None:
                self._listener.shares_removed([share])

    def _new(self, name: str, stored: StoredQueue) -> Queue:
        return Queue(name, stored, OpenRecordCounter(self._open_records))


def _unknown(group: str) -> UnknownGroupError:
    return UnknownGroupError(f"there is no queue of the group {group!r}; its first receive creates it")
