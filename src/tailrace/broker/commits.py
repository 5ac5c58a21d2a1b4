"""How the broker changes anything: a proposal decides on the latest view of the store, and the committer makes it durable.

A `Proposal` is a change from the request to the answer. When it is its turn it decides what to change, mostly with a `Draft`;
once the commit is durable it is answered on the event loop. When the store has no room, proposals wait in the order of their
arrival, for a bounded time and in bounded number. Everything here runs on the event loop, except `Committer.wake`, which the
store's thread calls.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tailrace.model.commit import Append, Changes, CommitReceipt
from tailrace.model.errors import InvariantError, OverloadedError, SequencingError, StoreClosedError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import Limits
from tailrace.store.contract import Store, StoreCommit

T = TypeVar("T")
CommitObserver = Callable[[Changes, CommitReceipt], None]
"""Called with every settled commit that has records."""

_log = logging.getLogger(__name__)

_SEQUENCING_ATTEMPTS = 4
_RETRY_SECONDS = 0.005


class StillInFlight(Exception):
    """Raised by a decision that depends on a commit in flight. It is made again when that commit is settled or has failed."""


class Proposal(Generic[T]):
    """A change from the request to the answer."""

    __slots__ = ("commit", "committer", "deadline", "followers", "future")

    committer: "Committer"
    commit: StoreCommit
    deadline: float
    future: asyncio.Future[T]
    followers: "list[Proposal[Any]] | None"
    """Proposals that decide again when this one is settled or has failed."""

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the proposal keeps while it waits for room."""
        return 0

    def decide(self) -> Changes | None:
        """Return what to change, given the latest view, or None for nothing. May be called again; raises to reject."""
        raise NotImplementedError

    def settled(self, receipt: CommitReceipt | None) -> T:
        """Do what follows once the changes are durable, and return the answer.

        Without a receipt there was nothing to change.
        """
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """Undo what `decide` did ahead of the commit, which failed or was rejected."""

    def done(self, commit: StoreCommit) -> None:
        """Take the outcome of the commit. Called by the store's thread."""
        self.commit = commit
        self.committer.wake(self)


class Change(Proposal[T]):
    """A proposal made of functions, for changes that are not made a hundred thousand times a second."""

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


class Draft:
    """A commit under construction. It sees the latest view of the store with its own changes on top.

    Its content may depend on offsets that commits in flight will assign. Such appends name the offset they were built for, so
    the store rejects the commit if one of those in flight fails in between. For this to hold, `next_offset` of a partition is
    read before any state that belongs to it.
    """

    __slots__ = ("_appends", "_ends", "_puts", "_seen", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[PartitionId, Offset] = {}
        self._puts: dict[bytes, bytes | None] = {}
        self._seen: dict[bytes, bytes | None] = {}
        self._appends: list[Append] = []

    @property
    def is_empty(self) -> bool:
        return not self._appends and not self._puts

    def next_offset(self, partition: PartitionId) -> Offset:
        end = self._ends.get(partition)
        if end is None:
            end = self._ends[partition] = self._store.next_offset(partition)
        return end

    def append(self, append: Append) -> None:
        """Add an append, which is at the next offset of its partition."""
        self._appends.append(append)
        self._ends[append.partition] = Offset(append.base_offset + append.records)

    def holds(self, key: bytes) -> bool:
        """Return whether the draft itself sets the key."""
        return key in self._puts

    def latest(self, key: bytes) -> bytes | None:
        if key in self._seen:
            return self._seen[key]
        value = self._seen[key] = self._store.latest(key)
        return value

    def put(self, key: bytes, value: bytes | None) -> None:
        self._puts[key] = self._seen[key] = value

    def changes(self) -> Changes:
        return Changes(appends=self._appends, puts=tuple(self._puts.items()))


class Committer:
    """Submits proposals to the store and answers them."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._done: deque[Proposal[Any]] = deque()
        self._waking = False
        self._last: Proposal[Any] | None = None
        self._following = 0
        self._waiting: deque[Proposal[Any]] = deque()
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._quiet: asyncio.Future[None] | None = None
        self._before_next_submit: Callable[[], None] | None = None
        self._observer: CommitObserver | None = None
        self._closed = False
        self.in_flight = 0
        self.overloads = 0
        """How often a proposal found no room in the store."""

    def start(self) -> None:
        """Bind to the running event loop, on which proposals are answered."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def submit(self, proposal: Proposal[T]) -> asyncio.Future[T]:
        """Start a proposal. The future gets its answer, or the error of a rejection or failure."""
        if self._before_next_submit is not None:
            submit_earlier, self._before_next_submit = self._before_next_submit, None
            submit_earlier()
        proposal.committer = self
        future = proposal.future = self._loop.create_future()
        if self._closed:
            self._reject(proposal, _closed())
        elif self._waiting or not self._attempt(proposal):
            self._wait_for_room(proposal)
        return future

    def before_next_submit(self, call: Callable[[], None]) -> None:
        """Run a call once, before the next proposal is submitted. It submits requests that are still being collected."""
        self._before_next_submit = call

    def watch(self, observer: CommitObserver | None) -> None:
        """Call the observer with every commit that has records, once it is settled and answered, in the order of the log."""
        self._observer = observer

    def wake(self, proposal: Proposal[Any]) -> None:
        """Queue a finished proposal for its answer. One wake-up of the loop answers all that are queued by then.

        Called by the store's thread, or by `submit`.
        """
        self._done.append(proposal)
        if not self._waking:
            self._waking = True
            is_here = threading.get_ident() == self._thread_id
            try:
                (self._loop.call_soon if is_here else self._loop.call_soon_threadsafe)(self._answer)
            except RuntimeError:
                # The loop is closed: nobody waits for an answer, and the store's thread must go on.
                self._waking = False

    def answer_settled(self) -> None:
        """Answer the proposals that are settled already, instead of waiting for the event loop to get to it."""
        if self._done:
            self._answer()

    async def settled(self) -> None:
        """Wait until everything that was submitted before is answered: then the copies in memory are up to date."""
        has_waited = False

        def decide() -> None:
            nonlocal has_waited
            if self.in_flight and not has_waited:
                has_waited = True
                raise StillInFlight

        await self.submit(Change(decide, lambda _: None))

    async def close(self) -> None:
        """Reject new proposals and those that wait for room, and wait for what is in flight."""
        self._closed = True
        while self._waiting:
            self._reject(self._waiting.popleft(), _closed())
        if self.in_flight:
            self._quiet = self._loop.create_future()
            await self._quiet
        if self._timer is not None:
            self._timer.cancel()

    def _attempt(self, proposal: Proposal[Any]) -> bool:
        """Submit a proposal. Return False when the store has no room for it now."""
        try:
            for _ in range(_SEQUENCING_ATTEMPTS):
                changes = proposal.decide()
                if changes is None:
                    _answer(proposal, None)
                    return True
                try:
                    self._store.submit(changes, proposal.done)
                except SequencingError:
                    # Commits in flight failed after the decision, so the latest view was reset: decide again.
                    continue
                proposal.followers = None
                self._last = proposal
                self.in_flight += 1
                return True
            raise SequencingError(f"earlier commits failed during all {_SEQUENCING_ATTEMPTS} attempts to append; try again")
        except OverloadedError:
            self.overloads += 1
            return False
        except StillInFlight:
            self._follow_last(proposal)
            return True
        except Exception as error:  # noqa: BLE001  the error of one proposal goes to its own future
            self._reject(proposal, error)
            return True

    def _follow_last(self, proposal: Proposal[Any]) -> None:
        last = self._last
        if last is None:
            self._reject(proposal, InvariantError("a proposal waits for commits in flight, and there are none"))
        elif self._following >= self._limits.waiting_publishes:
            self._reject(
                proposal,
                OverloadedError(
                    f"{self._following} duplicates wait for the originals in flight, as many as waiting_publishes allows;"
                    " try again after a pause"
                ),
            )
        else:
            self._following += 1
            if last.followers is None:
                last.followers = []
            last.followers.append(proposal)

    def _answer(self) -> None:
        self._waking = False
        done = self._done
        while done:
            proposal = done.popleft()
            self.in_flight -= 1
            if proposal is self._last:
                self._last = None
            commit = proposal.commit
            # The commit refers to the proposal. A cycle would keep their batches in memory until the garbage collector runs.
            del proposal.commit
            if commit.error is None:
                _answer(proposal, commit.receipt)
                if self._observer is not None and commit.changes.appends:
                    _notify(self._observer, commit)
            else:
                self._reject(proposal, commit.error)
            if proposal.followers is not None:
                for follower in proposal.followers:
                    self._following -= 1
                    self._decide_again(follower)
        if self._waiting:
            self._fill_room()
        if self._quiet is not None and not self.in_flight and not self._quiet.done():
            self._quiet.set_result(None)

    def _decide_again(self, proposal: Proposal[Any]) -> None:
        if self._closed:
            self._reject(proposal, _closed())
        elif proposal.future.done():
            self._reject(proposal, _cancelled())
        elif not self._attempt(proposal):
            self._wait_for_room(proposal)

    def _wait_for_room(self, proposal: Proposal[Any]) -> None:
        limits = self._limits
        if (
            len(self._waiting) >= limits.waiting_publishes
            or self._waiting_bytes + proposal.held_bytes > limits.waiting_publish_bytes
        ):
            self._reject(
                proposal,
                OverloadedError(
                    f"{len(self._waiting)} publishes of {self._waiting_bytes} bytes wait for the disk already, as much as"
                    " waiting_publishes and waiting_publish_bytes allow; try again after a pause"
                ),
            )
            return
        proposal.deadline = self._loop.time() + limits.publish_wait_ms / 1000
        self._waiting.append(proposal)
        self._waiting_bytes += proposal.held_bytes
        if self._timer is None:
            self._set_timer()

    def _fill_room(self) -> None:
        """Submit the waiting proposals, in order, until there is no room again."""
        now = self._loop.time()
        waiting = self._waiting
        while waiting:
            proposal = waiting[0]
            if proposal.future.done():
                self._reject(proposal, _cancelled())
            elif proposal.deadline <= now:
                self._reject(
                    proposal,
                    OverloadedError(
                        f"there was no room for {self._limits.publish_wait_ms} ms (publish_wait_ms); nothing was written,"
                        " try again after a pause"
                    ),
                )
            elif not self._attempt(proposal):
                break
            waiting.popleft()
            self._waiting_bytes -= proposal.held_bytes
        self._set_timer()

    def _set_timer(self) -> None:
        """Run `_fill_room` at the first deadline, or soon if no commit is in flight whose end would run it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            at = self._waiting[0].deadline
            if not self.in_flight:
                at = min(at, self._loop.time() + _RETRY_SECONDS)
            self._timer = self._loop.call_at(at, self._fill_room)

    def _reject(self, proposal: Proposal[Any], error: Exception) -> None:
        proposal.failed(error)
        if not proposal.future.done():
            proposal.future.set_exception(error)


def _answer(proposal: Proposal[Any], receipt: CommitReceipt | None) -> None:
    try:
        answer = proposal.settled(receipt)
    except Exception as error:  # noqa: BLE001  an error of one proposal must not stop the answers of the others
        if not proposal.future.done():
            proposal.future.set_exception(error)
        return
    if not proposal.future.done():
        proposal.future.set_result(answer)


def _notify(observer: CommitObserver, commit: StoreCommit) -> None:
    try:
        observer(commit.changes, commit.receipt)
    except Exception:  # noqa: BLE001  the other answers must be sent; the observer detects the gap at the next commit
        _log.exception("a commit could not be delivered to subscribers")


def _cancelled() -> OverloadedError:
    return OverloadedError("the request was cancelled before it was written")


def _closed() -> StoreClosedError:
    return StoreClosedError("the broker is closing and accepts no new requests")
