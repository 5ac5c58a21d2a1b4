"""Waiting and running in the background: the few pieces that differ between asyncio and threads.

The rest of this folder is written once. `_sync/concurrency.py` has the same classes for threads.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from tailrace.client.copying.daemon_thread import DaemonThread

T = TypeVar("T")

AsyncLock = asyncio.Lock
_CLOSE_SECONDS = 1.0
pause = asyncio.sleep
run_blocking = asyncio.to_thread
"""Call a function that blocks."""
SWITCHES_ARE_EXPENSIVE = False
"""Whether it is expensive to let a worker do what the caller waits for. A task is cheap, and outlives its caller."""


class AsyncSignal:
    """An event that stays set until it is cleared."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, seconds: float | None = None) -> bool:
        """Return whether it is set within this time."""
        if seconds is None or self._event.is_set():
            return await self._event.wait()
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class AsyncOutcome(Generic[T]):
    """The outcome of something in the background: a value or an error, set once."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def set_value(self, value: T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def set_error(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            # Whoever waits gets it. The loop need not report an error that nobody waits for, because `flush` raises it.
            self._future.exception()

    async def get(self) -> T:
        return await asyncio.shield(self._future)


class AsyncWorker:
    """Runs a coroutine in the background."""

    def __init__(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        self._work = work
        self._name = name
        self._task: asyncio.Future[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._work())

    async def join(self) -> None:
        """Wait until it has ended."""
        if self._task is not None:
            await self._task


class AsyncReadAhead(Generic[T]):
    """Takes the items of an iterator that blocks, in a thread, one ahead of the caller."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._thread = DaemonThread("tailrace-read-ahead")
        self._next: Future[T | None] = self._thread.submit(next, items, None)

    async def get(self) -> T | None:
        """Return the next item, or `None` after the last one."""
        found = await asyncio.wrap_future(self._next)
        if found is not None:
            self._next = self._thread.submit(next, self._items, None)
        return found

    async def close(self) -> bool:
        """End the thread, and return whether it does not use the iterator any more."""
        return await asyncio.to_thread(self._thread.close, _CLOSE_SECONDS)
