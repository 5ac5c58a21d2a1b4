"""Changes that are made one after another, because each is checked against the result of those before."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Turns:
    """Runs one change at a time. Used on the event loop."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, change: Coroutine[Any, Any, T]) -> T:
        """Run a change when those before it are done, to its end even if the caller is cancelled: the next one must see its
        result.
        """

        async def turn() -> T:
            async with self._one_at_a_time:
                return await change

        task = asyncio.ensure_future(turn())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)
