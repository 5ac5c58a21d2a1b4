"""The head of a batch is changed without its records, and the records without the head."""

from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Record
from tailrace.wire.batch import (
    HEADER_BYTES,
    TRANSACTIONAL_MASK,
    check_batch,
    read_header,
    with_append_time,
    with_attributes,
    with_records,
)
from tailrace.wire.records import decode_batch, encode_batch

NOW = 1_700_000_000_000
RECORDS = [Record(b"key", b"value", [("trace", b"1")], NOW), Record(None, None, (), NOW - 5), Record(b"", b"", (), NOW + 9)]


def test_the_append_time_replaces_every_timestamp() -> None:
    made = encode_batch(RECORDS, append_time=NOW + 50)
    stamped = with_append_time(encode_batch(RECORDS), NOW + 50)
    assert made == stamped
    check_batch(stamped)
    assert {record.timestamp for record in decode_batch(stamped, DEFAULT_LIMITS)} == {NOW + 50}


def test_stamping_leaves_the_original_alone() -> None:
    batch = encode_batch(RECORDS)
    before = bytes(batch)
    with_append_time(batch, NOW)
    assert batch == before


def test_attributes_are_added_to_those_that_are_there() -> None:
    batch = with_attributes(encode_batch(RECORDS, append_time=NOW), TRANSACTIONAL_MASK)
    check_batch(batch)
    assert batch == encode_batch(RECORDS, append_time=NOW, transactional=True)


def test_records_in_parts_take_the_place_of_those_that_were_there() -> None:
    batch = encode_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=3)
    records = bytes(batch[HEADER_BYTES:])
    emptied = with_records(batch, [], 0)
    assert len(emptied) == HEADER_BYTES
    restored = with_records(emptied, [records[:5], records[5:]], read_header(batch).attributes)
    check_batch(restored)
    assert restored == batch
