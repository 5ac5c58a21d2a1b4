"""Many commits, one sync: the single writer thread in front of every durable backend.

Commits that arrive while a group is made durable form the next group. The thread hands each group to the backend, and
answers its commits when the backend returns. A commit that comes alone, to a backend that does not wait for the disk, is handed
over by its caller instead: waking the thread would take longer. A full disk fails everything in flight and the store goes on;
any other failure is final, because nobody can know what is on the disk then.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import (
    OverloadedError,
    StorageFailedError,
    StorageFullError,
    StoreClosedError,
    TailraceError,
)
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.model.stats import StoreStats
from tailrace.store.sequencer import Done, PendingCommit, Sequencer

IDLE_SECONDS = 0.05

_MAX_GROUP = 4096
_ALONE_SECONDS = 0.0001
"""Commits that follow each other faster than this are better off in a group."""


class Backend(Protocol):
    """What makes groups durable. One call at a time."""

    def persists_at_once(self, commit: PendingCommit) -> bool:
        """Whether it may be persisted by a caller that must not wait for the disk."""

    def persist(self, group: Sequence[PendingCommit]) -> None:
        """Make the group durable and visible to readers. `StorageFullError` means that nothing of it is there."""

    def idle(self) -> None:
        """Called once after the last group when nothing has come for a moment."""

    def settled_ends(self) -> tuple[Mapping[PartitionId, Offset], Cursor]:
        """Where partitions and log end in the settled view."""


class GroupCommit:
    """Takes commits from any thread and answers them in order."""

    def __init__(
        self,
        backend: Backend,
        sequencer: Sequencer,
        limits: Limits,
        clock: Clock,
        stats: StoreStats,
        on_failure: Callable[[TailraceError], None],
        group_bytes: int,
    ) -> None:
        self._group_bytes = group_bytes
        self._backend = backend
        self._sequencer = sequencer
        self._limits = limits
        self._clock = clock
        self._stats = stats
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._persisting = threading.Lock()
        self._last_at = 0.0
        self._waiting: list[PendingCommit] = []
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._is_resting = False
        """Whether the thread waits for the bell. Whoever has something for it rings once."""
        self._has_ended = False
        self._refusal: TailraceError | None = None
        self._is_told = False
        self._thread = threading.Thread(target=self._run, name="tailrace-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, changes: Changes, done: Done) -> PendingCommit:
        stats, limits = self._stats, self._limits
        with self._lock:
            if self._refusal is not None:
                raise self._refusal.afresh()
            if stats.pending_bytes >= limits.pending_bytes or stats.pending_commits >= limits.pending_commits:
                raise OverloadedError(
                    f"{stats.pending_commits} commits of {stats.pending_bytes} bytes wait for the disk, as much as"
                    " pending_commits and pending_bytes allow; try again shortly"
                )
            commit = self._sequencer.admit(changes, done)
            commit.submitted_at = now = self._clock.monotonic()
            is_alone = not stats.pending_commits and now - self._last_at >= _ALONE_SECONDS
            self._last_at = now
            stats.pending_commits += 1
            stats.pending_bytes += commit.size
            # Taken under the lock: whoever is sequenced after this commit finds it pending and is persisted after it.
            is_mine = is_alone and self._backend.persists_at_once(commit) and self._persisting.acquire(blocking=False)
            if not is_mine:
                self._waiting.append(commit)
                if self._is_resting:
                    self._ring()
        if is_mine:
            self._attempt(partial(self._persist, [commit], commit.size), is_my_turn=True)
        return commit

    def commit(self, changes: Changes) -> CommitReceipt:
        settled = threading.Event()
        commit = self.submit(changes, lambda _: settled.set())
        settled.wait()
        if commit.error is not None:
            raise commit.error
        return commit.receipt

    def latest(self, key: bytes, settled: Callable[[bytes], bytes | None]) -> bytes | None:
        with self._lock:
            known, value = self._sequencer.latest(key)
            return value if known else settled(key)

    def next_offset(self, partition: PartitionId) -> Offset:
        with self._lock:
            return self._sequencer.next_offset(partition)

    @property
    def has_failed(self) -> bool:
        return isinstance(self._refusal, StorageFailedError)

    def abort(self, error: BaseException) -> None:
        """Storage failed: fail everything in flight, stop, and say so once."""
        failure = _failure(error)
        with self._lock:
            is_told, self._is_told = self._is_told, True
        self._fail([], failure, final=True)
        self._end()
        if not is_told:
            self._on_failure(failure)

    def close(self) -> None:
        """Take nothing new, finish what is in flight, end the thread."""
        with self._lock:
            if self._refusal is None:
                self._refusal = StoreClosedError("the store is closed; open it again to go on")
        self._end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        with self._persisting:  # a caller may be in the middle of its own
            pass

    def _run(self) -> None:
        rest: float | None = None
        while True:
            group, size, has_ended = self._gather()
            if group:
                rest = IDLE_SECONDS
                if not self._attempt(partial(self._persist, group, size)):
                    return
            elif has_ended:
                return
            else:
                try:
                    self._bell.get(timeout=rest)
                except Empty:
                    rest = None
                    if not self._attempt(self._backend.idle):
                        return

    def _gather(self) -> tuple[list[PendingCommit], int, bool]:
        """All that has come, up to a size; how many bytes that is; and whether no more comes after what waits.

        If there is nothing, the bell is rung for the next.
        """
        with self._lock:
            waiting = self._waiting
            self._is_resting = not waiting
            size = count = 0
            for commit in waiting[:_MAX_GROUP]:
                size += commit.size
                count += 1
                if size >= self._group_bytes:
                    break
            self._waiting = waiting[count:]
            return waiting[:count], size, self._has_ended

    def _ring(self) -> None:
        self._is_resting = False
        self._bell.put(None)

    def _end(self) -> None:
        """Called when nothing new is taken any more: the thread finishes what waits, and ends."""
        with self._lock:
            self._has_ended = True
            self._ring()

    def _persist(self, group: list[PendingCommit], size: int) -> None:
        stats = self._stats
        try:
            self._backend.persist(group)
        except StorageFullError as error:
            self._fail(group, error, final=False)
            return
        except BaseException as error:
            self._fail(group, _failure(error), final=True)
            raise
        now = self._clock.monotonic()
        # One look at the clock and one bucket for the group: its oldest commit waited longest, so none is flattered.
        stats.commit_seconds.observe(now - group[0].submitted_at, len(group))
        with self._lock:
            self._sequencer.settle(group)
            stats.pending_commits -= len(group)
            stats.pending_bytes -= size
        stats.commits += len(group)
        stats.commit_bytes += size
        stats.commits_per_sync.observe(len(group))
        killpoint("answer.before")
        for commit in group:
            commit.done(commit)
        killpoint("answer.after")

    def _attempt(self, step: Callable[[], None], *, is_my_turn: bool = False) -> bool:
        if not is_my_turn:
            self._persisting.acquire()
        try:
            try:
                step()
            finally:
                self._persisting.release()
        except BaseException as error:  # noqa: BLE001  whatever it is, and whoever's thread this is, the store stops
            self.abort(error)
            return False
        return True

    def _fail(self, group: list[PendingCommit], error: TailraceError, *, final: bool) -> None:
        """Everything in flight was sequenced after the group or with it, so all of it fails."""
        failed = list(group)
        with self._lock:
            if final and not isinstance(self._refusal, StorageFailedError):
                self._refusal = error
            failed += self._waiting
            self._waiting = []
            self._sequencer.reset(*self._backend.settled_ends())
            self._stats.pending_commits = 0
            self._stats.pending_bytes = 0
        self._stats.failed_commits += len(failed)
        for commit in failed:
            commit.error = error.afresh()
            commit.done(commit)


def _failure(error: BaseException) -> StorageFailedError:
    if isinstance(error, StorageFailedError):
        return error
    failure = StorageFailedError(
        f"storage failed and the server stops: {error}. Check the disk, then start again; what was acknowledged is safe"
    )
    failure.__cause__ = error
    return failure
