"""Where a benchmark runs: a folder on the measured disk, the amount of work, and a function that prints progress."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
