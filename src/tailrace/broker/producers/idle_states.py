"""Bounds what is remembered of producers and publishers: by how long one may be idle, and by how many there may be.

A sender's state is one key in the store, whose value tells when it was last updated. A background job calls `expire`, which
deletes the states that were idle for too long. For a new sender `make_room` is called, which deletes the longest idle ones when
there are too many.
"""

from collections.abc import Callable
from itertools import islice

from tailrace.broker.commits import Change, Committer, Draft
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.store.contract import Store, range_pages

_PAGE_KEYS = 500
_EVICTED_SHARE = 10


class IdleStates:
    """The states of one kind of sender: all keys with a prefix. Their number is bounded in each scope, a longer prefix."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        prefix: bytes,
        updated_ms: Callable[[bytes], int],
        idle_seconds: int,
        most: int,
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._prefix = prefix
        self._updated_ms = updated_ms
        self._idle_seconds = idle_seconds
        self._most = most
        self._counts: dict[bytes, int] = {}
        """States by scope, for scopes that got a new one since the last `expire`. An estimate: a failed commit counts too."""
        self.expired = 0
        self.evicted = 0

    def make_room(self, draft: Draft, scope: bytes) -> None:
        """Count a new state of the scope. If there are too many, delete the longest idle ones in the draft."""
        count = self._counts.get(scope)
        if count is None:
            count = len(self._store.range(scope, limit=self._most + 1))
        if count >= self._most:
            # A share of them at once, so that not every new sender costs a scan.
            evicted = self._longest_idle(draft, scope, max(count + 1 - self._most, self._most // _EVICTED_SHARE))
            for key in evicted:
                draft.put(key, None)
            self.evicted += len(evicted)
            count -= len(evicted)
        self._counts[scope] = count + 1

    def forget_scope(self, scope: bytes) -> None:
        """Drop the count of a scope whose states are deleted."""
        self._counts.pop(scope, None)

    async def expire(self) -> int:
        """Delete the states that were idle for too long, and return how many."""
        oldest_ms = self._clock.now_ms() - self._idle_seconds * 1000
        deleted = 0
        for page in range_pages(self._store, self._prefix, _PAGE_KEYS):
            idle = [key for key, value in page if self._updated_ms(value) < oldest_ms]
            if idle:
                deleted += await self._delete(idle, oldest_ms)
        self._counts.clear()
        self.expired += deleted
        return deleted

    def _longest_idle(self, draft: Draft, scope: bytes, count: int) -> list[bytes]:
        states = sorted(self._store.range(scope), key=lambda state: self._updated_ms(state[1]))
        # A state that this draft or a commit in flight has changed belongs to an active sender, or is deleted already.
        idle = (key for key, value in states if draft.latest(key) == value)
        return list(islice(idle, count))

    async def _delete(self, idle: list[bytes], oldest_ms: int) -> int:
        deleted: list[tuple[bytes, None]] = []

        def decide() -> Changes:
            deleted.clear()
            for key in idle:
                value = self._store.latest(key)
                if value is not None and self._updated_ms(value) < oldest_ms:
                    deleted.append((key, None))
            return Changes(puts=tuple(deleted))

        return await self._committer.submit(Change(decide, lambda _: len(deleted)))
