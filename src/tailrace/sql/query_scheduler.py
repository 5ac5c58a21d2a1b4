"""Runs queries so that short ones never wait for long ones.

Every query starts with a slot for short queries. When it has run for its time slice while others wait for such a slot, it moves
to a slot for long queries if one is free. Otherwise it is interrupted, waits for one and starts again from the beginning.
A short query therefore waits at most for the time slices of those before it, and no query is rejected because of another.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tailrace.model.errors import OverloadedError, QueryLimitError
from tailrace.model.limits import Limits

_TIME_SLICE_SECONDS = 0.05

T = TypeVar("T")


class QueryScheduler:
    """Used on the event loop only. There are `query_threads` slots for short and as many for long queries."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._short = _SlotQueue(limits.query_threads)
        self._long = _SlotQueue(limits.query_threads)

    @property
    def waiting(self) -> int:
        """The number of queries that wait for a slot."""
        return len(self._short) + len(self._long)

    async def run(self, attempt: Callable[["QuerySlot"], Awaitable[T]]) -> T:
        """Run a query, and run it again from the start if it was interrupted. Cancel the task to stop it."""
        if self.waiting >= self._limits.queued_queries:
            raise OverloadedError(
                f"{self.waiting} queries are waiting for a thread, as many as queued_queries allows; try again later"
            )
        await self._short.acquire()
        slot = QuerySlot(self._short, self._on_slice_end)
        try:
            return await attempt(slot)
        except QueryLimitError:
            if not slot.is_interrupted:
                raise
        finally:
            slot.release()
        await self._long.acquire()
        slot = QuerySlot(self._long, self._on_slice_end)
        try:
            return await attempt(slot)
        finally:
            slot.release()

    def _on_slice_end(self, slot: "QuerySlot") -> None:
        if slot.queue is self._long:
            return
        if not slot.is_interrupted and len(self._short) and self._long.try_acquire():
            self._short.release()
            slot.queue = self._long
            return
        if slot.is_interrupted or len(self._short):
            # Repeated, because a query that is about to start misses the first interrupt.
            slot.interrupt()
        slot.start_slice()


class QuerySlot:
    """The right to run, which a query holds while it runs."""

    def __init__(self, queue: "_SlotQueue", on_slice_end: Callable[["QuerySlot"], None]) -> None:
        self.queue = queue
        self.is_interrupted = False
        """Whether the query was interrupted and has to start again later."""
        self._on_slice_end = on_slice_end
        self._interrupt_query: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self._is_held = True

    def begin(self, interrupt_query: Callable[[], None]) -> None:
        """Start the time slice. `interrupt_query` must make the query end soon with a `QueryLimitError`."""
        self._interrupt_query = interrupt_query
        self.start_slice()

    def start_slice(self) -> None:
        if self._is_held:
            self._timer = asyncio.get_running_loop().call_later(_TIME_SLICE_SECONDS, self._on_slice_end, self)

    def interrupt(self) -> None:
        self.is_interrupted = True
        self._interrupt_query()

    def release(self) -> None:
        self._is_held = False
        if self._timer is not None:
            self._timer.cancel()
        self.queue.release()


class _SlotQueue:
    """A number of slots, assigned in the order of arrival."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Return the number of waiting queries."""
        return len(self._waiting)

    def try_acquire(self) -> bool:
        if not self._free:
            return False
        self._free -= 1
        return True

    async def acquire(self) -> None:
        if self.try_acquire():
            return
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():
                # The slot was assigned while the task was being cancelled.
                self.release()
            elif slot in self._waiting:
                self._waiting.remove(slot)
            raise

    def release(self) -> None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1
