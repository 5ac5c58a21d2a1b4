"""Hints to the kernel and the C library, about files that are written and memory that is freed. None changes what is stored.

`KernelHints` prepares a sync, so that the sync itself has less to do. It works on Linux only; elsewhere nothing happens.
Neither call promises anything, and neither may fail a write. Only a sync makes bytes durable, and only a sync reports an
error: `sync_file_range` without one of its waiting flags leaves errors to the next sync of the file.

Freed memory is kept while there is work and given back to the system when there is none. By default glibc gives large blocks
back at once and gets new ones for the next request or read, page by page, which took a third of the time of reading from disk.
As much is kept as the answers to a few readers take. Other C libraries are left as they are.
"""

import ctypes
from collections.abc import Callable

from tailrace.model.limits import MIB

_SYNC_FILE_RANGE_WRITE = 2
_FALLOC_FL_KEEP_SIZE = 1
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BYTES = 9 * MIB
"""Blocks of this size are given back as soon as they are free."""
_KEPT_BYTES = 32 * MIB
"""Free memory at the end of the heap that is kept."""
_ARENAS = 2


class KernelHints:
    """Both calls take a file, an offset in it and a number of bytes."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        offset = ctypes.c_int64
        self._sync_file_range = _call(libc, "sync_file_range", ctypes.c_int, offset, offset, ctypes.c_uint)
        self._fallocate = _call(libc, "fallocate", ctypes.c_int, ctypes.c_int, offset, offset)

    def start_writing(self, fd: int, begin: int, size: int) -> None:
        """Ask the kernel to begin writing these bytes to the disk."""
        self._sync_file_range(fd, begin, size, _SYNC_FILE_RANGE_WRITE)

    def reserve(self, fd: int, begin: int, size: int) -> bool:
        """Reserve disk blocks behind the end of the file, which stays where it is. Return whether that worked."""
        return self._fallocate(fd, _FALLOC_FL_KEEP_SIZE, begin, size) == 0


def _call(libc: ctypes.CDLL, name: str, *types: type) -> Callable[..., int]:
    call = getattr(libc, name, None)
    if call is None:
        return lambda *arguments: -1
    call.argtypes = types
    return call  # type: ignore[no-any-return]


def keep_freed_memory() -> None:
    """Set the thresholds for the whole process. Called at its start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_memory() -> None:
    """Return freed memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
