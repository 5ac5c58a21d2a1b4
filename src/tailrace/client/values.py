"""What the client hands out and takes in: records, events, outcomes of commits and publishes. Plain data."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tailrace.model.record import MESSAGE_ID_HEADER, Headers

OP_HEADER = "op"
PAYLOAD_MODE_HEADER = "payload_mode"
SOURCE_TABLE_HEADER = "source_table"

GivenHeaders = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


class ConsumerRecord(NamedTuple):
    """One record of a topic."""

    topic_name: str
    partition_id: int
    offset: int
    """Its place in the partition."""
    cursor: int
    """Its place in the whole log."""
    timestamp_ms: int
    key: bytes | None
    payload: bytes | None
    """The value as it is stored; `None` is a tombstone."""
    headers: Headers = ()
    topic_uuid: str | None = None
    """Which topic of this name: one that is deleted and made again has another. `None` in events of subscriptions."""

    @property
    def value(self) -> Any:
        """The payload read as JSON.

        >>> ConsumerRecord("orders", 0, 0, 0, 0, None, b'{"id": 1}').value
        {'id': 1}
        """
        return None if self.payload is None else msgspec.json.decode(self.payload)

    @property
    def message_id(self) -> str | None:
        """What the sender or the server named the message; records of other senders may have none."""
        return self._text_of(MESSAGE_ID_HEADER)

    @property
    def source_table(self) -> str | None:
        """For a change of a table: which table."""
        return self._text_of(SOURCE_TABLE_HEADER)

    @property
    def op(self) -> str | None:
        """For a change of a table: `insert`, `update` or `delete`."""
        return self._text_of(OP_HEADER)

    @property
    def payload_mode(self) -> str | None:
        """For a change of a table: what the payload holds of the row: `key`, `full` or `diff`."""
        return self._text_of(PAYLOAD_MODE_HEADER)

    def _text_of(self, header: str) -> str | None:
        for name, value in self.headers:
            if name == header:
                return None if value is None else value.decode(errors="replace")
        return None


Event = ConsumerRecord
"""What a subscription yields: a record, of whichever topic."""


class QueueEvent(NamedTuple):
    """An event that a queue has handed to this consumer, for a time."""

    event: Event
    receipt: str
    """Stands for this delivery: what is said of the event is said by it."""
    deliveries: int
    """How often the event was handed out, this time included."""

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
        """The payload read as JSON."""
        return self.event.value


class CommitResult(NamedTuple):
    """The group is done with everything up to an offset of a partition."""

    topic_name: str
    group_id: str
    partition_id: int
    acknowledged_offset: int
    """The last offset that is done."""

    @property
    def committed_offset(self) -> int:
        """Where the group goes on."""
        return self.acknowledged_offset + 1


class PositionReset(NamedTuple):
    """A consumer has gone to where its `auto_offset_reset` or its group says, because its topic was deleted and made again."""

    topic_name: str
    partition_id: int
    old_position: int | None
    """Where it was in the topic that is gone; `None` where it did not read this partition."""
    new_position: int
    """Where it goes on in the topic that has the name now."""


class OutgoingMessage(NamedTuple):
    """A message on its way to a topic."""

    topic: str
    value: Any
    """Bytes are stored as they are, everything else as JSON; `None` is a tombstone."""
    key: str | bytes | None = None
    headers: GivenHeaders = ()
    message_id: str | None = None
    """Names the message in topics with `dedup = "id"`."""
    partition_id: int | None = None
    """By the key, else in turn, if it is left out."""
    timestamp_ms: int | None = None


class PublishResult(msgspec.Struct, frozen=True):
    """Where a message is."""

    topic_name: str
    partition_id: int
    offset: int
    cursor: int | None
    """`None` for a duplicate: only the first publish learns it."""
    message_id: str
    duplicate: bool
    """The message was there already: sent again after its answer was lost, or found by the topic's own search."""


_NULL = b"null"


class _Header(msgspec.Struct):
    name: str
    value: str | None = None
    value_base64: bytes | None = None


class EventMessage(msgspec.Struct):
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


class SubscriptionFrame(msgspec.Struct):
    type: str
    events: list[EventMessage] = []
    cursor: int | None = None
    """In a sign of life: everything up to here was looked at."""
    corrupt: list[dict[str, object]] = []
    """Batches that can't be decoded and are left out."""
    error: Raw = Raw(b"")
    """Why there is no more, as a problem."""


_FRAME_DECODER = msgspec.json.Decoder(SubscriptionFrame)


def decode_frame(message: bytes) -> SubscriptionFrame:
    return _FRAME_DECODER.decode(message)


def to_event(sent: EventMessage) -> Event:
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
