"""The index of the log: where every batch of every partition is.

The newest batches of each partition are listed in memory. A checkpoint saves the list in chunks, so that older batches are
found with one lookup in RocksDB. Each entry carries the running maximum of the partition's timestamps and the running sum of
its bytes. Batches that a compaction has removed stay in the index, without bytes, so that the offsets have no holes. Both rise
with the offset, so that lookups by time and by size are binary searches, over the chunks and inside them, even when timestamps
are out of order. Each entry also carries the oldest timestamp of its batch. Nothing orders these, so a lookup of the batches
that are old enough for an upper bound goes over all entries of its range (`IndexReader.not_after`).

Where each partition starts and ends is saved as its counters. A checkpoint puts the counters of all partitions that have
changed into one value, because a key for each of them takes longer than the rest of what is saved of a partition with few
batches. Values are read in the order of the log, and the last one that names a partition counts. Now and then all counters are
saved, which makes the values before them obsolete (`Catalog.take_unsaved`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile
from struct import Struct
from typing import NamedTuple

from rocksdict import WriteBatch

from tailrace.log.batch_location import (
    BASE_BYTES,
    BatchLocation,
    base_offset_of,
    bytes_before_of,
    cursor_of,
    index_above,
    index_holding,
    last_location,
    oldest_in_chunk,
    oldest_timestamp_of,
    pack_chunk,
    pack_location,
    position_of,
    running_timestamp_of,
    unpack_chunk,
    unpack_location,
)
from tailrace.log.state import CHUNK, COUNTERS, OLD_COUNTER, OLD_TIME, StateDb, after_prefix
from tailrace.model.commit import OffsetBounds
from tailrace.model.ids import Offset, PartitionId, Position, TopicId
from tailrace.model.topic import TopicNames

_U64 = Struct(">Q")
_LAST_OFFSET = _U64.pack((1 << 64) - 1)
_PARTITION = Struct(">II")
_COUNTERS = Struct(">8sQQQQq")
_OLD_COUNTERS = Struct(">QQQQq")
_COUNTERS_KEY = Struct(">QI")
_COUNTERS_AT_ONCE = 4096
"""Partitions that share a value, at most: 200 KB."""
_NO_SEGMENT = Position(-1)
NO_TIMESTAMP = -1 << 63
_MIN_FORGOTTEN = 16
"""With many partitions each has few locations, and copying a list to drop one of them costs more than keeping it."""


class PartitionIndex:
    """The index of one partition. Changed by the writer under the log's lock; read by any thread."""

    __slots__ = (
        "end",
        "end_bytes",
        "is_dirty",
        "is_dropped",
        "key",
        "locations",
        "partition",
        "pruned",
        "running",
        "saved",
        "segment",
        "span_begin",
        "start",
        "start_bytes",
    )

    def __init__(self, partition: PartitionId) -> None:
        self.partition = partition
        self.key = partition_key(partition)
        self.start = 0
        self.end = 0
        self.start_bytes = 0
        self.end_bytes = 0
        self.running = NO_TIMESTAMP
        self.pruned = 0
        """The start up to which the saved index has been cleared."""
        self.locations: list[bytes] = []
        """Of the newest batches, packed. The list only grows, and is replaced to drop some, so reading it needs no lock."""
        self.saved = 0
        """How many of these locations are in the saved index, too."""
        self.is_dirty = False
        """Whether the next checkpoint has to save something of this partition."""
        self.is_dropped = False
        self.segment = _NO_SEGMENT
        """The base of the active segment, once it holds bytes of the partition."""
        self.span_begin = 0
        """The first of these bytes, counted over the partition's whole life."""

    def size(self) -> int:
        return self.end_bytes - self.start_bytes

    def pack_counters(self) -> bytes:
        return pack_counters(self.key, self.start, self.end, self.start_bytes, self.end_bytes, self.running)

    def forget_before(self, position: int) -> None:
        """Drop the saved locations before this position in the log. Their batches are found on disk from now on."""
        count = bisect_left(self.locations, position, hi=self.saved, key=position_of)
        self.locations = self.locations[count:]
        self.saved -= count

    def forget_saved(self, cursor: int) -> bool:
        """Drop the saved locations below the cursor, if there are many. Return whether there may be more to drop later."""
        if self.saved < _MIN_FORGOTTEN:
            return False
        count = bisect_left(self.locations, cursor, hi=self.saved, key=cursor_of)
        if count >= _MIN_FORGOTTEN:
            self.locations = self.locations[count:]
            self.saved -= count
        return self.saved >= _MIN_FORGOTTEN


class SavedIndex:
    """The part of the index that is on disk."""

    def __init__(self, state: StateDb, chunk_batches: int) -> None:
        self._state = state
        self._chunk_batches = chunk_batches
        self.counters = SavedCounters(state)

    def load(self) -> dict[PartitionId, PartitionIndex]:
        found = {}
        for partition, counters in self.counters.load().items():
            index = PartitionIndex(partition)
            index.start, index.end, index.start_bytes, index.end_bytes, index.running = counters
            found[partition] = index
        return found

    def save(self, batch: WriteBatch, partition_key: bytes, locations: Sequence[bytes]) -> None:
        """Save packed locations, in chunks."""
        for first in range(0, len(locations), self._chunk_batches):
            self.save_chunk(batch, partition_key, locations[first : first + self._chunk_batches])

    def save_chunk(self, batch: WriteBatch, partition_key: bytes, locations: Sequence[bytes]) -> None:
        batch.put(CHUNK + partition_key + locations[0][:BASE_BYTES], pack_chunk(locations))

    def drop_topic(self, batch: WriteBatch, topic_id: int) -> None:
        """Delete the chunks of a topic. Its counters go because the checkpoint that drops it saves all others."""
        prefix = CHUNK + topic_id.to_bytes(4, "big")
        batch.delete_range(prefix, after_prefix(prefix))

    def chunk_holding(self, partition: PartitionId, offset: int) -> list[BatchLocation]:
        """Return the last chunk that begins at or below the offset; no locations if there is none."""
        prefix = CHUNK + partition_key(partition)
        held = self._state.at_or_before(prefix, prefix + _U64.pack(offset))
        return list(unpack_chunk(held[1])) if held else []

    def replace_chunks(
        self, batch: WriteBatch, partition: PartitionId, old: Sequence[int], locations: Sequence[BatchLocation]
    ) -> None:
        """Save these locations in the place of the chunks with the old first offsets."""
        key = partition_key(partition)
        for first in old:
            batch.delete(CHUNK + key + _U64.pack(first))
        self.save(batch, key, [pack_location(*location) for location in locations])

    def chunks(self, partition: PartitionId, offset: int) -> Iterator[list[BatchLocation]]:
        """Return the saved locations in order, chunk by chunk, beginning with the chunk that holds `offset`."""
        return (list(unpack_chunk(packed)) for packed in self.packed_chunks(partition, offset))

    def locations(self, partition: PartitionId, offset: int) -> Iterator[BatchLocation]:
        """Yield the saved locations in order, beginning with the batch that holds `offset`."""
        for packed in self.packed_chunks(partition, offset):
            yield from unpack_chunk(packed, offset)

    def not_after(self, partition: PartitionId, timestamp: int, offset: int) -> Iterator[BatchLocation]:
        """Yield the saved locations of batches that may hold a record of this timestamp or before, in order.

        Begins with the batch that holds `offset`, or after it.
        """
        for packed in self.packed_chunks(partition, offset):
            if oldest_in_chunk(packed) <= timestamp:
                yield from (found for found in unpack_chunk(packed, offset) if found.oldest_timestamp <= timestamp)

    def packed_chunks(self, partition: PartitionId, offset: int) -> Iterator[bytes]:
        """Return the saved chunks in order, beginning with the one that holds `offset`."""
        prefix = CHUNK + partition_key(partition)
        held = self._state.at_or_before(prefix, prefix + _U64.pack(offset))
        start = held[0][len(prefix) :] if held else b""
        return (packed for _, packed in self._state.items(prefix, start))

    def chunk_for_time(self, partition: PartitionId, timestamp: int) -> int | None:
        """Return the first offset of the first chunk that ends with this running timestamp or a later one."""
        prefix = CHUNK + partition_key(partition)
        oldest = next(self._state.items(prefix), None)
        if oldest is None:
            return None
        last = last_location(oldest[1])
        if last.running_timestamp >= timestamp:
            return base_offset_of(oldest[1])
        newest = self._state.at_or_before(prefix, prefix + _LAST_OFFSET)
        if newest is None or last_location(newest[1]).running_timestamp < timestamp:
            return None
        # Invariant: chunks that begin below `low` end before the timestamp, the one at `found` does not.
        low, found = last.base_offset + last.records, base_offset_of(newest[1])
        while low < found:
            middle = (low + found) // 2
            held = self._state.at_or_before(prefix, prefix + _U64.pack(middle))
            if held is None:  # pruned in the meantime
                low = middle + 1
                continue
            last = last_location(held[1])
            if last.running_timestamp < timestamp:
                low = max(middle + 1, last.base_offset + last.records)
            else:
                found = base_offset_of(held[1])
        return found

    def faults(self, partition: PartitionId) -> Iterator[str]:
        """Yield what is inconsistent in the saved index, such as wrong sums, which lookups by time and size rely on."""
        before: BatchLocation | None = None
        for locations in self.chunks(partition, 0):
            for location in locations:
                if before is not None:
                    if location.base_offset != before.base_offset + before.records:
                        yield f"a batch begins at offset {location.base_offset}, expected {before.base_offset + before.records}"
                    # While a compaction is under way, and of the timestamps also after it, they may count what it has removed.
                    if location.bytes_before < before.bytes_before + before.length:
                        yield f"the sum of bytes before offset {location.base_offset} is wrong"
                    if location.running_timestamp < max(before.running_timestamp, location.max_timestamp):
                        yield f"the newest timestamp up to offset {location.base_offset} is wrong"
                before = location

    def prune(self, batch: WriteBatch, partition: PartitionId, start: int) -> int:
        """Delete the chunks that are wholly below `start` and return how many there were."""
        prefix = CHUNK + partition_key(partition)
        pruned = 0
        for locations in self.chunks(partition, 0):
            last = locations[-1]
            if last.base_offset + last.records > start:
                break
            batch.delete(prefix + _U64.pack(locations[0].base_offset))
            pruned += 1
        return pruned


class IndexReader:
    """Lookups that span the saved index and the newest locations in memory."""

    def __init__(self, saved: SavedIndex) -> None:
        self._saved = saved

    def walk(self, index: PartitionIndex, offset: int) -> Iterator[BatchLocation]:
        """Yield locations in order, beginning with the batch that holds `offset`."""
        if offset >= index.end:
            return
        recent = index.locations
        stop = base_offset_of(recent[0]) if recent else index.end
        if offset < stop:
            for location in self._saved.locations(index.partition, offset):
                if location.base_offset >= stop:
                    break
                yield location
        yield from map(unpack_location, recent[index_holding(recent, offset) :])

    def for_time(self, index: PartitionIndex, timestamp: int) -> BatchLocation | None:
        """Return the first batch at or above the start that holds a record with this timestamp or a later one."""
        recent = index.locations
        offset = index.start
        chunk = self._saved.chunk_for_time(index.partition, timestamp)
        if chunk is not None:
            offset = max(offset, chunk)
        elif recent:
            at = bisect_left(recent, timestamp, key=running_timestamp_of)
            if at == len(recent):
                return None
            offset = max(offset, base_offset_of(recent[at]))
        else:
            return None
        # Reads one chunk at most, unless the batch that first reached the timestamp was deleted.
        return next((location for location in self.walk(index, offset) if location.max_timestamp >= timestamp), None)

    def not_after(self, index: PartitionIndex, timestamp: int, within: OffsetBounds, gap_bytes: int) -> Sequence[OffsetBounds]:
        """Return the offsets within the bounds whose batches may hold a record of this timestamp or before.

        Ranges that are closer together than `gap_bytes` are joined: to read what is between them takes less than to read twice.
        """
        found: list[OffsetBounds] = []
        end_bytes = 0
        for location in self._not_after(index, timestamp, within):
            start = Offset(max(location.base_offset, within.start))
            end = Offset(min(location.end_offset, within.end))
            if start >= end:
                continue
            if found and location.bytes_before - end_bytes <= gap_bytes:
                found[-1] = OffsetBounds(found[-1].start, end)
            else:
                found.append(OffsetBounds(start, end))
            end_bytes = location.bytes_before + location.length
        return found

    def _not_after(self, index: PartitionIndex, timestamp: int, within: OffsetBounds) -> Iterator[BatchLocation]:
        recent = index.locations
        stop = min(within.end, base_offset_of(recent[0]) if recent else index.end)
        if within.start < stop:
            saved = self._saved.not_after(index.partition, timestamp, within.start)
            yield from takewhile(lambda location: location.base_offset < stop, saved)
        for at in range(index_holding(recent, within.start), index_above(recent, within.end - 1)):
            if oldest_timestamp_of(recent[at]) <= timestamp:
                yield unpack_location(recent[at])

    def size_from(self, index: PartitionIndex, offset: int) -> int:
        """Return the bytes of the batches from the one that holds the offset on, at or above the start."""
        end_bytes = index.end_bytes
        held = next(self.walk(index, max(offset, index.start)), None)
        return max(0, end_bytes - held.bytes_before) if held else 0

    def for_size(self, index: PartitionIndex, keep_bytes: int) -> int:
        """Return the base offset of the last batch that has at least `keep_bytes` from it to the end, or of the first batch."""
        if keep_bytes <= 0 or index.start == index.end:
            return index.end
        most = max(index.end_bytes - keep_bytes, index.start_bytes)
        recent = index.locations
        if recent and bytes_before_of(recent[0]) <= most:
            return base_offset_of(recent[bisect_right(recent, most, key=bytes_before_of) - 1])
        last = index.end
        for location in takewhile(lambda location: location.bytes_before <= most, self.walk(index, index.start)):
            last = location.base_offset
        return last


class Counters(NamedTuple):
    """Where one partition starts and ends."""

    start: int
    end: int
    start_bytes: int
    end_bytes: int
    running_timestamp: int


pack_counters = _COUNTERS.pack
"""Takes the key of a partition and the fields of its `Counters`."""


def partition_key(partition: PartitionId) -> bytes:
    """Encode a partition as it appears in keys and values of the state."""
    return _PARTITION.pack(*partition)


def partition_of(key: bytes) -> PartitionId:
    topic_id, number = _PARTITION.unpack(key)
    return PartitionId(TopicId(topic_id), number)


def describe_partition(partition: PartitionId, names: TopicNames | None = None) -> str:
    """Name a partition in a message: by the name of its topic where that is known, else by the id of the topic."""
    name = names.name(partition.topic_id) if names is not None else None
    topic = f"the topic with id {partition.topic_id}" if name is None else repr(name)
    return f"partition {partition.number} of {topic}"


class SavedCounters:
    """The counters of all partitions, on disk."""

    def __init__(self, state: StateDb) -> None:
        self._state = state
        self._has_old = False

    def load(self) -> dict[PartitionId, Counters]:
        found = dict(self._old())
        self._has_old = bool(found)
        for _, packed in self._state.items(COUNTERS):
            for key, *counters in _COUNTERS.iter_unpack(packed):
                found[partition_of(key)] = Counters._make(counters)
        return found

    def save(self, batch: WriteBatch, position: Position, counters: Sequence[bytes], *, are_all: bool) -> None:
        """Save counters as of a log position. `are_all`: partitions that are not among them do not exist any more."""
        if are_all:
            batch.delete_range(COUNTERS, after_prefix(COUNTERS))
            if self._has_old:
                for kind in (OLD_COUNTER, OLD_TIME):
                    batch.delete_range(kind, after_prefix(kind))
        for first in range(0, len(counters), _COUNTERS_AT_ONCE):
            batch.put(COUNTERS + _COUNTERS_KEY.pack(position, first), b"".join(counters[first : first + _COUNTERS_AT_ONCE]))

    def _old(self) -> Iterator[tuple[PartitionId, Counters]]:
        """Yield the counters of format 1, which has a key for each partition, until all counters are saved in format 2."""
        for key, packed in self._state.items(OLD_COUNTER):
            yield partition_of(key[len(OLD_COUNTER) :]), Counters._make(_OLD_COUNTERS.unpack(packed))
