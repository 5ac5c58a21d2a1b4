"""The records of a Kafka RecordBatch (v2): bytes to values and back.

Every length is compared with the bytes that are left before anything is taken, so no input makes the decoder allocate more
than its own size (and, when compressed, more than the bound that it is given).
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError, LimitExceededError
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import Limits
from tailrace.model.record import NO_CURSOR, Headers, Record
from tailrace.wire.batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    NO_PRODUCER,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    read_header,
)
from tailrace.wire.compression import Compression, compress, decompress, decompressed_bound
from tailrace.wire.varints import SHORT, SHORT_VARINTS, VARINT_BYTES, decode_varint, encode_varint, long_varint

_UNCHECKED_HEAD = Struct(">qiibI")
_CHECKED_HEAD = Struct(">hiqqqhii")

LEAST_TIMESTAMP = -(1 << 63)
GREATEST_TIMESTAMP = (1 << 63) - 1
LEAST_RECORD_BYTES = 7
RECORD_OVERHEAD_BYTES = 300
"""What a decoded record takes besides its bytes."""
_NULL = b"\1"
_CHECKED_AT_ONCE = 1_000


class TimedRecord(NamedTuple):
    """A record of a batch, by its time."""

    number: int
    """Counted in the batch, from 0."""
    timestamp: int


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = Compression.NONE,
    append_time: int | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """One batch of these records, with its checksum. With `append_time` that is the timestamp of them all."""
    base_timestamp = records[0].timestamp
    max_timestamp = base_timestamp
    parts: list[Buffer] = []
    add = parts.append
    varints = SHORT_VARINTS
    names: dict[str, bytes] = {}
    for delta, (key, value, headers, timestamp, _, _) in enumerate(records):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        later = timestamp - base_timestamp
        body = b"".join(
            (
                b"\0",
                varints[later] if 0 <= later < SHORT else encode_varint(later),
                varints[delta] if delta < SHORT else encode_varint(delta),
                encode_field(key),
                encode_field(value),
                _encode_headers(headers, names) if headers else b"\0",
            )
        )
        size = len(body)
        add(varints[size] if size < SHORT else encode_varint(size))
        add(body)
    if append_time is not None:
        # Deltas stay relative to the first record's own time; readers take the batch's maximum instead.
        max_timestamp = append_time
    attributes = codec | (TIMESTAMP_TYPE_MASK if append_time is not None else 0) | (TRANSACTIONAL_MASK if transactional else 0)
    checked = bytearray(
        _CHECKED_HEAD.pack(
            attributes,
            len(records) - 1,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    if codec == Compression.NONE:
        checked += b"".join(parts)
    else:
        checked += compress(codec, b"".join(parts))
    batch = bytearray(_UNCHECKED_HEAD.pack(0, CHECKED_FROM - LENGTH_FROM + len(checked), -1, MAGIC, crc32c(checked)))
    batch += checked
    return batch


class DecodedPart(NamedTuple):
    records: list[Record]
    size: int
    """Bytes of memory that they take, about."""
    is_cut: bool
    """Whether there was no room for all that were asked for."""


def decode_batch(
    batch: Buffer, limits: Limits, *, first: int = 0, most: int | None = None, cursor: Cursor | None = None
) -> list[Record]:
    """The records of a batch whose head and checksum are known to be right: from the `first` on, at most so many.

    A large batch read in parts takes memory for one part only. What is left out is not checked. `cursor` is that of the first
    record of the batch, where it is known.
    """
    return decode_part(batch, limits, first=first, most=most, cursor=cursor).records


def decode_part(
    batch: Buffer,
    limits: Limits,
    *,
    first: int = 0,
    most: int | None = None,
    most_bytes: int | None = None,
    cursor: Cursor | None = None,
) -> DecodedPart:
    """The same, up to about `most_bytes` of memory, but at least one record."""
    header = read_header(batch)
    data = record_bytes(batch, header, limits)
    stop = header.records if most is None else min(header.records, first + most)
    try:
        found, begin, end = _decode_records(data, header, first, stop, most_bytes, cursor)
    except IndexError:
        raise cut_off() from None
    if first + len(found) == header.records and end != len(data):
        raise CorruptBatchError(f"the batch has {len(data) - end} bytes after its last record")
    return DecodedPart(found, end - begin + len(found) * RECORD_OVERHEAD_BYTES, first + len(found) < stop)


def check_records(batch: Buffer, limits: Limits) -> None:
    """Raise `InvalidRequestError` if a batch, whose head and checksum are right, has records that can't be decoded."""
    header = read_header(batch)
    data = record_bytes(batch, header, limits)
    at = 0
    try:
        for first in range(0, header.records, _CHECKED_AT_ONCE):
            _, _, at = _decode_records(data, header, first, min(header.records, first + _CHECKED_AT_ONCE), begin=at)
    except IndexError:
        raise cut_off() from None
    if at != len(data):
        raise CorruptBatchError(f"the batch has {len(data) - at} bytes after its last record")


def decoded_bound(batch: Buffer, header: BatchHeader, limits: Limits, most: int) -> int:
    """At most about so many bytes of memory are taken by decoding up to so many records of a batch."""
    body = memoryview(batch)[HEADER_BYTES:]
    size = decompressed_bound(header.codec, body, limits.decompressed_batch_bytes)
    # What is decompressed is there beside the records until the last of them is made.
    return size * (2 if header.codec else 1) + min(header.records, most) * RECORD_OVERHEAD_BYTES


def first_record_at(batch: Buffer, timestamp_ms: int, limits: Limits, *, first: int = 0) -> TimedRecord | None:
    """Which record, from the `first` on, has this timestamp or a later one."""
    header = read_header(batch)
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return TimedRecord(first, header.max_timestamp) if header.max_timestamp >= timestamp_ms else None
    data = record_bytes(batch, header, limits)
    try:
        at = _skip_records(data, 0, first)
        for index in range(first, header.records):
            length, at = decode_varint(data, at)
            delta, _ = decode_varint(data, at + 1)
            if header.base_timestamp + delta >= timestamp_ms:
                return TimedRecord(index, header.base_timestamp + delta)
            at = _next_record(data, at, length, index)
    except IndexError:
        raise cut_off() from None
    return None


def record_bytes(batch: Buffer, header: BatchHeader, limits: Limits) -> bytes:
    """The bytes after the head, without their compression, as far as they can hold what the head counts."""
    records = header.records
    if records > limits.batch_records:
        raise LimitExceededError(
            f"the batch has {records} records, more than batch_records allows ({limits.batch_records}); send smaller batches"
        )
    data = bytes(decompress(header.codec, memoryview(batch)[HEADER_BYTES:], limits.decompressed_batch_bytes))
    if records * LEAST_RECORD_BYTES > len(data):
        raise CorruptBatchError(f"the batch counts {records} records in {len(data)} bytes, too few to hold them")
    return data


def encoded_size_bound(record: Record) -> int:
    """Bytes that a record takes at most in a batch that is not compressed."""
    key, value, headers, _, _, _ = record
    size = 1 + 6 * VARINT_BYTES + len(key or b"") + len(value or b"")
    for name, value in headers:
        size += 2 * VARINT_BYTES + (len(name) if name.isascii() else len(name.encode())) + len(value or b"")
    return size


def _decode_records(
    data: bytes,
    header: BatchHeader,
    first: int,
    stop: int,
    most_bytes: int | None = None,
    cursor: Cursor | None = None,
    begin: int | None = None,
) -> tuple[list[Record], int, int]:
    """The records, and where they begin and end. `begin`: where the first of them does, if that is known."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None
    size = len(data)
    found: list[Record] = []
    add = found.append
    if begin is None:
        begin = _skip_records(data, 0, first)
    at = begin
    full_at, overhead = (size + 1, 0) if most_bytes is None else (begin + most_bytes, RECORD_OVERHEAD_BYTES)
    for index in range(first, stop):
        length = data[at]
        at += 1
        if length < 0x80:
            length = (length >> 1) ^ -(length & 1)
        else:
            length, at = long_varint(data, at)
        end = at + length
        if length < LEAST_RECORD_BYTES - 1 or end > size:
            raise _wrong_length(index, length, size - at)
        at += 1
        timestamp = data[at]
        at += 1
        if timestamp < 0x80:
            timestamp = (timestamp >> 1) ^ -(timestamp & 1)
        else:
            timestamp, at = long_varint(data, at)
            if not LEAST_TIMESTAMP <= base_timestamp + timestamp <= GREATEST_TIMESTAMP:
                raise CorruptBatchError(f"record {index} of the batch has a timestamp of more than 64 bits")
        delta = data[at]
        at += 1
        if delta < 0x80:
            delta = (delta >> 1) ^ -(delta & 1)
        else:
            delta, at = long_varint(data, at)
        if delta != index:
            raise CorruptBatchError(f"record {index} of the batch says that it is record {delta}")
        key, at = _decode_bytes(data, at, end, index)
        value, at = _decode_bytes(data, at, end, index)
        headers: Headers = ()
        if data[at]:
            headers, at = _decode_headers(data, at, end, index)
        else:
            at += 1
        if at != end:
            raise CorruptBatchError(f"record {index} of the batch does not have the {length} bytes that it says")
        add(
            Record(
                key,
                value,
                headers,
                base_timestamp + timestamp if append_time is None else append_time,
                Offset(base_offset + index),
                NO_CURSOR if cursor is None else Cursor(cursor + index),
            )
        )
        full_at -= overhead
        if at >= full_at:
            break
    return found, begin, at


def _skip_records(data: bytes, at: int, count: int) -> int:
    for index in range(count):
        length, at = decode_varint(data, at)
        at = _next_record(data, at, length, index)
    return at


def _next_record(data: bytes, at: int, length: int, index: int) -> int:
    if length < LEAST_RECORD_BYTES - 1 or at + length > len(data):
        raise _wrong_length(index, length, len(data) - at)
    return at + length


def _decode_bytes(data: bytes, at: int, end: int, index: int) -> tuple[bytes | None, int]:
    length = data[at]
    at += 1
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
    else:
        length, at = long_varint(data, at)
    if length == -1:
        return None, at
    stop = at + length
    if length < 0 or stop > end:
        raise CorruptBatchError(f"record {index} of the batch has a field of {length} bytes with {end - at} left")
    return data[at:stop], stop


def _decode_headers(data: bytes, at: int, end: int, index: int) -> tuple[Headers, int]:
    count = data[at]
    at += 1
    if count < 0x80:
        count = (count >> 1) ^ -(count & 1)
    else:
        count, at = long_varint(data, at)
    if not 0 <= count * 2 <= end - at:
        raise CorruptBatchError(f"record {index} of the batch counts {count} headers in {end - at} bytes")
    headers = []
    for _ in range(count):
        name, at = _decode_bytes(data, at, end, index)
        value, at = _decode_bytes(data, at, end, index)
        if name is None:
            raise CorruptBatchError(f"record {index} of the batch has a header without a name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            raise CorruptBatchError(f"record {index} of the batch has a header whose name is not UTF-8: {name!r}") from None
    return headers, at


def encode_field(data: bytes | None) -> bytes:
    """A key or a value, with its length."""
    if data is None:
        return _NULL
    size = len(data)
    return (SHORT_VARINTS[size] if size < SHORT else encode_varint(size)) + data


def encode_headers(headers: Headers) -> bytes:
    return _encode_headers(headers, {})


def _encode_headers(headers: Headers, names: dict[str, bytes]) -> bytes:
    """`names`: those that were encoded before. Most records of a batch have the same."""
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = names.get(name)
        if encoded is None:
            encoded = names[name] = encode_field(name.encode())
        parts.append(encoded)
        parts.append(encode_field(value))
    return b"".join(parts)


def _wrong_length(index: int, length: int, left: int) -> CorruptBatchError:
    return CorruptBatchError(f"record {index} of the batch says it has {length} bytes, and {left} are left")


def cut_off() -> CorruptBatchError:
    return CorruptBatchError("the batch's last record is cut off")


_SHORT = 1 << 13
_VARINTS = [encode_varint(number) for number in range(_SHORT)]
_NO_ATTRIBUTES_AND_NO_TIME_DELTA = b"\0\0"


def encoded_headers(headers: Headers) -> bytes:
    """Headers as `encode_uniform_batch` takes them: once for all records that share them."""
    return encode_headers(headers)


def fast_encode_batch(records: Sequence[tuple[bytes, bytes, bytes]], timestamp: int) -> bytearray:
    """One batch of records of key, value and encoded headers, all of this time."""
    parts: list[bytes] = []
    varints = _VARINTS
    for delta, (key, value, headers) in enumerate(records):
        key_size = len(key)
        value_size = len(value)
        body = b"".join(
            (
                _NO_ATTRIBUTES_AND_NO_TIME_DELTA,
                varints[delta] if delta < _SHORT else encode_varint(delta),
                varints[key_size] if key_size < _SHORT else encode_varint(key_size),
                key,
                varints[value_size] if value_size < _SHORT else encode_varint(value_size),
                value,
                headers,
            )
        )
        size = len(body)
        parts.append(varints[size] if size < _SHORT else encode_varint(size))
        parts.append(body)
    count = len(records)
    checked = bytearray(_CHECKED_HEAD.pack(0, count - 1, timestamp, timestamp, NO_PRODUCER, -1, -1, count))
    checked += b"".join(parts)
    batch = bytearray(_UNCHECKED_HEAD.pack(0, CHECKED_FROM - LENGTH_FROM + len(checked), -1, MAGIC, crc32c(checked)))
    batch += checked
    return batch
