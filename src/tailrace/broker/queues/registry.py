"""One queue: the shares of a group, by partition, and the consumers of it that wait."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.queues.dead_letters import is_dead_letter_topic
from tailrace.broker.queues.share import Share
from tailrace.broker.queues.state import OpenRecordCounter, ShareState, decode_state
from tailrace.broker.topics.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import LimitExceededError, UnknownGroupError
from tailrace.model.fetch import StartEdge
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import TopicPattern
from tailrace.model.queue import DEAD_LETTERS, DEFAULT_MAX_DELIVERIES, ReceiveRequest
from tailrace.model.topic import Topic
from tailrace.store.contract import Store


class StoredQueue(msgspec.Struct, frozen=True):
    """A queue as it is stored."""

    created_ms: int
    start: StartEdge = StartEdge.EARLIEST
    max_deliveries: int = DEFAULT_MAX_DELIVERIES


class MatchingTopics:
    """The topics of a pattern, as a queue takes it.

    Topics of dead letters are taken only by patterns that name them: a consumer of `orders.>` does not want back what it
    could not deal with.
    """

    def __init__(self, pattern: TopicPattern, topics: Topics) -> None:
        self._pattern = pattern
        self._names_dead_letters = pattern.text.rpartition(".")[2] == DEAD_LETTERS
        self._topics = topics
        self._verdicts: dict[TopicId, tuple[Topic, bool]] = {}

    def includes(self, topic_id: TopicId) -> bool:
        live = self._topics.by_id(topic_id)
        return live is not None and self._takes(live.topic)

    def partitions(self) -> list[PartitionId]:
        if self._pattern.is_literal:
            live = self._topics.find(self._pattern.text)
            return [] if live is None else list(live.partitions)
        return [partition for live in self._topics if self._takes(live.topic) for partition in live.partitions]

    def _takes(self, topic: Topic) -> bool:
        if self._pattern.is_literal:
            return self._pattern.text in (topic.name, topic.alias)
        known = self._verdicts.get(topic.id)
        if known is None or known[0] is not topic:
            if len(self._verdicts) > 2 * len(self._topics):
                # Most of them are gone.
                self._verdicts.clear()
            is_wanted = self._pattern.matches(topic.name) and (self._names_dead_letters or not is_dead_letter_topic(topic.name))
            self._verdicts[topic.id] = known = topic, is_wanted
        return known[1]


class WaitingConsumer:
    __slots__ = ("future", "wanted")

    def __init__(self, wanted: MatchingTopics, future: "asyncio.Future[None]") -> None:
        self.wanted = wanted
        self.future = future

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Queue:
    def __init__(self, name: str, record: StoredQueue, tally: OpenRecordCounter) -> None:
        self.name = name
        self.record = record
        self.tally = tally
        """Of its open records, over all shares."""
        self.shares: dict[PartitionId, Share] = {}
        self.waiters: set[WaitingConsumer] = set()
        self.turn = 0
        """Where the next receive begins among the partitions, so that none waits for the others for ever."""

    def wake(self, topic_id: TopicId) -> None:
        """There may be something to take in this topic."""
        for waiter in self.waiters:
            if waiter.wanted.includes(topic_id):
                waiter.wake()

    def wake_all(self) -> None:
        for waiter in self.waiters:
            waiter.wake()

    def first_offset(self, store: Store, partition: PartitionId, topic: Topic) -> Offset:
        """Where the queue begins in a partition that is new to it."""
        bounds = store.bounds(partition)
        is_newer = topic.created_ms >= self.record.created_ms
        return bounds.start if is_newer or self.record.start is StartEdge.EARLIEST else bounds.end


_SCAN_KEYS = 1_000


class RegistryListener(NamedTuple):
    """Who is told of changes."""

    entered: Callable[[Queue, PartitionId, ShareState], None]
    """A queue takes from one more partition; to be put into service."""
    left: Callable[[Iterable[Share]], None]
    """These are not served any more."""
    rules: Callable[[Queue], None]
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
        changed: RegistryListener,
    ) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._open_records = open_records
        self._changed = changed
        self._queues: dict[str, Queue] = {}
        self._making = asyncio.Lock()

    def load(self) -> None:
        for key, value in _scan(self._store, keys.QUEUES):
            name = keys.queue_of(key)
            self._queues[name] = self._new(name, msgspec.msgpack.decode(value, type=StoredQueue))
        for key, value in _scan(self._store, keys.SHARES):
            partition, name = keys.read_share_key(key)
            self._changed.entered(self._queues[name], partition, decode_state(value))

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

    async def queue_for(self, asked: ReceiveRequest) -> Queue:
        """The queue of that name, made or changed as the request says."""
        queue = self._queues.get(asked.group)
        wanted = asked.max_deliveries
        if queue is not None and wanted in (None, queue.record.max_deliveries):
            return queue
        async with self._making:
            queue = self._queues.get(asked.group)
            if queue is None:
                if len(self._queues) >= self._limits.queue_groups:
                    raise LimitExceededError(
                        f"there are {len(self._queues)} queues, as many as queue_groups allows; delete one first"
                    )
                record = StoredQueue(self._clock.now_ms(), asked.start)
            else:
                record = queue.record
            if wanted is not None:
                record = msgspec.structs.replace(record, max_deliveries=wanted)
            changes = Changes(puts=((keys.queue_key(asked.group), msgspec.msgpack.encode(record)),))

            def settled(_: CommitReceipt | None) -> Queue:
                made = self._queues.setdefault(asked.group, self._new(asked.group, record))
                made.record = record
                self._changed.rules(made)
                return made

            return await self._committer.submit(Change(lambda: changes, settled))

    async def shares_for(self, queue: Queue, wanted: MatchingTopics) -> list[Share]:
        """The queue's shares of all partitions that are wanted; those that are new to it are made."""
        partitions = wanted.partitions()
        new = [partition for partition in partitions if partition not in queue.shares]
        if new:
            async with self._making:
                await self._make_shares(queue, [partition for partition in new if partition not in queue.shares])
        return [share for partition in partitions if (share := queue.shares.get(partition)) is not None]

    async def _make_shares(self, queue: Queue, partitions: Sequence[PartitionId]) -> None:
        if self.shares + len(partitions) > self._limits.queue_shares:
            raise LimitExceededError(
                f"queues have {self.shares} partitions; {len(partitions)} more would be over queue_shares"
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
                    self._changed.entered(queue, partition, state)

        if partitions:
            await self._committer.submit(Change(decide, settled))

    async def delete(self, group: str) -> None:
        queue = self.get(group)

        def decide() -> Changes:
            if self._queues.get(group) is not queue:
                raise _unknown(group)
            del self._queues[group]
            self._changed.left(queue.shares.values())
            prefixes = tuple(keys.shares_of_queue(live.topic.id, group) for live in self._topics)
            return Changes(drop_prefixes=prefixes, puts=((keys.queue_key(group), None),))

        def failed() -> None:
            if self._queues.setdefault(group, queue) is queue:
                for partition, share in list(queue.shares.items()):
                    self._changed.entered(queue, partition, share.state)

        await self._committer.submit(Change(decide, lambda _: queue.wake_all(), failed))

    def forget_partition(self, partition: PartitionId) -> None:
        for queue in self._queues.values():
            share = queue.shares.pop(partition, None)
            if share is not None:
                self._changed.left([share])

    def _new(self, name: str, record: StoredQueue) -> Queue:
        return Queue(name, record, OpenRecordCounter(self._open_records))


def _unknown(group: str) -> UnknownGroupError:
    return UnknownGroupError(f"there is no queue of the group {group!r}; its first receive makes it")


def _scan(store: Store, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    start = b""
    while found := store.range(prefix, start, _SCAN_KEYS):
        yield from found
        start = found[-1][0][len(prefix) :] + b"\0"
