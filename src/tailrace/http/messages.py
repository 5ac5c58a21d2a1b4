"""Messages as JSON, and their way to the broker's values and back.

A value is JSON and stored exactly as it was written, or bytes in base64 for everything else. JSON `null` is a tombstone. Keys
and headers are text, or bytes in base64.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from tailrace.broker.broker import Broker
from tailrace.http.requests import allowed_values_hint
from tailrace.model.errors import InvalidRequestError
from tailrace.model.record import MESSAGE_ID_HEADER, Headers, Message, NumberedPublish, Published, Record

OP_HEADER = "op"
PAYLOAD_MODE_HEADER = "payload_mode"
SOURCE_TABLE_HEADER = "source_table"
"""With the two above: headers of table changes and of what routes make of them, shown as fields of their own too."""

_NULL = b"null"
_Body = TypeVar("_Body", bound=msgspec.Struct)
Text = str | UnsetType | None
Data = bytes | UnsetType


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
    headers: Sequence[SentHeader] = ()
    partition_id: Annotated[int, Meta(ge=0)] | None = None
    timestamp_ms: Annotated[int, Meta(ge=0)] | None = None
    message_id: str | None = None


class Publish(msgspec.Struct, forbid_unknown_fields=True):
    """All messages become visible together or not at all."""

    messages: list[SentMessage]
    publisher: str | None = None
    """Who publishes: a name that nobody else has."""
    number: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    """The number of this publish, higher than that of the last. Sent again, it is stored once."""


class PublishedRecord(msgspec.Struct):
    topic_name: str
    partition_id: int
    offset: int
    cursor: int | None
    """`null` for a duplicate: only the first publish learns it."""
    message_id: str
    duplicate: bool


class PublishAnswer(msgspec.Struct):
    records: list[PublishedRecord]
    """In the order of the messages."""


class ReadHeader(msgspec.Struct, omit_defaults=True):
    name: str
    value: Text = UNSET
    value_base64: Data = UNSET


class ReadMessage(msgspec.Struct, omit_defaults=True):
    """One record. What is not there or has no meaning for it is left out."""

    topic_name: str
    partition_id: int
    offset: int
    cursor: int
    timestamp_ms: int
    key: Text = UNSET
    key_base64: Data = UNSET
    value: Raw | UnsetType = UNSET
    value_base64: Data = UNSET
    headers: Sequence[ReadHeader] = ()
    message_id: Text = UNSET
    """What the sender or the server named the message; records of other senders may have none."""
    source_table: Text = UNSET
    """For changes of a table: which table, what was done, and what the value holds of the row."""
    op: Text = UNSET
    payload_mode: Text = UNSET


def read_body(body: bytes, shape: type[_Body]) -> _Body:
    try:
        body.decode()
        return msgspec.json.decode(body, type=shape)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"the body does not fit: {error}{allowed_values_hint(shape, error)}") from error
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error


def to_messages(sent: Iterable[SentMessage]) -> list[Message]:
    return [_to_message(place, message) for place, message in enumerate(sent)]


def to_numbered(asked: Publish) -> NumberedPublish | None:
    """`None` for a publish that is not numbered."""
    if asked.publisher is None and asked.number is None:
        return None
    if asked.publisher is None or asked.number is None:
        raise InvalidRequestError("a publish that is to be stored once needs both publisher and number")
    return NumberedPublish(asked.publisher, asked.number)


def to_published(published: Iterable[Published]) -> list[PublishedRecord]:
    return [PublishedRecord(*each) for each in published]


def to_read(topic: str, partition: int, record: Record) -> ReadMessage:
    data, value, headers, timestamp, offset, cursor = record
    read = ReadMessage(topic, partition, offset, cursor, timestamp)
    try:
        read.key = None if data is None else data.decode()
    except UnicodeDecodeError:
        read.key_base64 = data  # type: ignore[assignment]
    read.value, read.value_base64 = _as_json(value)
    if headers:
        _put_headers(read, headers)
    return read


def _put_headers(read: ReadMessage, headers: Sequence[tuple[str, bytes | None]]) -> None:
    shown = []
    for name, data in headers:
        text, opaque = _as_text(data)
        if name == MESSAGE_ID_HEADER:
            read.message_id = text
            continue
        shown.append(ReadHeader(name, text, opaque))
        if name == SOURCE_TABLE_HEADER and read.source_table is UNSET:
            read.source_table = text
        elif name == OP_HEADER and read.op is UNSET:
            read.op = text
        elif name == PAYLOAD_MODE_HEADER and read.payload_mode is UNSET:
            read.payload_mode = text
    if shown:
        read.headers = shown


def _to_message(place: int, sent: SentMessage) -> Message:
    key = sent.key_base64
    if sent.key is not None:
        if key is not None:
            raise InvalidRequestError(f"message {place} has both key (text) and key_base64 (bytes)")
        key = sent.key.encode()
    headers: Headers = ()
    if sent.headers:
        headers = [(each.name, each.value_base64 if each.value is None else each.value.encode()) for each in sent.headers]
    return Message(sent.topic, _sent_value(place, sent), key, headers, sent.partition_id, sent.timestamp_ms, sent.message_id)


def _sent_value(place: int, sent: SentMessage) -> bytes | None:
    value, opaque = sent.value, sent.value_base64
    if opaque is None and isinstance(value, Raw):
        written = bytes(value)
        return None if written == _NULL else written
    if value is UNSET and opaque is not None:
        return opaque
    raise InvalidRequestError(f"message {place} needs one of value (JSON) and value_base64 (bytes)")


def _as_text(data: bytes | None) -> tuple[Text, Data]:
    """The bytes as text if they are text, else as they are."""
    try:
        return (None if data is None else data.decode()), UNSET
    except UnicodeDecodeError:
        return UNSET, data or b""


def _as_json(data: bytes | None) -> tuple[Raw | UnsetType, Data]:
    """The bytes as JSON if they are JSON, else as they are. JSON `null` means a tombstone, so a stored `null` is no JSON."""
    if data is None:
        return Raw(_NULL), UNSET
    try:
        data.decode()
        found = msgspec.json.decode(data, type=Raw)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return UNSET, data
    return (UNSET, data) if bytes(found) == _NULL else (found, UNSET)


async def publish_messages(body: bytes, broker: Broker) -> PublishAnswer:
    asked = read_body(body, Publish)
    messages, numbered = to_messages(asked.messages), to_numbered(asked)
    return PublishAnswer(
        to_published(await (broker.publish(messages) if numbered is None else broker.publish_once(numbered, messages)))
    )
