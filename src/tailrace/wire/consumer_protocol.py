"""Kafka's consumer protocol: the subscriptions and assignments that members of a group exchange through the broker.

Version 0 is written, which every client can read. Of later versions the fields that version 0 has are read.
"""

from collections.abc import Mapping, Sequence
from struct import Struct, error

from tailrace.model.errors import MalformedMessageError

_VERSION = Struct(">h")
_COUNT = Struct(">i")
_LENGTH = Struct(">h")
_NO_USER_DATA = _COUNT.pack(-1)


def encode_subscription(topics: Sequence[str]) -> bytes:
    return b"".join((_VERSION.pack(0), _COUNT.pack(len(topics)), *map(_text, topics), _NO_USER_DATA))


def decode_subscription(data: bytes) -> list[str]:
    """Return the topics that a member subscribes to."""
    try:
        count, at = _head(data)
        topics = []
        for _ in range(count):
            topic, at = _read_text(data, at)
            topics.append(topic)
        return topics
    except (error, UnicodeDecodeError) as cause:
        raise MalformedMessageError(f"a subscription of {len(data)} bytes is cut off or not UTF-8") from cause


def encode_assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    parts = [_VERSION.pack(0), _COUNT.pack(len(partitions))]
    for topic, numbers in partitions.items():
        parts += [_text(topic), _COUNT.pack(len(numbers)), *map(_COUNT.pack, numbers)]
    parts.append(_NO_USER_DATA)
    return b"".join(parts)


def decode_assignment(data: bytes) -> dict[str, list[int]]:
    """Return the partitions that a member is assigned, by topic. Empty data assigns none."""
    if not data:
        return {}
    try:
        count, at = _head(data)
        assigned = {}
        for _ in range(count):
            topic, at = _read_text(data, at)
            (numbers,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
            if not 0 <= numbers <= (len(data) - at) // _COUNT.size:
                raise MalformedMessageError(f"an assignment counts {numbers} partitions in {len(data) - at} bytes")
            assigned[topic] = [number for (number,) in _COUNT.iter_unpack(data[at : at + numbers * _COUNT.size])]
            at += numbers * _COUNT.size
        return assigned
    except (error, UnicodeDecodeError) as cause:
        raise MalformedMessageError(f"an assignment of {len(data)} bytes is cut off or not UTF-8") from cause


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _head(data: bytes) -> tuple[int, int]:
    (count,) = _COUNT.unpack_from(data, _VERSION.size)
    at = _VERSION.size + _COUNT.size
    if not 0 <= count <= (len(data) - at) // _LENGTH.size:
        raise MalformedMessageError(f"a subscription or assignment counts {count} topics in {len(data) - at} bytes")
    return count, at


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if not 0 <= length <= len(data) - at:
        raise MalformedMessageError(f"a topic's name has {length} bytes, and {len(data) - at} are left")
    return data[at : at + length].decode(), at + length
