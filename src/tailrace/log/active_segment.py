"""The active segment: the one file of the log that frames are appended to.

`append` puts frames at the end, `sync` makes them durable, `roll` begins the next segment. A write that runs out of space is
undone and can be tried again. A sync that fails can't be, because the kernel may have dropped the very pages that it failed to
write.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tailrace.log.kernel_hints import KernelHints
from tailrace.log.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentFolder,
    encode_segment_header,
    is_current_format,
    new_salt,
    salt_of,
)
from tailrace.model.commit import Buffer
from tailrace.model.errors import StorageFailedError, StorageFullError
from tailrace.model.ids import Cursor, Position
from tailrace.model.killpoint import is_armed, killpoint
from tailrace.model.limits import MIB

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_MAX_VECTOR = 1024
_FILE_MODE = 0o600
_RESERVE_BYTES = 16 * MIB
_RESERVE_AHEAD_BYTES = 2 * MIB
_FREE_FACTOR = 16
"""Blocks are reserved only while the disk has this many times as much free space as a reservation takes."""
_NEVER_AGAIN = Position(1 << 62)


class EncodedFrames(NamedTuple):
    """Whole frames that are written with one call."""

    buffers: Sequence[Buffer]
    size: int
    is_last: bool


class ActiveSegment:
    """Appends are made by one thread; `sync` may run in another one at the same time."""

    def __init__(
        self, folder: Path, segments: SegmentFolder, segment_bytes: int, on_synced: Callable[[Position], None]
    ) -> None:
        self.segments = segments
        self._segment_bytes = segment_bytes
        self._on_synced = on_synced
        self._kernel_hints = KernelHints()
        self._reserved = Position(0)
        self._lock = threading.Lock()
        self._fd = -1
        # Kept open: a sync that fails is final, so it must not fail because no file can be opened.
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._closed_fds: list[int] = []
        self._has_new_names = False
        self._failure: OSError | None = None
        self.base = Position(0)
        self.salt = 0
        self.is_current_format = False
        """Whether frames may be appended; otherwise a new segment has to begin."""
        self.position = Position(0)
        """Where the next frame begins."""
        self.synced = Position(0)
        """Up to where the log is durable."""

    def resume(self, segment: Segment, end: Position) -> None:
        """Continue at the end of an existing segment. Its bytes count as durable only after the next sync."""
        self._fd = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        with segment.path.open("rb") as file:
            header = file.read(SEGMENT_HEADER_BYTES)
        self.salt = salt_of(header)
        self.is_current_format = is_current_format(header)
        self.base = segment.base
        self.position = end

    def begin(self, base: Position, cursor: Cursor) -> None:
        """Start a new segment at `base`."""
        self._check_sound()
        path = self.segments.path(base, 0)
        salt = new_salt()
        header = encode_segment_header(base, 0, cursor, salt)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        except OSError as error:
            raise _as_storage_full(error) from error
        try:
            write_all(fd, [header])
        except OSError as error:
            os.close(fd)
            path.unlink()
            raise _as_storage_full(error) from error
        if self._fd >= 0:
            self.release_reserved()
        with self._lock:
            if self._fd >= 0:
                self._closed_fds.append(self._fd)
            self._fd = fd
            self._has_new_names = True
            self._reserved = Position(0)
            self.base = base
            self.salt = salt
            self.is_current_format = True
            self.position = Position(base + SEGMENT_HEADER_BYTES)
        self.segments.add(Segment(path, base, 0, cursor))

    @property
    def is_full(self) -> bool:
        return self.position - self.base >= self._segment_bytes

    @property
    def is_empty(self) -> bool:
        """Whether the segment holds no frame yet."""
        return self.position - self.base == SEGMENT_HEADER_BYTES

    def roll(self, cursor: Cursor) -> None:
        """Close the segment and begin the next one behind it."""
        killpoint("roll.before")
        self.begin(self.position, cursor)
        killpoint("roll.after")

    def append(self, runs: Iterable[EncodedFrames]) -> None:
        """Append all runs of frames or none. The disk begins to write each run while the next one is encoded."""
        self._check_sound()
        killpoint("write.before")
        end: int = self.position
        if end + _RESERVE_AHEAD_BYTES > self._reserved:
            self._reserve()
        try:
            for buffers, size, is_last in runs:
                if is_armed("write.half"):
                    write_all(self._fd, [b"".join(buffers)[: size // 2]])
                    killpoint("write.half")
                    os.ftruncate(self._fd, end - self.base)
                write_all(self._fd, buffers)
                if not is_last:
                    self._kernel_hints.start_writing(self._fd, end - self.base, size)
                end += size
        except OSError as error:
            os.ftruncate(self._fd, self.position - self.base)
            raise _as_storage_full(error) from error
        self.position = Position(end)
        killpoint("write.after")

    def _reserve(self) -> None:
        """Reserve disk blocks for the next frames, if the disk has plenty of free space."""
        begin = max(self._reserved, self.position) - self.base
        size = min(_RESERVE_BYTES, self._segment_bytes - begin)
        disk = os.fstatvfs(self._fd)
        if size > 0 and disk.f_bavail * disk.f_frsize >= _FREE_FACTOR * _RESERVE_BYTES:
            if self._kernel_hints.reserve(self._fd, begin, size):
                self._reserved = Position(self.base + begin + size)
                return
            self.release_reserved()
        self._reserved = _NEVER_AGAIN

    def release_reserved(self) -> None:
        """Give back the blocks that are reserved behind the end of the segment."""
        with suppress(OSError):  # they only take up space
            os.ftruncate(self._fd, self.position - self.base)

    def sync(self) -> None:
        """Make everything written so far durable."""
        self._check_sound()
        with self._lock:
            target = self.position
            fds = [*self._closed_fds, self._fd]
            has_new_names = self._has_new_names
            self._has_new_names = False
        killpoint("sync.before")
        try:
            for fd in fds:
                os.fdatasync(fd)
            if has_new_names:
                os.fsync(self._folder_fd)
        except OSError as error:
            self._failure = error
            raise
        killpoint("sync.after")
        with self._lock:
            for fd in fds[:-1]:
                self._closed_fds.remove(fd)
                os.close(fd)
            self.synced = max(self.synced, target)
            self._on_synced(self.synced)

    def _check_sound(self) -> None:
        """Refuse to write or sync, in any thread, after a sync that failed."""
        if self._failure is not None:
            raise StorageFailedError(f"an earlier sync of the log failed: {self._failure}")

    def close(self) -> None:
        with self._lock:
            for fd in (*self._closed_fds, self._fd, self._folder_fd):
                if fd >= 0:
                    os.close(fd)
            self._closed_fds.clear()
            self._fd = self._folder_fd = -1


def write_all(fd: int, buffers: Sequence[Buffer]) -> None:
    for first in range(0, len(buffers), _MAX_VECTOR):
        part = buffers[first : first + _MAX_VECTOR]
        written = os.writev(fd, part)
        left = sum(map(len, part)) - written
        if left:
            rest = memoryview(b"".join(part))[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]


def is_storage_full(error: BaseException) -> bool:
    """Return whether the disk is full or the process can't open more files. Both pass; neither means that the disk failed."""
    if isinstance(error, OSError):
        return error.errno in _NO_SPACE or error.errno in TOO_MANY_FILES
    return isinstance(error, StorageFullError)


def _as_storage_full(error: OSError) -> Exception:
    if error.errno in TOO_MANY_FILES:
        return StorageFullError(f"too many files are open ({error.strerror}); nothing was written. Send again")
    if is_storage_full(error):
        return StorageFullError(f"the disk is full ({error.strerror}); nothing was written. Free some space and send again")
    return error
