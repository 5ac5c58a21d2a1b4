"""Waiting and running in the background, with threads. Written by hand, like its asyncio twin `_async/concurrency.py`."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Generic, ParamSpec, TypeVar, cast

from tailrace.client.copying.daemon_thread import DaemonThread

T = TypeVar("T")
P = ParamSpec("P")

Lock = threading.Lock
_CLOSE_SECONDS = 1.0
pause = time.sleep
SWITCHES_ARE_EXPENSIVE = True
"""Whether it is expensive to let a worker do what the caller waits for: it takes two switches of threads."""


def run_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that blocks."""
    return function(*args, **kwargs)


class Signal:
    """An event that stays set until it is cleared."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, seconds: float | None = None) -> bool:
        """Return whether it is set within this time."""
        return self._event.wait(seconds)


class Outcome(Generic[T]):
    """The outcome of something in the background: a value or an error, set once."""

    __slots__ = ("_error", "_latch", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        self._error: Exception | None = None
        # Held until the outcome is known. A future would do as well, at a multiple of the cost of a message.
        self._latch = threading.Lock()
        self._latch.acquire()

    def set_value(self, value: T) -> None:
        if self._latch.locked():
            self._value = value
            self._latch.release()

    def set_error(self, error: Exception) -> None:
        if self._latch.locked():
            self._error = error
            self._latch.release()

    def get(self) -> T:
        with self._latch:
            if self._error is not None:
                raise self._error
            return cast(T, self._value)


class Worker:
    """Runs a function in the background, in a thread that does not keep the process alive."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._is_started = False

    def start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._thread.start()

    def join(self) -> None:
        """Wait until it has ended."""
        if self._is_started:
            self._thread.join()


class ReadAhead(Generic[T]):
    """Takes the items of an iterator that blocks, in a thread, one ahead of the caller."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._thread = DaemonThread("tailrace-read-ahead")
        self._next: Future[T | None] = self._thread.submit(next, items, None)

    def get(self) -> T | None:
        """Return the next item, or `None` after the last one."""
        found = self._next.result()
        if found is not None:
            self._next = self._thread.submit(next, self._items, None)
        return found

    def close(self) -> bool:
        """End the thread, and return whether it does not use the iterator any more."""
        return self._thread.close(_CLOSE_SECONDS)
