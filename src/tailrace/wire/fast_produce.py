"""Fast paths of the message codec for produce requests and responses.

`read_single_batch_request` reads the request that producers send most: one batch for one partition, version 9 or later,
outside of transactions. It returns `None` for any other request, also for a malformed one: `MessageCodec` reads those and says
what is wrong with them. Its answer is written whole, head included. `write_produce_response` writes the body of every other
produce response. `tests/property/test_fast_produce.py` holds requests and responses equal to those of `MessageCodec`.

A producer that sends single records gets a response for each. To build it as a message and to write that field by field took
three times as long.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from uuid import UUID

import msgspec

from tailrace.model.commit import Buffer
from tailrace.wire.message import NO_UUID
from tailrace.wire.message_codec import write_count, write_string

_LOG_START_SINCE = 5
_MESSAGES_SINCE = 8
_FLEXIBLE_SINCE = 9
_IDS_SINCE = 13
_KNOWN_UNTIL = 13

_REQUEST_HEAD = Struct(">hhih")
"""API key, version, correlation id, length of the client id."""
_BEFORE_TOPIC = Struct(">BBhiB")
"""Tagged fields of the head, length of the transactional id, acks, time-out, count of topics."""
_REQUEST_PARTITION = Struct(">BiB")
"""Count of partitions, number of the first, first byte of its length."""
_NULL = 0
_ONE = 2
"""Counts and lengths are one more than what they count, and null is 0."""
_MORE = 0x80
_BITS_OF_LONGEST_SIZE = 28
_UUID_BYTES = 16
_COPIED_BYTES = 4096
_LONGEST_NAME = 126
"""Longer names have a length of two bytes."""
_END = bytes(3)
"""No tagged fields of the partition, of the topic, of the request."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_PARTITION = Struct(">ihqq")
_PARTITION_WITH_START = Struct(">ihqqq")
_NO_THROTTLE = _INT32.pack(0)
_NO_RECORD_ERRORS = _INT32.pack(0)
_NO_MESSAGE = _INT16.pack(-1)
_NO_ERROR = b"\x01\x00\x00"
"""No errors of single records, no message, no tagged fields."""
_SINGLE_HEAD = Struct(">iiBB")
"""Size, correlation id, no tagged fields of the head, count of topics."""
_SINGLE_PARTITION = Struct(">BihqqqHBBiB")
"""Count of partitions; the partition; no errors of records and no message; no tagged fields of partition and topic; no
throttling; no tagged fields."""
_SIZE_BYTES = 4
_SINGLE_BYTES = _SINGLE_HEAD.size - _SIZE_BYTES + _SINGLE_PARTITION.size
"""Bytes of a response after its size, without the topic."""
_NO_RECORD_ERRORS_AND_NO_MESSAGE = 0x0100
_REJECTION_HEAD = Struct(">iiB")
"""Size, correlation id, no tagged fields."""
_NONE = -1


class SingleBatchRequest(msgspec.Struct, frozen=True):
    version: int
    correlation_id: int
    acks: int
    topic: str
    topic_id: UUID
    """Set instead of the name since version 13."""
    partition: int
    records: Buffer


def read_single_batch_request(frame: bytearray) -> SingleBatchRequest | None:
    """Read a whole request. Returns `None` if it is not of this kind."""
    try:
        return _read(frame)
    except (StructError, IndexError, ValueError):
        return None


def _read(frame: bytearray) -> SingleBatchRequest | None:
    _, version, correlation_id, id_bytes = _REQUEST_HEAD.unpack_from(frame)
    if not _FLEXIBLE_SINCE <= version <= _KNOWN_UNTIL:
        return None
    at = _REQUEST_HEAD.size + (id_bytes if id_bytes > 0 else 0)
    head_tags, transactional_id, acks, _, topics = _BEFORE_TOPIC.unpack_from(frame, at)
    if head_tags or transactional_id != _NULL or topics != _ONE:
        return None
    at += _BEFORE_TOPIC.size
    topic, topic_id = "", NO_UUID
    if version < _IDS_SINCE:
        name_at = at + 1
        at = name_at + frame[at] - 1
        if not 0 <= at - name_at <= _LONGEST_NAME:
            return None
        topic = frame[name_at:at].decode()
    else:
        topic_id = UUID(bytes=bytes(frame[at : at + _UUID_BYTES]))
        at += _UUID_BYTES
    partitions, number, size = _REQUEST_PARTITION.unpack_from(frame, at)
    at += _REQUEST_PARTITION.size
    if partitions != _ONE:
        return None
    shift = 7
    more = size & _MORE
    size -= more
    while more:
        byte = frame[at]
        at += 1
        more = byte & _MORE
        size |= (byte - more) << shift
        shift += 7
        if shift > _BITS_OF_LONGEST_SIZE:
            return None
    end = at + size - 1
    if end < at or end + len(_END) != len(frame) or not frame.endswith(_END):
        return None
    # A small copy takes less time than a view.
    records = frame[at:end] if size <= _COPIED_BYTES else memoryview(frame)[at:end]
    return SingleBatchRequest(version, correlation_id, acks, topic, topic_id, number, records)


class ProducedPartition(NamedTuple):
    number: int
    error_code: int
    base_offset: int
    append_time_ms: int
    log_start_offset: int
    error_message: str | None = None


class ProducedTopic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: Sequence[ProducedPartition]


def write_produce_response(version: int, topics: Sequence[ProducedTopic]) -> bytearray:
    """Return the body of a response."""
    out = bytearray()
    flexible = version >= _FLEXIBLE_SINCE
    write_count(out, len(topics), flexible)
    for name, topic_id, partitions in topics:
        if version >= _IDS_SINCE:
            out += topic_id.bytes
        else:
            write_string(out, name, flexible)
        write_count(out, len(partitions), flexible)
        for partition in partitions:
            if version >= _LOG_START_SINCE:
                out += _PARTITION_WITH_START.pack(*partition[:5])
            else:
                out += _PARTITION.pack(*partition[:4])
            if flexible and partition.error_message is None:
                out += _NO_ERROR
            elif version >= _MESSAGES_SINCE:
                _write_error(out, partition.error_message, flexible)
        if flexible:
            out.append(0)
    out += _NO_THROTTLE
    if flexible:
        out.append(0)
    return out


def write_single_batch_response(
    request: SingleBatchRequest, base_offset: int, append_time_ms: int, log_start_offset: int
) -> bytes:
    """Return the complete response, head included, for a batch that was stored."""
    if request.version >= _IDS_SINCE:
        topic = request.topic_id.bytes
    else:
        name = request.topic.encode()
        topic = bytes((len(name) + 1,)) + name
    return (
        _SINGLE_HEAD.pack(_SINGLE_BYTES + len(topic), request.correlation_id, 0, _ONE)
        + topic
        + _SINGLE_PARTITION.pack(
            _ONE,
            request.partition,
            0,
            base_offset,
            append_time_ms,
            log_start_offset,
            _NO_RECORD_ERRORS_AND_NO_MESSAGE,
            0,
            0,
            0,
            0,
        )
    )


def write_single_batch_rejection(request: SingleBatchRequest, error_code: int, error_message: str) -> bytes:
    """Return the complete response, head included, for a rejected batch."""
    rejected = ProducedPartition(request.partition, error_code, _NONE, _NONE, _NONE, error_message)
    body = write_produce_response(request.version, [ProducedTopic(request.topic, request.topic_id, [rejected])])
    return _REJECTION_HEAD.pack(_REJECTION_HEAD.size - _SIZE_BYTES + len(body), request.correlation_id, 0) + body


def _write_error(out: bytearray, message: str | None, flexible: bool) -> None:
    if flexible:
        out.append(1)
    else:
        out += _NO_RECORD_ERRORS
    if message is None:
        out += _NO_MESSAGE
    else:
        write_string(out, message, flexible)
    if flexible:
        out.append(0)
