"""A bar on stderr for long work, where a person can see it.

It appears after a second, so that short work leaves no trace, and goes away at the end.
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE_SECONDS = 1.0

Advance = Callable[[int, int], None]
"""Is told bytes of the input and messages, both from the beginning."""


@contextmanager
def progress_of_input(descriptor: int) -> Iterator[Advance]:
    if not sys.stderr.isatty():
        yield lambda done, messages: None
        return
    bar = _LateBar(_size(descriptor))
    try:
        yield bar.advance
    finally:
        bar.close()


class _LateBar:
    def __init__(self, total: int | None) -> None:
        self._total = total
        self._began = time.monotonic()
        self._shown: tuple[Progress, TaskID] | None = None

    def advance(self, done: int, messages: int) -> None:
        if self._shown is None:
            if time.monotonic() - self._began < _PATIENCE_SECONDS:
                return
            self._shown = self._show()
        progress, task = self._shown
        progress.update(task, completed=done, messages=f"{messages:,}")

    def close(self) -> None:
        if self._shown is not None:
            self._shown[0].stop()

    def _show(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if self._total else ()
        progress = Progress(
            TextColumn("{task.fields[messages]} messages"), *columns, console=Console(stderr=True), transient=True
        )
        task = progress.add_task("", total=self._total, messages="0")
        progress.start()
        return progress, task


def _size(descriptor: int) -> int | None:
    """Of a file; nobody knows how much will come through a pipe."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None
