"""Converts messages between the JSON of the API (`api/messages.py`) and the broker's values, and publishes them.

A JSON value is stored exactly as it was written.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tailrace.api.messages import (
    OP_HEADER,
    PAYLOAD_MODE_HEADER,
    SOURCE_TABLE_HEADER,
    BytesField,
    PublishBody,
    PublishedRecord,
    PublishResponse,
    ReadHeader,
    ReadMessage,
    SentMessage,
    TextField,
)
from tailrace.broker.broker import Broker
from tailrace.http.requests import read_body
from tailrace.model.errors import InvalidRequestError
from tailrace.model.record import MESSAGE_ID_HEADER, Headers, Message, NumberedPublish, Record

_NULL = b"null"


async def publish_messages(body: bytes, broker: Broker) -> PublishResponse:
    """Publish the messages of `POST /api/topics/publish`."""
    request = read_body(body, PublishBody)
    messages, numbered = to_messages(request.messages), to_numbered(request)
    if numbered is None:
        published = await broker.publisher.publish(messages)
    else:
        published = await broker.publisher.publish_once(numbered, messages)
    return PublishResponse([PublishedRecord(*record) for record in published])


def to_messages(sent: Iterable[SentMessage]) -> list[Message]:
    return [_to_message(place, message) for place, message in enumerate(sent)]


def to_numbered(request: PublishBody) -> NumberedPublish | None:
    """Return the publisher and number of a publish, or `None` if it has none."""
    if request.publisher is None and request.number is None:
        return None
    if request.publisher is None or request.number is None:
        raise InvalidRequestError("publisher and number belong together; send both or neither")
    return NumberedPublish(request.publisher, request.number)


def to_read_message(topic: str, partition: int, record: Record) -> ReadMessage:
    data, value, headers, timestamp, offset, cursor = record
    read = ReadMessage(topic, partition, offset, cursor, timestamp)
    try:
        read.key = None if data is None else data.decode()
    except UnicodeDecodeError:
        read.key_base64 = data  # type: ignore[assignment]
    read.value, read.value_base64 = _as_json(value)
    if headers:
        _set_headers(read, headers)
    return read


def _set_headers(read: ReadMessage, headers: Sequence[tuple[str, bytes | None]]) -> None:
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


def _as_text(data: bytes | None) -> tuple[TextField, BytesField]:
    """Return bytes as text if they are UTF-8, else as they are."""
    try:
        return (None if data is None else data.decode()), UNSET
    except UnicodeDecodeError:
        return UNSET, data or b""


def _as_json(data: bytes | None) -> tuple[Raw | UnsetType, BytesField]:
    """Return bytes as JSON if they are JSON, else as they are.

    JSON `null` means a tombstone, so a value that is stored as `null` is returned as bytes.
    """
    if data is None:
        return Raw(_NULL), UNSET
    try:
        data.decode()
        found = msgspec.json.decode(data, type=Raw)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return UNSET, data
    return (UNSET, data) if bytes(found) == _NULL else (found, UNSET)
