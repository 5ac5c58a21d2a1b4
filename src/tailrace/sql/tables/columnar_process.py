"""Starts the process that makes a columnar copy of a table (`select/columnar_builder.py`), and waits for it."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from tailrace.model.table import Table

_BUILDER = "tailrace.sql.select.columnar_builder"
_BUILD_SECONDS = 600
_OPEN_SECONDS = 5
_POLL_SECONDS = 0.1
_MOST_SAID = 32
READY = b"r"
OPENED = b"o"


class BuildRequest(msgspec.Struct, frozen=True):
    """What the process that makes a copy is told."""

    path: str
    """The file of the tables."""
    log_id: str
    table: Table
    target: str
    max_bytes: int


MakeFile = Callable[[BuildRequest, Callable[[], AbstractContextManager[None]], Callable[[], bool]], int]
"""Makes the file and returns the number of its rows. It opens the file of the tables in the context that the first function
returns, and stops when the second returns false. Raises `BuildFailedError`."""


class BuildFailedError(Exception):
    """No copy was made; the message says why."""


def make_in_process(
    request: BuildRequest, opening: Callable[[], AbstractContextManager[None]], is_wanted: Callable[[], bool]
) -> int:
    """Make the file in a process of its own; see `MakeFile`."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", _BUILDER, str(reading)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[reading],
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        )
    finally:
        os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as asking:
        try:
            if _said(process, 1, is_wanted, _BUILD_SECONDS) != READY:
                raise BuildFailedError("the process did not start")
            with opening():
                asking.write(msgspec.json.encode(request) + b"\n")
                if _said(process, 1, is_wanted, _OPEN_SECONDS) != OPENED:
                    raise BuildFailedError("the process could not open the file of the tables")
            rows = _said(process, _MOST_SAID, is_wanted, _BUILD_SECONDS)
            if not rows.isdigit():
                raise BuildFailedError("the process ended before the copy was complete")
            return int(rows)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _said(process: "subprocess.Popen[bytes]", most: int, is_wanted: Callable[[], bool], seconds: int) -> bytes:
    """Return what the process says next; nothing if it has ended."""
    if process.stdout is None:
        return b""
    until = time.monotonic() + seconds
    while not select.select([process.stdout], [], [], _POLL_SECONDS)[0]:
        if not is_wanted() or time.monotonic() > until:
            raise BuildFailedError("too many rows changed meanwhile, or it took too long")
    return os.read(process.stdout.fileno(), most)
