"""Plain data of the SDK: records and events, messages to publish, and the results of commits and publishes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from tailrace.api.messages import (
    OP_HEADER,
    PAYLOAD_MODE_HEADER,
    SOURCE_TABLE_HEADER,
    BytesField,
    ReadMessage,
    TextField,
)
from tailrace.model.errors import InvalidRequestError
from tailrace.model.record import MESSAGE_ID_HEADER, Headers

GivenHeaders = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


class ConsumerRecord(NamedTuple):
    """One record of a topic."""

    topic_name: str
    partition_id: int
    offset: int
    """Its position in the partition."""
    cursor: int
    """Its position in the whole log."""
    timestamp_ms: int
    key: bytes | None
    payload: bytes | None
    """The value as stored; `None` is a tombstone."""
    headers: Headers = ()
    topic_uuid: str | None = None
    """Identifies the topic: one that is deleted and created again has another. `None` in events of subscriptions."""

    @property
    def value(self) -> Any:
        """The payload decoded as JSON. Raises `InvalidRequestError` if it is something else.

        >>> ConsumerRecord("orders", 0, 0, 0, 0, None, b'{"id": 1}').value
        {'id': 1}
        """
        try:
            return None if self.payload is None else msgspec.json.decode(self.payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(
                f"the record at offset {self.offset} of topic {self.topic_name!r}, partition {self.partition_id}, is not JSON"
                f" ({error}); read its bytes from `payload`"
            ) from error

    @property
    def message_id(self) -> str | None:
        """The id that the sender or the server gave the message. Records of Kafka producers may have none."""
        return self._text_of(MESSAGE_ID_HEADER)

    @property
    def source_table(self) -> str | None:
        """For a table change: the table."""
        return self._text_of(SOURCE_TABLE_HEADER)

    @property
    def op(self) -> str | None:
        """For a table change: `insert`, `update` or `delete`."""
        return self._text_of(OP_HEADER)

    @property
    def payload_mode(self) -> str | None:
        """For a table change: how much of the row the payload holds: `key`, `full` or `diff`."""
        return self._text_of(PAYLOAD_MODE_HEADER)

    def _text_of(self, header: str) -> str | None:
        for name, value in self.headers:
            if name == header:
                return None if value is None else value.decode(errors="replace")
        return None


Event = ConsumerRecord
"""What a subscription yields: a record of any topic."""


class QueueEvent(NamedTuple):
    """An event that a queue has delivered to this consumer, for a limited time."""

    event: Event
    receipt: str
    """Identifies this delivery in acks, nacks and extensions."""
    deliveries: int
    """How often the event was delivered, including this time."""

    @property
    def topic_name(self) -> str:
        return self.event.topic_name

    @property
    def key(self) -> bytes | None:
        return self.event.key

    @property
    def payload(self) -> bytes | None:
        return self.event.payload

    @property
    def value(self) -> Any:
        """The payload decoded as JSON."""
        return self.event.value


class CommitResult(NamedTuple):
    """The group has committed an offset of a partition."""

    topic_name: str
    group_id: str
    partition_id: int
    acknowledged_offset: int
    """The last offset that is processed."""

    @property
    def committed_offset(self) -> int:
        """Where the group continues."""
        return self.acknowledged_offset + 1


class PositionReset(NamedTuple):
    """A consumer has changed its position because its topic was deleted and created again.

    The new position is the one that its group has committed in the new topic, or that `auto_offset_reset` says.
    """

    topic_name: str
    partition_id: int
    old_position: int | None
    """The position in the deleted topic; `None` if it did not read this partition."""
    new_position: int
    """The position in the topic that has the name now."""


class OutgoingMessage(NamedTuple):
    """A message to publish."""

    topic: str
    value: Any
    """Bytes are stored as they are, everything else as JSON; `None` is a tombstone."""
    key: str | bytes | None = None
    headers: GivenHeaders = ()
    message_id: str | None = None
    """Identifies the message in topics with `dedup = "id"`."""
    partition_id: int | None = None
    """If left out, chosen by the key, or round-robin without a key."""
    timestamp_ms: int | None = None


class PublishResult(msgspec.Struct, frozen=True):
    """Where a message is stored."""

    topic_name: str
    partition_id: int
    offset: int
    cursor: int | None
    """`None` for a duplicate: only the first publish returns it."""
    message_id: str
    duplicate: bool
    """The message was stored before: it was sent again after its response was lost, or the topic's deduplication found it."""


_NULL = b"null"


def to_event(message: ReadMessage) -> Event:
    """Return a record of a subscription or a queue as its user sees it."""
    if isinstance(message.value, Raw):
        value = bytes(message.value)
        payload = None if value == _NULL else value
    else:
        payload = _bytes_of(None, message.value_base64)
    headers = [(header.name, _bytes_of(header.value, header.value_base64)) for header in message.headers]
    if isinstance(message.message_id, str):
        headers.append((MESSAGE_ID_HEADER, message.message_id.encode()))
    return Event(
        message.topic_name,
        message.partition_id,
        message.offset,
        message.cursor,
        message.timestamp_ms,
        _bytes_of(message.key, message.key_base64),
        payload,
        headers,
    )


def _bytes_of(text: TextField, base64: BytesField) -> bytes | None:
    if isinstance(text, str):
        return text.encode()
    return base64 if isinstance(base64, bytes) else None


class CopyProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a COPY has come."""

    rows: int = 0
    """Rows that are in the table, or in the file."""
    rejected: int = 0
    bytes: int = 0
    """Bytes that were read of the file, or written to it."""
    total_bytes: int | None = None
    """The size of the file, if it is known."""
    next_line: int = 1
    """The first line of the file of which nothing is known to be in the table. Rows are counted where there are no lines."""
    pending_line: int | None = None
    """The last line of the chunk that is being sent."""


class CopyResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a COPY did."""

    rows: int
    """Rows that were copied."""
    rejected: int = 0
    """Rows that were left out, with `on_error="skip"`."""
    bytes: int = 0
    """Bytes that were read of the file, or written to it."""
    cursor: int | None = None
    """The position in the log of the first row that was inserted."""


class RejectedRow(msgspec.Struct, frozen=True):
    """A row of a file that COPY left out, and why."""

    source: str
    """The name of the file."""
    line: int
    """Where the row begins. Rows are counted where there are no lines."""
    column: str | None
    value: str | None
    reason: str
    sqlstate: str
