"""Reading: the tail from memory, the rest from disk in large pieces, every byte checked before it is served."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from tailrace.log.batch_location import BatchLocation, base_offset_of, cursor_of, index_above, index_holding, unpack_cursor
from tailrace.log.catalog import Catalog
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.frame import BadFrameError, BatchEntry, Frame, batch_fault, frame_size, read_frame
from tailrace.log.index import IndexReader, PartitionIndex
from tailrace.log.options import LogOptions
from tailrace.log.segment import SEGMENT_HEADER_BYTES, SegmentFolder, SegmentHandle
from tailrace.model.commit import Buffer, FetchedBatches, LogBatch, OffsetBounds, ScannedBatches
from tailrace.model.errors import CorruptionError, OffsetOutOfRangeError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.stats import StoreStats
from tailrace.model.topic import TopicNames

_SCAN_LIMIT_BYTES = 16 << 20
_RETRIES = 3
_Read = TypeVar("_Read")
_Found = tuple[list[Buffer], Sequence[Cursor]]


class LogReader:
    """Any thread may read. A reader meets the cleaner at work: then places have moved, and it looks them up again."""

    def __init__(
        self,
        catalog: Catalog,
        index: IndexReader,
        checkpoints: Checkpoints,
        segments: SegmentFolder,
        lock: threading.Lock,
        options: LogOptions,
        stats: StoreStats,
        topic_names: TopicNames,
    ) -> None:
        self._topic_names = topic_names
        self._lock = lock
        self._catalog = catalog
        self._index = index
        self._checkpoints = checkpoints
        self._segments = segments
        self._options = options
        self._stats = stats

    def is_hot(self, index: PartitionIndex, offset: int) -> bool:
        places = index.places
        return offset >= index.end or (
            bool(places)
            and offset >= base_offset_of(places[0])
            and (cursor := cursor_of(places[index_holding(places, offset)])) in self._catalog.cache.run_with(cursor)
        )

    def bounds(self, index: PartitionIndex) -> OffsetBounds:
        """Where the partition starts and ends. A commit to many partitions moves the ends of all of them at once."""
        with self._lock:
            return OffsetBounds(Offset(index.start), Offset(index.end))

    def fetch(self, index: PartitionIndex, offset: int, max_bytes: int) -> FetchedBatches:
        """Whole batches from the one that holds `offset` on."""
        bounds = self.bounds(index)
        self._check_range(index, offset, bounds)
        if offset == bounds.end:
            return FetchedBatches((), bounds, ())
        found, cursors = self._from_memory(index, offset, bounds.end, max_bytes)
        if found:
            self._stats.fetches_from_memory += 1
        else:
            self._stats.fetches_from_disk += 1
            found, cursors = self._steadily(lambda: self._from_disk(index, offset, bounds.end, max_bytes))
        return FetchedBatches(found, bounds, cursors)

    def scan(self, cursor: int, max_bytes: int) -> ScannedBatches:
        return self._steadily(lambda: self._scan(cursor, max_bytes))

    def _steadily(self, read: Callable[[], _Read]) -> _Read:
        """Read again if the cleaner moved something meanwhile: then what was read may be wrong, or look corrupt."""
        for _ in range(_RETRIES):
            moves = self._segments.moves
            try:
                result = read()
            except CorruptionError:
                if not self._segments.moved_since(moves):
                    raise
            else:
                if not self._segments.moved_since(moves):
                    return result
        with self._lock:  # keeps the cleaner from moving anything
            return read()

    def _from_disk(self, index: PartitionIndex, offset: int, end: int, max_bytes: int) -> _Found:
        places = _up_to(self._index.walk(index, offset), end, max_bytes)
        # Retention may have passed the offset since the range was checked.
        self._check_range(index, offset, OffsetBounds(Offset(index.start), Offset(index.end)))
        if not places or places[0].base_offset > offset:
            raise CorruptionError(f"the index of {index.partition} has no batch for offset {offset}; see `tailrace fsck`")
        batches = [batch for piece in self._pieces(places) for batch in self._read_piece(index.partition, piece)]
        return batches, [Cursor(place.cursor) for place in places]

    def _from_memory(self, index: PartitionIndex, offset: int, end: int, max_bytes: int) -> _Found:
        places = index.places
        run: Mapping[int, Buffer] = {}
        found: list[Buffer] = []
        cursors: list[Cursor] = []
        if not places or offset < base_offset_of(places[0]):
            return found, cursors
        size = 0
        for at in range(index_holding(places, offset), index_above(places, end - 1)):
            (cursor,) = unpack_cursor(places[at])
            batch = run.get(cursor)
            if batch is None:
                run = self._catalog.cache.run_with(cursor)
                batch = run.get(cursor)
                if batch is None:
                    break
            size += len(batch)
            if found and size > max_bytes:
                break
            found.append(batch)
            cursors.append(cursor)
        return found, cursors

    def _pieces(self, places: Sequence[BatchLocation]) -> Iterator[Sequence[BatchLocation]]:
        """Runs of places that are read at once: near each other, in one segment, not too large."""
        first = 0
        for at in range(1, len(places) + 1):
            if at < len(places):
                before, place = places[at - 1], places[at]
                gap = place.position - before.position - before.length
                near = gap <= self._options.gap_bytes
                small = place.position + place.length - places[first].position <= self._options.span_bytes
                if near and small and self._segments.same(before.position, place.position):
                    continue
            yield places[first:at]
            first = at

    def _check_range(self, index: PartitionIndex, offset: int, bounds: OffsetBounds) -> None:
        if not bounds.start <= offset <= bounds.end:
            raise OffsetOutOfRangeError.of(self._topic_names.of(index.partition), offset, *bounds)

    def _read_piece(self, partition: PartitionId, piece: Sequence[BatchLocation]) -> Iterator[Buffer]:
        start = piece[0].position
        handle = self._segments.handle(start)
        length = piece[-1].position + piece[-1].length - start
        data = memoryview(self._read(handle, start, length))
        # Views keep the whole piece in memory; where most of it is other partitions' bytes, copies are smaller.
        sparse = sum(place.length for place in piece) * 2 < length
        for place in piece:
            batch = data[place.position - start : place.position - start + place.length]
            fault = batch_fault(batch, place.base_offset)
            if fault:
                raise CorruptionError(
                    f"{self._topic_names.of(partition)}: {fault}"
                    f" (segment {handle.segment.path.name}, position {place.position}); see `tailrace fsck`"
                )
            yield bytes(batch) if sparse else batch

    def _read(self, handle: SegmentHandle, position: int, length: int) -> bytes:
        self._stats.disk_reads += 1
        self._stats.disk_read_bytes += length
        return handle.read(position, length)

    def _scan(self, cursor: int, max_bytes: int) -> ScannedBatches:
        end = self._catalog.end
        found: list[LogBatch] = []
        size = 0
        read = 0
        next_cursor = cursor
        span = min(self._options.span_bytes, max_bytes + self._options.cursor_stride_bytes)
        for frame, data, at in self._frames_from(cursor, end.position, span):
            read += frame.size
            for entry in frame.entries:
                if entry.cursor + entry.records <= cursor or not self._is_alive(entry):
                    continue
                size += entry.length
                if found and size > max_bytes:
                    return ScannedBatches(found, Cursor(entry.cursor))
                body = entry.position - frame.position + at
                batch = bytes(data[body : body + entry.length])
                found.append(LogBatch(entry.cursor, entry.partition, entry.base_offset, entry.records, frame.hlc, batch))
            next_cursor = max(next_cursor, frame.end_cursor)
            if read > _SCAN_LIMIT_BYTES and next_cursor > cursor:
                return ScannedBatches(found, Cursor(next_cursor))
        return ScannedBatches(found, Cursor(max(next_cursor, end.cursor)))

    def _is_alive(self, entry: BatchEntry) -> bool:
        index = self._catalog.partitions.get(entry.partition)
        return index is not None and entry.base_offset + entry.records > index.start

    def _frames_from(self, cursor: int, end: int, span: int) -> Iterator[tuple[Frame, memoryview, int]]:
        """Frames in log order from one at or before the cursor; with each, the bytes it was read from and its place in them."""
        mark = self._catalog.mark_before(cursor) or self._checkpoints.mark_before(cursor)
        position = mark[1] if mark else 0
        while position < end:
            handle = self._segments.handle(position, or_after=True)
            base = handle.segment.base
            position = max(position, base + SEGMENT_HEADER_BYTES)
            stop = min(end, base + handle.size())
            while position < stop:
                data = memoryview(self._read(handle, position, min(span, stop - position)))
                at = 0
                while at < len(data):
                    try:
                        size = frame_size(data, at)
                        if at + size > len(data):
                            if at:
                                break
                            data = memoryview(self._read(handle, position, size))
                        frame = read_frame(data, at, position + at, handle.salt)
                    except BadFrameError as error:
                        raise CorruptionError(
                            f"segment {handle.segment.path.name}, position {position + at}: {error}; see `tailrace fsck`"
                        ) from None
                    yield frame, data, at
                    at += frame.size
                position += at
            following = self._segments.next_base(handle.segment)
            if following is None:
                return
            position = following


def _up_to(places: Iterator[BatchLocation], end: int, max_bytes: int) -> list[BatchLocation]:
    """Places below `end`, up to `max_bytes` but at least one."""
    taken: list[BatchLocation] = []
    size = 0
    for place in places:
        size += place.length
        if place.base_offset >= end or (taken and size > max_bytes):
            break
        taken.append(place)
    return taken
