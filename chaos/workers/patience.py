"""Calls that must not hang: each runs in a thread of its own, and is left behind when its time is up.

librdkafka's transactional calls take a time-out and can still wait for ever after a coordinator was gone for a while. A worker
that waits with them would be no test of the server any more.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def within(seconds: float, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the call returns or raises, or TimeoutError; then it goes on by itself, and nobody knows how it ends."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            outcome.set_exception(error)

    threading.Thread(target=run, name=f"within {seconds:g} s", daemon=True).start()
    return outcome.result(seconds)
