"""A bar on stderr for long work, where a person can see it.

It appears after a second, so that short work leaves no trace, and goes away at the end. Whoever prints meanwhile asks it to
step aside first.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE_SECONDS = 1.0


class Reached(NamedTuple):
    """How far the work is, from its beginning."""

    things: int
    """What is counted, such as messages."""
    done: int
    total: int | None
    """`None` where nobody knows it."""


class Bar(Protocol):
    def advance(self, reached: Reached) -> None: ...
    def step_aside(self) -> None:
        """Until work advances again."""


@contextmanager
def progress(noun: str, *, is_shown: bool = True) -> Iterator[Bar]:
    """`noun` is what is counted, in the plural. `is_shown`: whether a bar would be in nobody's way."""
    if not is_shown or not sys.stderr.isatty():
        yield _NoBar()
        return
    bar = _LateBar(noun)
    try:
        yield bar
    finally:
        bar.step_aside()


def size_of_input(descriptor: int) -> int | None:
    """Of a file; nobody knows how much will come through a pipe."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _NoBar:
    def advance(self, reached: Reached) -> None:
        pass

    def step_aside(self) -> None:
        pass


class _LateBar:
    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._began = time.monotonic()
        self._made: tuple[Progress, TaskID] | None = None

    def advance(self, reached: Reached) -> None:
        if self._made is None:
            if time.monotonic() - self._began < _PATIENCE_SECONDS:
                return
            self._made = self._make(reached.total)
        progress, task = self._made
        progress.update(task, completed=reached.done, total=reached.total, things=f"{reached.things:,}")
        progress.start()

    def step_aside(self) -> None:
        if self._made is not None:
            self._made[0].stop()

    def _make(self, total: int | None) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if total else ()
        progress = Progress(
            TextColumn(f"{{task.fields[things]}} {self._noun}"),
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        return progress, progress.add_task("", total=total, things="0")
