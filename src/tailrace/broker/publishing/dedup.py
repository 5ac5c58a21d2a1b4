"""Finds duplicates by message id or by content, within a window of time.

What a topic remembers is state in the store, put in the same commit as the record: an entry by fingerprint that tells where the
first record is, and a second key ordered by expiry, so that cleaning reads a range. The number of entries is bounded for each
topic; beyond it the oldest are evicted early.
"""

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer, Draft, StillInFlight
from tailrace.broker.topics.registry import LiveTopic
from tailrace.broker.topics.topics import Topics
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.ids import Offset, TopicId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store

_ENTRY = Struct(">QIq")
_LENGTH = Struct(">i")
_FINGERPRINT_BYTES = 16
_CLEANED_AT_ONCE = 1_000
_EVICTED_SHARE = 64


class DedupEntry(NamedTuple):
    """Where the first record with a fingerprint is, and until when it is remembered."""

    expires_ms: int
    partition: int
    offset: Offset


class Deduplication:
    """Opens the windows of topics, and cleans them."""

    def __init__(self, store: Store, committer: Committer, topics: Topics, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self.cleaned = 0

    def window(self, draft: Draft, live: LiveTopic) -> "DedupWindow":
        """Return the window of one topic, as this draft sees and changes it."""
        return DedupWindow(self._store, draft, live, self._clock.now_ms(), self._limits)

    async def clean(self) -> int:
        """Delete the expired entries of all topics, and return how many."""
        cleaned = 0
        for live in self._topics:
            if self._store.get(keys.dedup_count_key(live.topic.id)) is not None:
                cleaned += await self._clean_topic(live)
        self.cleaned += cleaned
        return cleaned

    async def _clean_topic(self, live: LiveTopic) -> int:
        forgotten = 0

        def decide() -> Changes | None:
            nonlocal forgotten
            forgotten = 0
            if self._topics.by_id(live.topic.id) is not live:
                return None
            draft = Draft(self._store)
            forgotten = self.window(draft, live).forget_expired(_CLEANED_AT_ONCE)
            return draft.changes() if forgotten else None

        cleaned = 0
        while True:
            cleaned += await self._committer.submit(Change(decide, lambda _: forgotten))
            if forgotten < _CLEANED_AT_ONCE:
                return cleaned


class DedupWindow:
    """The entries of one topic, as one draft sees and changes them."""

    __slots__ = (
        "_added",
        "_draft",
        "_expires_ms",
        "_limits",
        "_live",
        "_now_ms",
        "_removed",
        "_store",
        "evicted",
        "hits",
    )

    def __init__(self, store: Store, draft: Draft, live: LiveTopic, now_ms: int, limits: Limits) -> None:
        self._store = store
        self._draft = draft
        self._live = live
        self._now_ms = now_ms
        self._expires_ms = now_ms + live.topic.settings.dedup_window_seconds * 1000
        self._limits = limits
        self._added = 0
        self._removed = 0
        self.hits = 0
        self.evicted = 0

    def first_of(self, fingerprint: bytes) -> DedupEntry | None:
        """Return the entry of the stored record with this fingerprint, if there is one."""
        key = keys.dedup_entry_key(self._live.topic.id, fingerprint)
        entry = _read_entry(self._draft.latest(key))
        if entry is None or entry.expires_ms <= self._now_ms:
            return None
        if not self._draft.holds(key) and _read_entry(self._store.get(key)) != entry:
            raise StillInFlight
        self.hits += 1
        return entry

    def remember(self, fingerprint: bytes, partition: int, offset: Offset) -> None:
        """Add an entry for a new record."""
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
        """Update the count, and evict the oldest entries if there are too many."""
        if not self._added:
            return
        count = self._count() + self._added - self._removed
        excess = count - self._limits.dedup_entries
        if excess > 0:
            # Some more than needed, so that not every record costs a lookup of the oldest.
            spare = min(_CLEANED_AT_ONCE, self._limits.dedup_entries // _EVICTED_SHARE)
            self.evicted = self._forget(max(excess, spare), before_ms=None)
        self._put_count(count - self.evicted)

    def forget_expired(self, most: int) -> int:
        """Delete up to `most` expired entries, and return how many."""
        forgotten = self._forget(most, before_ms=self._now_ms)
        if forgotten:
            self._put_count(self._count() - forgotten)
        return forgotten

    def _forget(self, most: int, before_ms: int | None) -> int:
        """Delete up to `most` of the oldest entries, or of those that expire by `before_ms`, and return how many."""
        topic_id = self._live.topic.id
        draft = self._draft
        prefix = keys.dedup_expiries(topic_id)
        end = prefix + keys.expiry_bound(before_ms) if before_ms is not None else None
        forgotten = 0
        start = b""
        while forgotten < most:
            found = self._store.range(prefix, start, most)
            for expiry_key, _ in found:
                if forgotten == most or (end is not None and expiry_key >= end):
                    return forgotten
                # The range shows the settled view; this commit, or one in flight, may have deleted the key already.
                if draft.latest(expiry_key) is not None:
                    draft.put(expiry_key, None)
                    draft.put(keys.dedup_entry_key(topic_id, keys.fingerprint_of_expiry(topic_id, expiry_key)), None)
                    forgotten += 1
            if len(found) < most:
                break
            start = found[-1][0][len(prefix) :] + b"\0"
        return forgotten

    def _count(self) -> int:
        return int.from_bytes(self._draft.latest(keys.dedup_count_key(self._live.topic.id)) or b"")

    def _put_count(self, count: int) -> None:
        self._draft.put(keys.dedup_count_key(self._live.topic.id), max(count, 0).to_bytes(8))


class DedupWindows:
    """The dedup windows that one decision uses."""

    __slots__ = ("_dedup", "_draft", "_open")

    def __init__(self, dedup: Deduplication, draft: Draft) -> None:
        self._dedup = dedup
        self._draft = draft
        self._open: dict[TopicId, tuple[LiveTopic, DedupWindow]] = {}

    def of(self, live: LiveTopic) -> DedupWindow:
        found = self._open.get(live.topic.id)
        if found is None:
            found = self._open[live.topic.id] = live, self._dedup.window(self._draft, live)
        return found[1]

    def close(self) -> None:
        for _, window in self._open.values():
            window.close()

    def count(self) -> None:
        """Count the hits and evictions once the draft is durable."""
        for live, window in self._open.values():
            live.dedup_hits += window.hits
            live.dedup_evictions += window.evicted


def fingerprint_of_id(message_id: bytes) -> bytes:
    return blake2b(message_id, digest_size=_FINGERPRINT_BYTES).digest()


def fingerprint_of_content(key: bytes | None, value: bytes | None) -> bytes:
    # The key's length comes first, so that different pairs never give the same bytes; -1 distinguishes null from empty.
    found = blake2b(_LENGTH.pack(-1 if key is None else len(key)), digest_size=_FINGERPRINT_BYTES)
    found.update(key or b"")
    found.update(_LENGTH.pack(-1 if value is None else len(value)))
    found.update(value or b"")
    return found.digest()


def _read_entry(value: bytes | None) -> DedupEntry | None:
    return None if value is None else DedupEntry._make(_ENTRY.unpack(value))
