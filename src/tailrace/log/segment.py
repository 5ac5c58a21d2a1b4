"""Segment files, which hold the frames of the log.

A segment's name holds its base, the log position of its first byte, and its generation, which rises when the cleaner
rewrites it. The next segment's base is the position after this one's last byte at the time it was closed. Its header holds a
salt, with which the checksums of its frames begin (`log.frame`); segments of format 1 have none, which is a salt of 0. Frames
of format 3 say how old the oldest record of each batch is. Segments of older formats are read and not continued.

`SegmentUsage` says which bytes of a segment belong to which partition, so that the cleaner knows how much of it is live. A
partition's bytes are counted over its whole life, so the bytes that a segment holds of it are one span of that count, and what
retention has deleted is everything below the count at the partition's start. In the active segment a span ends where its
partition ends, so an append changes nothing here unless it is the partition's first one.
"""

import errno
import logging
import os
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from weakref import WeakSet

from crc32c import crc32c

from tailrace.log.index import PartitionIndex, partition_key, partition_of
from tailrace.log.page_cache import read_cached, start_reading
from tailrace.model.errors import CorruptionError, FormatError, OverloadedError, StorageReadError
from tailrace.model.ids import Cursor, PartitionId, Position
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import MIB

FORMAT_VERSION = 3
SEGMENT_HEADER_BYTES = 64

_MAGIC = b"TAILRACE"
_HEADER = Struct(">8sHHIQQ")
_CRC = Struct(">I")
_SALT = Struct(">II")
_SALTS_AT = range(_HEADER.size + _CRC.size, _HEADER.size + _CRC.size + 2 * _SALT.size, _SALT.size)
_SALTED = 2
"""The first format with a salt."""
_SUFFIX = ".seg"
_FREED_BYTES = MIB
"""Disk blocks of a deleted file that are given back at a time."""
_FREEING_PAUSE_SECONDS = 0.001
_USAGE_HEAD = Struct(">IQQ")
_SPAN = Struct(">8sQQ")

_logger = logging.getLogger(__name__)


class Segment(NamedTuple):
    path: Path
    base: Position
    generation: int
    first_cursor: Cursor


class SegmentHandle:
    """An open segment. The file is closed with the last reference, so that no reader has its file replaced."""

    __slots__ = ("__weakref__", "_fd", "salt", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        self.salt = salt_of(read_at(self._fd, segment.path, 0, SEGMENT_HEADER_BYTES))

    def read(self, position: int, length: int) -> bytes:
        return read_at(self._fd, self.segment.path, position - self.segment.base, length)

    def read_cached(self, position: int, buffer: memoryview) -> bool:
        """Fill the buffer if all of the bytes are in the page cache. Raises `OSError`."""
        return read_cached(self._fd, position - self.segment.base, buffer)

    def start_reading(self, position: int, length: int) -> None:
        """Ask the kernel to begin reading these bytes into the page cache."""
        start_reading(self._fd, position - self.segment.base, length)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)


class SegmentFolder:
    """All segments of a log, in order, and the handles to read them."""

    def __init__(self, folder: Path, open_handles: int) -> None:
        self._folder = folder
        self._open_handles = open_handles
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._bases: list[Position] = []
        self._handles: OrderedDict[Position, SegmentHandle] = OrderedDict()
        self._read: WeakSet[SegmentHandle] = WeakSet()
        """All handles that are kept here or held by a reader."""
        self.moves = 0
        """Rises when the cleaner begins to move batches and again when it is done; odd in between."""

    @property
    def segments(self) -> list[Segment]:
        with self._lock:
            return list(self._segments)

    def path(self, base: int, generation: int) -> Path:
        return self._folder / f"{base:020d}-{generation:06d}{_SUFFIX}"

    def list_files(self) -> list[tuple[Path, int, int]]:
        """Return path, base and generation of every segment file on disk, in order."""
        found = []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            base, _, generation = path.name.removesuffix(_SUFFIX).partition("-")
            if not (base.isdigit() and generation.isdigit()):
                raise FormatError(f"{path} is not named like a segment; move it out of the folder")
            found.append((path, int(base), int(generation)))
        return found

    @contextmanager
    def moving(self) -> Iterator[None]:
        """While inside, locations and files may not match; readers that notice read again."""
        self.moves += 1
        try:
            yield
        finally:
            self.moves += 1

    def moved_since(self, moves: int) -> bool:
        return self.moves != moves or bool(moves % 2)

    def at(self, base: Position) -> Segment:
        with self._lock:
            return self._segments[bisect_left(self._bases, base)]

    def after(self, segment: Segment) -> Segment:
        with self._lock:
            return self._segments[bisect_right(self._bases, segment.base)]

    def add(self, segment: Segment) -> None:
        with self._lock:
            self._segments.append(segment)
            self._bases.append(segment.base)

    def replace(self, old: Segment, new: Segment | None) -> None:
        """Replace a segment by its rewritten generation, or remove it."""
        with self._lock:
            index = self._segments.index(old)
            self._handles.pop(old.base, None)
            if new is None:
                del self._segments[index], self._bases[index]
            else:
                self._segments[index] = new

    def base_of(self, position: int) -> Position:
        """Return the base of the segment that holds a position."""
        with self._lock:
            return self._bases[bisect_right(self._bases, position) - 1]

    def same(self, first: int, second: int) -> bool:
        """Return whether both positions are in one segment."""
        with self._lock:
            return bisect_right(self._bases, first) == bisect_right(self._bases, second)

    def open_handle(self, position: int) -> tuple[SegmentHandle, int] | None:
        """Return the segment that holds this position, if it is open, and where the next one begins."""
        with self._lock:
            index = bisect_right(self._bases, position)
            handle = self._handles.get(self._bases[index - 1]) if index else None
            if handle is None:
                return None
            self._handles.move_to_end(handle.segment.base)
            return handle, self._bases[index] if index < len(self._bases) else sys.maxsize

    def handle(self, position: int, *, or_after: bool = False) -> SegmentHandle:
        """Return the open segment that holds this position; if none does and `or_after`, the first one."""
        with self._lock:
            index = bisect_right(self._bases, position) - 1
            if or_after and self._segments:
                index = max(index, 0)
            if index < 0:
                raise CorruptionError(f"no segment holds position {position}")
            segment = self._segments[index]
            handle = self._handles.get(segment.base)
            if handle is None:
                handle = self._handles[segment.base] = self._open(segment)
                self._read.add(handle)
                while len(self._handles) > self._open_handles:
                    self._handles.popitem(last=False)
            else:
                self._handles.move_to_end(segment.base)
            return handle

    def _open(self, segment: Segment) -> SegmentHandle:
        for is_last_try in (False, True):
            try:
                return SegmentHandle(segment)
            except FileNotFoundError:
                raise CorruptionError(
                    f"the segment {segment.path.name} is missing from the folder; see `tailrace fsck`"
                ) from None
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                if is_last_try:
                    raise OverloadedError(f"{segment.path.name} can't be read: too many files are open; try again") from error
                self._handles.clear()  # closes those that nobody reads from
        raise AssertionError("unreachable")

    def delete(self, segment: Segment) -> None:
        """Delete the file of a segment that was replaced or removed.

        Its disk blocks are given back piece by piece: a file system holds up the syncs of other files while it frees blocks,
        and a whole segment takes it up to 30 ms.
        """
        fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            segment.path.unlink()
            sync_folder(segment.path.parent)
            killpoint("clean.after")
            size = os.fstat(fd).st_size
            # Who still reads needs the file whole. It then goes at once, when the last reader closes it.
            while size and not self._has_readers(segment):
                size = max(0, size - _FREED_BYTES)
                os.ftruncate(fd, size)
                time.sleep(_FREEING_PAUSE_SECONDS)
        finally:
            os.close(fd)

    def _has_readers(self, segment: Segment) -> bool:
        with self._lock:
            return any(handle.segment == segment for handle in self._read)

    def close(self) -> None:
        """Drop all handles; a reader that still holds one can finish with it."""
        with self._lock:
            self._handles.clear()

    def next_base(self, segment: Segment) -> Position | None:
        """Return the base of the segment after this one."""
        with self._lock:
            index = bisect_right(self._bases, segment.base)
            return self._bases[index] if index < len(self._bases) else None


def read_at(fd: int, path: Path, at: int, length: int) -> bytes:
    """Read bytes of an open file. An error of the disk is logged with the file and the position."""
    try:
        return os.pread(fd, length, at)
    except OSError as error:
        failure = StorageReadError(f"{path} can't be read at byte {at} ({error.strerror}). Check the disk")
        _logger.error("%s", failure)
        raise failure from error


def new_salt() -> int:
    """Return a number for a new segment that nobody can guess. It is never 0, which means that there is no salt."""
    return int.from_bytes(os.urandom(4)) or 1


def encode_segment_header(base: int, generation: int, first_cursor: int, salt: int) -> bytes:
    """Encode the header of a segment.

    The first checksum is that of format 1, so that versions that know only that one can name the format that they can't read.
    The salt is there twice, because without it no frame of the segment can be checked.
    """
    packed = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, generation, base, first_cursor)
    return (packed + _CRC.pack(crc32c(packed)) + 2 * _salt_bytes(salt)).ljust(SEGMENT_HEADER_BYTES, b"\0")


def is_current_format(header: bytes) -> bool:
    """Return whether a segment with this header, which was checked, may be continued."""
    return bool(_HEADER.unpack_from(header)[1] == FORMAT_VERSION)


def salt_of(header: bytes) -> int:
    """Return the salt of a segment, even if its header is damaged elsewhere; 0 if there is none."""
    for at in _SALTS_AT:
        packed = header[at : at + _SALT.size]
        if len(packed) == _SALT.size and packed == _salt_bytes(salt := _SALT.unpack(packed)[0]):
            return int(salt)
    return 0


def _salt_bytes(salt: int) -> bytes:
    return _SALT.pack(salt, crc32c(_CRC.pack(salt), _SALTED))


def read_segment_header(path: Path, data: bytes, base: int, generation: int) -> Segment:
    """Check a segment's header against its name."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise CorruptionError(f"{path.name} has an incomplete header")
    magic, version, _, own_generation, own_base, first_cursor = _HEADER.unpack_from(data)
    if magic != _MAGIC or _CRC.unpack_from(data, _HEADER.size)[0] != crc32c(data[: _HEADER.size]):
        raise CorruptionError(f"{path.name} has a damaged header")
    if version > FORMAT_VERSION:
        raise FormatError(f"{path.name} has format {version}; this version of Tailrace reads up to {FORMAT_VERSION}: upgrade")
    if version >= _SALTED and data[_SALTS_AT.start : _SALTS_AT.stop] != 2 * _salt_bytes(salt_of(data)):
        raise CorruptionError(f"{path.name} has a damaged header")
    if (own_base, own_generation) != (base, generation):
        raise CorruptionError(
            f"the header of {path.name} belongs to {own_base:020d}-{own_generation:06d}: a file was moved or copied"
        )
    return Segment(path, Position(base), generation, Cursor(first_cursor))


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable, whoever wrote them."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make created, renamed and removed names durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SegmentUsage:
    """The spans of partitions in one segment."""

    __slots__ = ("_growing", "base", "first_cursor", "generation", "size", "spans")

    def __init__(self, base: Position, generation: int, first_cursor: Cursor) -> None:
        self.base = base
        self.generation = generation
        self.first_cursor = first_cursor
        self.size = 0
        """Bytes of the file once it is closed, else 0."""
        self.spans: dict[PartitionId, tuple[int, int]] = {}
        """First and end byte of each partition that got no batch since this segment was opened, counted over its whole life."""
        self._growing: list[PartitionIndex] = []

    def enter(self, index: PartitionIndex) -> None:
        """Note that the partition gets its next batch in this segment."""
        first, _ = self.spans.pop(index.partition, (index.end_bytes, 0))
        index.segment, index.span_begin = self.base, first
        self._growing.append(index)

    def close(self, size: int) -> None:
        """Fix the size and the spans: the next batches go to another segment."""
        self.size = size
        self.spans = dict(self._all_spans())
        self._growing = []

    def live_bytes(self, partitions: Mapping[PartitionId, PartitionIndex]) -> int:
        live = 0
        for partition, (first, end) in self._all_spans():
            index = partitions.get(partition)
            if index is not None:
                live += max(0, end - max(first, index.start_bytes))
        return live

    def holds_deleted(self, partitions: Mapping[PartitionId, PartitionIndex]) -> bool:
        return any(partition not in partitions for partition, _ in self._all_spans())

    def holds_any(self, partitions: Collection[PartitionId]) -> bool:
        """Return whether there are batches of one of these partitions."""
        return bool(partitions) and any(partition in partitions for partition, _ in self._all_spans())

    def _all_spans(self) -> Iterator[tuple[PartitionId, tuple[int, int]]]:
        yield from self.spans.items()
        for index in self._growing:
            yield index.partition, (index.span_begin, index.end_bytes)

    def pack(self) -> bytes:
        pack = _SPAN.pack
        spans = [pack(partition_key(partition), first, end) for partition, (first, end) in self.spans.items()]
        spans += [pack(index.key, index.span_begin, index.end_bytes) for index in self._growing]
        return _USAGE_HEAD.pack(self.generation, self.first_cursor, self.size) + b"".join(spans)

    @staticmethod
    def was_closed(packed: bytes) -> bool:
        """Return whether the segment was closed when it was packed."""
        return bool(_USAGE_HEAD.unpack_from(packed)[2])

    @classmethod
    def unpack(cls, base: int, packed: bytes) -> "SegmentUsage":
        generation, first_cursor, size = _USAGE_HEAD.unpack_from(packed)
        usage = cls(Position(base), generation, Cursor(first_cursor))
        usage.size = size
        for key, first, end in _SPAN.iter_unpack(packed[_USAGE_HEAD.size :]):
            usage.spans[partition_of(key)] = (first, end)
        return usage
