"""Writers without a lease: Spark jobs and queries that write to topics, each with a mark that says what it has written.

The mark is there to recognise a batch that comes again. It is of no use once nobody can send that batch any more, so writers
that have been silent for long are forgotten, and the longest silent when there are too many.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence

from tailrace.broker import keys
from tailrace.broker.commits.commit import Committer
from tailrace.broker.commits.proposal import Change
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.limits import Limits
from tailrace.store.contract import Store

_AT_ONCE = 1_000


class Writers:
    def __init__(
        self, store: Store, committer: Committer, clock: Clock, limits: Limits, is_busy: Callable[[str], bool]
    ) -> None:
        """`is_busy` says of whom nothing may be forgotten now, however long it has been silent."""
        self._is_busy = is_busy
        self._store = store
        self._committer = committer
        self._clock = clock
        self._limits = limits
        self._heard_at: OrderedDict[str, float] = OrderedDict()
        """The longest silent first."""

    def __len__(self) -> int:
        return len(self._heard_at)

    def load(self, with_lease: Container[str]) -> None:
        """Those that have a mark and no lease. When they were heard of is not stored: they begin anew."""
        now = self._clock.monotonic()
        for key, _ in self._store.range(keys.MARKS):
            name = keys.pipeline_of_mark(key)
            if name not in with_lease:
                self._heard_at[name] = now

    async def heard_of(self, name: str) -> None:
        self._heard_at[name] = self._clock.monotonic()
        self._heard_at.move_to_end(name)
        if len(self._heard_at) > self._limits.writers:
            # Some more than needed, so that not every new writer costs a commit.
            await self._forget(self._idle()[: max(1, self._limits.writers // 100)])

    async def forget_silent(self) -> None:
        oldest = self._clock.monotonic() - self._limits.writer_seconds
        await self._forget([name for name in self._idle() if self._heard_at[name] < oldest])

    def _idle(self) -> list[str]:
        return [name for name in self._heard_at if not self._is_busy(name)]

    async def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            del self._heard_at[name]
        for first in range(0, len(names), _AT_ONCE):
            marks = [key for name in names[first : first + _AT_ONCE] for key, _ in self._store.range(keys.marks_of(name))]
            if marks:
                changes = Changes(puts=tuple((key, None) for key in marks))
                await self._committer.submit(Change(lambda changes=changes: changes, lambda _: None))  # type: ignore[misc]
