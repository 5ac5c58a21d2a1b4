"""Checks that the records inside a batch are what its head says: all of them there, each whole, and nothing else.

The format is exactly Kafka's, and everything that passes can be decoded by `wire/records.py`: lengths that fit, numbers of the
right width, offsets from 0 without a gap (or with gaps where compaction removed records), headers with names. `scan_records`
and the functions that it calls run as Python, on bytes, at microseconds a record. `wire/fast_record_check.py` has the same
functions compiled to machine code that takes a pointer, at a few nanoseconds a record. So they use numbers of 64 bits only,
call only each other, and never read beyond `end`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from enum import IntEnum
from typing import Protocol

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError, InvalidRecordsError
from tailrace.wire.batch import CODEC_MASK, HEADER_BYTES, BatchHeader
from tailrace.wire.compression import decompress
from tailrace.wire.records import LEAST_RECORD_BYTES


class RecordFault(IntEnum):
    """What can be wrong with a record."""

    NONE = 0
    LENGTH = 1
    NUMBER = 2
    TIMESTAMP = 3
    OFFSET = 4
    FIELD = 5
    HEADERS = 6
    HEADER_NAME = 7
    LEFT_OVER = 8
    TRAILING = 9
    KEY = 10


_LEAST_BODY = 6
_GREATEST = 0x7FFFFFFFFFFFFFFF
_LEAST = -0x7FFFFFFFFFFFFFFF - 1
_CUT_OFF = -1
_NO_TIMESTAMP = -1


ScanResult = tuple[int, int, int, int]
"""The result of a scan: one of `RecordFault`, the number of the record that has it and, if there is no fault, the oldest and
the newest timestamp of all records. Records without a timestamp do not count for the oldest one."""


class ScanRecords(Protocol):
    def __call__(
        self, data: Buffer, start: int, count: int, base_timestamp: int, *, spare: int = 0, needs_keys: bool = False
    ) -> ScanResult:
        """Scan so many records, from byte `start` on. Their timestamps are relative to `base_timestamp`.

        The offsets of the batch are `spare` more than its records, if compaction has removed some. With `needs_keys` a record
        without a key is a fault.
        """


TimestampSpan = tuple[int, int]
"""The oldest and the newest timestamp of the records of a batch. If no record has one, the oldest is later than any."""


_FAULTS = {
    RecordFault.LENGTH: "has a length that does not fit into its batch",
    RecordFault.NUMBER: "has a number that is cut off or has too many bits",
    RecordFault.TIMESTAMP: "has a timestamp of more than 64 bits",
    RecordFault.OFFSET: "has the offset of another record; offsets count from 0 without a gap",
    RecordFault.FIELD: "has a key or value whose length does not fit into the record",
    RecordFault.HEADERS: "has headers that do not fit into the record, or one without a name",
    RecordFault.HEADER_NAME: "has a header whose name is not UTF-8",
    RecordFault.LEFT_OVER: "has bytes after its headers",
    RecordFault.KEY: "has no key; a topic with compaction takes only records with keys",
}


def check_records(
    batch: Buffer, header: BatchHeader, most_bytes: int, scan: ScanRecords, *, needs_keys: bool = False
) -> TimestampSpan:
    """Check the records and return their timestamps. A compressed batch may decompress to `most_bytes`."""
    data, start = batch, HEADER_BYTES
    codec = header.attributes & CODEC_MASK
    if codec:
        try:
            data, start = decompress(codec, memoryview(batch)[HEADER_BYTES:], most_bytes), 0
        except CorruptBatchError as error:
            raise InvalidRecordsError(str(error)) from error
    size = len(data) - start
    if header.records * LEAST_RECORD_BYTES > size:
        raise InvalidRecordsError(f"the batch counts {header.records} records in {size} bytes, which can't hold them")
    spare = header.last_offset_delta + 1 - header.records
    fault, record, oldest, newest = scan(data, start, header.records, header.base_timestamp, spare=spare, needs_keys=needs_keys)
    if fault:
        if fault == RecordFault.TRAILING:
            raise InvalidRecordsError(f"the batch has bytes after the last of its {header.records} records")
        raise InvalidRecordsError(f"record {record} of the batch {_FAULTS[RecordFault(fault)]}")
    return oldest, newest


def plain_scan(
    data: Buffer, start: int, count: int, base_timestamp: int, *, spare: int = 0, needs_keys: bool = False
) -> ScanResult:
    """Scan records by Python. The general path beside `fast_record_check.CompiledScan`."""
    plain = data if type(data) is bytes else bytes(data)
    places = [start, len(plain), count, base_timestamp, spare, int(needs_keys)]
    fault: int = scan_records(plain, places)
    return fault, places[0], places[1], places[2]


def scan_records(data, places):
    """Scan the records and return the first fault.

    `places` holds where the bytes begin and end, the number of records, the timestamp that theirs are relative to, how many
    more offsets than records there are, and whether each record needs a key. On return its first entry is the number of the
    record with the fault, the second the oldest and the third the newest timestamp.
    """
    at = places[0]
    size = places[1]
    base_timestamp = places[3]
    oldest = _GREATEST
    newest = _LEAST
    spare = places[4]
    previous = -1
    for index in range(places[2]):
        places[0] = index
        length, at = read_number(data, at, size)
        if at == _CUT_OFF:
            return 2
        if length < _LEAST_BODY or length > size - at:
            return 1
        end = at + length
        # The byte of attributes is skipped: Kafka defines none.
        later, at = read_long(data, at + 1, end)
        if at == _CUT_OFF:
            return 2
        if later > 0:
            if base_timestamp > _GREATEST - later:
                return 3
        elif base_timestamp < _LEAST - later:
            return 3
        timestamp = base_timestamp + later
        newest = max(newest, timestamp)
        if timestamp != _NO_TIMESTAMP:
            oldest = min(oldest, timestamp)
        delta, at = read_number(data, at, end)
        if at == _CUT_OFF:
            return 2
        if delta <= previous or delta > index + spare:
            return 4
        previous = delta
        for field in range(2):
            length, at = read_number(data, at, end)
            if at == _CUT_OFF:
                return 2
            if length == -1 and field == 0 and places[5]:
                return 10
            if length < -1 or length > end - at:
                return 5
            at += max(length, 0)
        headers, at = read_number(data, at, end)
        if at == _CUT_OFF:
            return 2
        if headers < 0 or headers > (end - at) // 2:
            return 6
        for _ in range(headers):
            length, at = read_number(data, at, end)
            if at == _CUT_OFF:
                return 2
            if length < 0 or length > end - at:
                return 6
            if not is_utf8(data, at, at + length):
                return 7
            length, at = read_number(data, at + length, end)
            if at == _CUT_OFF:
                return 2
            if length < -1 or length > end - at:
                return 6
            at += max(length, 0)
        if at != end:
            return 8
    places[1] = oldest
    places[2] = newest
    return 0 if at == size else 9


def read_number(data, at, end):
    """Return a number of 32 bits and where it ends, or `_CUT_OFF` as the end if there is none in up to five bytes."""
    number = 0
    shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if shift == 28 and byte > 15:
            return 0, -1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    return 0, -1


def read_long(data, at, end):
    """Return a number of 64 bits and where it ends, or `_CUT_OFF` as the end if there is none in up to ten bytes."""
    number = 0
    shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        number |= (byte & 127) << shift
        if byte < 128:
            return ((number >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1), at
        shift += 7
    return 0, -1


def is_utf8(data, at, end):
    """Return whether the bytes are UTF-8."""
    while at < end:
        point = int(data[at])
        at += 1
        if point < 0x80:
            continue
        if point < 0xC2 or point > 0xF4:
            return False
        more = 1 if point < 0xE0 else 2 if point < 0xF0 else 3
        if more > end - at:
            return False
        point &= 0x3F >> more
        for _ in range(more):
            byte = int(data[at])
            at += 1
            if byte & 0xC0 != 0x80:
                return False
            point = point << 6 | byte & 0x3F
        # Overlong encodings, surrogates, and numbers beyond the last character are not UTF-8.
        if point < 1 << (5 * more + 1) or 0xD800 <= point < 0xE000 or point > 0x10FFFF:
            return False
    return True
