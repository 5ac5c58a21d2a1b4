"""Duplicates by message id or by content, within a window of time.

What a topic remembers is state in the store, put in the same commit as the record: an entry by fingerprint that says where the
first one is, and a companion key ordered by expiry, so that cleaning reads a range and never looks for what to clean. A count
bounds each topic; beyond it the oldest are forgotten early.
"""

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commit import Committer, Proposal, StillInFlight
from tailrace.broker.draft import Draft
from tailrace.broker.live_topic import LiveTopic
from tailrace.broker.topics import Topics
from tailrace.model.changes import Changes, Receipt
from tailrace.model.clock import Clock
from tailrace.model.ids import Offset, TopicId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store

_ENTRY = Struct(">QIq")
_LENGTH = Struct(">i")
_FINGERPRINT_BYTES = 16
_CLEANED_AT_ONCE = 1_000
_EVICTED_SHARE = 64


class Entry(NamedTuple):
    """Where the first record with a fingerprint is, and until when that is known."""

    expires_ms: int
    partition: int
    offset: Offset


class Dedup:
    """The windows of all topics."""

    def __init__(self, store: Store, committer: Committer, topics: Topics, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._oldest: dict[TopicId, _Oldest] = {}
        self.cleaned = 0

    def window(self, draft: Draft, live: LiveTopic) -> "Window":
        """The window of one topic, as this draft sees and changes it."""
        return Window(self._store, draft, live, self._oldest_of(live.topic.id), self._clock.now_ms(), self._limits)

    async def clean(self) -> int:
        """Forget what has expired, in all topics."""
        cleaned = 0
        for live in self._topics:
            if self._store.get(keys.dedup_count_key(live.topic.id)) is not None:
                cleaned += await self._clean_topic(live)
        for topic_id in [topic_id for topic_id in self._oldest if self._topics.by_id(topic_id) is None]:
            del self._oldest[topic_id]
        self.cleaned += cleaned
        return cleaned

    async def _clean_topic(self, live: LiveTopic) -> int:
        cleaned = 0
        while True:
            forgotten = await self._committer.submit(_Cleaning(self, self._store, self._topics, live))
            cleaned += forgotten
            if forgotten < _CLEANED_AT_ONCE:
                return cleaned

    def _oldest_of(self, topic_id: TopicId) -> "_Oldest":
        oldest = self._oldest.get(topic_id)
        if oldest is None:
            oldest = self._oldest[topic_id] = _Oldest(self._store, topic_id)
        return oldest


class Window:
    """What a topic remembers, within one draft. Must be released when the draft has come to its end."""

    __slots__ = (
        "_added",
        "_draft",
        "_expires_ms",
        "_limits",
        "_live",
        "_now_ms",
        "_oldest",
        "_removed",
        "_store",
        "_taken",
        "evicted",
    )

    def __init__(self, store: Store, draft: Draft, live: LiveTopic, oldest: "_Oldest", now_ms: int, limits: Limits) -> None:
        self._store = store
        self._draft = draft
        self._live = live
        self._oldest = oldest
        self._now_ms = now_ms
        self._expires_ms = now_ms + live.topic.settings.dedup_window_seconds * 1000
        self._limits = limits
        self._added = 0
        self._removed = 0
        self._taken = False
        self.evicted = 0

    def first_of(self, fingerprint: bytes) -> Entry | None:
        """The record with this fingerprint that is there already, if one is."""
        key = keys.dedup_entry_key(self._live.topic.id, fingerprint)
        entry = _read_entry(self._draft.latest(key))
        if entry is None or entry.expires_ms <= self._now_ms:
            return None
        if not self._draft.holds(key) and _read_entry(self._store.get(key)) != entry:
            raise StillInFlight
        return entry

    def remember(self, fingerprint: bytes, partition: int, offset: Offset) -> None:
        topic_id = self._live.topic.id
        key = keys.dedup_entry_key(topic_id, fingerprint)
        expired = _read_entry(self._draft.latest(key))
        if expired is not None:
            self._draft.put(keys.dedup_expiry_key(topic_id, expired.expires_ms, fingerprint), None)
            self._removed += 1
        self._draft.put(key, _ENTRY.pack(self._expires_ms, partition, offset))
        self._draft.put(keys.dedup_expiry_key(topic_id, self._expires_ms, fingerprint), b"")
        self._added += 1

    def close(self) -> None:
        """Keep the count, and forget the oldest if there are too many."""
        if not self._added:
            return
        count = self._count() + self._added - self._removed
        excess = count - self._limits.dedup_entries
        if excess > 0:
            # Some more than needed, so that the oldest are not looked up for every record.
            self.evicted = self._forget(max(excess, self._limits.dedup_entries // _EVICTED_SHARE), before_ms=None)
        self._put_count(count - self.evicted)

    def forget_expired(self, most: int) -> int:
        forgotten = self._forget(most, before_ms=self._now_ms)
        if forgotten:
            self._put_count(self._count() - forgotten)
        return forgotten

    def release(self) -> None:
        """The draft has been settled or given up."""
        if self._taken:
            self._taken = False
            self._oldest.release()

    def _forget(self, most: int, before_ms: int | None) -> int:
        self._taken = True
        topic_id = self._live.topic.id
        draft = self._draft
        forgotten = 0
        for expiry_key in self._oldest.take(most, before_ms):
            if draft.holds(expiry_key):
                continue
            expires_ms, fingerprint = keys.read_dedup_expiry_key(topic_id, expiry_key)
            draft.put(expiry_key, None)
            key = keys.dedup_entry_key(topic_id, fingerprint)
            entry = _read_entry(draft.latest(key))
            if entry is not None and entry.expires_ms == expires_ms:
                draft.put(key, None)
            forgotten += 1
        return forgotten

    def _count(self) -> int:
        return int.from_bytes(self._draft.latest(keys.dedup_count_key(self._live.topic.id)) or b"")

    def _put_count(self, count: int) -> None:
        self._draft.put(keys.dedup_count_key(self._live.topic.id), max(count, 0).to_bytes(8))


class _Cleaning(Proposal[int]):
    """Forgets some of what has expired in one topic."""

    __slots__ = ("_dedup", "_forgotten", "_live", "_store", "_topics", "_window")

    def __init__(self, dedup: Dedup, store: Store, topics: Topics, live: LiveTopic) -> None:
        self._dedup = dedup
        self._store = store
        self._topics = topics
        self._live = live
        self._window: Window | None = None
        self._forgotten = 0

    def decide(self) -> Changes | None:
        self._release()
        if self._topics.by_id(self._live.topic.id) is not self._live:
            return None
        draft = Draft(self._store)
        self._window = self._dedup.window(draft, self._live)
        self._forgotten = self._window.forget_expired(_CLEANED_AT_ONCE)
        return draft.changes() if self._forgotten else None

    def settled(self, receipt: Receipt | None) -> int:
        forgotten = self._forgotten
        self._release()
        return forgotten

    def failed(self, error: Exception) -> None:
        self._release()

    def _release(self) -> None:
        self._forgotten = 0
        if self._window is not None:
            self._window.release()


class _Oldest:
    """Hands out a topic's expiry keys, oldest first, each to one draft.

    Ranges show what is settled, so keys that a draft in flight deletes are still in them. While drafts are in flight each goes
    on where the one before stopped; when none is, the range itself is right again.
    """

    __slots__ = ("_drafts", "_prefix", "_start", "_store")

    def __init__(self, store: Store, topic_id: TopicId) -> None:
        self._store = store
        self._prefix = keys.dedup_expiries(topic_id)
        self._start = b""
        self._drafts = 0

    def take(self, most: int, before_ms: int | None) -> list[bytes]:
        self._drafts += 1
        found = [key for key, _ in self._store.range(self._prefix, self._start, most)]
        if before_ms is not None:
            end = self._prefix + keys.expiry_bound(before_ms)
            found = [key for key in found if key < end]
        if found:
            self._start = found[-1][len(self._prefix) :] + b"\0"
        return found

    def release(self) -> None:
        self._drafts -= 1
        if not self._drafts:
            self._start = b""


def fingerprint_of_id(message_id: bytes) -> bytes:
    return blake2b(message_id, digest_size=_FINGERPRINT_BYTES).digest()


def fingerprint_of_content(key: bytes | None, value: bytes | None) -> bytes:
    # The key's length goes first, so that no two different pairs are the same bytes; -1 tells null from empty.
    found = blake2b(_LENGTH.pack(-1 if key is None else len(key)), digest_size=_FINGERPRINT_BYTES)
    found.update(key or b"")
    found.update(_LENGTH.pack(-1 if value is None else len(value)))
    found.update(value or b"")
    return found.digest()


def _read_entry(value: bytes | None) -> Entry | None:
    return None if value is None else Entry._make(_ENTRY.unpack(value))
