"""Those who wait on the event loop for the same thing to happen, each up to a deadline of its own."""

import asyncio


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


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
