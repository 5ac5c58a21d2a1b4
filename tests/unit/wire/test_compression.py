"""Batches are compressed and decompressed within their limits."""

import tracemalloc
from collections.abc import Callable
from random import Random

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError, MessageTooLargeError, UnsupportedCodecError
from tailrace.model.limits import MIB
from tailrace.wire.compression import Compression, check_codec, compress, compress_hard, decompress

DATA = b"the same words again and again " * 3000
COMPRESSED = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"x", DATA, bytes(range(256)) * 9], ids=["empty", "one", "words", "bytes"])
def test_what_was_compressed_comes_back(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_exactly_the_bound_is_taken_and_one_byte_more_is_not(codec: Compression) -> None:
    packed = compress(codec, DATA)
    assert len(decompress(codec, packed, len(DATA))) == len(DATA)
    with pytest.raises(MessageTooLargeError, match=f"decompressed_batch_bytes allows {len(DATA) - 1}"):
        decompress(codec, packed, len(DATA) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_room_that_is_taken_goes_by_what_comes_out_and_not_by_what_is_allowed(codec: Compression) -> None:
    data = b"v" * MIB
    packed = compress(codec, data)
    tracemalloc.start()
    try:
        assert decompress(codec, packed, 64 * MIB) == data
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("spoil", [lambda data: data[:-3], lambda data: b"junk" + data, lambda data: data[: len(data) // 2]])
def test_spoilt_bytes_are_corrupt(codec: Compression, spoil: object) -> None:
    packed = bytes(compress(codec, DATA))
    with pytest.raises(CorruptBatchError):
        decompress(codec, spoil(packed), len(DATA))  # type: ignore[operator]


@pytest.mark.parametrize("pack", [compress, compress_hard])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 1_000_000])
def test_blocks_of_lz4_do_not_refer_to_each_other_for_kafka_reads_no_others(pack: Callable[..., Buffer], size: int) -> None:
    for data in (Random(size).randbytes(size), (DATA * (1 + size // len(DATA)))[:size]):
        packed = bytes(pack(Compression.LZ4, data))
        assert lz4.frame.get_frame_info(packed)["block_linked"] is False
        assert lz4.frame.decompress(packed) == data


def test_snappy_without_framing_is_read() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(DATA)), len(DATA)) == DATA


def test_a_snappy_length_of_gigabytes_is_refused_before_any_allocation() -> None:
    with pytest.raises(MessageTooLargeError, match="has 4294967295 bytes"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20), 16_000_000)


def test_framed_snappy_blocks_count_together_against_the_bound() -> None:
    packed = compress(Compression.SNAPPY, bytes(100_000))
    with pytest.raises(MessageTooLargeError):
        decompress(Compression.SNAPPY, packed, 70_000)


@pytest.mark.parametrize("length", [b"\x00\x00", b"\x00\x00\x10\x00abc"])
def test_a_framed_snappy_block_that_is_cut_off_is_corrupt(length: bytes) -> None:
    head = bytes(compress(Compression.SNAPPY, b""))
    with pytest.raises(CorruptBatchError, match="Snappy block"):
        decompress(Compression.SNAPPY, head + length, 1000)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_compressions_are_refused(codec: int) -> None:
    for attempt in (lambda: compress(codec, b""), lambda: decompress(codec, b"", 1), lambda: check_codec(codec)):
        with pytest.raises(UnsupportedCodecError, match=f"unknown compression codec {codec}"):
            attempt()
