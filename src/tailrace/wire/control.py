"""Control batches: the markers by which a transaction is committed or aborted in a partition.

A marker takes one offset like a record. Its key says what it is; clients act on it and never show it.
"""

from enum import IntEnum
from struct import Struct, error

from crc32c import crc32c

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.wire.batch import (
    CHECKED_FROM,
    CONTROL_MASK,
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    NO_PRODUCER,
    TRANSACTIONAL_MASK,
)
from tailrace.wire.varints import encode_varint

_UNCHECKED_HEAD = Struct(">qiibI")
_CHECKED_HEAD = Struct(">hiqqqhii")
# The one record of a marker has a fixed shape: its length, attributes, timestamp and offset delta (all 0), a key of 4 bytes
# (version and type), a value of 6 bytes (version and coordinator epoch), and no headers. Lengths are varints of one byte.
_RECORD = Struct(">5shhBhiB")
_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_RECORD_HEAD = bytes((16 << 1, 0, 0, 0, 4 << 1))
_VALUE_LENGTH = 6 << 1
_VERSION = 0
_COORDINATOR_EPOCH = 0
_NO_SEQUENCE = -1


class TransactionMarker(IntEnum):
    ABORT = 0
    COMMIT = 1


def encode_marker(marker: TransactionMarker, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytearray:
    """A batch that ends the producer's transaction in the partition that it is written to."""
    checked = _CHECKED_HEAD.pack(
        TRANSACTIONAL_MASK | CONTROL_MASK, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, _NO_SEQUENCE, 1
    )
    checked += _RECORD.pack(_RECORD_HEAD, _VERSION, marker, _VALUE_LENGTH, _VERSION, _COORDINATOR_EPOCH, 0)
    batch = bytearray(_UNCHECKED_HEAD.pack(0, CHECKED_FROM - LENGTH_FROM + len(checked), -1, MAGIC, crc32c(checked)))
    batch += checked
    return batch


def encode_filler(count: int) -> bytearray:
    """A batch that takes so many offsets and is shown to nobody: it stands where records were that are lost."""
    key, value = _KEY.pack(_VERSION, TransactionMarker.COMMIT), _VALUE.pack(_VERSION, _COORDINATOR_EPOCH)
    body = bytearray()
    for delta in range(count):
        record = b"\0\0" + encode_varint(delta) + encode_varint(len(key)) + key + encode_varint(len(value)) + value + b"\0"
        body += encode_varint(len(record)) + record
    checked = _CHECKED_HEAD.pack(CONTROL_MASK, count - 1, 0, 0, NO_PRODUCER, -1, _NO_SEQUENCE, count) + body
    batch = bytearray(_UNCHECKED_HEAD.pack(0, CHECKED_FROM - LENGTH_FROM + len(checked), -1, MAGIC, crc32c(checked)))
    batch += checked
    return batch


def decode_marker(batch: Buffer) -> TransactionMarker:
    """What a control batch says, whose head and checksum are known to be right."""
    try:
        head, _, kind, *_ = _RECORD.unpack_from(batch, HEADER_BYTES)
        if head != _RECORD_HEAD:
            raise CorruptBatchError(f"the control batch's record begins with {head.hex()}, not with {_RECORD_HEAD.hex()}")
        return TransactionMarker(kind)
    except error:
        raise CorruptBatchError(f"a control batch has {HEADER_BYTES + _RECORD.size} bytes, this one has {len(batch)}") from None
    except ValueError:
        raise CorruptBatchError(f"the control batch says {kind}, which is neither abort (0) nor commit (1)") from None
