"""Many commits, one sync: the single writer thread in front of the log.

Commits that arrive while a group is written form the next group. The thread passes each group to the log writer and answers
its commits when that returns. A full disk fails everything in flight and the store continues. Any other failure is final,
because it is unknown what is on the disk then.
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
from tailrace.store.contract import OnDone
from tailrace.store.sequencer import PendingCommit, Sequencer

IDLE_SECONDS = 0.05

_MAX_GROUP = 4096
_ALONE_SECONDS = 0.0001
"""Commits that follow each other faster than this are better off in a group."""


class GroupWriter(Protocol):
    """What makes groups durable: `log.writer.LogWriter`, or a stand-in in tests. One call at a time."""

    def writes_at_once(self, commit: PendingCommit) -> bool:
        """Return whether a caller that must not wait for the disk may write the commit."""

    def write(self, group: Sequence[PendingCommit]) -> None:
        """Make the group durable and visible to readers. `StorageFullError` means that nothing of it was written."""

    def seal(self) -> None:
        """Called once after the last group when nothing has come for a moment."""

    def settled_ends(self) -> tuple[Mapping[PartitionId, Offset], Cursor]:
        """Return where the partitions and the log end in the settled view."""


class GroupCommit:
    """Takes commits from any thread and answers them in order."""

    def __init__(
        self,
        writer: GroupWriter,
        sequencer: Sequencer,
        limits: Limits,
        clock: Clock,
        stats: StoreStats,
        on_failure: Callable[[TailraceError], None],
        group_bytes: int,
    ) -> None:
        self._writer = writer
        self._sequencer = sequencer
        self._limits = limits
        self._clock = clock
        self._stats = stats
        self._on_failure = on_failure
        self._group_bytes = group_bytes
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Held by the thread that writes: the writer thread, or a caller on the fast path."""
        self._last_at = 0.0
        self._waiting: list[PendingCommit] = []
        self._wake_ups: SimpleQueue[None] = SimpleQueue()
        self._is_asleep = False
        """Whether the writer thread waits for `_wake_ups`. The next submit wakes it, once."""
        self._has_ended = False
        self._refusal: TailraceError | None = None
        self._is_failure_reported = False
        self._thread = threading.Thread(target=self._run, name="tailrace-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, changes: Changes, done: OnDone) -> PendingCommit:
        """Sequence the commit and queue it for the writer thread, or write it here if the fast path applies."""
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
            # Taken under the lock: commits that are sequenced after this one find it pending and are written after it.
            is_fast = is_alone and self._writer.writes_at_once(commit) and self._writing.acquire(blocking=False)
            if not is_fast:
                self._waiting.append(commit)
                if self._is_asleep:
                    self._wake()
        if is_fast:
            self._fast_write(commit)
        return commit

    def commit(self, changes: Changes) -> CommitReceipt:
        """Submit the commit, wait until it is durable, and return its receipt or raise its error."""
        settled = threading.Event()
        commit = self.submit(changes, lambda _: settled.set())
        settled.wait()
        if commit.error is not None:
            raise commit.error
        return commit.receipt

    def latest(self, key: bytes, settled: Callable[[bytes], bytes | None]) -> bytes | None:
        """Return the latest value of a state key; `settled` looks up the settled one."""
        with self._lock:
            is_known, value = self._sequencer.latest(key)
            return value if is_known else settled(key)

    def next_offset(self, partition: PartitionId) -> Offset:
        with self._lock:
            return self._sequencer.next_offset(partition)

    @property
    def has_failed(self) -> bool:
        return isinstance(self._refusal, StorageFailedError)

    def abort(self, error: BaseException) -> None:
        """Fail everything in flight after a storage failure, stop, and report the failure once."""
        failure = _failure(error)
        with self._lock:
            is_reported, self._is_failure_reported = self._is_failure_reported, True
        self._fail([], failure, final=True)
        self._end()
        if not is_reported:
            self._on_failure(failure)

    def close(self) -> None:
        """Take nothing new, finish what is in flight, end the thread."""
        with self._lock:
            if self._refusal is None:
                self._refusal = StoreClosedError("the store is closed; open it again to continue")
        self._end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        with self._writing:  # a caller on the fast path may still be writing
            pass

    def _run(self) -> None:
        idle_seconds: float | None = None
        while True:
            group, size, has_ended = self._gather()
            if group:
                idle_seconds = IDLE_SECONDS
                self._writing.acquire()
                if not self._attempt(partial(self._write, group, size)):
                    return
            elif has_ended:
                return
            else:
                try:
                    self._wake_ups.get(timeout=idle_seconds)
                except Empty:
                    idle_seconds = None
                    self._writing.acquire()
                    if not self._attempt(self._writer.seal):
                        return

    def _gather(self) -> tuple[list[PendingCommit], int, bool]:
        """Take the next group: all that waits, up to a size. Return it, its bytes, and whether nothing more will come.

        If nothing waits, the next submit wakes the writer thread.
        """
        with self._lock:
            waiting = self._waiting
            self._is_asleep = not waiting
            size = count = 0
            for commit in waiting[:_MAX_GROUP]:
                size += commit.size
                count += 1
                if size >= self._group_bytes:
                    break
            self._waiting = waiting[count:]
            return waiting[:count], size, self._has_ended

    def _wake(self) -> None:
        self._is_asleep = False
        self._wake_ups.put(None)

    def _end(self) -> None:
        """Let the thread finish what waits, then end. Called when nothing new is taken any more."""
        with self._lock:
            self._has_ended = True
            self._wake()

    def _fast_write(self, commit: PendingCommit) -> None:
        """Fast path of the writer thread: the caller writes its own commit, because waking the thread would take longer.

        Triggered by a commit that comes alone and that the log writes without waiting for the disk (`writes_at_once`): small,
        not structural, with `relaxed` durability. The caller holds `_writing`. The store's contract tests run with and without
        it, and tests/unit/store/test_group_commit.py checks its order and its failures.
        """
        self._attempt(partial(self._write, [commit], commit.size))

    def _write(self, group: list[PendingCommit], size: int) -> None:
        stats = self._stats
        try:
            self._writer.write(group)
        except StorageFullError as error:
            self._fail(group, error, final=False)
            return
        except BaseException as error:
            self._fail(group, _failure(error), final=True)
            raise
        now = self._clock.monotonic()
        # The clock is read once for the group, and all of its commits count as long as the oldest, which waited longest.
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

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Run a step, release `_writing`, and return whether it succeeded. A failure stops the store."""
        try:
            try:
                step()
            finally:
                self._writing.release()
        except BaseException as error:  # noqa: BLE001  whatever it is, and in whichever thread, the store stops
            self.abort(error)
            return False
        return True

    def _fail(self, group: list[PendingCommit], error: TailraceError, *, final: bool) -> None:
        """Fail everything in flight: all of it was sequenced with the group or after it."""
        failed = list(group)
        with self._lock:
            if final and not isinstance(self._refusal, StorageFailedError):
                self._refusal = error
            failed += self._waiting
            self._waiting = []
            self._sequencer.reset(*self._writer.settled_ends())
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
