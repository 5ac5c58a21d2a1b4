"""Where a benchmark runs: a folder on the disk that is measured, and a way to say how far it is."""

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
        """A new folder that is gone afterwards."""
        path = Path(mkdtemp(dir=self.root))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free


def settle_disk() -> None:
    """Write out what earlier work left behind, so that the next measurement does not pay for it."""
    os.sync()
