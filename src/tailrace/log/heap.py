"""What becomes of memory that is freed: kept while there is work, given back to the system when there is none.

glibc gives large pieces back at once and gets new ones for the next request or read, page by page; that took a third of
the time of reading from disk. Other C libraries are left as they are.
"""

import ctypes

from tailrace.model.limits import MIB

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
