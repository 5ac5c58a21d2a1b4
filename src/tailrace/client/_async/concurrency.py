"""Waiting and running in the background: the few pieces that differ between asyncio and threads.

The rest of this folder is written once. `_sync/concurrency.py` has the same classes for threads.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

AsyncLock = asyncio.Lock
pause = asyncio.sleep
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
