"""The end of the log, watched once for all subscribers who are there.

Every commit passes here on the event loop when it is settled. Batches that somebody waits for are kept for a while, within a
bound, and decoded once for all; whoever waits for them is woken. A subscriber that falls behind what is kept reads the log
by itself. While nobody subscribes, nothing is watched and nothing is kept.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from tailrace.broker.commits import Committer
from tailrace.broker.subscriptions.shared_batch import SharedBatch
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.ids import Cursor, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import TopicPattern
from tailrace.model.topic import Topic
from tailrace.store.contract import Store

_PAUSE_PER_SUBSCRIBER_SECONDS = 50e-6
_LONGEST_PAUSE_SECONDS = 0.05
_SHORTEST_PAUSE_SECONDS = 0.001


class Waiters:
    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._futures)

    async def wait(self, deadline: float) -> None:
        """Until it has happened, or until the deadline, a time of the event loop."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        timer = loop.call_at(deadline, _wake, future)
        self._futures.add(future)
        try:
            await future
        finally:
            timer.cancel()
            self._futures.discard(future)

    def wake(self) -> None:
        """It has happened."""
        for future in self._futures:
            _wake(future)


class LogTail:
    def __init__(self, store: Store, committer: Committer, topics: Topics, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._limits = limits
        self._audiences: dict[str, PatternSubscribers] = {}
        self._interested: dict[TopicId, tuple[Topic, Sequence[PatternSubscribers]]] = {}
        self._kept: deque[SharedBatch] = deque()
        self._kept_bytes = 0
        self._kept_from = Cursor(0)
        self._due: list[_Waiters] = []
        self._is_waking = False
        self.end = Cursor(0)
        """Everything below has passed here or was there before."""
        self.subscribers = 0

    def join(self, pattern: TopicPattern) -> "PatternSubscribers":
        if not self._audiences:
            self.end = self._kept_from = self._store.end_cursor()
            self._committer.watch(self._settled)
        audience = self._audiences.get(pattern.text)
        if audience is None:
            audience = self._audiences[pattern.text] = PatternSubscribers(pattern, self._topics, self.end)
            self._interested.clear()
        audience.subscribers += 1
        self.subscribers += 1
        return audience

    def leave(self, audience: "PatternSubscribers") -> None:
        self.subscribers -= 1
        audience.subscribers -= 1
        if not audience.subscribers:
            del self._audiences[audience.pattern.text]
            self._interested.clear()
        if not self._audiences:
            self._committer.watch(None)
            for batch in self._kept:
                batch.on_growth = None
            self._kept.clear()
            self._kept_bytes = 0

    def holds(self, audience: "PatternSubscribers", cursor: Cursor) -> bool:
        """Whether everything that the audience wants from the cursor on is kept here."""
        return cursor >= max(self._kept_from, audience.since)

    def kept_since(self, cursor: Cursor) -> list[SharedBatch]:
        """What is kept from the cursor on, for this audience and others."""
        found = []
        for batch in reversed(self._kept):
            if batch.end <= cursor:
                break
            found.append(batch)
        found.reverse()
        return found

    async def wait(self, audience: "PatternSubscribers", deadline: float) -> Cursor:
        """Until a batch for the audience has come, or until the deadline. Up to the cursor there is nothing for it."""
        waiters = audience.waiters
        await waiters.wait(deadline)
        return self.end if waiters.matched_at is None else waiters.matched_at

    def wake_all(self) -> None:
        for audience in self._audiences.values():
            audience.waiters.wake()

    def _settled(self, changes: Changes, receipt: CommitReceipt) -> None:
        cursor = receipt.cursor
        if cursor > self.end:
            self._skip_to(cursor)
        for append, base_offset in zip(changes.appends, receipt.offsets, strict=True):
            end = Cursor(cursor + append.records)
            # What was settled before the first subscriber came, and is only told of now, is in the log.
            if cursor >= self.end:
                audiences = self._audiences_of(append.partition)
                if audiences:
                    self._keep(SharedBatch(cursor, append.partition, base_offset, append.records, append.batch, copied=True))
                    for audience in audiences:
                        self._tell(audience, cursor)
                self.end = end
            cursor = end
        if self._due and not self._is_waking:
            self._is_waking = True
            # With many subscribers, what comes within a short time is sent at once: a write to each takes longer than all else.
            pause = min(_LONGEST_PAUSE_SECONDS, self.subscribers * _PAUSE_PER_SUBSCRIBER_SECONDS)
            if pause < _SHORTEST_PAUSE_SECONDS:
                self._committer.loop.call_soon(self._wake_due)
            else:
                self._committer.loop.call_later(pause, self._wake_due)

    def _skip_to(self, cursor: Cursor) -> None:
        """What lies before the cursor did not pass here, so everybody reads it from the log."""
        for audience in self._audiences.values():
            self._tell(audience, self.end)
        self._kept_from = self.end = cursor

    def _audiences_of(self, partition: PartitionId) -> "Sequence[PatternSubscribers]":
        live = self._topics.of_partition(partition)
        if live is None:
            return ()
        topic_id = partition.topic_id
        known = self._interested.get(topic_id)
        if known is None or known[0] is not live.topic:
            if len(self._interested) > self._limits.topics:
                self._interested.clear()
            audiences = [audience for audience in self._audiences.values() if audience.wants(live)]
            self._interested[topic_id] = known = live.topic, audiences
        return known[1]

    def _keep(self, batch: SharedBatch) -> None:
        self._kept.append(batch)
        batch.on_growth = self._grown
        self._grown(batch.size)

    def _grown(self, size: int) -> None:
        self._kept_bytes += size
        while self._kept and self._kept_bytes > self._limits.subscription_tail_bytes:
            gone = self._kept.popleft()
            gone.on_growth = None
            self._kept_bytes -= gone.size
            self._kept_from = gone.end

    def _tell(self, audience: "PatternSubscribers", cursor: Cursor) -> None:
        waiters = audience.waiters
        if waiters:
            waiters.matched_at = cursor
            self._due.append(waiters)
            audience.waiters = _Waiters()

    def _wake_due(self) -> None:
        self._is_waking = False
        due, self._due = self._due, []
        for waiters in due:
            waiters.wake()


class PatternSubscribers:
    """All subscribers of one pattern, and which topics it means."""

    def __init__(self, pattern: TopicPattern, topics: Topics, since: Cursor) -> None:
        self.pattern = pattern
        self.since = since
        """From here on the tail keeps batches for it."""
        self.subscribers = 0
        self.waiters = _Waiters()
        self._topics = topics
        self._verdicts: dict[TopicId, tuple[Topic, bool]] = {}

    def topic_of(self, partition: PartitionId) -> LiveTopic | None:
        """The topic, if it is there and subscribed to."""
        live = self._topics.of_partition(partition)
        return live if live is not None and self.wants(live) else None

    def wants(self, live: LiveTopic) -> bool:
        topic = live.topic
        known = self._verdicts.get(topic.id)
        if known is None or known[0] is not topic:
            if len(self._verdicts) > 2 * len(self._topics):
                # Most of them are gone.
                self._verdicts.clear()
            is_wanted = self.pattern.matches(topic.name) or (self.pattern.is_literal and self.pattern.text == topic.alias)
            self._verdicts[topic.id] = known = topic, is_wanted
        return known[1]


class _Waiters(Waiters):
    """Subscribers who wait for the same thing."""

    __slots__ = ("matched_at",)

    def __init__(self) -> None:
        super().__init__()
        self.matched_at: Cursor | None = None


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
