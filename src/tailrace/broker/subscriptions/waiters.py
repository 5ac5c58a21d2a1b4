"""Those who wait on the event loop: for the same thing to happen, each up to a deadline of its own, or for their turn."""

import asyncio
from collections import deque


class Waiters:
    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._futures)

    async def wait(self, deadline: float) -> None:
        """Until it has happened, or until the deadline, a time of the event loop."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        timer = loop.call_at(deadline, _wake, future)
        self._futures.add(future)
        try:
            await future
        finally:
            timer.cancel()
            self._futures.discard(future)

    def wake(self) -> None:
        """It has happened."""
        for future in self._futures:
            _wake(future)


class Turns:
    """Lets those who wait go on one at a time, one in each round of the event loop, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self) -> None:
        """Wait for one's turn. It lasts until the caller waits for something else."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(future)
        self._schedule(loop)
        await future

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._admit, loop)

    def _admit(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_scheduled = False
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                break
        if self._waiting:
            self._schedule(loop)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
