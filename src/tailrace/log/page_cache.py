"""Reads files as far as the kernel's page cache holds them, and tells the kernel what will be read.

`RWF_NOWAIT` makes the kernel return at once where it would have to wait for a disk. Systems and file systems that don't know it
raise `OSError`.
"""

import ctypes
import os
from contextlib import suppress
from typing import cast

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
# `bytearray(size)` would fill it with zeros first, which takes half as long as the read.
_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.restype = ctypes.py_object
_new_bytearray.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)

CAN_READ = _NOWAIT is not None
"""Whether the system can read from the page cache alone."""


def new_buffer(size: int) -> memoryview:
    """Return memory with any content, to be filled completely."""
    return memoryview(cast(bytearray, _new_bytearray(None, size)))


def read_cached(fd: int, at: int, buffer: memoryview) -> bool:
    """Fill the buffer from a file, and return true, if all of these bytes are in the page cache. Raises `OSError`."""
    try:
        return os.preadv(fd, (buffer,), at, _NOWAIT or 0) == len(buffer)
    except BlockingIOError:
        return False


def start_reading(fd: int, at: int, length: int) -> None:
    """Ask the kernel to begin reading these bytes into the page cache. A hint: that it can't be followed is no error."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(fd, at, length, os.POSIX_FADV_WILLNEED)
