"""One queue: the shares of a group, by partition, and the consumers of it that wait."""

import asyncio

import msgspec

from tailrace.broker.queues.dead_letters import is_dead_letters
from tailrace.broker.queues.share import Share
from tailrace.broker.queues.tally import Tally
from tailrace.broker.topics.topics import Topics
from tailrace.model.ids import Offset, Partition, TopicId
from tailrace.model.pattern import TopicPattern
from tailrace.model.queue import DEAD_LETTERS, DEFAULT_MAX_DELIVERIES
from tailrace.model.start import Edge
from tailrace.model.topic import Topic
from tailrace.store.contract import Store


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue as it is stored."""

    created_ms: int
    start: Edge = Edge.EARLIEST
    max_deliveries: int = DEFAULT_MAX_DELIVERIES


class Wanted:
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

    def partitions(self) -> list[Partition]:
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
            is_wanted = self._pattern.matches(topic.name) and (self._names_dead_letters or not is_dead_letters(topic.name))
            self._verdicts[topic.id] = known = topic, is_wanted
        return known[1]


class Waiter:
    __slots__ = ("future", "wanted")

    def __init__(self, wanted: Wanted, future: "asyncio.Future[None]") -> None:
        self.wanted = wanted
        self.future = future

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Queue:
    def __init__(self, name: str, record: QueueRecord, tally: Tally) -> None:
        self.name = name
        self.record = record
        self.tally = tally
        """Of its open records, over all shares."""
        self.shares: dict[Partition, Share] = {}
        self.waiters: set[Waiter] = set()
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

    def first_offset(self, store: Store, partition: Partition, topic: Topic) -> Offset:
        """Where the queue begins in a partition that is new to it."""
        bounds = store.bounds(partition)
        is_newer = topic.created_ms >= self.record.created_ms
        return bounds.start if is_newer or self.record.start is Edge.EARLIEST else bounds.end
