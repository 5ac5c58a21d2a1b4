"""Patterns that were fetched lately, watched at the end of the log, so that a matching commit wakes a waiting fetch at once."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from tailrace.broker.reading.fetch import WaitingFetches
from tailrace.broker.reading.reader import cursor_at
from tailrace.broker.subscriptions.shared_batch import SharedBatch
from tailrace.broker.subscriptions.subscriptions import Subscriptions
from tailrace.broker.subscriptions.tail import SubscribedPattern, SubscriptionTail
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.errors import OffsetOutOfRangeError, OverloadedError, UnknownTopicError
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.names import TopicPattern
from tailrace.store.contract import Store

MIN_SCAN_BYTES = 64 * KIB
_MAX_SCAN_BYTES = 4 * MIB
_SCAN_BATCHES = 1_000
"""A scan that finds more batches than this makes the next one smaller."""
_IDLE_SECONDS = 60.0


class WatchedPatterns:
    """Finds the ends of patterns, and reads their batches."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        subscriptions: Subscriptions,
        tail: SubscriptionTail,
        waiting: WaitingFetches,
        limits: Limits,
    ) -> None:
        self._store = store
        self._topics = topics
        self._subscriptions = subscriptions
        self._tail = tail
        self._waiting = waiting
        self._limits = limits
        self._watched: dict[str, WatchedPattern] = {}
        """By the pattern, without the number of partitions. The one that was read least recently comes first."""
        self._last_cursors: dict[PartitionId, tuple[Offset, Cursor]] = {}
        """The ends of partitions, and the cursors after their last records."""
        self._places = count(1)
        self._idle_seconds = max(_IDLE_SECONDS, limits.fetch_wait_ms / 500)
        """Longer than any fetch waits."""
        self._sweep: asyncio.TimerHandle | None = None
        self.ended = 0
        """How many transactions have ended."""

    def transaction_ended(self) -> None:
        """Wake fetches that may wait for the end of a transaction."""
        self.ended += 1
        for watched in self._watched.values():
            if watched.is_blocked:
                watched.is_blocked = False
                self._waiting.disturbed(watched.place)

    async def watch(self, pattern: TopicPattern) -> "WatchedPattern":
        """Return the pattern, watched from now on for a while."""
        now = asyncio.get_running_loop().time()
        watched = self._watched.pop(pattern.text, None)
        if watched is None:
            watched = self._join(pattern, now)
        self._watched[pattern.text] = watched
        watched.used_at = now
        if not watched.is_matched_known:
            watched.found(await self._subscriptions.reader.threads.run(self._find_matched, pattern))
        return watched

    async def scan(self, watched: "WatchedPattern", cursor: Cursor, size: int, *, is_kept: bool) -> "KeptScan":
        """Read matching batches from the log. With `is_kept` they are kept for the reads of other partitions that follow."""
        kept = watched.kept
        if kept.start <= cursor < kept.end:
            return kept
        subscriptions = self._subscriptions
        matching, end, scanned = await subscriptions.scan(watched.subscribed, cursor, size)
        watched.scan_bytes = (
            max(MIN_SCAN_BYTES, size * _SCAN_BATCHES // scanned) if scanned > _SCAN_BATCHES else min(_MAX_SCAN_BYTES, 2 * size)
        )
        # Twice, because the batches may be split.
        scan = KeptScan(matching, cursor, end, 2 * sum(batch.size for batch in matching))
        if is_kept and subscriptions.ahead_bytes + scan.size <= self._limits.subscription_ahead_bytes:
            self._keep(watched, scan)
        return scan

    def matched(self, pattern: TopicPattern) -> Cursor:
        """Return the cursor after the last record that matches now. May be called from any thread; may read the disk."""
        watched = self._watched.get(pattern.text)
        return watched.matched if watched is not None and watched.is_matched_known else self._find_matched(pattern)

    def _find_matched(self, pattern: TopicPattern) -> Cursor:
        partitions = (each for live in self.matching(pattern) for each in live.partitions)
        return max(map(self._last_cursor, partitions), default=Cursor(0))

    def matching(self, pattern: TopicPattern) -> list[LiveTopic]:
        """Return the topics that match."""
        return [live for live in self._topics if pattern.matches(live.topic.name)]

    def readable(self, pattern: TopicPattern) -> list[LiveTopic]:
        """Return the topics that match and that the principal of the request may consume."""
        return [live for live in self.matching(pattern) if self._topics.may("consume", live.topic.name)]

    def cursor_of(self, partition: PartitionId, offset: Offset) -> Cursor:
        """Call `cursor_at` for the store."""
        return cursor_at(self._store, partition, offset)

    def close(self) -> None:
        """Stop watching for patterns that are not read any more."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _keep(self, watched: "WatchedPattern", scan: "KeptScan") -> None:
        self._subscriptions.ahead_bytes += scan.size - watched.kept.size
        watched.kept = scan

    def _last_cursor(self, partition: PartitionId) -> Cursor:
        try:
            bounds = self._store.bounds(partition)
            known = self._last_cursors.get(partition)
            if known is not None and known[0] == bounds.end:
                return known[1]
            if bounds.start == bounds.end:
                return Cursor(0)
            cursor = Cursor(self.cursor_of(partition, Offset(bounds.end - 1)) + 1)
        except (OffsetOutOfRangeError, UnknownTopicError):
            # Retention or a deletion took it meanwhile.
            return Cursor(0)
        if len(self._last_cursors) > self._limits.partitions:
            self._last_cursors.clear()
        self._last_cursors[partition] = bounds.end, cursor
        return cursor

    def _join(self, pattern: TopicPattern, now: float) -> "WatchedPattern":
        if len(self._watched) >= self._limits.subscribers:
            self._leave_idle(now)
            if len(self._watched) >= self._limits.subscribers:
                raise OverloadedError(
                    f"fetches read {len(self._watched)} patterns, as many as subscribers allows; try again later"
                )
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_seconds, self._leave_idle_later)
        place = PartitionId(TopicId(-next(self._places)), 0)
        return WatchedPattern(self._tail.join(pattern, counted=False), self._tail.end, place, self._waiting)

    def _leave_idle(self, now: float) -> None:
        for text, watched in tuple(self._watched.items()):
            if now - watched.used_at < self._idle_seconds:
                break
            del self._watched[text]
            self._keep(watched, _NOTHING_KEPT)
            watched.subscribed.on_match = None
            self._tail.leave(watched.subscribed, counted=False)

    def _leave_idle_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._leave_idle(loop.time())
        self._sweep = loop.call_later(self._idle_seconds, self._leave_idle_later) if self._watched else None


class KeptScan(NamedTuple):
    """All matching batches between two cursors."""

    batches: Sequence[SharedBatch]
    start: Cursor
    end: Cursor
    size: int
    """Bytes counted in `Subscriptions.ahead_bytes`, if it is kept."""


_NOTHING_KEPT = KeptScan((), Cursor(0), Cursor(0), 0)


class WatchedPattern:
    """A pattern whose matching commits are watched at the end of the log."""

    def __init__(self, subscribed: SubscribedPattern, end: Cursor, place: PartitionId, waiting: WaitingFetches) -> None:
        self.subscribed = subscribed
        self.place = place
        """What waiting fetches are registered under."""
        self.end = end
        """The end for readers: the end of the log when the watch began, then that of the last matching batch. It never falls,
        not even if topics are deleted."""
        self.matched = Cursor(0)
        """The cursor after the last record that matched when the watch began, once it is known, or later."""
        self.is_matched_known = False
        self.is_blocked = False
        """Whether a fetch stopped at an open transaction."""
        self.scan_bytes = MIB
        self.kept = _NOTHING_KEPT
        """What was read from the log last for one of several partitions."""
        self.used_at = 0.0
        self._waiting = waiting
        subscribed.on_match = self._matched

    def found(self, matched: Cursor) -> None:
        self.matched = max(self.matched, matched)
        self.is_matched_known = True

    def next_match(self, cursor: Cursor) -> Cursor:
        """Return the cursor, or a later one before which there is no match."""
        return cursor if cursor < self.matched else max(cursor, self.subscribed.since)

    def _matched(self, end: Cursor, size: int) -> None:
        self.end = max(self.end, end)
        self.matched = max(self.matched, end)
        self._waiting.arrived(self.place, size)
