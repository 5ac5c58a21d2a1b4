"""Where a benchmark runs: a folder on the measured disk, the amount of work, and a function that prints progress."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from bench.scale import Scale


class Workspace(NamedTuple):
    root: Path
    scale: Scale
    say: Callable[[str], None]

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Create a folder and remove it afterwards."""
        path = Path(mkdtemp(dir=self.root))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free


def settle_disk() -> None:
    """Sync what earlier work wrote, so that the next measurement does not include it."""
    os.sync()


def forget_files(folder: Path) -> None:
    """Have the system drop its page cache of all files in a folder, so that they are read from the disk again."""
    os.sync()  # what is not written yet can't be dropped
    for path in folder.rglob("*"):
        with suppress(OSError):  # a server may remove files meanwhile
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
