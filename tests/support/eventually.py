"""Waiting for something that another process does."""

import time
from collections.abc import Callable

_LOOK_SECONDS = 0.05


def eventually(condition: Callable[[], bool], what: str, seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds:g} s"
        time.sleep(_LOOK_SECONDS)
