"""All that can be seen of a store from outside, as data that can be compared."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.model.commit import FetchedBatches, LogBatch, OffsetBounds
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.store.contract import Store
from tests.support.batches import StoredRecord, decode_batch

READ_BYTES = 256 * 1024


class UnreadableError(AssertionError):
    """The store's answers contradict each other."""


class SeenBatch(NamedTuple):
    """One batch, as it stands in the global order."""

    cursor: int
    partition: PartitionId
    records: Sequence[StoredRecord]
    hlc: int

    @property
    def base_offset(self) -> int:
        return self.records[0].offset


class Observed(NamedTuple):
    partitions: Mapping[PartitionId, OffsetBounds]
    fetched: Mapping[PartitionId, Sequence[StoredRecord]]
    """Records of whole batches, so the first may lie below the partition's start."""
    scanned: Sequence[SeenBatch]
    end_cursor: int
    next_offsets: Mapping[PartitionId, int]
    sizes: Mapping[PartitionId, int]
    state: Mapping[bytes, bytes]


def observe(store: Store, read_bytes: int = READ_BYTES) -> Observed:
    """Look at everything. No commit may be in flight."""
    partitions = {partition: store.bounds(partition) for partition in store.partitions()}
    return Observed(
        partitions=partitions,
        fetched={partition: fetch_all(store, partition, read_bytes=read_bytes) for partition in partitions},
        scanned=[see(batch) for batch in scan_all(store, read_bytes=read_bytes)],
        end_cursor=store.end_cursor(),
        next_offsets={partition: store.next_offset(partition) for partition in partitions},
        sizes={partition: store.size(partition) for partition in partitions},
        state=dict(store.range(b"")),
    )


def fetch_all(
    store: Store, partition: PartitionId, start: int | None = None, read_bytes: int = READ_BYTES
) -> list[StoredRecord]:
    """Read a partition to its end as a consumer does, fetch after fetch."""
    found: list[StoredRecord] = []
    offset = store.bounds(partition).start if start is None else Offset(start)
    while True:
        batches = fetch_both_ways(store, partition, offset, read_bytes).batches
        if not batches:
            return found
        for batch in batches:
            records = decode_batch(batch)
            if not records[0].offset <= offset <= records[-1].offset:
                raise UnreadableError(f"{partition}: asked for offset {offset}, got {records[0].offset}")
            found += records
            offset = Offset(records[-1].offset + 1)


def fetch_both_ways(store: Store, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
    """Fetch, and hold the fast way of it to the same result wherever it applies."""
    fetched = store.fetch(partition, offset, max_bytes)
    found = list(zip(map(bytes, fetched.batches), fetched.cursors, strict=True))
    for at_least_one in (True, False):
        fast = store.fetch_cached(partition, offset, max_bytes, at_least_one=at_least_one)
        if fast is None:
            continue
        fast_found = list(zip(map(bytes, fast.batches), fast.cursors, strict=True))
        expected = found if at_least_one or sum(map(len, fetched.batches)) <= max_bytes else []
        if store.is_hot(partition, offset):
            # The cache of the tail may end before the files do.
            expected, fast_found = expected[: len(fast_found)], fast_found[: len(expected)]
        if fast_found != expected or fast.bounds != fetched.bounds:
            raise UnreadableError(f"{partition}: the two ways of a fetch of {max_bytes} bytes from {offset} differ")
    return fetched


def scan_all(store: Store, start: int = 0, read_bytes: int = READ_BYTES) -> list[LogBatch]:
    """Read the whole log in its global order, scan after scan."""
    found: list[LogBatch] = []
    cursor = Cursor(start)
    end = store.end_cursor()
    while cursor < end:
        batches, next_cursor = store.scan(cursor, read_bytes)
        if next_cursor <= cursor:
            raise UnreadableError(f"the scan from {cursor} does not move on, and the log ends at {end}")
        found += batches
        cursor = next_cursor
    return found


def see(batch: LogBatch) -> SeenBatch:
    """Decode a batch of a scan, whose own words about it must agree with its bytes."""
    records = decode_batch(batch.batch)
    if (batch.base_offset, batch.records) != (records[0].offset, len(records)):
        raise UnreadableError(
            f"the scan says offset {batch.base_offset}, {batch.records} records; the batch {records[0].offset}"
        )
    return SeenBatch(batch.cursor, batch.partition, records, batch.hlc)
