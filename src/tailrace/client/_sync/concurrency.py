"""What waits and what runs beside, by threads. Written by hand, as its twin `_async/concurrency.py`."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")

Lock = threading.Lock
pause = time.sleep
HOPS_ARE_DEAR = True
"""Whether it costs much to have a worker do what one waits for: two switches of threads."""


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

    __slots__ = ("_error", "_latch", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        self._error: Exception | None = None
        # Held until it is known. A future would do as well, at many times the cost of a message.
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
    """Runs a function beside everything else, in a thread that does not keep the process alive."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._is_started = False

    def start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._thread.start()

    def join(self) -> None:
        """Until it has come to its end."""
        if self._is_started:
            self._thread.join()
