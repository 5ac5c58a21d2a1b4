"""Many callers on one event loop, each of which waits for its answer before it appends again."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

import uvloop

from bench.stream import Stream
from tailrace.store.contract import Commit, Store

T = TypeVar("T")

CallOnce = Callable[[], Awaitable[object]]
"""Appends one batch and returns when it is acknowledged."""


class StoreCalls:
    """Carries answers from the store's thread to the event loop: one wake-up for all that are done by then.

    The store counts a group's commits before it answers the first of them, so the count that an answer finds tells where one
    group ends and the next begins.
    """

    def __init__(self, store: Store, stream: Stream) -> None:
        self._submit = store.submit
        self._stream = stream
        self._stats = store.stats()
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[asyncio.Future[None], Commit]] = deque()
        self._waking = False
        self._counted = self._stats.commits
        self.groups: list[int] = []
        """How many commits shared each sync."""

    def append(self) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self._submit(self._stream.next(), partial(self._answered, future))
        return future

    def _answered(self, future: asyncio.Future[None], commit: Commit) -> None:
        commits = self._stats.commits
        if commits != self._counted:
            self.groups.append(commits - self._counted)
            self._counted = commits
        self._done.append((future, commit))
        if not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._waking = False
        while self._done:
            future, commit = self._done.popleft()
            if commit.error is None:
                future.set_result(None)
            else:
                future.set_exception(commit.error)


class Took(NamedTuple):
    seconds: float
    cpu_seconds: float
    """Of all threads of the process."""


async def call_in_turn(call: CallOnce, callers: int, calls: int) -> Took:
    """What it took until all calls were answered."""
    left = calls

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    began, cpu_began = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return Took(time.perf_counter() - began, time.process_time() - cpu_began)


def run_on_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """On the event loop that the server uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
