"""The tail of the log, watched once for all subscribers.

Every settled commit passes here on the event loop. Batches that match a subscribed pattern are kept for a while, within a
bound, and decoded once for all subscribers, who are woken. A subscriber that falls behind the kept batches reads the log
by itself. Without subscribers, nothing is watched and nothing is kept.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from tailrace.broker.commits import Committer
from tailrace.broker.subscriptions.shared_batch import SharedBatch
from tailrace.broker.topics.matching import TopicMatcher
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.ids import Cursor, PartitionId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import TopicPattern
from tailrace.model.security import Principal
from tailrace.model.topic import Topic
from tailrace.store.contract import Store

_PAUSE_PER_SUBSCRIBER_SECONDS = 50e-6
_MAX_PAUSE_SECONDS = 0.05
_MIN_PAUSE_SECONDS = 0.001


class SubscriptionTail:
    def __init__(self, store: Store, committer: Committer, topics: Topics, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._limits = limits
        self._patterns: dict[str, SubscribedPattern] = {}
        self._matching: dict[TopicId, tuple[Topic, Sequence[SubscribedPattern]]] = {}
        """The patterns that match a topic."""
        self._kept: deque[SharedBatch] = deque()
        self._kept_bytes = 0
        self._kept_from = Cursor(0)
        self._due: list[_TailWaiters] = []
        self._is_waking = False
        self.end = Cursor(0)
        """Everything below it has passed here, or was in the log before the first subscriber came."""
        self.subscribers = 0

    def join(self, pattern: TopicPattern, *, counted: bool = True) -> "SubscribedPattern":
        """Watch the pattern until `leave`. Without `counted` it is not for a subscriber, but for fetches."""
        if not self._patterns:
            self.end = self._kept_from = self._store.end_cursor()
            self._committer.watch(self._settled)
        subscribed = self._patterns.get(pattern.text)
        if subscribed is None:
            subscribed = self._patterns[pattern.text] = SubscribedPattern(pattern, self._topics, self.end)
            self._matching.clear()
        subscribed.subscribers += 1
        self.subscribers += counted
        return subscribed

    def leave(self, subscribed: "SubscribedPattern", *, counted: bool = True) -> None:
        self.subscribers -= counted
        subscribed.subscribers -= 1
        if not subscribed.subscribers:
            del self._patterns[subscribed.pattern.text]
            self._matching.clear()
        if not self._patterns:
            self._committer.watch(None)
            for batch in self._kept:
                batch.on_growth = None
            self._kept.clear()
            self._kept_bytes = 0

    def holds(self, subscribed: "SubscribedPattern", cursor: Cursor) -> bool:
        """Return whether everything that the pattern matches from the cursor on is kept here."""
        return cursor >= max(self._kept_from, subscribed.since)

    def kept_since(self, cursor: Cursor) -> list[SharedBatch]:
        """Return the kept batches from the cursor on, whatever pattern they match."""
        found = []
        for batch in reversed(self._kept):
            if batch.end <= cursor:
                break
            found.append(batch)
        found.reverse()
        return found

    async def wait(self, subscribed: "SubscribedPattern", deadline: float) -> Cursor:
        """Wait for a matching batch, or until the deadline. Return a cursor below which there is nothing new to read."""
        waiters = subscribed.waiters
        await waiters.wait(deadline)
        return self.end if waiters.matched_at is None else waiters.matched_at

    def wake_all(self) -> None:
        for subscribed in self._patterns.values():
            subscribed.waiters.wake()

    def _settled(self, changes: Changes, receipt: CommitReceipt) -> None:
        cursor = receipt.cursor
        if cursor > self.end:
            self._skip_to(cursor)
        for append, base_offset in zip(changes.appends, receipt.offsets, strict=True):
            end = Cursor(cursor + append.records)
            # A commit that was settled before the first subscriber came may be reported only now; it is in the log.
            if cursor >= self.end:
                patterns = self._patterns_of(append.partition)
                if patterns:
                    self._keep(SharedBatch(cursor, append.partition, base_offset, append.records, append.batch, copied=True))
                    for subscribed in patterns:
                        self._matched(subscribed, cursor)
                        if subscribed.on_match is not None:
                            subscribed.on_match(end, len(append.batch))
                self.end = end
            cursor = end
        if self._due and not self._is_waking:
            self._is_waking = True
            # A write to each subscriber costs more than anything else here, so with many of them commits are gathered.
            pause = min(_MAX_PAUSE_SECONDS, self.subscribers * _PAUSE_PER_SUBSCRIBER_SECONDS)
            if pause < _MIN_PAUSE_SECONDS:
                self._committer.loop.call_soon(self._wake_due)
            else:
                self._committer.loop.call_later(pause, self._wake_due)

    def _skip_to(self, cursor: Cursor) -> None:
        """Send all subscribers to the log for the records before the cursor, which did not pass here."""
        for subscribed in self._patterns.values():
            self._matched(subscribed, self.end)
            if subscribed.on_match is not None:
                subscribed.on_match(cursor, 1)
        self._kept_from = self.end = cursor

    def _patterns_of(self, partition: PartitionId) -> "Sequence[SubscribedPattern]":
        live = self._topics.of_partition(partition)
        if live is None:
            return ()
        topic_id = partition.topic_id
        known = self._matching.get(topic_id)
        if known is None or known[0] is not live.topic:
            if len(self._matching) > self._limits.topics:
                self._matching.clear()
            patterns = [subscribed for subscribed in self._patterns.values() if subscribed.matches(live)]
            self._matching[topic_id] = known = live.topic, patterns
        return known[1]

    def _keep(self, batch: SharedBatch) -> None:
        self._kept.append(batch)
        batch.on_growth = self._grown
        self._grown(batch.size)

    def _grown(self, size: int) -> None:
        self._kept_bytes += size
        while self._kept and self._kept_bytes > self._limits.subscription_tail_bytes:
            oldest = self._kept.popleft()
            oldest.on_growth = None
            self._kept_bytes -= oldest.size
            self._kept_from = oldest.end

    def _matched(self, subscribed: "SubscribedPattern", cursor: Cursor) -> None:
        waiters = subscribed.waiters
        if waiters:
            waiters.matched_at = cursor
            self._due.append(waiters)
            subscribed.waiters = _TailWaiters()

    def _wake_due(self) -> None:
        self._is_waking = False
        due, self._due = self._due, []
        for waiters in due:
            waiters.wake()


class SubscribedPattern:
    """A pattern with its subscribers, and the topics that it matches."""

    def __init__(self, pattern: TopicPattern, topics: Topics, since: Cursor) -> None:
        self.pattern = pattern
        self.since = since
        """From here on the tail keeps batches for it."""
        self.subscribers = 0
        self.on_match: Callable[[Cursor, int], None] | None = None
        """Called at once for each matching batch, with the cursor after it and its bytes."""
        self.waiters = _TailWaiters()
        self._topics = topics
        self._matcher = TopicMatcher(pattern, topics)

    def may_consume(self, subscriber: Principal) -> bool:
        """Return whether somebody may consume the topic that a pattern without wildcards names."""
        return self._topics.allows(subscriber, "consume", self.pattern.text)

    def topic_of(self, partition: PartitionId) -> LiveTopic | None:
        """Return the topic of the partition if it exists and matches."""
        live = self._topics.of_partition(partition)
        return live if live is not None and self.matches(live) else None

    def matches(self, live: LiveTopic) -> bool:
        return self._matcher.matches(live.topic)


class Waiters:
    """Tasks that wait for the same event, each up to its own deadline."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._futures)

    async def wait(self, deadline: float) -> None:
        """Wait until `wake` is called, or until the deadline in the time of the event loop."""
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
        for future in self._futures:
            _wake(future)


class _TailWaiters(Waiters):
    """Subscribers of one pattern that wait for its next batch."""

    __slots__ = ("matched_at",)

    def __init__(self) -> None:
        super().__init__()
        self.matched_at: Cursor | None = None


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
