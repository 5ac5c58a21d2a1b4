"""Whether there is room on the disk: records are refused before it is full, so that there is room left to clean up."""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from tailrace.model.errors import StorageFullError
from tailrace.model.stats import StoreStats

_LOOK_SECONDS = 0.1

_logger = logging.getLogger(__name__)


class Room:
    """May be called from any thread."""

    def __init__(self, folder: Path, min_free_bytes: int, stats: StoreStats) -> None:
        self._folder = folder
        self._min_free_bytes = min_free_bytes
        self._stats = stats
        self._looked_at = float("-inf")
        self.is_left = True
        """As of the last look."""
        self.look()

    def look(self) -> bool:
        """Whether there is some, by a look that is a tenth of a second old at most."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            with suppress(OSError):  # a disk that can't be asked is no full one; the next write tells what is wrong
                disk = os.statvfs(self._folder)
                is_left = disk.f_bavail * disk.f_frsize >= self._min_free_bytes
                if is_left != self.is_left:
                    self.is_left = is_left
                    self._say()
        return self.is_left

    def check(self) -> None:
        """Refuse a commit if there is none."""
        if not self.look():
            self._stats.failed_commits += 1
            raise StorageFullError(f"{self._in_words()}; nothing was written. Free some space and send again")

    def _say(self) -> None:
        if self.is_left:
            _logger.info("There is room on the disk of %s again: records are taken", self._folder)
        else:
            _logger.warning("%s: records are refused until there is room", self._in_words())

    def _in_words(self) -> str:
        return f"less than {self._min_free_bytes} bytes are free on the disk of {self._folder} (min_free_bytes)"
