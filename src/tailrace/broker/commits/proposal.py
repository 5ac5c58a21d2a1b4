"""What somebody wants changed: it decides on the latest view of the store, and knows what to answer when that is durable.

`commit.py` gets it there.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tailrace.model.commit import Changes, CommitReceipt
from tailrace.store.contract import StoreCommit

if TYPE_CHECKING:
    from tailrace.broker.commits.commit import Committer

T = TypeVar("T")


class StillInFlight(Exception):
    """Raised by a decision that leans on a commit which may still fail; it is made again when that has come to its end."""


class Proposal(Generic[T]):
    """A change somebody wants, from the request to the answer."""

    __slots__ = ("commit", "committer", "deadline", "followers", "future")

    committer: "Committer"
    commit: StoreCommit
    deadline: float
    future: asyncio.Future[T]
    followers: "list[Proposal[Any]] | None"
    """Proposals that wait for the end of this one."""

    @property
    def held_bytes(self) -> int:
        """Memory that the proposal keeps while it waits for room."""
        return 0

    def decide(self) -> Changes | None:
        """Look at the latest view and say what to change; `None` is nothing. May be asked again; raises to refuse."""
        raise NotImplementedError

    def settled(self, receipt: CommitReceipt | None) -> T:
        """The changes are durable; do what follows from that and give the answer. No receipt: nothing was to change."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """The changes came to nothing; take back what was done ahead of them."""

    def done(self, commit: StoreCommit) -> None:
        """Called by the store's thread."""
        self.commit = commit
        self.committer.wake(self)


class Change(Proposal[T]):
    """A proposal made of functions, for whatever is not done a hundred thousand times a second."""

    __slots__ = ("_decide", "_failed", "_settled")

    def __init__(
        self,
        decide: Callable[[], Changes | None],
        settled: Callable[[CommitReceipt | None], T],
        failed: Callable[[], None] | None = None,
    ) -> None:
        self._decide = decide
        self._settled = settled
        self._failed = failed

    def decide(self) -> Changes | None:
        return self._decide()

    def settled(self, receipt: CommitReceipt | None) -> T:
        return self._settled(receipt)

    def failed(self, error: Exception) -> None:
        if self._failed is not None:
            self._failed()
