"""What is sent to a target: batches as they are where that is possible, and others made anew."""

from collections.abc import Sequence
from random import Random

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest

from tailrace.model.limits import DEFAULT_LIMITS, KIB
from tailrace.model.record import Record
from tailrace.shadow.fetched import FetchedBatch
from tailrace.shadow.packing import PackedBatch, RecordTooLargeError, Run, pack
from tailrace.wire.batch import HEADER_BYTES, assemble_batch, check_batch, read_header, with_base_offset
from tailrace.wire.batch_split import assemble_part, split_records
from tailrace.wire.compression import Compression
from tailrace.wire.rebatching import PlainJoiner
from tailrace.wire.records import decode_batch, encode_batch

MOST = 1_000_000
JOIN = PlainJoiner()
RANDOM = Random(3)


def records(count: int, size: int = 10, first: int = 0) -> list[Record]:
    return [Record(b"k%d" % (first + at), RANDOM.randbytes(size), (), 1_000 + first + at) for at in range(count)]


def fetched(content: Sequence[Record], offset: int, codec: int = 0, append_time: int | None = None) -> FetchedBatch:
    batch = bytearray(with_base_offset(encode_batch(content, codec=codec, append_time=append_time), offset))
    return FetchedBatch(read_header(batch), memoryview(batch))


def sparse(content: Sequence[Record], offset: int, kept: Sequence[int]) -> FetchedBatch:
    """A batch of which compaction has kept only some records."""
    batch = with_base_offset(encode_batch(content), offset)
    (slices,) = split_records(batch, DEFAULT_LIMITS, 1, 0)
    left = bytearray(assemble_part(batch, [each for each in slices if each[0] in kept], offset))
    return FetchedBatch(read_header(left), memoryview(left))


def packed(batches: Sequence[FetchedBatch], position: int = 0, most: int = MOST) -> list[PackedBatch]:
    return list(pack(batches, position, most, JOIN))


def said(batches: Sequence[PackedBatch]) -> list[tuple[bytes | None, bytes | None, int]]:
    """Return what the records of packed batches say, and check that a Kafka takes the batches."""
    found: list[tuple[bytes | None, bytes | None, int]] = []
    for batch in batches:
        header = check_batch(bytes(batch.data))
        assert header.records == batch.records == sum(run.records for run in batch.runs)
        found += expected(decode_batch(bytes(batch.data), DEFAULT_LIMITS))
    return found


def expected(content: Sequence[Record]) -> list[tuple[bytes | None, bytes | None, int]]:
    return [(record.key, record.value, record.timestamp) for record in content]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_large_batch_goes_as_it_is(codec: Compression) -> None:
    content = records(100, 1_000)
    batch = fetched(content, 50, codec)
    (found,) = packed([batch])
    assert found.data is batch.data
    assert found.runs == [Run(50, 0, 100, is_dense=True)]
    assert said([found]) == expected(content)


def test_a_small_batch_that_is_alone_goes_as_it_is() -> None:
    batch = fetched(records(2), 7)
    (found,) = packed([batch])
    assert found.data is batch.data


def test_small_batches_are_joined_and_large_ones_between_them_go_as_they_are() -> None:
    contents = [
        records(1, first=0),
        records(2, first=1),
        records(40, 1_000, first=3),
        records(1, first=43),
        records(1, first=44),
    ]
    offsets = [0, 1, 3, 43, 44]
    found = packed([fetched(content, offset) for content, offset in zip(contents, offsets, strict=True)])
    assert [batch.records for batch in found] == [3, 40, 2]
    assert [batch.runs for batch in found] == [
        [Run(0, 0, 1, is_dense=True), Run(1, 1, 2, is_dense=True)],
        [Run(3, 0, 40, is_dense=True)],
        [Run(43, 0, 1, is_dense=True), Run(44, 1, 1, is_dense=True)],
    ]
    assert said(found) == expected([record for content in contents for record in content])


def test_batches_of_different_codecs_are_not_joined() -> None:
    found = packed([fetched(records(1), 0, Compression.ZSTD), fetched(records(1), 1, Compression.ZSTD), fetched(records(1), 2)])
    assert [(read_header(batch.data).codec, batch.records) for batch in found] == [(Compression.ZSTD, 2), (Compression.NONE, 1)]


def test_joined_batches_are_bounded() -> None:
    found = packed([fetched(records(1, 10_000), at) for at in range(100)])
    assert sum(batch.records for batch in found) == 100
    assert len(found) > 1
    assert max(len(batch.data) for batch in found) < 600 * KIB


def test_records_before_the_position_are_left_out() -> None:
    content = records(100, 1_000)
    found = packed([fetched(content, 50)], position=60)
    assert said(found) == expected(content[10:])
    assert found[0].runs == [Run(60, 0, 90, is_dense=True)]


def test_gaps_of_compaction_are_closed() -> None:
    content = records(100, 1_000)
    kept = [3, 4, 50, 99]
    found = packed([sparse(content, 200, kept)])
    assert said(found) == expected([content[at] for at in kept])
    assert found[0].runs == [Run(200, 0, 4, is_dense=False)]


def test_the_time_of_the_append_becomes_the_time_of_each_record() -> None:
    content = records(100, 1_000)
    found = packed([fetched(content, 0, append_time=77_000)])
    assert said(found) == [(record.key, record.value, 77_000) for record in content]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_batch_that_the_target_does_not_take_is_split(codec: Compression) -> None:
    content = records(100, 1_000)
    found = packed([fetched(content, 10, codec)], most=20_000)
    assert len(found) > 1
    assert max(len(batch.data) for batch in found) <= 20_000
    assert said(found) == expected(content)
    assert [batch.runs[0].origin for batch in found] == sorted(batch.runs[0].origin for batch in found)


def test_a_record_that_the_target_does_not_take_is_named() -> None:
    content = [*records(3), Record(b"large", RANDOM.randbytes(50_000), (), 1), *records(3)]
    with pytest.raises(RecordTooLargeError, match=r"the record at offset 13 takes 50\d\d\d bytes, and the target takes 20000"):
        packed([fetched(content, 10)], most=20_000)


def test_a_sparse_batch_that_is_too_large_is_split_by_its_offsets() -> None:
    content = records(1_000, 100)
    kept = [*range(10), *range(500, 900)]
    found = packed([sparse(content, 0, kept)], most=20_000)
    assert said(found) == expected([content[at] for at in kept])


def test_linked_blocks_of_lz4_are_written_anew_for_kafka_reads_no_others() -> None:
    content = records(100, 1_000)
    plain = encode_batch(content)
    linked = assemble_batch(
        bytes(cramjam.lz4.compress(plain[HEADER_BYTES:])),
        len(content),
        content[0].timestamp,
        content[-1].timestamp,
        attributes=Compression.LZ4,
    )
    assert lz4.frame.get_frame_info(linked[HEADER_BYTES:])["block_linked"] is True
    batch = FetchedBatch(read_header(linked), memoryview(linked))
    (found,) = packed([batch])
    assert lz4.frame.get_frame_info(bytes(found.data[HEADER_BYTES:]))["block_linked"] is False
    assert said([found]) == expected(content)
