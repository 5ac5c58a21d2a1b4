"""The head of a Kafka RecordBatch (v2): enough to check, store and change a batch without looking at its records.

The checksum covers everything from the attributes on. The base offset lies before it, so a broker can set it without
touching the rest.
"""

from collections.abc import Sequence
from struct import Struct

import msgspec
from crc32c import crc32c

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError, InvalidRecordsError, UnsupportedBatchError
from tailrace.model.group import NO_LEADER_EPOCH
from tailrace.model.transaction import NO_EPOCH

HEADER_BYTES = 61
"""Bytes before the first record."""

CHECKED_FROM = 21
"""Where the bytes begin that the checksum covers."""

FLAGS_AT = CHECKED_FROM + 1
"""The byte of the attributes that says whether the batch is transactional."""

LENGTH_FROM = 12
"""The batch's own length counts from here."""

MAGIC = 2
CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
REFERENCE_MASK = 0x4000
"""Set in the log only, not in Kafka's format: the batch refers to a payload. See `wire/payload_references.py`."""
NO_PRODUCER = -1
NO_SEQUENCE = -1
LEADER_EPOCH = 0

_HEADER = Struct(">qiibIhiqqqhii")
_UNCHECKED = Struct(">qiibI")
"""The fields before those that the checksum covers: base offset, length, leader epoch, magic, checksum."""
_CHECKED = Struct(">hiqqqhii")
"""The other fields of the head."""
_PLACE = Struct(">qii")
"""The first fields: base offset, length, leader epoch."""
_LENGTH = Struct(">i")
_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC = Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = Struct(">h")
_LAST_DELTA = _RECORDS = Struct(">i")
_TIMESTAMPS = Struct(">qq")
_TIMESTAMPS_AT = CHECKED_FROM + 6
_COPIED_BYTES = 4096


class BatchHeader(msgspec.Struct, frozen=True):
    base_offset: int
    length: int
    """Bytes after the length field itself, as on the wire."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_FROM

    @property
    def end_offset(self) -> int:
        """The offset after the last one of the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_sparse(self) -> bool:
        """Whether compaction has removed records, so that some offsets of the batch have none."""
        return self.records <= self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)


def read_header(batch: Buffer) -> BatchHeader:
    """Read the head of a batch that is known to be long enough."""
    return BatchHeader(*_HEADER.unpack_from(batch))


def batch_length(batch: Buffer) -> int:
    """Return the number of bytes after the length field, as the batch says. At least `LENGTH_FROM` bytes must be there."""
    length: int = _LENGTH.unpack_from(batch, _LENGTH_AT)[0]
    return length


def is_transactional(batch: Buffer) -> bool:
    """Return whether the batch says that it belongs to a transaction."""
    return len(batch) > FLAGS_AT and bool(batch[FLAGS_AT] & TRANSACTIONAL_MASK)


def check_batch(batch: Buffer, *, may_be_sparse: bool = False) -> BatchHeader:
    """Read and check the head of a batch that came from outside. The batch must fill the buffer exactly.

    Each offset must have a record, except with `may_be_sparse`: then it is a batch from a log, which may have been compacted.
    """
    size = len(batch)
    if size > _MAGIC_AT and batch[_MAGIC_AT] != MAGIC:
        raise UnsupportedBatchError(f"record batches of format {batch[_MAGIC_AT]} are not supported, only format {MAGIC}")
    if size < HEADER_BYTES:
        raise CorruptBatchError(f"a record batch has at least {HEADER_BYTES} bytes, this one has {size}")
    fields = _HEADER.unpack_from(batch)
    _, length, _, _, crc, _, last_offset_delta, _, _, _, _, _, records = fields
    if length + LENGTH_FROM != size:
        raise CorruptBatchError(f"the batch declares {length + LENGTH_FROM} bytes and has {size}")
    # A small copy takes less time than a view.
    if crc32c(batch[CHECKED_FROM:] if size <= _COPIED_BYTES else memoryview(batch)[CHECKED_FROM:]) != crc:
        raise CorruptBatchError("the batch's checksum does not match its bytes")
    if records < 1 or (last_offset_delta != records - 1 and not (may_be_sparse and last_offset_delta >= records)):
        raise InvalidRecordsError(
            f"the batch counts {records} records and {last_offset_delta + 1} offsets; each record must have one offset"
        )
    return BatchHeader(*fields)


def assemble_batch(
    body: Buffer,
    records: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Put a head with a checksum before encoded records."""
    batch = bytearray(HEADER_BYTES)
    batch += body
    write_header(
        batch,
        records,
        base_timestamp,
        max_timestamp,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return batch


def write_header(
    batch: bytearray,
    records: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> None:
    """Fill in the first `HEADER_BYTES` of a batch whose encoded records already stand behind them."""
    _CHECKED.pack_into(
        batch,
        CHECKED_FROM,
        attributes,
        records - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records,
    )
    _UNCHECKED.pack_into(
        batch, 0, 0, len(batch) - LENGTH_FROM, NO_LEADER_EPOCH, MAGIC, crc32c(memoryview(batch)[CHECKED_FROM:])
    )


def with_base_offset(batch: Buffer, offset: int) -> Buffer:
    """Return the batch as it is stored: with its base offset and the one leader epoch that a single server has.

    The buffer itself is changed if it is writable, else a copy.
    """
    if type(batch) is not bytearray and (isinstance(batch, bytes) or memoryview(batch).readonly):
        batch = bytearray(batch)
    _PLACE.pack_into(batch, 0, offset, len(batch) - LENGTH_FROM, LEADER_EPOCH)
    return batch


def with_append_time(batch: Buffer, timestamp_ms: int) -> bytearray:
    """Return a copy of the batch in which all records have this timestamp."""
    stamped = bytearray(batch)
    header = read_header(stamped)
    _ATTRIBUTES.pack_into(stamped, CHECKED_FROM, header.attributes | TIMESTAMP_TYPE_MASK)
    _TIMESTAMPS.pack_into(stamped, _TIMESTAMPS_AT, header.base_timestamp, timestamp_ms)
    _write_checksum(stamped)
    return stamped


def with_max_timestamp(batch: Buffer, timestamp_ms: int) -> bytearray:
    """Return a copy of the batch whose head says that this is the newest timestamp of its records."""
    stamped = bytearray(batch)
    _TIMESTAMPS.pack_into(stamped, _TIMESTAMPS_AT, read_header(stamped).base_timestamp, timestamp_ms)
    _write_checksum(stamped)
    return stamped


def with_attributes(batch: bytearray, mask: int) -> bytearray:
    """Add these attributes to the batch in place, and return it."""
    _ATTRIBUTES.pack_into(batch, CHECKED_FROM, read_header(batch).attributes | mask)
    _write_checksum(batch)
    return batch


def with_offsets(batch: bytearray, count: int) -> bytearray:
    """Make the batch take so many offsets, in place, and return it."""
    _LAST_DELTA.pack_into(batch, CHECKED_FROM + _ATTRIBUTES.size, count - 1)
    _write_checksum(batch)
    return batch


def with_records(batch: Buffer, parts: Sequence[Buffer], attributes: int) -> bytes:
    """Return a batch with the head of this one, other attributes, and the concatenated parts as its records."""
    head = bytearray(memoryview(batch)[:HEADER_BYTES])
    _LENGTH.pack_into(head, _LENGTH_AT, HEADER_BYTES - LENGTH_FROM + sum(map(len, parts)))
    _ATTRIBUTES.pack_into(head, CHECKED_FROM, attributes)
    crc = crc32c(memoryview(head)[CHECKED_FROM:])
    for part in parts:
        crc = crc32c(part, crc)
    _CRC.pack_into(head, _CRC_AT, crc)
    return b"".join((head, *parts))


def with_fewer_records(batch: Buffer, body: Buffer, records: int, max_timestamp: int) -> bytes:
    """Return a batch with the head of this one, and its base offset and last offset, that holds only these encoded records."""
    head = bytearray(memoryview(batch)[:HEADER_BYTES])
    _LENGTH.pack_into(head, _LENGTH_AT, HEADER_BYTES - LENGTH_FROM + len(body))
    _TIMESTAMPS.pack_into(head, _TIMESTAMPS_AT, _TIMESTAMPS.unpack_from(head, _TIMESTAMPS_AT)[0], max_timestamp)
    _RECORDS.pack_into(head, HEADER_BYTES - _RECORDS.size, records)
    _CRC.pack_into(head, _CRC_AT, crc32c(body, crc32c(memoryview(head)[CHECKED_FROM:])))
    return b"".join((head, body))


def _write_checksum(batch: bytearray) -> None:
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
