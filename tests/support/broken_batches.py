"""Record batches with a right checksum and something wrong inside, made byte by byte; and what Apache Kafka says of each."""

import gzip
import io
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import snappy  # type: ignore[import-untyped]
import zstandard
from crc32c import crc32c

from tests.support.batches import TIMESTAMP

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
INVALID_RECORD = 87
UNSUPPORTED_COMPRESSION_TYPE = 76

_HEAD = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_MIB = 1024 * 1024


def varint(number: int, width: int = 0) -> bytes:
    """Zigzag, in at least so many bytes."""
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 0x7F or len(found) + 1 < width:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def record(
    delta: int = 0,
    *,
    later: bytes = varint(0),
    key: bytes = varint(3) + b"key",
    value: bytes = varint(5) + b"value",
    headers: bytes = varint(0),
    length: bytes | None = None,
    offset: bytes | None = None,
    behind: bytes = b"",
) -> bytes:
    body = b"\0" + later + (varint(delta) if offset is None else offset) + key + value + headers + behind
    return (varint(len(body)) if length is None else length) + body


def compress(codec: int, data: bytes) -> bytes:
    match codec:
        case 1:
            return gzip.compress(data)
        case 2:
            return bytes(snappy.compress(data))
        case 3:
            return lz4.frame.compress(data)
        case 4:
            return zstandard.compress(data)
    return data


def batch(
    records: Sequence[bytes],
    codec: int = NONE,
    *,
    body: bytes | None = None,
    count: int | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    max_timestamp: int = TIMESTAMP,
    base_timestamp: int = TIMESTAMP,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    count = len(records) if count is None else count
    inside = compress(codec, b"".join(records)) if body is None else body
    checked = (
        _CHECKED.pack(
            codec | attributes,
            count - 1 if last_delta is None else last_delta,
            base_timestamp,
            max_timestamp,
            *producer,
            count,
        )
        + inside
    )
    return _HEAD.pack(0, 9 + len(checked), -1, 2, crc32c(checked)) + checked


class Broken(NamedTuple):
    build: Callable[[int], bytes]
    """Makes the batch in this compression."""
    code: int = INVALID_RECORD
    codecs: Sequence[int] = tuple(CODECS.values())


_COMPRESSED = (GZIP, SNAPPY, LZ4, ZSTD)
_GOOD = [record(0), record(1)]


def _header(name: bytes = varint(1) + b"h", value: bytes = varint(1) + b"v") -> bytes:
    return name + value


def _inside(*records: bytes, **fields: int) -> Callable[[int], bytes]:
    return lambda codec: batch(records, codec, **fields)  # type: ignore[arg-type]


def _cut(codec: int) -> bytes:
    """Half of what the compression made."""
    whole = compress(codec, b"".join(record(number, value=varint(1000) + bytes(1000)) for number in range(100)))
    return batch([], codec, body=whole[: len(whole) // 2], count=100)


def _bomb(codec: int) -> bytes:
    """A few KB that become 17 MiB."""
    size = 17 * _MIB
    data = record(0, value=varint(size) + bytes(size))
    if codec == SNAPPY:
        framed = io.BytesIO(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
        framed.seek(0, io.SEEK_END)
        for at in range(0, len(data), _MIB):
            block = bytes(cramjam.snappy.compress_raw(data[at : at + _MIB]))
            framed.write(struct.pack(">I", len(block)) + block)
        return batch([], codec, body=framed.getvalue(), count=1)
    return batch([data], codec)


BROKEN: dict[str, Broken] = {
    "more records claimed than there are": Broken(_inside(record(0), count=100)),
    "fewer records claimed than there are": Broken(_inside(*_GOOD, count=1)),
    "no records claimed": Broken(_inside(*_GOOD, count=0)),
    "negative number of records": Broken(_inside(*_GOOD, count=-1)),
    "last offset delta beyond the records": Broken(_inside(*_GOOD, last_delta=5)),
    "offset delta repeated": Broken(_inside(record(0), record(0))),
    "offset delta with a gap": Broken(_inside(record(0), record(7))),
    "offset delta below 0": Broken(_inside(record(-1))),
    "record longer than the batch": Broken(_inside(record(0, length=varint(1_000_000)))),
    "record of negative length": Broken(_inside(record(0, length=varint(-5)))),
    "record shorter than its fields": Broken(_inside(record(0, length=varint(8)))),
    "record of no bytes": Broken(_inside(varint(0), record(0))),
    "length of more than 32 bits": Broken(_inside(record(0, length=b"\xff\xff\xff\xff\xff\x0f"))),
    "number without an end": Broken(_inside(record(0, length=b"\xff" * 12))),
    "key length of more than 32 bits": Broken(_inside(record(0, key=b"\xfe\xff\xff\xff\xff\xff\x01"))),
    "huge key": Broken(_inside(record(0, key=varint(2**31 - 1) + b"k"))),
    "huge value": Broken(_inside(record(0, value=varint(2**31 - 1) + b"v"))),
    "timestamp of more than 64 bits": Broken(_inside(record(0, later=b"\xff" * 10 + b"\x01"))),
    "timestamp sum beyond 64 bits": Broken(_inside(record(0, later=varint(2**63 - 1)), base_timestamp=2**62)),
    "bytes behind the headers": Broken(_inside(record(0, behind=b"rest"))),
    "bytes behind the last record": Broken(_inside(record(0), b"\0\0\0")),
    "negative number of headers": Broken(_inside(record(0, headers=varint(-1)))),
    "more headers claimed than there are": Broken(_inside(record(0, headers=varint(1_000) + _header()))),
    "header without a name": Broken(_inside(record(0, headers=varint(1) + _header(name=varint(-1))))),
    "header name longer than the record": Broken(_inside(record(0, headers=varint(1) + _header(name=varint(99) + b"h")))),
    "header value longer than the record": Broken(_inside(record(0, headers=varint(1) + _header(value=varint(99) + b"v")))),
    "header name that is no text": Broken(_inside(record(0, headers=varint(1) + _header(name=varint(2) + b"\xff\xfe")))),
    "control batch": Broken(_inside(record(0), attributes=0x20)),
    "garbage instead of compressed bytes": Broken(
        lambda codec: batch([], codec, body=b"this is no compression at all", count=1), codecs=_COMPRESSED
    ),
    "compressed bytes cut off": Broken(_cut, codecs=_COMPRESSED),
    "nothing compressed": Broken(lambda codec: batch([], codec, body=compress(codec, b""), count=1), codecs=_COMPRESSED),
    "decompression bomb": Broken(_bomb, MESSAGE_TOO_LARGE, codecs=_COMPRESSED),
    "unknown compression": Broken(lambda codec: batch(_GOOD, codec), UNSUPPORTED_COMPRESSION_TYPE, codecs=(5, 6, 7)),
    "timestamp far ahead in a record alone": Broken(_inside(record(0), record(1, later=varint(2**50))), INVALID_TIMESTAMP),
}

CASES = [(name, codec) for name, broken in BROKEN.items() for codec in broken.codecs]


def good_batch(codec: int, values: Sequence[bytes] = (b"value",), max_timestamp: int = TIMESTAMP) -> bytes:
    made = [record(delta, value=varint(len(value)) + value) for delta, value in enumerate(values)]
    return batch(made, codec, max_timestamp=max_timestamp)
