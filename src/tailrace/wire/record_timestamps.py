"""Finds the first record of a batch at a time, without decoding the records."""

from typing import NamedTuple

from tailrace.model.commit import Buffer
from tailrace.model.limits import Limits
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, read_header
from tailrace.wire.records import cut_off, next_record, record_bytes, skip_records
from tailrace.wire.varints import decode_varint


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
