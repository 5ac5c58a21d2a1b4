"""Scans whole topics for queries: a consistent view of a topic, read at the pace of the query.

A view is taken on the event loop and read from any thread. It ends where the log ended then, at the same cursor for all
partitions, and shows no record of a transaction that was open or aborted. Records that retention deletes in the meantime are
skipped. Only the batches that were read last are held in memory.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.broker.isolation import AbortedTransactions, StableOffsets, committed_batches
from tailrace.broker.reading.reader import PayloadExpansion
from tailrace.broker.topics.topics import Topics
from tailrace.model.commit import FetchedBatches, OffsetBounds
from tailrace.model.errors import OffsetOutOfRangeError
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import KIB, MIB
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.batch_stream import PlacedBatch

_FIRST_BYTES = 64 * KIB
_MOST_BYTES = 4 * MIB


class ScanRange(NamedTuple):
    """Offsets of a partition from `start` up to, not including, `end`."""

    start: Offset
    end: Offset


class Scanner:
    """Takes views of topics."""

    def __init__(
        self, store: Store, topics: Topics, expansion: PayloadExpansion, stable: StableOffsets, aborted: AbortedTransactions
    ) -> None:
        self._store = store
        self._topics = topics
        self._expansion = expansion
        self._stable = stable
        self._aborted = aborted

    def view(self, topic: str) -> "TopicScan":
        """Return the topic as it is now, to be read from any thread."""
        live = self._topics.get(topic)
        # The end of the log comes first: what is committed later is left out of every partition, whatever its bounds say.
        end = self._store.end_cursor()
        return TopicScan(live.topic.name, [self._partition(partition, end) for partition in live.partitions])

    def _partition(self, partition: PartitionId, end: Cursor) -> "PartitionScan":
        bounds = self._store.bounds(partition)
        known = ScanRange(bounds.start, self._stable.of(partition, bounds))
        return PartitionScan(self._store, self._expansion, self._aborted, partition, known, end)


class TopicScan(NamedTuple):
    topic: str
    partitions: "Sequence[PartitionScan]"


class PartitionScan:
    """One partition as it was when the view was taken. All methods may be called from any thread, and read the disk."""

    def __init__(
        self,
        store: Store,
        expansion: PayloadExpansion,
        aborted: AbortedTransactions,
        partition: PartitionId,
        bounds: ScanRange,
        end_cursor: Cursor,
    ) -> None:
        self._store = store
        self._expansion = expansion
        self._aborted = aborted
        self._end_cursor = end_cursor
        self.partition = partition
        self.bounds = bounds

    def parts(self, wanted: ScanRange) -> Iterator[Sequence[PlacedBatch]]:
        """Return all visible batches that hold these offsets, some at a time: few at first, for queries with a small limit."""
        offset = max(wanted.start, self.bounds.start)
        end = min(wanted.end, self.bounds.end)
        size = _FIRST_BYTES
        while offset < end:
            fetched = self._fetch_whole(offset, size)
            size = min(2 * size, _MOST_BYTES)
            heads = map(read_header, fetched.batches)
            within = [
                head
                for head, cursor in zip(heads, fetched.cursors, strict=True)
                if cursor < self._end_cursor and head.base_offset < end
            ]
            if not within:
                return
            last = within[-1]
            offsets = ScanRange(Offset(within[0].base_offset), Offset(last.end_offset))
            yield list(self._committed(fetched, len(within), offsets))
            offset = offsets.end

    def offset_at_time(self, timestamp_ms: int) -> Offset:
        """Return an offset such that all records before it are older than this time."""
        found = self._store.batch_for_time(self.partition, timestamp_ms)
        return self.bounds.end if found is None else max(self.bounds.start, found)

    def not_after(self, timestamp_ms: int, wanted: ScanRange) -> Sequence[ScanRange]:
        """Return the wanted offsets without most of those whose records are all later than this timestamp."""
        found = self._store.batches_not_after(self.partition, timestamp_ms, OffsetBounds(*wanted))
        return [ScanRange(*part) for part in found]

    def offset_at_cursor(self, cursor: int) -> Offset:
        """Return the first offset whose record has this cursor or a later one."""
        low, high = self.bounds
        while low < high:
            middle = Offset((low + high) // 2)
            fetched = self._fetch(middle, 1)
            if not fetched.batches:
                return low
            head = read_header(fetched.batches[0])
            first = fetched.cursors[0]
            if cursor <= first:
                # Compaction may have left no batch between the middle and this one.
                high = Offset(min(head.base_offset, middle))
            elif cursor <= first + head.last_offset_delta:
                return Offset(max(low, head.base_offset + cursor - first))
            else:
                low = Offset(max(low, head.end_offset))
        return low

    def _fetch_whole(self, offset: Offset, max_bytes: int) -> FetchedBatches:
        """Fetch batches with their payloads."""
        while True:
            fetched = self._fetch(offset, max_bytes)
            try:
                return self._expansion.fetched(self.partition, fetched, max_bytes)
            except OffsetOutOfRangeError:
                # Retention deleted the records in the meantime. The next fetch finds the new start of the partition.
                continue

    def _fetch(self, offset: Offset, max_bytes: int) -> FetchedBatches:
        while True:
            try:
                return self._store.fetch(self.partition, offset, max_bytes)
            except OffsetOutOfRangeError as error:
                if error.start <= offset:
                    raise
                offset = Offset(error.start)

    def _committed(self, fetched: FetchedBatches, count: int, offsets: ScanRange) -> Iterator[PlacedBatch]:
        """Return the visible ones of the first `count` batches, which have these offsets."""
        batches = fetched.batches[:count]
        cursors = {id(batch): cursor for batch, cursor in zip(batches, fetched.cursors[:count], strict=True)}
        for batch in committed_batches(batches, self._aborted.between(self.partition, *offsets)):
            yield PlacedBatch(cursors[id(batch)], batch)
