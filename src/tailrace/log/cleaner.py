"""The cleaner frees the disk space of batches that retention or a deleted topic has removed.

It works on closed segments. A segment without live batches is deleted. One that is mostly dead, or that holds records of a
deleted topic, is rewritten under the next generation with only its live batches. RocksDB decides which generation counts: the
new file is durable before the switch, the old one is removed after it, and what a crash leaves behind is removed at the next
start.
"""

import logging
import os
import threading
from array import array
from bisect import bisect_left
from collections.abc import Generator
from contextlib import closing
from struct import Struct

from rocksdict import WriteBatch

from tailrace.log.active_segment import write_all
from tailrace.log.batch_location import BatchLocation, pack_location, unpack_location
from tailrace.log.catalog import Catalog
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.frame import HEAD_BYTES, BadFrameError, BatchEntry, encode_head, encode_kept_entries, read_frame
from tailrace.log.index import SavedIndex, partition_key
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
from tailrace.model.errors import StorageReadError
from tailrace.model.ids import PartitionId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import MIB
from tailrace.model.stats import StoreStats

_WRITE_BYTES = 4 * MIB
_U64 = Struct(">Q")

_logger = logging.getLogger(__name__)


class _MovedBatches:
    """The batches of one partition that were rewritten: their base offsets, in order, and their new positions."""

    __slots__ = ("bases", "positions")

    def __init__(self) -> None:
        self.bases = array("Q")
        self.positions = array("Q")

    def new_position(self, base_offset: int) -> int | None:
        at = bisect_left(self.bases, base_offset)
        return self.positions[at] if at < len(self.bases) and self.bases[at] == base_offset else None


class Cleaner:
    """Runs in the maintenance thread, on segments that a checkpoint has closed."""

    def __init__(
        self,
        catalog: Catalog,
        saved: SavedIndex,
        checkpoints: Checkpoints,
        state: StateDb,
        segments: SegmentFolder,
        lock: threading.Lock,
        options: LogOptions,
        stats: StoreStats,
    ) -> None:
        self._catalog = catalog
        self._saved = saved
        self._checkpoints = checkpoints
        self._state = state
        self._segments = segments
        self._lock = lock
        self._options = options
        self._stats = stats

    def is_worth_cleaning(self, usage: SegmentUsage, size: int) -> bool:
        """Return whether a segment of this size is worth rewriting."""
        partitions = self._catalog.partitions
        return usage.holds_deleted(partitions) or usage.live_bytes(partitions) <= size * (1 - self._options.clean_dead_ratio)

    def run(self) -> None:
        """Clean all closed segments that are worth it."""
        self._prune_index()
        for usage in list(self._checkpoints.usages()):
            if not usage.size:
                continue
            if not usage.live_bytes(self._catalog.partitions):
                self._delete(usage)
            elif self.is_worth_cleaning(usage, usage.size):
                try:
                    self._rewrite(usage)
                except (BadFrameError, StorageReadError) as error:
                    # What can't be read can't be copied. The segment stays as it is, and the others are cleaned.
                    _logger.error("segment %s can't be cleaned: %s", self._segments.at(usage.base).path.name, error)

    def _prune_index(self) -> None:
        batch = self._state.batch()
        for index in list(self._catalog.partitions.values()):
            if index.start > index.pruned:
                index.pruned = index.start
                self._saved.prune(batch, index.partition, index.start)
        self._state.write(batch)

    def _delete(self, usage: SegmentUsage) -> None:
        killpoint("clean.before")
        segment = self._segments.at(usage.base)
        batch = self._state.batch()
        batch.delete(SEGMENT + _U64.pack(usage.base))
        self._delete_cursor_entries(batch, segment)
        with self._lock, self._segments.moving():
            self._state.write(batch)
            self._segments.replace(segment, None)
        killpoint("clean.switched")
        self._state.flush()
        self._remove(segment)
        self._stats.segments_deleted += 1
        self._stats.cleaned_bytes += usage.size
        _logger.info("segment %s deleted: it holds no live batches", segment.path.name)

    def _rewrite(self, usage: SegmentUsage) -> None:
        killpoint("clean.before")
        old = self._segments.at(usage.base)
        new = Segment(self._segments.path(old.base, old.generation + 1), old.base, old.generation + 1, old.first_cursor)
        moves: dict[PartitionId, _MovedBatches] = {}
        cursor_entries: list[tuple[int, int]] = []
        size = self._write_live(old, new, moves, cursor_entries)
        killpoint("clean.written")
        kept = SegmentUsage(usage.base, new.generation, usage.first_cursor)
        kept.size = size
        kept.spans = {partition: span for partition, span in usage.spans.items() if partition in moves}
        batch = self._state.batch()
        batch.put(SEGMENT + _U64.pack(usage.base), kept.pack())
        self._delete_cursor_entries(batch, old)
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
        self._remove(old)
        self._stats.segments_rewritten += 1
        self._stats.cleaned_bytes += usage.size - size
        _logger.info("segment %s rewritten: %d of %d bytes kept", old.path.name, size, usage.size)

    def _write_live(
        self, old: Segment, new: Segment, moves: dict[PartitionId, _MovedBatches], cursor_entries: list[tuple[int, int]]
    ) -> int:
        """Write the live batches of `old` to `new`, durably. Return the size of the new file."""
        fd = os.open(new.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            salt = new_salt()
            buffers: list[Buffer] = [encode_segment_header(new.base, new.generation, new.first_cursor, salt)]
            position = new.base + SEGMENT_HEADER_BYTES
            waiting = 0
            with map_file(old.path) as data, closing(self._live_frames(old, data)) as frames:
                for frame_cursor, hlc, synced, live in frames:
                    entries = encode_kept_entries(live)
                    at = position + HEAD_BYTES + sum(map(len, entries))
                    bodies: list[Buffer] = []
                    for entry in live:
                        first = entry.position - old.base
                        bodies.append(bytes(data[first : first + entry.length]))
                        moved = moves.setdefault(entry.partition, _MovedBatches())
                        moved.bases.append(entry.base_offset)
                        moved.positions.append(at)
                        at += entry.length
                    body = sum(map(len, bodies))
                    if not cursor_entries or position - cursor_entries[-1][1] >= self._options.cursor_stride_bytes:
                        cursor_entries.append((frame_cursor, position))
                    buffers.append(encode_head(position, synced, frame_cursor, hlc, entries, b"", 0, body, salt))
                    buffers += bodies
                    waiting += at - position
                    position = at
                    if waiting >= _WRITE_BYTES:
                        write_all(fd, buffers)
                        buffers, waiting = [], 0
            write_all(fd, buffers)
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(new.path.parent)
        return position - new.base

    def _live_frames(self, segment: Segment, data: memoryview) -> Generator[tuple[int, int, int, list[BatchEntry]], None, None]:
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
                yield live[0].cursor, frame.hlc, frame.synced, live

    def _move(self, batch: WriteBatch, partition: PartitionId, moved: _MovedBatches, old: range) -> None:
        """Update the saved index and the locations in memory to the new positions."""

        def at_new_position(location: BatchLocation) -> bytes:
            new = moved.new_position(location.base_offset) if location.position in old else None
            return pack_location(*(location if new is None else location._replace(position=new)))

        for locations in self._saved.chunks(partition, moved.bases[0]):
            if locations[0].position >= old.stop:
                break
            self._saved.save_chunk(batch, partition_key(partition), [at_new_position(location) for location in locations])
        index = self._catalog.partitions.get(partition)
        if index is not None:
            for at, location in enumerate(map(unpack_location, index.locations)):
                if location.position >= old.stop:
                    break
                index.locations[at] = at_new_position(location)

    def _delete_cursor_entries(self, batch: WriteBatch, segment: Segment) -> None:
        following = self._segments.after(segment)
        batch.delete_range(CURSOR + _U64.pack(segment.first_cursor), CURSOR + _U64.pack(following.first_cursor))

    def _remove(self, segment: Segment) -> None:
        segment.path.unlink()
        sync_folder(segment.path.parent)
        killpoint("clean.after")
