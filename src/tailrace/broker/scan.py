"""Reading a topic from end to end, for queries: a view of it that stays as it was when it was taken, read at one's own pace.

A view is taken on the event loop and read from any thread. It ends where the log ended then, at the same place for all
partitions, and shows no record of a transaction that was open or was aborted. What retention takes away meanwhile is skipped:
it is gone for everybody. Nothing is held in memory but the batches that were asked for last.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.broker.expansion import Expansion
from tailrace.broker.live_topic import LiveTopic
from tailrace.broker.transactions.aborted import AbortedTransactions
from tailrace.broker.transactions.committed import committed_batches
from tailrace.broker.transactions.stable import StableOffsets
from tailrace.model.changes import Fetched
from tailrace.model.errors import OffsetOutOfRangeError
from tailrace.model.ids import Cursor, Offset, Partition
from tailrace.model.limits import KIB, MIB
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.batch_stream import PlacedBatch

_FIRST_BYTES = 64 * KIB
_MOST_BYTES = 4 * MIB


class Range(NamedTuple):
    """Offsets of a partition, from `start` up to but without `end`."""

    start: Offset
    end: Offset


class Scanner:
    def __init__(self, store: Store, expansion: Expansion, stable: StableOffsets, aborted: AbortedTransactions) -> None:
        self._store = store
        self._expansion = expansion
        self._stable = stable
        self._aborted = aborted

    def view(self, live: LiveTopic) -> "TopicView":
        # First the end of the log: what is committed after that is left out of every partition, whatever its bounds say.
        end = self._store.end_cursor()
        return TopicView(live.topic.name, [self._partition(partition, end) for partition in live.partitions])

    def _partition(self, partition: Partition, end: Cursor) -> "PartitionView":
        bounds = self._store.bounds(partition)
        known = Range(bounds.start, self._stable.of(partition, bounds))
        return PartitionView(self._store, self._expansion, self._aborted, partition, known, end)


class TopicView(NamedTuple):
    topic: str
    partitions: "Sequence[PartitionView]"


class PartitionView:
    """One partition as it was. All methods may be called from any thread, and read from the disk."""

    def __init__(
        self,
        store: Store,
        expansion: Expansion,
        aborted: AbortedTransactions,
        partition: Partition,
        bounds: Range,
        end_cursor: Cursor,
    ) -> None:
        self._store = store
        self._expansion = expansion
        self._aborted = aborted
        self._partition = partition
        self._end_cursor = end_cursor
        self.number = partition.number
        self.bounds = bounds

    def batches(self, wanted: Range) -> Iterator[Sequence[PlacedBatch]]:
        """The batches that hold these offsets, some at a time: few at first, for who wants only a few."""
        offset = max(wanted.start, self.bounds.start)
        end = min(wanted.end, self.bounds.end)
        size = _FIRST_BYTES
        while offset < end:
            fetched = self._fetch_whole(offset, size)
            if not fetched.batches:
                return
            size = min(2 * size, _MOST_BYTES)
            last = read_header(fetched.batches[-1])
            following = Offset(last.base_offset + last.records)
            found = [placed for placed in self._committed(fetched, offset, following) if self._is_within(placed, end)]
            if found:
                yield found
            if fetched.cursors[-1] >= self._end_cursor:
                return
            offset = following

    def offset_at_time(self, timestamp_ms: int) -> Offset:
        """All records before this offset are older."""
        found = self._store.batch_for_time(self._partition, timestamp_ms)
        return self.bounds.end if found is None else max(self.bounds.start, found)

    def offset_at_cursor(self, cursor: int) -> Offset:
        """The first offset whose record has this cursor or a later one."""
        low, high = self.bounds
        while low < high:
            fetched = self._fetch(Offset((low + high) // 2), 1)
            if not fetched.batches:
                return low
            head = read_header(fetched.batches[0])
            first = fetched.cursors[0]
            if cursor <= first:
                high = Offset(min(head.base_offset, high - 1))
            elif cursor < first + head.records:
                return Offset(max(low, head.base_offset + cursor - first))
            else:
                low = Offset(max(low, head.base_offset + head.records))
        return low

    def _fetch_whole(self, offset: Offset, max_bytes: int) -> Fetched:
        """With payloads."""
        while True:
            fetched = self._fetch(offset, max_bytes)
            try:
                return self._expansion.fetched(self._partition, fetched, max_bytes)
            except OffsetOutOfRangeError:
                # Retention was faster. The next look finds where the partition begins now.
                continue

    def _fetch(self, offset: Offset, max_bytes: int) -> Fetched:
        while True:
            try:
                return self._store.fetch(self._partition, offset, max_bytes)
            except OffsetOutOfRangeError as error:
                if error.start <= offset:
                    raise
                offset = Offset(error.start)

    def _committed(self, fetched: Fetched, offset: Offset, end: Offset) -> Iterator[PlacedBatch]:
        cursors = {id(batch): cursor for batch, cursor in zip(fetched.batches, fetched.cursors, strict=True)}
        aborted = self._aborted.between(self._partition, offset, end)
        for batch in committed_batches(fetched.batches, aborted):
            yield PlacedBatch(cursors[id(batch)], batch)

    def _is_within(self, placed: PlacedBatch, end: Offset) -> bool:
        return placed.cursor < self._end_cursor and read_header(placed.batch).base_offset < end
