"""Batches that are changed without a look at their records: another time, other attributes, other bytes after the same head."""

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from tailrace.model.commit import Buffer
from tailrace.wire.batch import CHECKED_FROM, HEADER_BYTES, LENGTH_FROM, TIMESTAMP_TYPE_MASK, read_header

_ATTRIBUTES_AND_DELTA_BYTES = 6
_TIMESTAMPS = Struct(">qq")
_ATTRIBUTES = Struct(">h")
_LENGTH = Struct(">i")
_LENGTH_AT = 8
_CRC = Struct(">I")
_CRC_AT = 17


def with_append_time(batch: Buffer, timestamp_ms: int) -> bytearray:
    """A copy of the batch whose records all have this timestamp."""
    stamped = bytearray(batch)
    header = read_header(stamped)
    _ATTRIBUTES.pack_into(stamped, CHECKED_FROM, header.attributes | TIMESTAMP_TYPE_MASK)
    _TIMESTAMPS.pack_into(stamped, CHECKED_FROM + _ATTRIBUTES_AND_DELTA_BYTES, header.base_timestamp, timestamp_ms)
    _CRC.pack_into(stamped, _CRC_AT, crc32c(memoryview(stamped)[CHECKED_FROM:]))
    return stamped


def with_max_timestamp(batch: Buffer, timestamp_ms: int) -> bytearray:
    """A copy of the batch whose head says that this is the newest timestamp of its records."""
    stamped = bytearray(batch)
    _TIMESTAMPS.pack_into(
        stamped, CHECKED_FROM + _ATTRIBUTES_AND_DELTA_BYTES, read_header(stamped).base_timestamp, timestamp_ms
    )
    _CRC.pack_into(stamped, _CRC_AT, crc32c(memoryview(stamped)[CHECKED_FROM:]))
    return stamped


def with_attributes(batch: bytearray, mask: int) -> bytearray:
    """The batch, changed in place to have these attributes besides its own."""
    _ATTRIBUTES.pack_into(batch, CHECKED_FROM, read_header(batch).attributes | mask)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def with_records(batch: Buffer, parts: Sequence[bytes], attributes: int) -> bytes:
    """A batch with the head of this one, but for its attributes, and with what these parts are together as its records."""
    head = bytearray(memoryview(batch)[:HEADER_BYTES])
    _LENGTH.pack_into(head, _LENGTH_AT, HEADER_BYTES - LENGTH_FROM + sum(map(len, parts)))
    _ATTRIBUTES.pack_into(head, CHECKED_FROM, attributes)
    crc = crc32c(memoryview(head)[CHECKED_FROM:])
    for part in parts:
        crc = crc32c(part, crc)
    _CRC.pack_into(head, _CRC_AT, crc)
    return b"".join((head, *parts))
