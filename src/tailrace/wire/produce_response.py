"""Produce responses by hand.

A producer that sends single records gets a response for each of them. To build it as a message and write that field by field
took three times as long.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from tailrace.wire.message_fields import write_unsigned_varint
from tailrace.wire.produce_request import LoneBatch

_LOG_START_SINCE = 5
_MESSAGES_SINCE = 8
_FLEXIBLE_SINCE = 9
_IDS_SINCE = 13

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_PARTITION = Struct(">ihqq")
_PARTITION_WITH_START = Struct(">ihqqq")
_NO_THROTTLE = _INT32.pack(0)
_NO_RECORD_ERRORS = _INT32.pack(0)
_NO_MESSAGE = _INT16.pack(-1)
_NO_ERROR = b"\x01\x00\x00"
"""No errors of single records, no message, no tags."""


_LONE_HEAD = Struct(">iiBB")
"""Size, correlation id, no tags of the head, count of topics."""
_LONE_PARTITION = Struct(">BihqqqHBBiB")
"""Count of partitions; the partition; no errors of records and no message; no tags of both; no throttling; no tags."""
_SIZE_BYTES = 4
_LONE_BYTES = _LONE_HEAD.size - _SIZE_BYTES + _LONE_PARTITION.size
"""Of a response after its size, but for the topic."""
_ONE = 2
"""Counts are one more than what they count."""
_NOTHING_WRONG = 0x0100
_REFUSAL_HEAD = Struct(">iiB")
"""Size, correlation id, no tags."""
_NONE = -1


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
    """The response's body."""
    out = bytearray()
    flexible = version >= _FLEXIBLE_SINCE
    _write_count(out, len(topics), flexible)
    for name, topic_id, partitions in topics:
        if version >= _IDS_SINCE:
            out += topic_id.bytes
        else:
            _write_text(out, name, flexible)
        _write_count(out, len(partitions), flexible)
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


def write_lone_response(asked: LoneBatch, base_offset: int, append_time_ms: int, log_start_offset: int) -> bytes:
    """The whole response to a request that was fine, its head included."""
    if asked.version >= _IDS_SINCE:
        topic = asked.topic_id.bytes
    else:
        name = asked.topic.encode()
        topic = bytes((len(name) + 1,)) + name
    return (
        _LONE_HEAD.pack(_LONE_BYTES + len(topic), asked.correlation_id, 0, _ONE)
        + topic
        + _LONE_PARTITION.pack(
            _ONE, asked.partition, 0, base_offset, append_time_ms, log_start_offset, _NOTHING_WRONG, 0, 0, 0, 0
        )
    )


def write_lone_refusal(asked: LoneBatch, error_code: int, error_message: str) -> bytes:
    """The same for one that was not."""
    refused = ProducedPartition(asked.partition, error_code, _NONE, _NONE, _NONE, error_message)
    body = write_produce_response(asked.version, [ProducedTopic(asked.topic, asked.topic_id, [refused])])
    return _REFUSAL_HEAD.pack(_REFUSAL_HEAD.size - _SIZE_BYTES + len(body), asked.correlation_id, 0) + body


def _write_error(out: bytearray, message: str | None, flexible: bool) -> None:
    if flexible:
        out.append(1)
    else:
        out += _NO_RECORD_ERRORS
    if message is None:
        out += _NO_MESSAGE
    else:
        _write_text(out, message, flexible)
    if flexible:
        out.append(0)


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _INT32.pack(count)


def _write_text(out: bytearray, text: str, flexible: bool) -> None:
    data = text.encode()
    if flexible:
        write_unsigned_varint(out, len(data) + 1)
    else:
        out += _INT16.pack(len(data))
    out += data
