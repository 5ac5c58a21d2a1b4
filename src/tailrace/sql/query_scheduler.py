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

_TURN_SECONDS = 0.05

T = TypeVar("T")


class QueryScheduler:
    """Lives on the event loop. Each queue has `query_threads` slots."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._short = _SlotQueue(limits.query_threads)
        self._long = _SlotQueue(limits.query_threads)

    @property
    def waiting(self) -> int:
        """Queries that wait for a slot."""
        return len(self._short) + len(self._long)

    async def run(self, attempt: Callable[["QuerySlot"], Awaitable[T]]) -> T:
        """Run a query, and once more from the start if it was interrupted. Cancel the task to stop it."""
        if self.waiting >= self._limits.queued_queries:
            raise OverloadedError(
                f"{self.waiting} queries wait for a thread, as many as queued_queries allows; try again after a pause"
            )
        await self._short.take()
        slot = QuerySlot(self._short, self._turn_over)
        try:
            return await attempt(slot)
        except QueryLimitError:
            if not slot.is_interrupted:
                raise
        finally:
            slot.give_back()
        await self._long.take()
        slot = QuerySlot(self._long, self._turn_over)
        try:
            return await attempt(slot)
        finally:
            slot.give_back()

    def _turn_over(self, slot: "QuerySlot") -> None:
        if slot.queue is self._long:
            return
        if not slot.is_interrupted and len(self._short) and self._long.try_take():
            self._short.give_back()
            slot.queue = self._long
            return
        if slot.is_interrupted or len(self._short):
            # Again and again, because a query that is about to begin does not hear of it.
            slot.interrupt()
        slot.next_turn()


class QuerySlot:
    """What a query holds while it runs."""

    def __init__(self, queue: "_SlotQueue", turn_over: Callable[["QuerySlot"], None]) -> None:
        self.queue = queue
        self.is_interrupted = False
        """Whether the query was told to stop, to begin again later."""
        self._turn_over = turn_over
        self._make_room: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self._is_held = True

    def begin(self, make_room: Callable[[], None]) -> None:
        """The query runs from now on. `make_room` makes it end soon, with a `QueryLimitError`."""
        self._make_room = make_room
        self.next_turn()

    def next_turn(self) -> None:
        if self._is_held:
            self._timer = asyncio.get_running_loop().call_later(_TURN_SECONDS, self._turn_over, self)

    def interrupt(self) -> None:
        self.is_interrupted = True
        self._make_room()

    def give_back(self) -> None:
        self._is_held = False
        if self._timer is not None:
            self._timer.cancel()
        self.queue.give_back()


class _SlotQueue:
    """So many slots, given to those who wait in the order in which they came."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def try_take(self) -> bool:
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        if self.try_take():
            return
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():
                # It was given while the task was being cancelled.
                self.give_back()
            elif slot in self._waiting:
                self._waiting.remove(slot)
            raise

    def give_back(self) -> None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1
