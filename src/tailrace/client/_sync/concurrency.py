"""What waits and what runs beside, by threads. Written by hand, as its twin `_async/concurrency.py`."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")

Lock = threading.Lock
pause = time.sleep


class Signal:
    """Something has happened. It stays so until it is cleared."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has happened within this time."""
        return self._event.wait(seconds)


class Outcome(Generic[T]):
    """What becomes of something that runs beside: a value or an error, once."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: Future[T] = Future()

    def set_value(self, value: T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def set_error(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def get(self) -> T:
        return self._future.result()


class Worker:
    """Runs a function beside everything else, in a thread that does not keep the process alive."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._is_started = False

    @property
    def is_started(self) -> bool:
        return self._is_started

    def start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._thread.start()

    def join(self) -> None:
        """Until it has come to its end."""
        if self._is_started:
            self._thread.join()
