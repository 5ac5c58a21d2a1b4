"""Rewrites a closed segment under its next generation, with what is kept of it.

Dead batches are left out. A compaction also edits batches: it leaves some out and replaces others by shorter ones. The new
file is durable before the switch, which is one write to RocksDB and tells the index where all batches are now. The old file is
removed after it. A batch that a compaction leaves out stays in the index with a length of 0, so that the offsets of the
partition have no hole there (`log.index_compaction`).
"""

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from struct import Struct

from rocksdict import WriteBatch

from tailrace.log.active_segment import write_all
from tailrace.log.batch_location import BatchLocation, pack_location, unpack_location
from tailrace.log.catalog import Catalog
from tailrace.log.frame import HEAD_BYTES, BatchEntry, Frame, encode_head, encode_kept_entries, read_frame
from tailrace.log.index import NO_TIMESTAMP, SavedIndex, partition_key
from tailrace.log.kernel_hints import KernelHints
from tailrace.log.options import LogOptions
from tailrace.log.recovery import map_file
from tailrace.log.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentFolder,
    SegmentUsage,
    encode_segment_header,
    new_salt,
    salt_of,
    sync_folder,
)
from tailrace.log.state import CURSOR, SEGMENT, StateDb
from tailrace.model.commit import Buffer
from tailrace.model.ids import PartitionId, Position
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import MIB
from tailrace.wire.batch import read_header

_WRITE_BYTES = 4 * MIB
_U64 = Struct(">Q")
_LATEST_TIMESTAMP = (1 << 63) - 1

EditBatch = Callable[[BatchEntry, Buffer], Buffer | None]
"""Returns what is kept of a batch: the same object if that is all of it, and `None` if it is nothing."""


class SegmentGrewError(Exception):
    """The segment would be longer than before, because its batches can't be compressed as well as their producer did."""


class _MovedBatches:
    """The batches of one partition in a segment: what the index has to learn of them."""

    __slots__ = ("bases", "first_base", "is_edited", "lengths", "newest", "positions", "removed")

    def __init__(self, first_base: int) -> None:
        self.first_base = first_base
        self.bases = array("Q")
        """The base offsets of those that were written, in order."""
        self.positions = array("Q")
        self.lengths = array("I")
        self.newest = array("q")
        self.removed = array("Q")
        """The base offsets of batches that are left out and yet have live offsets, in order."""
        self.is_edited = False

    def add(self, entry: BatchEntry, position: int) -> None:
        self.bases.append(entry.base_offset)
        self.positions.append(position)
        self.lengths.append(entry.length)
        self.newest.append(entry.max_timestamp)

    def moved(self, location: BatchLocation) -> BatchLocation:
        """Return where the batch is now."""
        base = location.base_offset
        at = _found(self.bases, base)
        if at is not None:
            return location._replace(position=self.positions[at], length=self.lengths[at], max_timestamp=self.newest[at])
        if _found(self.removed, base) is not None:
            return location._replace(length=0, max_timestamp=NO_TIMESTAMP, oldest_timestamp=_LATEST_TIMESTAMP)
        return location


class SegmentRewriter:
    """Used by one thread at a time."""

    def __init__(
        self,
        catalog: Catalog,
        saved: SavedIndex,
        state: StateDb,
        segments: SegmentFolder,
        lock: "AbstractContextManager[object]",
        options: LogOptions,
    ) -> None:
        self._catalog = catalog
        self._saved = saved
        self._state = state
        self._segments = segments
        self._lock = lock
        self._options = options
        self._hints = KernelHints()

    def rewrite(
        self,
        usage: SegmentUsage,
        edit: EditBatch | None = None,
        switching: Callable[[], AbstractContextManager[object]] | None = None,
        between: Callable[[], None] | None = None,
    ) -> int:
        """Rewrite the segment and return its new size.

        `switching` is entered for the switch; without it the caller excludes checkpoints. `between` is called between frames.
        Raises `BadFrameError`, `StorageReadError`, `SegmentGrewError`; then the segment stays as it is.
        """
        killpoint("clean.before")
        old = self._segments.at(usage.base)
        new = Segment(self._segments.path(old.base, old.generation + 1), old.base, old.generation + 1, old.first_cursor)
        moves: dict[PartitionId, _MovedBatches] = {}
        cursor_entries: list[tuple[int, int]] = []
        try:
            size = self._write(old, new, moves, cursor_entries, edit, between)
        except BaseException:
            new.path.unlink(missing_ok=True)
            raise
        killpoint("clean.written")
        if switching is None:
            self._switch(usage, old, new, size, moves, cursor_entries)
        else:
            with switching():
                self._switch(usage, old, new, size, moves, cursor_entries)
        self._segments.delete(old)
        return size

    def delete_cursor_entries(self, batch: WriteBatch, segment: Segment) -> None:
        following = self._segments.after(segment)
        batch.delete_range(CURSOR + _U64.pack(segment.first_cursor), CURSOR + _U64.pack(following.first_cursor))

    def live_frames(self, segment: Segment, data: memoryview) -> Generator[tuple[Frame, list[BatchEntry]], None, None]:
        """Yield the frames that hold live batches, with these."""
        partitions = self._catalog.partitions
        salt = salt_of(bytes(data[:SEGMENT_HEADER_BYTES]))
        at = SEGMENT_HEADER_BYTES
        while at < len(data):
            frame = read_frame(data, at, segment.base + at, salt)
            at += frame.size
            live = []
            for entry in frame.entries:
                index = partitions.get(entry.partition)
                if index is not None and entry.base_offset + entry.records > index.start:
                    live.append(entry)
            if live:
                yield frame, live

    def _write(
        self,
        old: Segment,
        new: Segment,
        moves: dict[PartitionId, _MovedBatches],
        cursor_entries: list[tuple[int, int]],
        edit: EditBatch | None,
        between: Callable[[], None] | None,
    ) -> int:
        """Write what is kept of `old` to `new`, durably. Return the size of the new file."""
        room = self._segments.after(old).base - old.base
        fd = os.open(new.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            salt = new_salt()
            buffers: list[Buffer] = [encode_segment_header(new.base, new.generation, new.first_cursor, salt)]
            position = new.base + SEGMENT_HEADER_BYTES
            waiting = 0
            with map_file(old.path) as data, closing(self.live_frames(old, data)) as frames:
                for frame, live in frames:
                    kept = _kept(live, data, old.base, edit, moves)
                    if between is not None:
                        between()
                    if not kept:
                        continue
                    entries = encode_kept_entries([entry for entry, _ in kept])
                    at = position + HEAD_BYTES + sum(map(len, entries))
                    for entry, batch in kept:
                        moves[entry.partition].add(entry, at)
                        at += len(batch)
                    body = sum(len(batch) for _, batch in kept)
                    cursor = kept[0][0].cursor
                    if not cursor_entries or position - cursor_entries[-1][1] >= self._options.cursor_stride_bytes:
                        cursor_entries.append((cursor, position))
                    buffers.append(encode_head(position, frame.synced, cursor, frame.hlc, entries, b"", 0, body, salt))
                    buffers += [batch for _, batch in kept]
                    waiting += at - position
                    position = at
                    if position - new.base > room:
                        raise SegmentGrewError(f"{old.path.name} would not get smaller")
                    if waiting >= _WRITE_BYTES:
                        write_all(fd, buffers)
                        # So that the sync at the end, which others may have to wait for, has less to do.
                        self._hints.start_writing(fd, position - new.base - waiting, waiting)
                        buffers, waiting = [], 0
            write_all(fd, buffers)
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(new.path.parent)
        return position - new.base

    def _switch(
        self,
        usage: SegmentUsage,
        old: Segment,
        new: Segment,
        size: int,
        moves: dict[PartitionId, _MovedBatches],
        cursor_entries: list[tuple[int, int]],
    ) -> None:
        """Make the new file the segment, in one write."""
        kept = SegmentUsage(usage.base, new.generation, usage.first_cursor)
        kept.size = size
        kept.spans = {
            partition: span for partition, span in usage.spans.items() if partition in moves and moves[partition].bases
        }
        batch = self._state.batch()
        batch.put(SEGMENT + _U64.pack(usage.base), kept.pack())
        self.delete_cursor_entries(batch, old)
        for cursor, position in cursor_entries:
            batch.put(CURSOR + _U64.pack(cursor), _U64.pack(position))
        # Locations of dead batches keep their positions from before earlier rewrites, so they may be beyond the file's size.
        positions = range(old.base, self._segments.after(old).base)
        with self._lock, self._segments.moving():
            for partition, moved in moves.items():
                self._move(batch, partition, moved, positions)
            self._state.write(batch)
            self._segments.replace(old, new)
        killpoint("clean.switched")
        self._state.flush()

    def _move(self, batch: WriteBatch, partition: PartitionId, moved: _MovedBatches, old: range) -> None:
        """Update the saved index and the locations in memory to what is in the new file."""

        def at_new_position(location: BatchLocation) -> bytes:
            return pack_location(*(moved.moved(location) if location.position in old else location))

        for locations in self._saved.chunks(partition, moved.first_base):
            if locations[0].position >= old.stop:
                break
            self._saved.save_chunk(batch, partition_key(partition), [at_new_position(location) for location in locations])
        index = self._catalog.partitions.get(partition)
        if index is None:
            return
        if moved.is_edited:
            # Their old bytes may be cached. Readers find them on disk from now on.
            index.forget_before(old.stop)
            return
        for at, location in enumerate(map(unpack_location, index.locations)):
            if location.position >= old.stop:
                break
            index.locations[at] = at_new_position(location)


def _found(bases: "array[int]", base: int) -> int | None:
    at = bisect_left(bases, base)
    return at if at < len(bases) and bases[at] == base else None


def _kept(
    live: list[BatchEntry], data: memoryview, base: Position, edit: EditBatch | None, moves: dict[PartitionId, _MovedBatches]
) -> list[tuple[BatchEntry, Buffer]]:
    """Return the batches of a frame that are written, each with its entry as it is in the new frame."""
    kept: list[tuple[BatchEntry, Buffer]] = []
    for entry in live:
        first = entry.position - base
        batch = bytes(data[first : first + entry.length])
        moved = moves.get(entry.partition)
        if moved is None:
            moved = moves[entry.partition] = _MovedBatches(entry.base_offset)
        edited = batch if edit is None else edit(entry, batch)
        if edited is None:
            moved.removed.append(entry.base_offset)
            moved.is_edited = True
            continue
        if edited is not batch:
            moved.is_edited = True
            header = read_header(edited)
            # Where the records have no timestamps, the frame has the time of the append.
            newest = entry.max_timestamp if header.max_timestamp < 0 else header.max_timestamp
            entry = entry._replace(length=len(edited), crc=header.crc, max_timestamp=newest)
        kept.append((entry, edited))
    return kept
