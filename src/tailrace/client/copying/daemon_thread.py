"""A thread that calls functions one after the other and does not keep the process alive."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class DaemonThread:
    """As an executor of one thread, but a call that never returns, such as a read of a terminal, holds up nobody."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        self._calls.put((future, lambda: function(*args, **kwargs)))
        return future

    def close(self, seconds: float) -> bool:
        """End the thread when its call returns, and return whether it did within this time."""
        self._calls.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (taken := self._calls.get()) is not None:
            future, call = taken
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  raised to whoever waits for the result
                future.set_exception(error)
