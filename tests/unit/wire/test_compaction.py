"""Batches that compaction has made smaller: what every decoder makes of them."""

import msgspec
import pytest

from tailrace.model.errors import InvalidRecordsError
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS, MIB
from tailrace.model.record import Record
from tailrace.wire.arrow_decoding import decode_to_arrow, plain_fields
from tailrace.wire.batch import check_batch, read_header, with_append_time, with_base_offset
from tailrace.wire.batch_split import split_records
from tailrace.wire.batch_stream import PlacedBatch
from tailrace.wire.compaction import PlainLatestOffsets, compacted_batch
from tailrace.wire.compression import Compression, compress, compress_hard, decompress
from tailrace.wire.control import decode_marker, encode_gap
from tailrace.wire.fast_arrow_decoding import load_compiled_fields
from tailrace.wire.record_check import check_records, plain_scan
from tailrace.wire.record_timestamps import first_record_at
from tailrace.wire.records import (
    check_decodable,
    decode_batch,
    decode_part,
    decompressed_records,
    encode_batch,
    record_bytes,
    records_before,
)

HERE = PartitionId(TopicId(1), 0)
RECORDS = [Record(b"k%d" % (number % 4), b"v%d" % number, [("h", b"x")], 1_000 + number) for number in range(10)]
LEFT = [6, 7, 8, 9]


def sparse(codec: int = 0) -> bytes:
    """A batch at offset 100 of which the records 6 to 9 are left."""
    batch = bytes(with_base_offset(encode(codec), 100))
    header = read_header(batch)
    data = decompressed_records(batch, header, DEFAULT_LIMITS)
    keys = PlainLatestOffsets(MIB)
    keys.note(HERE, header, data, 1 << 40)
    return compacted_batch(batch, header, data, keys.kept(HERE, header, data, 0))


def encode(codec: int) -> bytearray:
    return encode_batch(RECORDS, codec=codec)


@pytest.mark.parametrize("codec", list(Compression))
def test_what_is_left_has_its_offsets_times_and_cursors(codec: int) -> None:
    batch = sparse(codec)
    header = check_batch(batch, may_be_sparse=True)
    assert (header.base_offset, header.end_offset, header.records, header.codec) == (100, 110, 4, codec)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_009)
    assert decode_batch(batch, DEFAULT_LIMITS, cursor=Cursor(500)) == [
        RECORDS[at]._replace(offset=Offset(100 + at), cursor=Cursor(500 + at)) for at in LEFT
    ]
    check_decodable(batch, DEFAULT_LIMITS)


def test_a_producer_may_not_leave_out_offsets() -> None:
    with pytest.raises(InvalidRecordsError, match="4 records and 10 offsets"):
        check_batch(sparse())


@pytest.mark.parametrize(
    ("first", "stop", "most", "left"),
    [
        (0, None, None, [6, 7, 8, 9]),
        (7, None, None, [7, 8, 9]),
        (0, 6, None, []),
        (5, 8, None, [6, 7]),
        (0, None, 2, [6, 7]),
        (8, 100, 1, [8]),
        (10, None, None, []),
    ],
)
def test_a_part_is_named_by_offsets(first: int, stop: int | None, most: int | None, left: list[int]) -> None:
    found = decode_batch(sparse(), DEFAULT_LIMITS, first=first, stop=stop, most=most)
    assert [record.offset - 100 for record in found] == left


def test_a_part_that_is_cut_says_so() -> None:
    assert decode_part(sparse(), DEFAULT_LIMITS, most_bytes=1).is_cut
    assert not decode_part(sparse(), DEFAULT_LIMITS, first=9, most_bytes=1).is_cut


def test_records_are_counted_by_offset() -> None:
    assert [records_before(sparse(), delta, DEFAULT_LIMITS) for delta in (0, 6, 7, 9, 10)] == [0, 0, 1, 3, 4]


@pytest.mark.parametrize(("time", "delta"), [(0, 6), (1_007, 7), (1_009, 9)])
def test_a_time_finds_the_first_record_that_is_left(time: int, delta: int) -> None:
    found = first_record_at(sparse(), time, DEFAULT_LIMITS)
    assert found is not None
    assert (found.delta, found.timestamp) == (delta, 1_000 + delta)


def test_the_time_of_the_append_stays() -> None:
    batch = bytes(with_append_time(with_base_offset(encode(0), 100), 5_000))
    header = read_header(batch)
    data = record_bytes(batch, header, DEFAULT_LIMITS)
    keys = PlainLatestOffsets(MIB)
    keys.note(HERE, header, data, 1 << 40)
    left = compacted_batch(batch, header, data, keys.kept(HERE, header, data, 0))
    assert {record.timestamp for record in decode_batch(left, DEFAULT_LIMITS)} == {5_000}


def test_a_split_names_records_by_their_offsets() -> None:
    parts = split_records(sparse(), DEFAULT_LIMITS, 1, 0)
    assert [delta for delta, _ in parts[0]] == LEFT


def test_offsets_and_cursors_in_columns_have_gaps() -> None:
    stored = [PlacedBatch(Cursor(500), sparse()), PlacedBatch(Cursor(900), with_base_offset(encode(0), 110))]
    for columns in (["offset", "cursor"], ["offset", "cursor", "key"]):
        for read in (plain_fields, load_compiled_fields()):
            (found,) = decode_to_arrow(stored, columns, partition=0, limits=DEFAULT_LIMITS, read_fields=read)
            assert found.column("offset").to_pylist() == [*(100 + at for at in LEFT), *range(110, 120)]
            assert found.column("cursor").to_pylist() == [*(500 + at for at in LEFT), *range(900, 910)]


def test_the_check_of_records_knows_gaps() -> None:
    batch = sparse()
    assert check_records(batch, read_header(batch), MIB, plain_scan) == (1_006, 1_009)
    claimed = msgspec.structs.replace(read_header(batch), last_offset_delta=8)
    with pytest.raises(InvalidRecordsError, match="offset of another record"):
        check_records(batch, claimed, MIB, plain_scan)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY])
def test_hard_compression_is_never_larger(codec: int) -> None:
    data = b"".join(b"key %d value %d" % (number, number * number) for number in range(2_000))
    hard = compress_hard(codec, data)
    assert len(hard) <= len(compress(codec, data))
    assert bytes(decompress(codec, hard, MIB)) == data


def test_a_gap_is_one_marker_however_many_offsets_it_takes() -> None:
    batch = bytes(encode_gap((1 << 31) - 1))
    header = check_batch(batch, may_be_sparse=True)
    assert header.is_control
    assert (header.records, header.end_offset) == (1, (1 << 31) - 1)
    decode_marker(batch)
