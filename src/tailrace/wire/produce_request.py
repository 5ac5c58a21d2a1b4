"""A short way to read the produce request that is sent most: one batch for one partition, outside of transactions.

It reads what `Codec` reads from the same bytes. Where anything is not as expected it gives nothing, and leaves the request to
`Codec`, which also says what is wrong with it.
"""

from struct import Struct
from struct import error as StructError
from uuid import UUID

import msgspec

from tailrace.model.commit import Buffer
from tailrace.wire.message import NO_UUID

_FLEXIBLE_SINCE = 9
_IDS_SINCE = 13
_KNOWN_UNTIL = 13

_HEAD = Struct(">hhih")
"""API key, version, correlation id, length of the client id."""
_BEFORE_TOPIC = Struct(">BBhiB")
"""Tagged fields of the head, length of the transactional id, acks, time-out, count of topics."""
_PARTITION = Struct(">BiB")
"""Count of partitions, number of the first, first byte of its length."""
_NULL = 0
_ONE = 2
"""Counts and lengths are one more than what they count, and null is 0."""
_MORE = 0x80
_BITS_OF_LONGEST_SIZE = 28
_UUID_BYTES = 16
_COPIED_BYTES = 4096
_LONGEST_NAME = 126
"""Longer ones have a length of two bytes."""
_END = bytes(3)
"""No tagged fields of the partition, of the topic, of the request."""


class LoneBatch(msgspec.Struct, frozen=True):
    version: int
    correlation_id: int
    acks: int
    topic: str
    topic_id: UUID
    """Since version 13 instead of the name."""
    partition: int
    records: Buffer


def read_lone_batch(frame: bytearray) -> LoneBatch | None:
    """From a whole request."""
    try:
        return _read(frame)
    except (StructError, IndexError, ValueError):
        return None


def _read(frame: bytearray) -> LoneBatch | None:
    _, version, correlation_id, id_bytes = _HEAD.unpack_from(frame)
    if not _FLEXIBLE_SINCE <= version <= _KNOWN_UNTIL:
        return None
    at = _HEAD.size + (id_bytes if id_bytes > 0 else 0)
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
    partitions, number, size = _PARTITION.unpack_from(frame, at)
    at += _PARTITION.size
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
    return LoneBatch(version, correlation_id, acks, topic, topic_id, number, records)
