"""Bodies of the topic endpoints, and their way to the broker's values and back.

A value is JSON and stored exactly as it was written, or bytes in base64 for everything else. JSON `null` is a tombstone.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tailrace.model.errors import InvalidRequestError
from tailrace.model.record import MESSAGE_ID_HEADER, Message, Published, Record
from tailrace.model.start import AtOffset, AtTime, Edge, Start
from tailrace.model.topic import NO_OPTIONS, TopicOptions

_NULL = b"null"
_Body = TypeVar("_Body", bound=msgspec.Struct)


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    partitions: int = 1
    alias: str | None = None
    settings: TopicOptions = NO_OPTIONS


class SentHeader(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: str | None = None
    value_base64: bytes | None = None


class SentMessage(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    value: Raw | UnsetType = UNSET
    value_base64: bytes | None = None
    key: str | None = None
    key_base64: bytes | None = None
    headers: list[SentHeader] = []
    partition: int | None = None
    timestamp_ms: int | None = None
    id: str | None = None


class Publish(msgspec.Struct, forbid_unknown_fields=True):
    """All messages become visible together or not at all."""

    messages: list[SentMessage]


class PublishedRecord(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    id: str
    duplicate: bool
    cursor: int | None


class PublishAnswer(msgspec.Struct):
    records: list[PublishedRecord]
    """In the order of the messages."""


class StartTime(msgspec.Struct, forbid_unknown_fields=True):
    timestamp_ms: int


class Consume(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int = 0
    start: Edge | int | StartTime = Edge.EARLIEST
    limit: int = 100
    wait_ms: int = 0


class ReadHeader(msgspec.Struct, omit_defaults=True):
    name: str
    value: str | UnsetType | None = UNSET
    value_base64: bytes | UnsetType = UNSET


class ReadRecord(msgspec.Struct, omit_defaults=True):
    offset: int
    timestamp_ms: int
    key: str | UnsetType | None = UNSET
    key_base64: bytes | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    headers: list[ReadHeader] = []
    id: str | UnsetType | None = UNSET
    """What the sender or the server named the message; records of other senders may have none."""


class ConsumeAnswer(msgspec.Struct):
    records: list[ReadRecord]
    next_offset: int
    """Where to start the next read."""
    start_offset: int
    """The oldest offset that retention has left."""
    end_offset: int
    """The offset that the next record will get."""


def read_body(body: bytes, shape: type[_Body]) -> _Body:
    try:
        body.decode()
        return msgspec.json.decode(body, type=shape)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"the body does not fit: {error}") from error
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error


def to_messages(sent: Iterable[SentMessage]) -> list[Message]:
    return [_to_message(place, message) for place, message in enumerate(sent)]


def to_start(asked: Edge | int | StartTime) -> Start:
    if isinstance(asked, Edge):
        return asked
    return AtTime(asked.timestamp_ms) if isinstance(asked, StartTime) else AtOffset(asked)


def to_published(published: Published) -> PublishedRecord:
    return PublishedRecord(
        published.topic,
        published.partition,
        published.offset,
        published.message_id,
        published.duplicate,
        published.cursor,
    )


def to_read(record: Record) -> ReadRecord:
    key, key_base64 = _as_text(record.key)
    value, value_base64 = _as_json(record.value)
    return ReadRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=key,
        key_base64=key_base64,
        value=value,
        value_base64=value_base64,
        headers=[ReadHeader(name, *_as_text(data)) for name, data in record.headers if name != MESSAGE_ID_HEADER],
        id=next((_as_text(data)[0] for name, data in record.headers if name == MESSAGE_ID_HEADER), UNSET),
    )


def _to_message(place: int, sent: SentMessage) -> Message:
    if sent.key is not None and sent.key_base64 is not None:
        raise InvalidRequestError(f"message {place} has both key (text) and key_base64 (bytes)")
    return Message(
        topic=sent.topic,
        value=_sent_value(place, sent),
        key=sent.key.encode() if sent.key is not None else sent.key_base64,
        headers=[
            (header.name, header.value_base64 if header.value is None else header.value.encode()) for header in sent.headers
        ],
        partition=sent.partition,
        timestamp=sent.timestamp_ms,
        message_id=sent.id,
    )


def _sent_value(place: int, sent: SentMessage) -> bytes | None:
    if isinstance(sent.value, Raw) and sent.value_base64 is None:
        value = bytes(sent.value)
        return None if value == _NULL else value
    if sent.value is UNSET and sent.value_base64 is not None:
        return sent.value_base64
    raise InvalidRequestError(f"message {place} needs one of value (JSON) and value_base64 (bytes)")


def _as_text(data: bytes | None) -> tuple[str | UnsetType | None, bytes | UnsetType]:
    """The bytes as text if they are text, else as they are."""
    try:
        return (None if data is None else data.decode()), UNSET
    except UnicodeDecodeError:
        return UNSET, data or b""


def _as_json(data: bytes | None) -> tuple[Raw | UnsetType, bytes | UnsetType]:
    """The bytes as JSON if they are JSON, else as they are. JSON `null` means a tombstone, so a stored `null` is no JSON."""
    if data is None:
        return Raw(_NULL), UNSET
    try:
        data.decode()
        found = msgspec.json.decode(data, type=Raw)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return UNSET, data
    return (UNSET, data) if bytes(found) == _NULL else (found, UNSET)
