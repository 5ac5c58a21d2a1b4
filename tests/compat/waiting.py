"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come true in {seconds} s")
        time.sleep(0.01)
