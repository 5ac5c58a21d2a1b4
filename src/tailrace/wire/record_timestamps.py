"""Finds the first record of a batch at a time, without decoding the records."""

from typing import NamedTuple

from tailrace.model.commit import Buffer
from tailrace.model.limits import Limits
from tailrace.wire.batch import TIMESTAMP_TYPE_MASK, read_header
from tailrace.wire.records import cut_off, next_record, record_bytes
from tailrace.wire.varints import decode_varint


class TimedRecord(NamedTuple):
    """The place of a record in its batch, and its timestamp."""

    delta: int
    """How far its offset is above the base offset of the batch."""
    timestamp: int


def first_record_at(batch: Buffer, timestamp_ms: int, limits: Limits, *, first: int = 0) -> TimedRecord | None:
    """Return the first record with this timestamp or a later one, of those whose offset is `first` or more above the base."""
    header = read_header(batch)
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None
    if append_time is not None and append_time < timestamp_ms:
        return None
    data = record_bytes(batch, header, limits)
    at = 0
    try:
        for index in range(header.records):
            length, at = decode_varint(data, at)
            end = next_record(data, at, length, index)
            later, at = decode_varint(data, at + 1)
            delta, _ = decode_varint(data, at)
            timestamp = header.base_timestamp + later if append_time is None else append_time
            place = delta if header.is_sparse else index
            if place >= first and timestamp >= timestamp_ms:
                return TimedRecord(place, timestamp)
            at = end
    except IndexError:
        raise cut_off() from None
    return None
