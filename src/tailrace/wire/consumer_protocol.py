"""Kafka's consumer protocol: the subscriptions and assignments that members of a group exchange through the broker.

Version 0 is written, which every client can read. Of later versions the fields that version 0 has are read, and what a member
says it owns and where it is.
"""

from collections.abc import Mapping, Sequence
from struct import Struct, error
from typing import NamedTuple

from tailrace.model.errors import MalformedMessageError

_VERSION = Struct(">h")
_COUNT = Struct(">i")
_LENGTH = Struct(">h")
_NO_USER_DATA = _COUNT.pack(-1)
_HAS_OWNED = 1
"""The first version of a subscription with the partitions that the member owns."""
_HAS_RACK = 3


class MemberSubscription(NamedTuple):
    """What a member that joins says of itself."""

    topics: list[str]
    owned: Mapping[str, Sequence[int]]
    """The partitions that it reads and goes on to read while the group rebalances: none, unless its assignor is cooperative."""
    rack_id: str | None = None


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


def decode_member_subscription(data: bytes) -> MemberSubscription:
    """Return the topics, and what later versions add to them."""
    try:
        (version,) = _VERSION.unpack_from(data)
        count, at = _head(data)
        topics = []
        for _ in range(count):
            topic, at = _read_text(data, at)
            topics.append(topic)
        at += _COUNT.size + _user_data_length(data, at)
        # Some clients write version 1 without the field that it adds.
        if version < _HAS_OWNED or at == len(data):
            return MemberSubscription(topics, {})
        (count,) = _COUNT.unpack_from(data, at)
        owned, at = _read_partitions(data, count, at + _COUNT.size)
        rack_id = None
        if version >= _HAS_RACK:
            # The generation is before it.
            at += _COUNT.size
            if _LENGTH.unpack_from(data, at) != (-1,):
                rack_id, at = _read_text(data, at)
        return MemberSubscription(topics, owned, rack_id or None)
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
    return _assignment(data)[0]


def has_user_data(assignment: bytes) -> bool:
    """Return whether an assignor has added data of its own to an assignment."""
    return _assignment(assignment)[1] > 0


def _assignment(data: bytes) -> tuple[dict[str, list[int]], int]:
    """Return the partitions and the length of the user data."""
    if not data:
        return {}, 0
    try:
        count, at = _head(data)
        assigned, at = _read_partitions(data, count, at)
        return assigned, _user_data_length(data, at) if at < len(data) else 0
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


def _read_partitions(data: bytes, topics: int, at: int) -> tuple[dict[str, list[int]], int]:
    """Return the partitions of so many topics, and where they end."""
    found = {}
    for _ in range(topics):
        topic, at = _read_text(data, at)
        (numbers,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        if not 0 <= numbers <= (len(data) - at) // _COUNT.size:
            raise MalformedMessageError(f"a topic counts {numbers} partitions in {len(data) - at} bytes")
        found[topic] = [number for (number,) in _COUNT.iter_unpack(data[at : at + numbers * _COUNT.size])]
        at += numbers * _COUNT.size
    return found, at


def _user_data_length(data: bytes, at: int) -> int:
    (length,) = _COUNT.unpack_from(data, at)
    if not -1 <= length <= len(data) - at - _COUNT.size:
        raise MalformedMessageError(f"user data of {length} bytes, and {len(data) - at - _COUNT.size} are left")
    return max(0, int(length))
