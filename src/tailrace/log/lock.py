"""One process per data folder."""

import fcntl
import os
from pathlib import Path

from tailrace.model.errors import FolderInUseError

_NAME = "LOCK"


class FolderLock:
    """Held from construction to `release`, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise FolderInUseError(
                f"{folder} is in use by process {owner or 'unknown'}; stop it first, or choose another folder"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._fd)
