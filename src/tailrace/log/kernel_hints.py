"""What the kernel can be told ahead of a sync, so that the sync itself has less to do. Linux only; elsewhere nothing happens.

Neither call promises anything, and neither may fail a write. Only a sync says that bytes are durable, and only a sync tells
of an error: `sync_file_range` without one of its flags that wait leaves what went wrong for the next sync of the file.
"""

import ctypes
from collections.abc import Callable

from tailrace.model.limits import MIB

_SYNC_FILE_RANGE_WRITE = 2
_FALLOC_FL_KEEP_SIZE = 1


class KernelHints:
    """Both calls take a file, a place in it and a number of bytes."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        offset = ctypes.c_int64
        self._sync_file_range = _call(libc, "sync_file_range", ctypes.c_int, offset, offset, ctypes.c_uint)
        self._fallocate = _call(libc, "fallocate", ctypes.c_int, ctypes.c_int, offset, offset)

    def start_writing(self, fd: int, begin: int, size: int) -> None:
        """The disk may begin with these bytes."""
        self._sync_file_range(fd, begin, size, _SYNC_FILE_RANGE_WRITE)

    def reserve(self, fd: int, begin: int, size: int) -> bool:
        """Give these bytes, behind the end of the file, their place on the disk. The end stays where it is."""
        return self._fallocate(fd, _FALLOC_FL_KEEP_SIZE, begin, size) == 0


def _call(libc: ctypes.CDLL, name: str, *types: type) -> Callable[..., int]:
    call = getattr(libc, name, None)
    if call is None:
        return lambda *arguments: -1
    call.argtypes = types
    return call  # type: ignore[no-any-return]


_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_KEPT_BYTES = 9 * MIB
"""The most that glibc takes for the two thresholds."""
_ARENAS = 2


def keep_freed_memory() -> None:
    """For a whole process, at its start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_memory() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
