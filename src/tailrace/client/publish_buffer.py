"""Messages that wait to be published: encoded once, bounded, and taken out a request at a time."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tailrace.api.messages import SentHeader, SentMessage
from tailrace.client.config import PublisherConfig
from tailrace.client.values import GivenHeaders, OutgoingMessage
from tailrace.model.errors import InvalidRequestError

T = TypeVar("T")

_NULL = b"null"
_ENCODER = msgspec.json.Encoder()
_BYTES = (bytes, bytearray, memoryview)


class PendingMessages(msgspec.Struct, Generic[T]):
    """Messages that are published together or not at all, as JSON, and what waits for the outcome."""

    messages: list[bytes]
    size: int
    outcome: T


class PublishBuffer(Generic[T]):
    """Holds pending messages in order, up to a bound of records and bytes."""

    def __init__(self, config: PublisherConfig) -> None:
        self._config = config
        self._pending: deque[PendingMessages[T]] = deque()
        self.records = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._pending)

    def has_room(self, pending: PendingMessages[T]) -> bool:
        """Return whether they may be added. An empty buffer has room for messages of any size."""
        config = self._config
        fits = self.records + len(pending.messages) <= config.buffer_records and self.size + pending.size <= config.buffer_bytes
        return fits or not self._pending

    def put(self, pending: PendingMessages[T]) -> None:
        self._pending.append(pending)
        self.records += len(pending.messages)
        self.size += pending.size

    @property
    def linger_seconds(self) -> float:
        """How long the next request waits for more messages."""
        is_full_request = self.records >= self._config.batch_records or self.size >= self._config.batch_bytes
        return 0.0 if is_full_request else self._config.linger.total_seconds()

    def take(self) -> list[PendingMessages[T]]:
        """Take what fits into the next request: at least the messages of one call, if there are any."""
        taken: list[PendingMessages[T]] = []
        records = size = 0
        while self._pending:
            pending = self._pending[0]
            records += len(pending.messages)
            size += pending.size
            if taken and (records > self._config.batch_records or size > self._config.batch_bytes):
                break
            taken.append(self._pending.popleft())
            self.records -= len(pending.messages)
            self.size -= pending.size
        return taken


def to_outgoing_message(message: OutgoingMessage | tuple[str, Any]) -> OutgoingMessage:
    if isinstance(message, OutgoingMessage):
        return message
    if not isinstance(message, tuple) or not 2 <= len(message) <= len(OutgoingMessage._fields):
        raise InvalidRequestError(f"a message of the batch is {message!r}; pass an OutgoingMessage, or a topic and a value")
    return OutgoingMessage(*message)


def encode_message(message: OutgoingMessage) -> bytes:
    """Encode a message as the server takes it."""
    topic, value, key, headers, message_id, partition_id, timestamp_ms = message
    sent = SentMessage(topic, partition_id=partition_id, timestamp_ms=timestamp_ms, message_id=message_id)
    if isinstance(key, str):
        sent.key = key
    elif isinstance(key, _BYTES):
        sent.key_base64 = bytes(key)
    elif key is not None:
        raise InvalidRequestError(f"the key for {topic!r} is {key!r}, which is neither text nor bytes; pass str({key!r})")
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
            f"the value for {topic!r} is neither bytes nor JSON: {error}. Pass bytes, or a value that JSON can encode"
        ) from error
    if encoded == _NULL:
        # This is a value that JSON writes as `null`, not a tombstone.
        sent.value_base64 = encoded
        return _ENCODER.encode(sent)
    return _with_value(sent, encoded)


def encode_publish(publisher: str, number: int, pendings: Sequence[PendingMessages[T]]) -> bytes:
    """Join encoded messages to the body of one request (`api.messages.PublishBody`)."""
    messages = b",".join([message for pending in pendings for message in pending.messages])
    return b'{"publisher":%b,"number":%d,"messages":[%b]}' % (msgspec.json.encode(publisher), number, messages)


def _with_value(sent: SentMessage, value: bytes) -> bytes:
    """Add an encoded value, instead of encoding it again. The topic always precedes it."""
    return b'%b,"value":%b}' % (_ENCODER.encode(sent)[:-1], value)


def _encode_headers(headers: GivenHeaders) -> list[SentHeader]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    encoded = []
    for name, value in pairs:
        if isinstance(value, _BYTES):
            encoded.append(SentHeader(name, value_base64=bytes(value)))
        elif value is None or isinstance(value, str):
            encoded.append(SentHeader(name, value))
        else:
            raise InvalidRequestError(f"the header {name!r} is {value!r}, which is neither text nor bytes; pass str({value!r})")
    return encoded
