"""What waits and what runs beside: the few pieces that differ between asyncio and threads.

Everything else in this folder is written once. `_sync/concurrency.py` has the same classes for threads.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

AsyncLock = asyncio.Lock
pause = asyncio.sleep
HOPS_ARE_DEAR = False
"""Whether it costs much to have a worker do what one waits for. A task costs little, and lives on when its caller gives up."""


class AsyncSignal:
    """Something has happened. It stays so until it is cleared."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, seconds: float | None = None) -> bool:
        """Whether it has happened within this time."""
        if seconds is None or self._event.is_set():
            return await self._event.wait()
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class AsyncOutcome(Generic[T]):
    """What becomes of something that runs beside: a value or an error, once."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def set_value(self, value: T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def set_error(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            # Whoever asks gets it; the loop need not complain when nobody does, because `flush` does.
            self._future.exception()

    async def get(self) -> T:
        return await asyncio.shield(self._future)


class AsyncWorker:
    """Runs a coroutine beside everything else."""

    def __init__(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        self._work = work
        self._name = name
        self._task: asyncio.Future[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._work())

    async def join(self) -> None:
        """Until it has come to its end."""
        if self._task is not None:
            await self._task
