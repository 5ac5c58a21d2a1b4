"""Has things delivered in the order in which they were given, gathered to requests, one request at a time.

Whatever comes while a request is on its way goes into the next. What waits is bounded by the box that it waits in: when that is
full, whoever gives more waits for room.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from tailrace.client._async.concurrency import HOPS_ARE_DEAR, AsyncLock, AsyncSignal, AsyncWorker, pause
from tailrace.model.errors import ClientClosedError

T = TypeVar("T")


class SendBuffer(Protocol[T]):
    """What waits to be sent."""

    def __len__(self) -> int: ...

    def has_room(self, item: T, /) -> bool: ...

    def put(self, item: T, /) -> None: ...

    def take(self) -> list[T]:
        """What goes into the next request: at least one, if there is one."""
        ...

    @property
    def linger_seconds(self) -> float:
        """How long to let more come before the next request."""
        ...


class AsyncBatchSender(Generic[T]):
    """Takes from the box and calls `deliver`, which raises nothing."""

    def __init__(self, box: SendBuffer[T], deliver: Callable[[list[T]], Awaitable[None]], name: str) -> None:
        self._box = box
        self._deliver = deliver
        self._lock = AsyncLock()
        self._work_is_there = AsyncSignal()
        self._room_is_there = AsyncSignal()
        self._is_quiet = AsyncSignal()
        self._is_quiet.set()
        self._worker = AsyncWorker(self._work, f"tailrace {name}")
        self._name = name
        self._is_busy = False
        """Somebody delivers, or is about to."""
        self._is_closed = False

    async def put(self, item: T, patience: float, *, is_awaited: bool = False) -> bool:
        """Whether it was taken: there was room at once, or within `patience` seconds.

        With `is_awaited` the caller waits for the outcome anyway. If nothing is on its way and the worker is in another thread,
        the caller delivers the item itself.
        """
        deadline: float | None = None
        while True:
            async with self._lock:
                if self._is_closed:
                    raise ClientClosedError(f"the {self._name} is closed")
                if not self._is_busy:
                    self._is_busy = True
                    self._is_quiet.clear()
                    if is_awaited and HOPS_ARE_DEAR and not self._box.linger_seconds:
                        break
                    self._call_worker()
                if self._box.has_room(item):
                    self._box.put(item)
                    return True
                self._room_is_there.clear()
            deadline = deadline or time.monotonic() + patience
            if not await self._room_is_there.wait(max(0.0, deadline - time.monotonic())):
                return False
        try:
            await self._deliver([item])
        finally:
            async with self._lock:
                self._go_on_or_rest()
        return True

    async def flush(self) -> None:
        """Until everything that was taken is delivered."""
        await self._is_quiet.wait()

    async def close(self) -> None:
        """Take nothing more, and deliver what is left."""
        self._is_closed = True
        try:
            await self.flush()
        finally:
            self._work_is_there.set()
            await self._worker.join()

    async def _work(self) -> None:
        while True:
            await self._work_is_there.wait()
            linger = self._box.linger_seconds
            if linger:
                await pause(linger)
            async with self._lock:
                items = self._box.take()
                if not items:
                    self._work_is_there.clear()
                    self._go_on_or_rest()
                    if self._is_closed:
                        return
                self._room_is_there.set()
            if items:
                await self._deliver(items)

    def _go_on_or_rest(self) -> None:
        if self._box:
            self._call_worker()
        else:
            self._is_busy = False
            self._is_quiet.set()

    def _call_worker(self) -> None:
        self._work_is_there.set()
        self._worker.start()
