"""Records are encoded and decoded, and the fast path encodes them as the general encoder does."""

from struct import pack_into

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import CorruptBatchError, LimitExceededError, MessageTooLargeError
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.record import Record
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES, check_batch, read_header, with_base_offset
from tailrace.wire.compression import Compression
from tailrace.wire.record_timestamps import first_record_at
from tailrace.wire.records import (
    decode_batch,
    encode_batch,
    encode_headers,
    encoded_size_bound,
    fast_encode_batch,
)
from tests.support import batches

NOW = 1_700_000_000_000

RECORDS = [
    Record(b"key", b"value", [("trace", b"1"), ("empty", b""), ("null", None)], NOW),
    Record(None, None, (), NOW - 5),
    Record(b"", b"", (), NOW + 1_000_000),
    Record(b"k" * 70, b"v" * 9000, [("ключ", b"x" * 200)], NOW + 3),
]


def unplaced(records: list[Record]) -> list[tuple[object, ...]]:
    return [(key, value, list(headers), timestamp) for key, value, headers, timestamp, *_ in records]


def resealed(batch: bytearray) -> bytearray:
    """Return the batch with the checksum of its present bytes."""
    pack_into(">I", batch, 17, crc32c(batch[CHECKED_FROM:]))
    return batch


def body_of(*payload: int, records: int = 1) -> bytearray:
    """Return a batch with a valid checksum around records that are given byte by byte."""
    batch = encode_batch([Record(None, b"", (), NOW)] * records)
    del batch[HEADER_BYTES:]
    batch += bytes(payload)
    pack_into(">i", batch, 8, len(batch) - 12)
    return resealed(batch)


@pytest.mark.parametrize("codec", list(Compression))
def test_records_come_back_as_they_were(codec: Compression) -> None:
    batch = encode_batch(RECORDS, codec=codec)
    assert check_batch(batch).codec == codec
    assert unplaced(decode_batch(batch, DEFAULT_LIMITS)) == unplaced(RECORDS)


def test_offsets_count_up_from_the_base_offset() -> None:
    batch = with_base_offset(encode_batch(RECORDS), 40)
    assert [record.offset for record in decode_batch(batch, DEFAULT_LIMITS)] == [40, 41, 42, 43]


def test_an_independent_decoder_reads_our_batches() -> None:
    batch = with_base_offset(encode_batch([Record(None, b"a", (), NOW), Record(b"k", b"b", (), NOW + 7)]), 3)
    assert batches.decode_batch(batch) == [(3, NOW, b"a"), (4, NOW + 7, b"b")]


def test_our_decoder_reads_batches_of_an_independent_encoder() -> None:
    batch = batches.encode_batch([(NOW, b"a"), (NOW + 300, b"b")])
    assert decode_batch(batch, DEFAULT_LIMITS) == [
        Record(None, b"a", (), NOW, Offset(0)),
        Record(None, b"b", (), NOW + 300, Offset(1)),
    ]


def test_the_head_says_what_the_records_are() -> None:
    header = read_header(encode_batch(RECORDS, producer_id=9, producer_epoch=2, base_sequence=77))
    assert (header.records, header.last_offset_delta) == (4, 3)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 1_000_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 77)


def test_no_record_is_larger_than_its_bound() -> None:
    for record in RECORDS:
        assert len(encode_batch([record])) - HEADER_BYTES <= encoded_size_bound(record)


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_decoded() -> None:
    batch = encode_batch(RECORDS[:1])
    pack_into(">i", batch, 57, 40_000)
    pack_into(">i", batch, 23, 39_999)
    with pytest.raises(CorruptBatchError, match="counts 40000 records in"):
        decode_batch(resealed(batch), DEFAULT_LIMITS)


def test_more_records_than_batch_records_are_refused() -> None:
    with pytest.raises(LimitExceededError, match="batch_records"):
        decode_batch(encode_batch(RECORDS), Limits(batch_records=3))


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(("first", "most", "values"), [(0, 2, ["0", "1"]), (3, 4, ["3", "4", "5", "6"]), (8, 9, ["8", "9"])])
def test_a_part_of_a_batch_is_decoded_alone(codec: Compression, first: int, most: int, values: list[str]) -> None:
    batch = with_base_offset(
        encode_batch([Record(None, str(number).encode(), (), NOW) for number in range(10)], codec=codec), 70
    )
    found = decode_batch(batch, DEFAULT_LIMITS, first=first, most=most)
    assert [str(record.offset - 70) for record in found] == values
    assert [(record.value or b"").decode() for record in found] == values


def test_a_record_that_lies_about_its_length_is_not_skipped() -> None:
    with pytest.raises(CorruptBatchError, match="record 0 of the batch declares 63 bytes, and 13 are left"):
        decode_batch(body_of(0x7E, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0, records=2), DEFAULT_LIMITS, first=1)
    with pytest.raises(CorruptBatchError, match="record 0 of the batch declares 63 bytes, and 13 are left"):
        first_record_at(body_of(0x7E, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0, records=2), NOW + 1, DEFAULT_LIMITS)


def test_a_part_of_a_cut_batch_is_refused() -> None:
    cut = body_of(12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0, records=2)
    pack_into(">i", cut, 57, 2)
    assert len(decode_batch(cut, DEFAULT_LIMITS, first=1)) == 1
    with pytest.raises(CorruptBatchError, match="cut off"):
        first_record_at(
            body_of(12, 0, 0, 0, 1, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, records=2), NOW + 1, DEFAULT_LIMITS
        )


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_bomb_is_refused_by_name(codec: Compression) -> None:
    batch = encode_batch([Record(None, bytes(1_000_000), (), NOW)], codec=codec)
    with pytest.raises(MessageTooLargeError, match="decompressed_batch_bytes"):
        decode_batch(batch, Limits(decompressed_batch_bytes=100_000))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ((0x7E, 0, 0, 0, 1, 1, 0), "declares 63 bytes, and 6 are left"),
        ((0x01, 0, 0, 0, 1, 1, 0), "declares -1 bytes"),
        ((0x0C, 0, 0, 2, 1, 1, 0), "has the offset delta 1"),
        ((0x0C, 0, 0, 0, 0x7E, 1, 0), "a field of 63 bytes"),
        ((0x0C, 0, 0, 0, 3, 1, 0), "a field of -2 bytes"),
        ((0x0C, 0, 0, 0, 1, 1, 0x7E), "counts 63 headers"),
        ((0x0C, 0, 0, 0, 1, 1, 0x01), "counts -1 headers"),
        ((0x10, 0, 0, 0, 1, 1, 2, 1, 1), "a header without a name"),
        ((0x12, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1), "not UTF-8"),
        ((0x0E, 0, 0, 0, 1, 1, 0, 0), "does not have the 7 bytes"),
        ((0x0C, 0, 0, 0, 1, 1, 0, 0), "1 bytes after its last record"),
        ((*[0xFF] * 11, 1), "a number of more than 10 bytes"),
        ((*[0xFF] * 9,), "cut off"),
        ((0x1E, 0, 0xFE, *[0xFF] * 8, 1, 0, 1, 1, 0), "more than 64 bits"),
    ],
)
def test_broken_records_are_refused_with_the_reason(payload: tuple[int, ...], reason: str) -> None:
    with pytest.raises(CorruptBatchError, match=reason):
        decode_batch(body_of(*payload), DEFAULT_LIMITS)


sizes = st.integers(0, 300) | st.sampled_from([8191, 8192, 20_000])
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


@given(st.lists(st.tuples(sizes, sizes, headers), min_size=1, max_size=5), st.integers(0, 1 << 42))
def test_the_fast_path_encodes_the_same_bytes(
    shapes: list[tuple[int, int, list[tuple[str, bytes | None]]]], timestamp: int
) -> None:
    records = [Record(b"k" * key, b"v" * value, given, timestamp) for key, value, given in shapes]
    uniform = [(record.key or b"", record.value or b"", encode_headers(record.headers)) for record in records]
    assert fast_encode_batch(uniform, timestamp) == encode_batch(records)


def test_the_fast_path_takes_records_without_a_key() -> None:
    headers = [("op", b"truncate")]
    records = [Record(b"k", b"v", (), 5), Record(None, b"all", headers, 5)]
    assert fast_encode_batch([(b"k", b"v", b"\0"), (None, b"all", encode_headers(headers))], 5) == encode_batch(records)


def test_the_fast_path_numbers_records_beyond_the_short_varints() -> None:
    records = [Record(b"", b"", (), 5)] * 9000
    assert fast_encode_batch([(b"", b"", b"\0")] * 9000, 5) == encode_batch(records)
