"""Finds timestamps in a batch without decoding its records: the first record at a time, and how old the oldest one is.

The head of a batch holds its newest timestamp and the base that all timestamps are relative to, but not the oldest one: a
record may lie before the base. To find it the records are skipped by their lengths, and only the sign of each timestamp is
read, which is the lowest bit of one byte. The timestamps themselves are read only if one of them lies before the base.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError
from tailrace.model.limits import Limits
from tailrace.model.record import NO_TIMESTAMP
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, BatchHeader, read_header
from tailrace.wire.records import GREATEST_TIMESTAMP, LEAST_TIMESTAMP, cut_off, next_record, record_bytes, skip_records
from tailrace.wire.varints import decode_varint

NEVER_MS = GREATEST_TIMESTAMP
"""The oldest timestamp of records that have none."""
LONG_AGO_MS = LEAST_TIMESTAMP
"""The oldest timestamp of records whose timestamps are unknown."""

_LOW_BITS = [(byte >> 1 & 0x3F) + 2 for byte in range(0x100)]
"""By the first of the two bytes of a length: its part of the distance to the next record, with the two bytes themselves."""


class TimedRecord(NamedTuple):
    """The place of a record in its batch, and its timestamp."""

    number: int
    """Counted in the batch, from 0."""
    timestamp: int


def first_record_at(batch: Buffer, timestamp_ms: int, limits: Limits, *, first: int = 0) -> TimedRecord | None:
    """Return the first record, from number `first` on, with this timestamp or a later one."""
    header = read_header(batch)
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return TimedRecord(first, header.max_timestamp) if header.max_timestamp >= timestamp_ms else None
    data = record_bytes(batch, header, limits)
    try:
        at = skip_records(data, 0, first)
        for index in range(first, header.records):
            length, at = decode_varint(data, at)
            delta, _ = decode_varint(data, at + 1)
            if header.base_timestamp + delta >= timestamp_ms:
                return TimedRecord(index, header.base_timestamp + delta)
            at = next_record(data, at, length, index)
    except IndexError:
        raise cut_off() from None
    return None


def oldest_timestamp(batch: Buffer, limits: Limits) -> int:
    """Return a timestamp that no record of the batch lies before. Its head and checksum were checked before.

    Raises `CorruptBatchError` or `LimitExceededError` if the records can't be read.
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
    """Return whether a record has a timestamp before the base. A record is its length, a byte of attributes, its timestamp,
    and more.

    This loop runs over most records of a server, so lengths of one and two bytes, the usual ones, are decoded inline.
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
            raise CorruptBatchError(f"a record of the batch declares {length} bytes")
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
            raise CorruptBatchError(
                f"record {index} of the batch has the length {length} and the timestamp {time}, which are impossible"
            )
        yield time
        at += length
    if at != len(data):
        raise CorruptBatchError(f"the records of the batch end at byte {at} of {len(data)}")
