"""The compression codecs of Kafka record batches.

Decompression writes into a buffer of bounded size, so a bomb is rejected after at most that many bytes, whatever it declares.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct

import cramjam

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError, MessageTooLargeError, UnsupportedCodecError


class Compression(IntEnum):
    """A codec, by its number in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_LZ4_LEVEL = 4
_ZSTD_LEVEL = 3
_HARD_LEVELS: dict[int, int] = {Compression.GZIP: 9, Compression.LZ4: 12, Compression.ZSTD: 19}
_GUESS = 4
"""By which factor a batch is expected to grow, and by which the buffer grows each time it was too small. To clear memory takes
longer than to decompress into it, so a large buffer at once costs more; the failed attempts are at most a third of the work."""
_SPARE_BYTES = 4096
_MOST_RATIO: dict[int, int] = {Compression.GZIP: 1032, Compression.LZ4: 256}
"""How many bytes a byte can become at most in the formats DEFLATE and LZ4. Zstandard has no such bound."""

# Kafka clients frame Snappy as xerial does: this magic, two versions, then blocks with their lengths.
_XERIAL_HEAD = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_MAGIC = _XERIAL_HEAD[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">I")

# Kafka's Java code reads only LZ4 frames whose blocks do not refer to each other. This one has no checksums of its own, and
# blocks of up to 64 KiB, as Kafka writes them.
_LZ4_HEAD = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = Struct("<I")
_LZ4_STORED = 0x8000_0000
_LZ4_END = _LZ4_LENGTH.pack(0)


def compress(codec: int, data: Buffer) -> Buffer:
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        return _compress_lz4(data, _LZ4_LEVEL)
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL))
    raise _unknown_codec(codec)


def compress_hard(codec: int, data: Buffer) -> Buffer:
    """Compress to fewer bytes than `compress` does, if that is possible, in many times the time."""
    level = _HARD_LEVELS.get(codec)
    if level is None:
        return compress(codec, data)
    if codec == Compression.LZ4:
        hard: Buffer = _compress_lz4(data, level)
    else:
        hard = bytes((cramjam.gzip if codec == Compression.GZIP else cramjam.zstd).compress(data, level=level))
    # A higher level is not always the better one.
    return min(compress(codec, data), hard, key=len)


def decompress(codec: int, data: Buffer, max_bytes: int) -> Buffer:
    """Return the decompressed bytes. Raises `MessageTooLargeError` if they are more than `max_bytes`."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        # The last four bytes say how many there are, modulo 2^32.
        declared = int.from_bytes(data[-4:], "little")
        return _decompress_bounded(cramjam.gzip.decompress_into, data, max_bytes, min(declared, len(data) * _MOST_RATIO[codec]))
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec == Compression.LZ4:
        return _decompress_bounded(cramjam.lz4.decompress_into, data, max_bytes)
    if codec == Compression.ZSTD:
        return _decompress_bounded(cramjam.zstd.decompress_into, data, max_bytes)
    raise _unknown_codec(codec)


def decompressed_bound(codec: int, data: Buffer, max_bytes: int) -> int:
    """Return how many bytes `decompress` returns at most, without decompressing anything."""
    if codec == Compression.NONE:
        return len(data)
    ratio = _MOST_RATIO.get(codec)
    return max_bytes if ratio is None else min(max_bytes, len(data) * ratio + _SPARE_BYTES)


def check_codec(codec: int) -> None:
    if codec > Compression.ZSTD:
        raise _unknown_codec(codec)


def _decompress_bounded(into: Callable[[Buffer, bytearray], int], data: Buffer, max_bytes: int, declared: int = 0) -> Buffer:
    """Decompress with a buffer that grows up to `max_bytes`. `declared` is the size that the data claims, true or not."""
    guess = len(data) * _GUESS + _SPARE_BYTES
    size = min(max_bytes, declared if declared > guess else guess)
    while True:
        room = bytearray(size)
        try:
            written = into(data, room)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise CorruptBatchError(f"the batch can't be decompressed: {error}") from error
            if size == max_bytes:
                raise _too_large(f"more than {max_bytes}", max_bytes) from error
            size = min(max_bytes, size * _GUESS)
        else:
            del room[written:]
            return room


def _decompress_snappy(data: Buffer, max_bytes: int) -> Buffer:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_block(view, max_bytes, max_bytes)
    found = bytearray()
    at = len(_XERIAL_HEAD)
    while at < len(view):
        if len(view) - at < _BLOCK_LENGTH.size:
            raise CorruptBatchError("the batch can't be decompressed: a Snappy block lacks its length")
        (size,) = _BLOCK_LENGTH.unpack_from(view, at)
        at += _BLOCK_LENGTH.size
        if size > len(view) - at:
            raise CorruptBatchError(
                f"the batch can't be decompressed: a Snappy block declares {size} bytes, and {len(view) - at} are left"
            )
        found += _decompress_block(view[at : at + size], max_bytes - len(found), max_bytes)
        at += size
    return found


def _decompress_block(block: memoryview, room_bytes: int, max_bytes: int) -> Buffer:
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
        if declared > room_bytes:
            raise _too_large(f"{max_bytes - room_bytes + declared}", max_bytes)
        room = bytearray(declared)
        written = cramjam.snappy.decompress_raw_into(block, room)
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"the batch can't be decompressed: {error}") from error
    del room[written:]
    return room


def _compress_xerial(data: Buffer) -> Buffer:
    view = memoryview(data)
    found = bytearray(_XERIAL_HEAD)
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
        found += _BLOCK_LENGTH.pack(len(block))
        found += block
    return found


def _compress_lz4(data: Buffer, level: int) -> Buffer:
    view = memoryview(data)
    compressed = bytearray(_LZ4_HEAD)
    for at in range(0, len(view), _LZ4_BLOCK_BYTES):
        # A frame of one block, which so refers to no other. Its own head is as long as ours, and its checksums are left out.
        frame = bytes(cramjam.lz4.compress(view[at : at + _LZ4_BLOCK_BYTES], level))
        (length,) = _LZ4_LENGTH.unpack_from(frame, len(_LZ4_HEAD))
        compressed += frame[len(_LZ4_HEAD) : len(_LZ4_HEAD) + _LZ4_LENGTH.size + (length & ~_LZ4_STORED)]
    compressed += _LZ4_END
    return compressed


def _too_large(size: str, max_bytes: int) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"the batch has {size} bytes when decompressed, and decompressed_batch_bytes allows {max_bytes}; send smaller batches"
    )


def _unknown_codec(codec: int) -> UnsupportedCodecError:
    return UnsupportedCodecError(f"unknown compression codec {codec}; use none, gzip, snappy, lz4 or zstd")
