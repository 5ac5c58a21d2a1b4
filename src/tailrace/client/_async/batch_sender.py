"""Sends items in order, batched into requests, one request at a time.

Items that arrive while a request is under way go into the next. The buffer bounds what waits: when it is full, callers wait for
room.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from tailrace.client._async.concurrency import SWITCHES_ARE_EXPENSIVE, AsyncLock, AsyncSignal, AsyncWorker, pause
from tailrace.model.errors import ClientClosedError

T = TypeVar("T")


class SendBuffer(Protocol[T]):
    """Holds items that wait to be sent."""

    def __len__(self) -> int: ...

    def has_room(self, item: T, /) -> bool: ...

    def put(self, item: T, /) -> None: ...

    def take(self) -> list[T]:
        """Take the items of the next request: at least one if there is one."""
        ...

    @property
    def linger_seconds(self) -> float:
        """How long the next request waits for more items."""
        ...


class AsyncBatchSender(Generic[T]):
    """Takes batches from the buffer and calls `send` with each. `send` must not raise."""

    def __init__(self, buffer: SendBuffer[T], send: Callable[[list[T]], Awaitable[None]], name: str) -> None:
        self._buffer = buffer
        self._send = send
        self._lock = AsyncLock()
        self._has_work = AsyncSignal()
        self._has_room = AsyncSignal()
        self._is_idle = AsyncSignal()
        self._is_idle.set()
        self._worker = AsyncWorker(self._run, f"tailrace {name}")
        self._name = name
        self._is_sending = False
        """Somebody sends, or is about to."""
        self._is_closed = False

    async def put(self, item: T, wait_seconds: float, *, is_awaited: bool = False) -> bool:
        """Add an item, waiting for room for up to `wait_seconds`. Returns whether it was added.

        With `is_awaited` the caller waits for the outcome anyway. Fast path of the worker: if nothing is being sent and the
        worker is another thread, the caller then sends the item itself, which saves two switches of threads
        (`tests/unit/client/test_batch_sender.py`).
        """
        deadline: float | None = None
        while True:
            async with self._lock:
                if self._is_closed:
                    raise ClientClosedError(f"the {self._name} is closed")
                if not self._is_sending:
                    self._is_sending = True
                    self._is_idle.clear()
                    if is_awaited and SWITCHES_ARE_EXPENSIVE and not self._buffer.linger_seconds:
                        break
                    self._wake_worker()
                if self._buffer.has_room(item):
                    self._buffer.put(item)
                    return True
                self._has_room.clear()
            deadline = deadline or time.monotonic() + wait_seconds
            if not await self._has_room.wait(max(0.0, deadline - time.monotonic())):
                return False
        try:
            await self._send([item])
        finally:
            async with self._lock:
                self._continue_or_rest()
        return True

    async def flush(self) -> None:
        """Wait until everything that was added is sent."""
        await self._is_idle.wait()

    async def close(self) -> None:
        """Accept no more items, and send what is left."""
        self._is_closed = True
        try:
            await self.flush()
        finally:
            self._has_work.set()
            await self._worker.join()

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            linger = self._buffer.linger_seconds
            if linger:
                await pause(linger)
            async with self._lock:
                items = self._buffer.take()
                if not items:
                    self._has_work.clear()
                    self._continue_or_rest()
                    if self._is_closed:
                        return
                self._has_room.set()
            if items:
                await self._send(items)

    def _continue_or_rest(self) -> None:
        if self._buffer:
            self._wake_worker()
        else:
            self._is_sending = False
            self._is_idle.set()

    def _wake_worker(self) -> None:
        self._has_work.set()
        self._worker.start()
