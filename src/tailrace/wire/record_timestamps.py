"""How old the records of a batch are at most, found without decoding them.

The head of a batch tells its newest time and the time that all others count from, and not the oldest: a record may lie before
that base. So the records are walked over by their lengths, and of each the sign of its time is looked at, which is the lowest
bit of one byte. Only where one lies before the base are the times themselves read.
"""

from collections.abc import Iterator
from itertools import repeat

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.model.limits import Limits
from tailrace.model.record import NO_TIMESTAMP
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, BatchHeader, read_header
from tailrace.wire.records import GREATEST_TIMESTAMP, LEAST_TIMESTAMP, cut_off, record_bytes
from tailrace.wire.varints import decode_varint

NEVER_MS = GREATEST_TIMESTAMP
"""The oldest time where no record has a time."""
LONG_AGO_MS = LEAST_TIMESTAMP
"""Where nobody can tell."""

_LOW_BITS = [(byte >> 1 & 0x3F) + 2 for byte in range(0x100)]
"""By the first of two bytes of a length: what it adds to the way to the next record, the two bytes themselves included."""


def oldest_timestamp(batch: Buffer, limits: Limits) -> int:
    """No record of the batch has a time before this one. Its head and its checksum are known to be right.

    Raises `CorruptBatchError` or `LimitExceededError` where the records can't be walked over.
    """
    header = read_header(batch)
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return NEVER_MS if header.max_timestamp == NO_TIMESTAMP else header.max_timestamp
    data = record_bytes(batch, header, limits)
    try:
        if header.base_timestamp != NO_TIMESTAMP and not _goes_back(data, header.records):
            return header.base_timestamp
        return min((time for time in _times(data, header) if time != NO_TIMESTAMP), default=NEVER_MS)
    except IndexError:
        raise cut_off() from None


def _goes_back(data: bytes, records: int) -> bool:
    """Whether a record has a time before the base. In a record come its length, a byte of attributes, its time, and more.

    This is all that is done for most records of a server, so it does the usual quickly: lengths of one or two bytes.
    """
    low_bits = _LOW_BITS
    at = signs = 0
    for _ in repeat(None, records):
        length = data[at]
        if length < 0x80:
            signs |= data[at + 2]
            at += (length >> 1) + 1
            continue
        more = data[at + 1]
        if more < 0x80:
            signs |= data[at + 3]
            at += (more << 6) + low_bits[length]
            continue
        length, at = decode_varint(data, at)
        if length < 0:
            raise CorruptBatchError(f"a record of the batch says it has {length} bytes")
        signs |= data[at + 1]
        at += length
    if at != len(data):
        raise CorruptBatchError(f"the records of the batch end at byte {at} of {len(data)}")
    return bool(signs & 1)


def _times(data: bytes, header: BatchHeader) -> Iterator[int]:
    at = 0
    for index in range(header.records):
        length, at = decode_varint(data, at)
        delta, _ = decode_varint(data, at + 1)
        time = header.base_timestamp + delta
        if length < 0 or not LEAST_TIMESTAMP <= time <= GREATEST_TIMESTAMP:
            raise CorruptBatchError(f"record {index} of the batch has {length} bytes and the time {time}, which can't be")
        yield time
        at += length
    if at != len(data):
        raise CorruptBatchError(f"the records of the batch end at byte {at} of {len(data)}")
