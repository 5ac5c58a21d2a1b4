"""Writers of the store: many callers on one event loop that each wait for their answer, and one that does not wait.

What they append is made before the clock starts.
"""

import asyncio
import gc
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import uvloop

from bench.audit import AuditFailure
from tailrace.model.commit import Changes
from tailrace.model.errors import OverloadedError
from tailrace.store.contract import Store, StoreCommit

T = TypeVar("T")
Work = TypeVar("Work")


class Elapsed(NamedTuple):
    seconds: float
    cpu_seconds: float
    """CPU time of all threads of the process."""


class Stopwatch:
    def __init__(self) -> None:
        gc.collect()  # garbage from before is not part of the measurement
        self._cpu_began = time.process_time()
        self._began = time.perf_counter()

    def took(self) -> Elapsed:
        return Elapsed(time.perf_counter() - self._began, time.process_time() - self._cpu_began)


class StoreCallers:
    """Callers of the store, as callbacks and not tasks, so that the time goes to the store and not to asyncio.

    Answers go from the store's thread to the event loop, with one wake-up for all that are ready. There each caller submits its
    next batch.

    The store counts the commits of a group before it answers the first of them, so the count shows where a group ends.
    """

    def __init__(self, store: Store) -> None:
        self._submit = store.submit
        self._stats = store.stats()
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._answers: deque[StoreCommit] = deque()
        self._waking = False
        self._counted = self._stats.commits
        self.groups: list[int] = []
        """How many commits shared each sync."""

    async def append(self, work: Sequence[Changes], callers: int) -> Elapsed:
        """Append everything and return the time until all was answered."""
        self._left = iter(work)
        self._waiting = min(callers, len(work))
        watch = Stopwatch()
        for _ in range(self._waiting):
            self._submit(next(self._left), self._answered)
        await self._finished
        return watch.took()

    def _answered(self, commit: StoreCommit) -> None:
        """Called by the store's thread."""
        commits = self._stats.commits
        if commits != self._counted:
            self.groups.append(commits - self._counted)
            self._counted = commits
        self._answers.append(commit)
        if not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        self._waking = False
        answers, left = self._answers, self._left
        while answers:
            commit = answers.popleft()
            if commit.error is not None and not self._finished.done():
                self._finished.set_exception(AuditFailure(f"an append failed: {commit.error}"))
            changes = next(left, None)
            if changes is None:
                self._waiting -= 1
            else:
                self._submit(changes, self._answered)
        if not self._waiting and not self._finished.done():
            self._finished.set_result(None)


async def call_in_turn(call: Callable[[Work], Awaitable[object]], work: Iterable[Work], callers: int) -> Elapsed:
    """Make calls from tasks and return the time until all were answered."""
    left = iter(work)

    async def caller() -> None:
        for mine in left:
            await call(mine)

    watch = Stopwatch()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return watch.took()


def run_on_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the kind of event loop that the server uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


class PipelinedWriter:
    """Submits without waiting for answers. When the store is full, it waits until half of what is in flight is done."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._submitted = 0
        self._done = 0
        self._resume_at = -1
        self._resume = threading.Event()
        self._failed: StoreCommit | None = None

    def send(self, work: Iterable[Changes]) -> float:
        """Append everything and return the seconds until the last answer."""
        submit, answered = self._store.submit, self._answered
        began = time.perf_counter()
        for changes in work:
            while True:
                try:
                    submit(changes, answered)
                    break
                except OverloadedError:
                    self._wait_for((self._submitted + self._done) // 2)
            self._submitted += 1
        self._wait_for(self._submitted)
        seconds = time.perf_counter() - began
        if self._failed is not None:
            raise AuditFailure(f"an append failed: {self._failed.error}")
        return seconds

    def _wait_for(self, done: int) -> None:
        self._resume_at = done
        while self._done < done:
            self._resume.wait()
            self._resume.clear()

    def _answered(self, commit: StoreCommit) -> None:
        """Called by the store's thread."""
        self._done = done = self._done + 1
        if commit.error is not None:
            self._failed = commit
        if done == self._resume_at:
            self._resume.set()
