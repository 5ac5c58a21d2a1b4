"""Encodes and decodes the records of a Kafka RecordBatch (v2).

Every length is compared with the bytes that are left before anything is allocated, so no input makes the decoder take more
memory than its own size (and, if it is compressed, than the bound that the decoder is given).
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError, LimitExceededError
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import Limits
from tailrace.model.record import NO_CURSOR, Headers, Record
from tailrace.model.transaction import NO_EPOCH
from tailrace.wire.batch import (
    HEADER_BYTES,
    NO_PRODUCER,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    assemble_batch,
    read_header,
)
from tailrace.wire.compression import Compression, compress, decompress, decompressed_bound
from tailrace.wire.varints import SHORT, SHORT_VARINTS, VARINT_BYTES, decode_varint, encode_varint, long_varint

LEAST_TIMESTAMP = -(1 << 63)
GREATEST_TIMESTAMP = (1 << 63) - 1
LEAST_RECORD_BYTES = 7
RECORD_OVERHEAD_BYTES = 300
"""Memory that a decoded record takes besides its bytes."""
_NULL = b"\1"
_CHECKED_AT_ONCE = 1_000
_MANY_SHORT_VARINTS = [encode_varint(number) for number in range(1 << 13)]
"""More than `SHORT_VARINTS`, for records whose sizes are all looked up."""
_NO_ATTRIBUTES_AND_NO_TIME_DELTA = b"\0\0"


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = Compression.NONE,
    append_time: int | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """Encode records as one batch with its checksum. `append_time` becomes the timestamp of all of them."""
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
    return assemble_batch(
        compress(codec, b"".join(parts)),
        len(records),
        base_timestamp,
        max_timestamp,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def fast_encode_batch(records: Sequence[tuple[bytes | None, bytes, bytes]], timestamp: int) -> bytearray:
    """Encode records of key, value and encoded headers that all have this timestamp.

    Fast path of `encode_batch`: the server uses it for the change events of tables, which it encodes by the hundred thousand.
    It takes a quarter of the time. `tests/unit/wire/test_records.py` holds both equal.
    """
    parts: list[bytes] = []
    varints = _MANY_SHORT_VARINTS
    short = len(varints)
    for delta, (key, value, headers) in enumerate(records):
        key_size = -1 if key is None else len(key)
        value_size = len(value)
        body = b"".join(
            (
                _NO_ATTRIBUTES_AND_NO_TIME_DELTA,
                varints[delta] if delta < short else encode_varint(delta),
                varints[key_size] if 0 <= key_size < short else encode_varint(key_size),
                key or b"",
                varints[value_size] if value_size < short else encode_varint(value_size),
                value,
                headers,
            )
        )
        size = len(body)
        parts.append(varints[size] if size < short else encode_varint(size))
        parts.append(body)
    return assemble_batch(b"".join(parts), len(records), timestamp, timestamp)


class _RecordPlace(NamedTuple):
    number: int
    """How many records of the batch come before it."""
    begin: int
    """Where it begins, in the decompressed bytes."""


class DecodedPart(NamedTuple):
    records: list[Record]
    size: int
    """Bytes of memory that they take, roughly."""
    is_cut: bool
    """Whether `most_bytes` left out some of the records that were asked for."""


def decode_batch(
    batch: Buffer,
    limits: Limits,
    *,
    first: int = 0,
    stop: int | None = None,
    most: int | None = None,
    cursor: Cursor | None = None,
) -> list[Record]:
    """Decode at most `most` records of a batch whose head and checksum were checked before.

    Only records whose offsets are `first` or more, and less than `stop`, above the base offset of the batch are decoded. A
    large batch that is read in parts takes memory for one part only. Records that are left out are not checked. `cursor` is
    that of the first offset of the batch, if it is known.
    """
    return decode_part(batch, limits, first=first, stop=stop, most=most, cursor=cursor).records


def decode_part(
    batch: Buffer,
    limits: Limits,
    *,
    first: int = 0,
    stop: int | None = None,
    most: int | None = None,
    most_bytes: int | None = None,
    cursor: Cursor | None = None,
) -> DecodedPart:
    """Decode as `decode_batch` does, up to about `most_bytes` of memory, but at least one record."""
    header = read_header(batch)
    data = record_bytes(batch, header, limits)
    try:
        number, begin = _place_of(data, header, first)
        last = header.records if stop is None else _place_of(data, header, stop).number
        last = last if most is None else min(last, number + most)
        found, begin, end = _decode_records(data, header, number, last, most_bytes, cursor, begin)
    except IndexError:
        raise cut_off() from None
    decoded = number + len(found)
    if decoded == header.records and end != len(data):
        raise CorruptBatchError(f"the batch has {len(data) - end} bytes after its last record")
    return DecodedPart(found, end - begin + len(found) * RECORD_OVERHEAD_BYTES, decoded < last)


def records_before(batch: Buffer, delta: int, limits: Limits) -> int:
    """Return how many records of a batch have offsets less than `delta` above its base offset."""
    header = read_header(batch)
    if not header.is_sparse:
        return min(max(0, delta), header.records)
    try:
        return _place_of(record_bytes(batch, header, limits), header, delta).number
    except IndexError:
        raise cut_off() from None


def check_decodable(batch: Buffer, limits: Limits) -> None:
    """Raise `InvalidRequestError` if `decode_batch` can't decode a batch whose head and checksum were checked before."""
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
    """Return about how many bytes of memory it takes at most to decode up to `most` records of a batch."""
    body = memoryview(batch)[HEADER_BYTES:]
    size = decompressed_bound(header.codec, body, limits.decompressed_batch_bytes)
    # The decompressed bytes stay in memory beside the records until the last of them is decoded.
    return size * (2 if header.codec else 1) + min(header.records, most) * RECORD_OVERHEAD_BYTES


def record_bytes(batch: Buffer, header: BatchHeader, limits: Limits) -> bytes:
    """Return `decompressed_records` as bytes, which are faster to decode by Python."""
    return bytes(decompressed_records(batch, header, limits))


def decompressed_records(batch: Buffer, header: BatchHeader, limits: Limits) -> Buffer:
    """Return the decompressed bytes after the head. Raises if they can't hold as many records as the head counts."""
    records = header.records
    if records > limits.batch_records:
        raise LimitExceededError(
            f"the batch has {records} records, more than batch_records allows ({limits.batch_records}); send smaller batches"
        )
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], limits.decompressed_batch_bytes)
    if records * LEAST_RECORD_BYTES > len(data):
        raise CorruptBatchError(f"the batch counts {records} records in {len(data)} bytes, which can't hold them")
    return data


def encoded_size_bound(record: Record) -> int:
    """Return how many bytes a record takes at most in a batch that is not compressed."""
    key, value, headers, _, _, _ = record
    size = 1 + 6 * VARINT_BYTES + len(key or b"") + len(value or b"")
    for name, value in headers:
        size += 2 * VARINT_BYTES + (len(name) if name.isascii() else len(name.encode())) + len(value or b"")
    return size


def _place_of(data: bytes, header: BatchHeader, delta: int) -> _RecordPlace:
    """Return the place of the first record whose offset is `delta` or more above the base offset."""
    if not header.is_sparse:
        number = min(max(0, delta), header.records)
        return _RecordPlace(number, skip_records(data, 0, number))
    at = 0
    for number in range(header.records):
        begin = at
        length, at = decode_varint(data, at)
        end = next_record(data, at, length, number)
        _, at = decode_varint(data, at + 1)
        own, _ = decode_varint(data, at)
        if own >= delta:
            return _RecordPlace(number, begin)
        at = end
    return _RecordPlace(header.records, at)


def _decode_records(
    data: bytes,
    header: BatchHeader,
    first: int,
    stop: int,
    most_bytes: int | None = None,
    cursor: Cursor | None = None,
    begin: int = 0,
) -> tuple[list[Record], int, int]:
    """Return the records by their numbers, and where they begin and end. `begin` is where the first of them begins."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None
    size = len(data)
    found: list[Record] = []
    add = found.append
    last_delta = header.last_offset_delta
    is_sparse = header.is_sparse
    previous = first - 1
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
        if delta != index and not (is_sparse and previous < delta <= last_delta):
            raise CorruptBatchError(f"record {index} of the batch has the offset delta {delta}")
        previous = delta
        key, at = _decode_bytes(data, at, end, index)
        value, at = _decode_bytes(data, at, end, index)
        headers: Headers = ()
        if data[at]:
            headers, at = _decode_headers(data, at, end, index)
        else:
            at += 1
        if at != end:
            raise CorruptBatchError(f"record {index} of the batch does not have the {length} bytes that it declares")
        add(
            Record(
                key,
                value,
                headers,
                base_timestamp + timestamp if append_time is None else append_time,
                Offset(base_offset + delta),
                NO_CURSOR if cursor is None else Cursor(cursor + delta),
            )
        )
        full_at -= overhead
        if at >= full_at:
            break
    return found, begin, at


def skip_records(data: bytes, at: int, count: int) -> int:
    for index in range(count):
        length, at = decode_varint(data, at)
        at = next_record(data, at, length, index)
    return at


def next_record(data: bytes, at: int, length: int, index: int) -> int:
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
    """Encode a key or a value with its length."""
    if data is None:
        return _NULL
    size = len(data)
    return (SHORT_VARINTS[size] if size < SHORT else encode_varint(size)) + data


def encode_headers(headers: Headers) -> bytes:
    return _encode_headers(headers, {})


def _encode_headers(headers: Headers, names: dict[str, bytes]) -> bytes:
    """Encode headers. `names` caches encoded names, because most records of a batch have the same."""
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = names.get(name)
        if encoded is None:
            encoded = names[name] = encode_field(name.encode())
        parts.append(encoded)
        parts.append(encode_field(value))
    return b"".join(parts)


def _wrong_length(index: int, length: int, left: int) -> CorruptBatchError:
    return CorruptBatchError(f"record {index} of the batch declares {length} bytes, and {left} are left")


def cut_off() -> CorruptBatchError:
    return CorruptBatchError("the batch's last record is cut off")
