"""What a subscription is sent: events as JSON, and signs of life."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tailrace.client.values import Event
from tailrace.model.record import MESSAGE_ID_HEADER

_NULL = b"null"


class _Header(msgspec.Struct):
    name: str
    value: str | None = None
    value_base64: bytes | None = None


class SentEvent(msgspec.Struct):
    topic_name: str
    partition_id: int
    offset: int
    cursor: int
    timestamp_ms: int
    key: str | None = None
    key_base64: bytes | None = None
    value: Raw | UnsetType = UNSET
    value_base64: bytes | None = None
    headers: Sequence[_Header] = ()
    message_id: str | None = None


class Frame(msgspec.Struct):
    type: str
    events: list[SentEvent] = []
    cursor: int | None = None
    """In a sign of life: everything up to here was looked at."""
    corrupt: list[dict[str, object]] = []
    """Batches that can't be decoded and are left out."""
    error: Raw = Raw(b"")
    """Why there is no more, as a problem."""


_FRAMES = msgspec.json.Decoder(Frame)


def read_frame(message: bytes) -> Frame:
    return _FRAMES.decode(message)


def to_event(sent: SentEvent) -> Event:
    key = sent.key.encode() if sent.key is not None else sent.key_base64
    if isinstance(sent.value, Raw):
        value = bytes(sent.value)
        payload = None if value == _NULL else value
    else:
        payload = sent.value_base64
    headers: list[tuple[str, bytes | None]] = [
        (header.name, header.value_base64 if header.value is None else header.value.encode()) for header in sent.headers
    ]
    if sent.message_id is not None:
        headers.append((MESSAGE_ID_HEADER, sent.message_id.encode()))
    return Event(sent.topic_name, sent.partition_id, sent.offset, sent.cursor, sent.timestamp_ms, key, payload, headers)
