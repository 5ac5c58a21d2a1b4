"""The `tailrace` command on a disk whose syncs fail as soon as the file named by `FAIL_SYNC_IF` is there."""

import errno
import os
from pathlib import Path

from tailrace.cli.main import main

_real_fdatasync = os.fdatasync


def _fdatasync(fd: int) -> None:
    if Path(os.environ["FAIL_SYNC_IF"]).exists():
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    _real_fdatasync(fd)


if __name__ == "__main__":
    os.fdatasync = _fdatasync  # type: ignore[assignment]
    main()
