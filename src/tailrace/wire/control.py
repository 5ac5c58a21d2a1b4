"""Control batches: the markers that commit or abort a transaction in a partition.

A marker takes one offset, like a record. Its key says what it is; clients act on it and never show it.
"""

from enum import IntEnum
from struct import Struct, error

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.model.transaction import NO_EPOCH
from tailrace.wire.batch import (
    CONTROL_MASK,
    HEADER_BYTES,
    NO_PRODUCER,
    TRANSACTIONAL_MASK,
    assemble_batch,
    with_base_offset,
    with_offsets,
)
from tailrace.wire.varints import encode_varint

# The one record of a marker has a fixed shape: its length, attributes, timestamp and offset delta (all 0), a key of 4 bytes
# (version and type), a value of 6 bytes (version and coordinator epoch), and no headers. Lengths are varints of one byte.
_RECORD = Struct(">5shhBhiB")
_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_RECORD_HEAD = bytes((16 << 1, 0, 0, 0, 4 << 1))
_VALUE_LENGTH = 6 << 1
_VERSION = 0
_COORDINATOR_EPOCH = 0


class TransactionMarker(IntEnum):
    ABORT = 0
    COMMIT = 1


def encode_marker(marker: TransactionMarker, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytearray:
    """Return a batch that ends the producer's transaction in the partition that it is written to."""
    return assemble_batch(
        _RECORD.pack(_RECORD_HEAD, _VERSION, marker, _VALUE_LENGTH, _VERSION, _COORDINATOR_EPOCH, 0),
        1,
        timestamp_ms,
        timestamp_ms,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def encode_skip(next_offset: int) -> Buffer:
    """Return a batch that moves readers to this offset and shows them nothing: a marker at the offset before it.

    All clients know markers. A batch without records does not do: librdkafka takes it for one that is too large.
    """
    return with_base_offset(encode_marker(TransactionMarker.COMMIT, NO_PRODUCER, NO_EPOCH, 0), next_offset - 1)


def encode_filler(count: int) -> bytearray:
    """Return a batch that takes this many offsets and that no reader is shown. It stands in for records that are lost."""
    key, value = _KEY.pack(_VERSION, TransactionMarker.COMMIT), _VALUE.pack(_VERSION, _COORDINATOR_EPOCH)
    body = bytearray()
    for delta in range(count):
        record = b"\0\0" + encode_varint(delta) + encode_varint(len(key)) + key + encode_varint(len(value)) + value + b"\0"
        body += encode_varint(len(record)) + record
    return assemble_batch(body, count, 0, 0, attributes=CONTROL_MASK)


def encode_gap(count: int) -> bytearray:
    """Return a batch that takes this many offsets and has no record for a reader, however many they are."""
    return with_offsets(encode_filler(1), count)


def decode_marker(batch: Buffer) -> TransactionMarker:
    """Return the marker of a control batch whose head and checksum were checked before."""
    try:
        head, _, kind, *_ = _RECORD.unpack_from(batch, HEADER_BYTES)
        if head != _RECORD_HEAD:
            raise CorruptBatchError(f"the control batch's record begins with {head.hex()}, not with {_RECORD_HEAD.hex()}")
        return TransactionMarker(kind)
    except error:
        raise CorruptBatchError(f"a control batch has {HEADER_BYTES + _RECORD.size} bytes, this one has {len(batch)}") from None
    except ValueError:
        raise CorruptBatchError(f"the control batch has the type {kind}, which is neither abort (0) nor commit (1)") from None
