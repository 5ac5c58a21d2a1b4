"""Messages that wait to be published: encoded once, bounded, and taken out a request at a time."""

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tailrace.api.messages import PublishBody, SentHeader, SentMessage
from tailrace.client.config import PublisherConfig
from tailrace.client.values import GivenHeaders, OutgoingMessage
from tailrace.model.errors import InvalidRequestError

T = TypeVar("T")

_NULL = b"null"
_ENCODER = msgspec.json.Encoder()
_BYTES = (bytes, bytearray, memoryview)


class PendingMessages(msgspec.Struct, Generic[T]):
    """Encoded messages that are published together or not at all, and what waits for the outcome."""

    messages: list[Raw]
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


def encode_message(message: OutgoingMessage) -> Raw:
    """Encode a message as a `SentMessage`."""
    topic, value, key, headers, message_id, partition_id, timestamp_ms = message
    json_value: Raw | UnsetType = UNSET
    value_base64: bytes | None = None
    key_base64: bytes | None = None
    if isinstance(key, _BYTES):
        key_base64 = bytes(key)
        key = None
    elif key is not None and not isinstance(key, str):
        raise InvalidRequestError(f"the key for {topic!r} is {key!r}, which is neither text nor bytes; pass str({key!r})")
    if isinstance(value, _BYTES):
        value_base64 = bytes(value)
    elif value is None:
        json_value = Raw(_NULL)
    else:
        encoded = _encode_value(topic, value)
        if encoded == _NULL:
            # This is a value that JSON writes as `null`, not a tombstone.
            value_base64 = encoded
        else:
            json_value = Raw(encoded)
    encoded_headers = _encode_headers(headers) if headers else ()
    sent = SentMessage(
        topic, json_value, value_base64, key, key_base64, encoded_headers, partition_id, timestamp_ms, message_id
    )
    return Raw(_ENCODER.encode(sent))


def encode_publish(publisher: str, number: int, pendings: Sequence[PendingMessages[T]]) -> bytes:
    """Encode the body of one request."""
    messages = [message for pending in pendings for message in pending.messages]
    # Each is a `SentMessage` that is encoded already, so that its size is known and a bad one is refused alone.
    return _ENCODER.encode(PublishBody(cast("list[SentMessage]", messages), publisher, number))


def _encode_value(topic: str, value: Any) -> bytes:
    try:
        encoded = _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"the value for {topic!r} is neither bytes nor JSON: {error}. Pass bytes, or a value that JSON can encode"
        ) from error
    # The encoder writes numbers that JSON does not have as `null`, and a reader could not tell.
    # `find` takes two thirds of the time of `in`, which first tries its operand as a number.
    if (
        encoded.find(_NULL) >= 0
        and (number := _number_without_json(msgspec.to_builtins(value, enc_hook=_hide_raw))) is not None
    ):
        raise InvalidRequestError(
            f"the value for {topic!r} has the number {number}, which JSON can't represent; pass None or text instead of it"
        )
    return encoded


def _hide_raw(_: object) -> None:
    """Replace JSON that the caller has encoded (`msgspec.Raw`), which is sent as it is."""


def _number_without_json(value: Any) -> float | None:
    """Return a number in the value that is infinite or not a number, if there is one."""
    if isinstance(value, float):
        return None if isfinite(value) else value
    if isinstance(value, dict):
        parts: Any = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    else:
        return None
    return next((number for part in parts if (number := _number_without_json(part)) is not None), None)


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
