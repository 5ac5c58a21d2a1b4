"""The `tailrace` command on a disk that fails to sync `FAIL_SYNC_OF`, a text in a file, while the file `FAIL_SYNC_IF` is there.

Other syncs, such as those that follow a quiet moment, succeed: they would fail the server before the text is written.
"""

import errno
import os
from pathlib import Path

from tailrace.cli.main import main

_real_fdatasync = os.fdatasync


def _fdatasync(fd: int) -> None:
    text = os.environ["FAIL_SYNC_OF"].encode()
    if Path(os.environ["FAIL_SYNC_IF"]).exists() and text in Path(f"/proc/self/fd/{fd}").read_bytes():
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    _real_fdatasync(fd)


if __name__ == "__main__":
    os.fdatasync = _fdatasync  # type: ignore[assignment]
    main()
