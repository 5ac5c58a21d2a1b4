"""Keyed batches, what a compaction must leave of them, and what a store has left."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tailrace.model.commit import Append
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.records import decode_batch, encode_batch
from tests.support.batches import TIMESTAMP
from tests.support.observed import fetch_both_ways


class Kept(NamedTuple):
    """A record as readers see it."""

    offset: int
    cursor: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def keyed(
    partition: PartitionId,
    *records: tuple[bytes | None, bytes | None],
    codec: int = 0,
    timestamp: int = TIMESTAMP,
    producer_id: int = -1,
    transactional: bool = False,
) -> Append:
    """One batch of these keys and values, each a millisecond after the one before."""
    made = [Record(key, value, (("h", b"x"),), timestamp + number) for number, (key, value) in enumerate(records)]
    batch = encode_batch(
        made, codec=codec, producer_id=producer_id, producer_epoch=min(producer_id, 0), transactional=transactional
    )
    return Append(partition, bytes(batch), len(made), made[-1].timestamp, oldest_timestamp=timestamp)


def fetched(store: Store, partition: PartitionId, offset: int | None = None, max_bytes: int = 300) -> list[Kept]:
    """Read a partition to its end as a client does, a few batches at a time. Markers are left out."""
    start, end = store.bounds(partition)
    at = start if offset is None else offset
    found: list[Kept] = []
    while at < end:
        batches, _, cursors = fetch_both_ways(store, partition, Offset(at), max_bytes)
        assert batches, f"nothing at {at}, and the partition ends at {end}"
        for batch, cursor in zip(batches, cursors, strict=True):
            found += [each for each in _records(bytes(batch), cursor) if each.offset >= at]
        after = read_header(batches[-1]).end_offset
        assert after > at
        at = after
    assert at == end
    return found


def scanned(store: Store, partition: PartitionId) -> list[Kept]:
    """Read the same from a scan of the whole log."""
    found: list[Kept] = []
    cursor = Cursor(0)
    while cursor < store.end_cursor():
        batches, cursor = store.scan(cursor, 300)
        for each in batches:
            if each.partition == partition:
                found += _records(bytes(each.batch), each.cursor)
    return found


def _records(batch: bytes, cursor: int) -> Iterator[Kept]:
    if not read_header(batch).is_control:
        for record in decode_batch(batch, DEFAULT_LIMITS, cursor=Cursor(cursor)):
            yield Kept(record.offset, record.cursor, record.key, record.value, record.timestamp)


def compacted(records: Sequence[Kept], clean_end: int, expired_end: int = 0) -> list[Kept]:
    """Return what is left of records by the definition: below `clean_end` the last one of each key."""
    last: Mapping[bytes | None, int] = {record.key: record.offset for record in records if record.offset < clean_end}
    return [
        record
        for record in records
        if record.offset >= clean_end
        or (
            record.key is not None
            and last[record.key] == record.offset
            and not (record.value is None and record.offset < expired_end)
        )
    ]
