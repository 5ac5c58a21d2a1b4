"""Batches that refer to a payload, a large value beside the log, instead of holding it.

Such a batch has one record, whose value is a reference. A bit of its attributes marks it; clients never see that bit, and a
batch that they send with it is rejected. So one byte tells whether a batch must be expanded, its expanded size is known before
the payload is read, and a payload that can't be read affects no other record.
"""

from struct import Struct

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.model.limits import Limits
from tailrace.model.record import DIGEST_BYTES, PayloadReference, Record
from tailrace.wire.batch import CHECKED_FROM, REFERENCE_MASK, read_header, with_attributes, with_records
from tailrace.wire.records import decode_batch, encode_batch, encode_field, encode_headers
from tailrace.wire.varints import encode_varint

_REFERENCE = Struct(f">BQ{DIGEST_BYTES}s")
_FORMAT = 1
_HIGH_BIT = REFERENCE_MASK >> 8
_LONGER_LENGTHS_BYTES = 8
"""How many more bytes the lengths of a record and its value may take than those of a reference."""


def is_payload_reference(batch: Buffer) -> bool:
    return bool(batch[CHECKED_FROM] & _HIGH_BIT)


def encode_payload_reference(record: Record, reference: PayloadReference, *, append_time: int | None = None) -> bytearray:
    """Return the batch that is stored for a record whose value is kept as this payload."""
    value = _REFERENCE.pack(_FORMAT, reference.size, reference.digest)
    return with_attributes(encode_batch([record._replace(value=value)], append_time=append_time), REFERENCE_MASK)


def read_payload_reference(batch: Buffer, limits: Limits) -> PayloadReference:
    """Return the reference in a batch. Raises `CorruptBatchError` if its record is not one."""
    return _reference_in(_only_record(batch, limits))


def expanded_size(batch: Buffer, reference: PayloadReference) -> int:
    """Return the size of the batch with its payload, or a few bytes more."""
    return len(batch) - _REFERENCE.size + _LONGER_LENGTHS_BYTES + reference.size


def expand_payload(batch: Buffer, content: bytes, limits: Limits) -> Buffer:
    """Return the batch as readers get it: with the payload as its value, and everything else as stored."""
    record = _only_record(batch, limits)
    # The content is copied once only: that is most of the work.
    before = b"\0\0\0" + encode_field(record.key) + encode_varint(len(content))
    after = encode_headers(record.headers)
    size = encode_varint(len(before) + len(content) + len(after))
    return with_records(batch, (size + before, content, after), read_header(batch).attributes & ~REFERENCE_MASK)


def _only_record(batch: Buffer, limits: Limits) -> Record:
    records = decode_batch(batch, limits, most=2)
    if len(records) != 1:
        raise CorruptBatchError(f"a batch with a reference to a payload has 1 record, this one has {len(records)}")
    return records[0]


def _reference_in(record: Record) -> PayloadReference:
    value = record.value or b""
    if len(value) != _REFERENCE.size or value[0] != _FORMAT:
        raise CorruptBatchError(f"the value at offset {record.offset} is not a reference to a payload: {value[:64].hex()}")
    _, size, digest = _REFERENCE.unpack(value)
    return PayloadReference(digest, size)
