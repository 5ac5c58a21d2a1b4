"""Reading the log: the tail from memory, the rest from disk in large spans. Every batch is checked before it is served.

`fast_reader.py` reads what is in the page cache.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from tailrace.log.batch_location import BatchLocation, base_offset_of, cursor_of, index_above, index_holding, unpack_cursor
from tailrace.log.catalog import Catalog
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.chunk_cache import ChunkCache
from tailrace.log.fast_reader import FastReader
from tailrace.log.frame import BadFrameError, BatchEntry, Frame, batch_fault, frame_size, read_frame
from tailrace.log.index import IndexReader, PartitionIndex
from tailrace.log.options import LogOptions
from tailrace.log.segment import SEGMENT_HEADER_BYTES, SegmentFolder, SegmentHandle
from tailrace.model.commit import Buffer, FetchedBatches, LogBatch, OffsetBounds, ScannedBatches
from tailrace.model.errors import CorruptionError, OffsetOutOfRangeError, UnknownPartitionError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.stats import StoreStats
from tailrace.model.topic import TopicNames

_SCAN_LIMIT_BYTES = 16 << 20
_RETRIES = 3
_Read = TypeVar("_Read")
_Found = tuple[list[Buffer], Sequence[Cursor]]


class LogReader:
    """Any thread may read. If the cleaner moves batches meanwhile, their locations are looked up again."""

    def __init__(
        self,
        catalog: Catalog,
        index: IndexReader,
        chunks: ChunkCache,
        checkpoints: Checkpoints,
        segments: SegmentFolder,
        lock: threading.Lock,
        options: LogOptions,
        stats: StoreStats,
        topic_names: TopicNames,
    ) -> None:
        self.topic_names = topic_names
        self._lock = lock
        self._catalog = catalog
        self._index = index
        self._chunks = chunks
        self._checkpoints = checkpoints
        self._segments = segments
        self._options = options
        self._stats = stats
        self._fast = FastReader(chunks, segments, options, stats)

    def is_hot(self, index: PartitionIndex, offset: int) -> bool:
        """Return whether a fetch from this offset is served from memory."""
        locations = index.locations
        return offset >= index.end or (
            bool(locations)
            and offset >= base_offset_of(locations[0])
            and (cursor := cursor_of(locations[index_holding(locations, offset)])) in self._catalog.cache.run_with(cursor)
        )

    def bounds(self, index: PartitionIndex) -> OffsetBounds:
        """Return where the partition starts and ends."""
        with self._lock:  # a commit moves the ends of all its partitions at once
            return OffsetBounds(Offset(index.start), Offset(index.end))

    def fetch(self, index: PartitionIndex, offset: int, max_bytes: int) -> FetchedBatches:
        """Return whole batches from the one that holds `offset` on."""
        bounds = self.bounds(index)
        self._check_range(index, offset, bounds)
        if offset == bounds.end:
            return FetchedBatches((), bounds, ())
        found, cursors = self._from_memory(index, offset, bounds.end, max_bytes)
        if found:
            self._stats.fetches_from_memory += 1
        else:
            self._stats.fetches_from_disk += 1
            found, cursors = self._retry_if_moved(lambda: self._from_disk(index, offset, bounds.end, max_bytes))
        return FetchedBatches(found, bounds, cursors)

    def fetch_cached(
        self, index: PartitionIndex, offset: int, max_bytes: int, *, at_least_one: bool = True
    ) -> FetchedBatches | None:
        """Return what `fetch` would, from the page cache, without waiting for the disk.

        Otherwise, and whenever anything is not as it should be, return `None`, and leave it to `fetch`.
        """
        moves = self._segments.moves
        bounds = self.bounds(index)
        if not bounds.start <= offset < bounds.end:
            return None
        found = self._fast.read(index, offset, bounds.end, max_bytes, at_least_one=at_least_one)
        # Checked after the index was read, because the partition may have been dropped meanwhile.
        if found is None or self._segments.moved_since(moves) or self._catalog.partitions.get(index.partition) is not index:
            return None
        batches, cursors = found
        self._stats.fetches_from_page_cache += 1
        return FetchedBatches(batches, bounds, cursors)

    def start_reading(self, index: PartitionIndex, offset: int, max_bytes: int) -> None:
        """Have the disk begin to read what a fetch is going to return."""
        bounds = self.bounds(index)
        if bounds.start <= offset < bounds.end:
            self._fast.start_reading(index, offset, bounds.end, max_bytes)

    def scan(self, cursor: int, max_bytes: int) -> ScannedBatches:
        """Return batches of all partitions in log order from the cursor on."""
        return self._retry_if_moved(lambda: self._scan(cursor, max_bytes))

    def _retry_if_moved(self, read: Callable[[], _Read]) -> _Read:
        """Read again if the cleaner moved batches meanwhile, because then the result may be wrong or look corrupt."""
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
        with self._lock:  # the cleaner moves nothing while it is held
            return read()

    def _from_disk(self, index: PartitionIndex, offset: int, end: int, max_bytes: int) -> _Found:
        walked = self._index.walk(index, offset)
        first = next(walked, None)
        # Batches that compaction has removed have a location without bytes.
        stored = (location for location in chain((first,) if first else (), walked) if location.length)
        locations = _up_to(stored, end, max_bytes)
        # The partition may have been dropped, or retention may have passed the offset, since both were checked.
        # `_retry_if_moved` notices what the cleaner moves after this.
        if self._catalog.partitions.get(index.partition) is not index:
            raise UnknownPartitionError.of(self.topic_names.of(index.partition))
        self._check_range(index, offset, OffsetBounds(Offset(index.start), Offset(index.end)))
        if not locations or first is None or first.base_offset > offset:
            raise CorruptionError(
                f"the index of {self.topic_names.of(index.partition)} has no batch for offset {offset}; see `tailrace fsck`"
            )
        batches = [batch for span in self._spans(locations) for batch in self._read_span(index.partition, span)]
        self._chunks.load(index, locations[-1].end_offset)
        return batches, [Cursor(location.cursor) for location in locations]

    def _from_memory(self, index: PartitionIndex, offset: int, end: int, max_bytes: int) -> _Found:
        locations = index.locations
        run: Mapping[int, Buffer] = {}
        found: list[Buffer] = []
        cursors: list[Cursor] = []
        if not locations or offset < base_offset_of(locations[0]):
            return found, cursors
        size = 0
        for at in range(index_holding(locations, offset), index_above(locations, end - 1)):
            (cursor,) = unpack_cursor(locations[at])
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

    def _spans(self, locations: Sequence[BatchLocation]) -> Iterator[Sequence[BatchLocation]]:
        """Yield runs of locations to read at once: near each other, in one segment, not too large."""
        first = 0
        for at in range(1, len(locations) + 1):
            if at < len(locations):
                before, location = locations[at - 1], locations[at]
                gap = location.position - before.position - before.length
                is_near = gap <= self._options.gap_bytes
                is_small = location.position + location.length - locations[first].position <= self._options.span_bytes
                if is_near and is_small and self._segments.same(before.position, location.position):
                    continue
            yield locations[first:at]
            first = at

    def _check_range(self, index: PartitionIndex, offset: int, bounds: OffsetBounds) -> None:
        if not bounds.start <= offset <= bounds.end:
            raise OffsetOutOfRangeError.of(self.topic_names.of(index.partition), offset, *bounds)

    def _read_span(self, partition: PartitionId, span: Sequence[BatchLocation]) -> Iterator[Buffer]:
        start = span[0].position
        handle = self._segments.handle(start)
        length = span[-1].position + span[-1].length - start
        data = memoryview(self._read(handle, start, length))
        # Views keep the whole span in memory; if most of it belongs to other partitions, copies take less.
        is_sparse = sum(location.length for location in span) * 2 < length
        for location in span:
            batch = data[location.position - start : location.position - start + location.length]
            fault = batch_fault(batch, location.base_offset)
            if fault:
                raise CorruptionError(
                    f"{self.topic_names.of(partition)}: {fault}"
                    f" (segment {handle.segment.path.name}, position {location.position}); see `tailrace fsck`"
                )
            yield bytes(batch) if is_sparse else batch

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
        """Yield frames in log order from one at or before the cursor, each with the bytes around it and its index in them."""
        entry = self._catalog.cursor_entry_before(cursor) or self._checkpoints.cursor_entry_before(cursor)
        position = entry[1] if entry else 0
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


def _up_to(locations: Iterator[BatchLocation], end: int, max_bytes: int) -> list[BatchLocation]:
    """Return locations below `end`, up to `max_bytes` but at least one."""
    taken: list[BatchLocation] = []
    size = 0
    for location in locations:
        size += location.length
        if location.base_offset >= end or (taken and size > max_bytes):
            break
        taken.append(location)
    return taken
