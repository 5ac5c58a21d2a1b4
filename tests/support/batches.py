"""Kafka record batches (v2), built and read by a few lines of their own: no test trusts the code under test for its data."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tailrace.model.commit import ASSIGN, Append, Buffer
from tailrace.model.ids import Offset, PartitionId
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES, LENGTH_FROM, MAGIC, check_batch

_UNCHECKED_HEAD = Struct(">qiibI")
_CHECKED_HEAD = Struct(">hiqqqhii")

TIMESTAMP = 1_700_000_000_000
"""A time for records whose time does not matter."""


class StoredRecord(NamedTuple):
    offset: int
    timestamp: int
    value: bytes


def append(partition: PartitionId, *values: bytes, timestamp: int = TIMESTAMP, base_offset: int = ASSIGN) -> Append:
    """One batch of these values, all of the same time."""
    return append_timed(partition, [(timestamp, value) for value in values], base_offset)


def append_timed(partition: PartitionId, records: Sequence[tuple[int, bytes]], base_offset: int = ASSIGN) -> Append:
    """One batch of (timestamp, value)."""
    times = [timestamp for timestamp, _ in records]
    return Append(partition, encode_batch(records), len(records), max(times), Offset(base_offset), min(times))


def encode_batch(records: Sequence[tuple[int, bytes]]) -> bytes:
    first = records[0][0]
    newest = max(timestamp for timestamp, _ in records)
    body = b"".join(_encode_record(index, timestamp - first, value) for index, (timestamp, value) in enumerate(records))
    checked = _CHECKED_HEAD.pack(0, len(records) - 1, first, newest, -1, -1, -1, len(records)) + body
    length = CHECKED_FROM - LENGTH_FROM + len(checked)
    return _UNCHECKED_HEAD.pack(0, length, -1, MAGIC, crc32c(checked)) + checked


def decode_batch(batch: Buffer) -> list[StoredRecord]:
    """Check a batch's checksum and read all that is in it."""
    header = check_batch(batch)
    data = bytes(batch)
    at = HEADER_BYTES
    found = []
    for _ in range(header.records):
        size, at = _varint(data, at)
        record_end = at + size
        timestamp_delta, at = _varint(data, at + 1)
        offset_delta, at = _varint(data, at)
        key_size, at = _varint(data, at)
        value_size, at = _varint(data, at + max(key_size, 0))
        found.append(
            StoredRecord(header.base_offset + offset_delta, header.base_timestamp + timestamp_delta, data[at : at + value_size])
        )
        at = record_end
    return found


def values_of(batches: Sequence[Buffer]) -> list[bytes]:
    return [record.value for batch in batches for record in decode_batch(batch)]


def _encode_record(offset_delta: int, timestamp_delta: int, value: bytes) -> bytes:
    content = (
        bytes([0, *_zigzag(timestamp_delta), *_zigzag(offset_delta), *_zigzag(-1), *_zigzag(len(value))]) + value + b"\x00"
    )
    return bytes(_zigzag(len(content))) + content


def _zigzag(number: int) -> Iterator[int]:
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        yield (rest & 0x7F) | 0x80
        rest >>= 7
    yield rest


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
