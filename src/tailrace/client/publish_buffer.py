"""Messages that wait to be sent: gathered to requests, and bounded."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tailrace.client.config import PublisherConfig
from tailrace.client.values import GivenHeaders, OutgoingMessage
from tailrace.model.errors import InvalidRequestError

T = TypeVar("T")

_NULL = b"null"
_ENCODER = msgspec.json.Encoder()
_BYTES = (bytes, bytearray, memoryview)


class _Header(msgspec.Struct, omit_defaults=True):
    name: str
    value: str | None = None
    value_base64: bytes | None = None


class _PublishedMessage(msgspec.Struct, omit_defaults=True):
    topic: str
    value_base64: bytes | None = None
    key: str | None = None
    key_base64: bytes | None = None
    headers: Sequence[_Header] = ()
    partition_id: int | None = None
    timestamp_ms: int | None = None
    message_id: str | None = None


class PendingMessages(msgspec.Struct, Generic[T]):
    """Messages that are published together or not at all, as JSON, and what waits for their outcome."""

    messages: list[bytes]
    size: int
    outcome: T


class PublishBuffer(Generic[T]):
    """Parcels in the order in which they came."""

    def __init__(self, config: PublisherConfig) -> None:
        self._config = config
        self._waiting: deque[PendingMessages[T]] = deque()
        self.records = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, parcel: PendingMessages[T]) -> bool:
        """One parcel always has, however large it is."""
        config = self._config
        fits = self.records + len(parcel.messages) <= config.buffer_records and self.size + parcel.size <= config.buffer_bytes
        return fits or not self._waiting

    def put(self, parcel: PendingMessages[T]) -> None:
        self._waiting.append(parcel)
        self.records += len(parcel.messages)
        self.size += parcel.size

    @property
    def linger_seconds(self) -> float:
        """How long to let more come before the next request."""
        fills_a_request = self.records >= self._config.batch_records or self.size >= self._config.batch_bytes
        return 0.0 if fills_a_request else self._config.linger.total_seconds()

    def take(self) -> list[PendingMessages[T]]:
        """What goes into the next request: at least one parcel, whole."""
        taken: list[PendingMessages[T]] = []
        records = size = 0
        while self._waiting:
            parcel = self._waiting[0]
            records += len(parcel.messages)
            size += parcel.size
            if taken and (records > self._config.batch_records or size > self._config.batch_bytes):
                break
            taken.append(self._waiting.popleft())
            self.records -= len(parcel.messages)
            self.size -= parcel.size
        return taken


def to_outgoing_message(message: OutgoingMessage | tuple[str, Any]) -> OutgoingMessage:
    if isinstance(message, OutgoingMessage):
        return message
    if not isinstance(message, tuple) or not 2 <= len(message) <= len(OutgoingMessage._fields):
        raise InvalidRequestError(f"a message of the batch is {message!r}; give an OutgoingMessage, or a topic and a value")
    return OutgoingMessage(*message)


def encode_message(message: OutgoingMessage) -> bytes:
    """The message as the server takes it."""
    topic, value, key, headers, message_id, partition_id, timestamp_ms = message
    sent = _PublishedMessage(topic, partition_id=partition_id, timestamp_ms=timestamp_ms, message_id=message_id)
    if isinstance(key, str):
        sent.key = key
    elif isinstance(key, _BYTES):
        sent.key_base64 = bytes(key)
    elif key is not None:
        raise InvalidRequestError(f"the key for {topic!r} is {key!r}, which is neither text nor bytes; give str({key!r})")
    if headers:
        sent.headers = _encode_headers(headers)
    if isinstance(value, _BYTES):
        sent.value_base64 = bytes(value)
        return _ENCODER.encode(sent)
    if value is None:
        return _with_value(sent, _NULL)
    try:
        encoded = _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"the value for {topic!r} is neither bytes nor JSON: {error}. Give bytes, or what JSON knows"
        ) from error
    if encoded == _NULL:
        # No tombstone: something that JSON writes as `null`.
        sent.value_base64 = encoded
        return _ENCODER.encode(sent)
    return _with_value(sent, encoded)


def encode_publish(publisher: str, number: int, parcels: Sequence[PendingMessages[T]]) -> bytes:
    """The body of a request with all these parcels."""
    messages = b",".join([message for parcel in parcels for message in parcel.messages])
    return b'{"publisher":%b,"number":%d,"messages":[%b]}' % (msgspec.json.encode(publisher), number, messages)


def _with_value(sent: _PublishedMessage, value: bytes) -> bytes:
    """The value is not encoded a second time. There is a topic before it always."""
    return b'%b,"value":%b}' % (_ENCODER.encode(sent)[:-1], value)


def _encode_headers(headers: GivenHeaders) -> list[_Header]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    encoded = []
    for name, value in pairs:
        if isinstance(value, _BYTES):
            encoded.append(_Header(name, value_base64=bytes(value)))
        elif value is None or isinstance(value, str):
            encoded.append(_Header(name, value))
        else:
            raise InvalidRequestError(f"the header {name!r} is {value!r}, which is neither text nor bytes; give str({value!r})")
    return encoded
