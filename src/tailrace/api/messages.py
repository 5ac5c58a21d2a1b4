"""Schemas of messages: `POST /api/topics/publish`, and records as consume, receive and subscribe return them.

A value is JSON, or `value_base64` for bytes that are not JSON. Keys and headers are text, or base64 in the same way. JSON
`null` is a tombstone.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

OP_HEADER = "op"
PAYLOAD_MODE_HEADER = "payload_mode"
SOURCE_TABLE_HEADER = "source_table"
"""Like the two above, a header of table changes and of routed messages that is also returned as a field of its own."""

NonNegative = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
TextField = str | UnsetType | None
BytesField = bytes | UnsetType


class SentHeader(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    value: str | None = None
    value_base64: bytes | None = None


class SentMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    topic: str
    value: Raw | UnsetType = UNSET
    value_base64: bytes | None = None
    key: str | None = None
    key_base64: bytes | None = None
    headers: Sequence[SentHeader] = ()
    partition_id: NonNegative | None = None
    timestamp_ms: NonNegative | None = None
    message_id: str | None = None


class PublishBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Messages that become visible together or not at all."""

    messages: list[SentMessage]
    publisher: str | None = None
    """A name that no other publisher uses."""
    number: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    """The number of this publish, higher than the last one. A publish that is sent again is stored once."""


class PublishedRecord(msgspec.Struct):
    topic_name: str
    partition_id: int
    offset: int
    cursor: int | None
    """`null` for a duplicate: only the first publish returns it."""
    message_id: str
    duplicate: bool


class PublishResponse(msgspec.Struct):
    records: list[PublishedRecord]
    """In the order of the messages."""


class ReadHeader(msgspec.Struct, omit_defaults=True):
    name: str
    value: TextField = UNSET
    value_base64: BytesField = UNSET


class ReadMessage(msgspec.Struct, omit_defaults=True):
    """One record. Fields that are missing or do not apply are left out."""

    topic_name: str
    partition_id: int
    offset: int
    cursor: int
    timestamp_ms: int
    key: TextField = UNSET
    key_base64: BytesField = UNSET
    value: Raw | UnsetType = UNSET
    value_base64: BytesField = UNSET
    headers: Sequence[ReadHeader] = ()
    message_id: TextField = UNSET
    """Set by the sender or the server; records of Kafka producers may have none."""
    source_table: TextField = UNSET
    """For table changes: the table. `op` is the operation, `payload_mode` how much of the row the value holds."""
    op: TextField = UNSET
    payload_mode: TextField = UNSET


class CorruptRange(msgspec.Struct):
    """A stored batch that can't be decoded."""

    topic_name: str
    partition_id: int
    first_offset: int
    last_offset: int
    reason: str


class SubscriptionMessage(msgspec.Struct, omit_defaults=True):
    """One message of the WebSocket `/api/subscribe`, by `type`: `events`, `alive` or `error`."""

    type: str
    events: list[ReadMessage] = []
    corrupt: list[CorruptRange] = []
    """With `events`: batches that were skipped because they can't be decoded."""
    cursor: int | None = None
    """With `alive`: everything up to this cursor has been searched."""
    error: Raw | UnsetType = UNSET
    """With `error`: why the subscription ends, as a problem (`api.server.Problem`)."""
