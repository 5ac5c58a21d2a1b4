"""Records as values: what a sender made, and what became of it."""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from tailrace.model.commit import ASSIGN, Buffer
from tailrace.model.ids import Cursor, Offset

Headers = Sequence[tuple[str, bytes | None]]

NO_TIMESTAMP = -1
NO_CURSOR = Cursor(-1)

MESSAGE_ID_HEADER = "message_id"
"""The header that names a record. Topics with `dedup = 'id'` take each name once."""


class Record(NamedTuple):
    """One record. A `None` value is a tombstone; a `None` key means that any partition will do."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970."""
    offset: Offset = ASSIGN
    cursor: Cursor = NO_CURSOR


class Message(NamedTuple):
    """One record on its way to a topic. What is left out, the broker fills in."""

    topic: str
    """Name or alias."""
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    message_id: str | None = None


class NumberedPublish(NamedTuple):
    """Who publishes, and the how manieth of its publishes this is. The same one sent again is stored once."""

    publisher: str
    number: int


class Published(NamedTuple):
    """Where a message is. For a duplicate this is the place of the first one."""

    topic: str
    partition: int
    offset: Offset
    cursor: Cursor | None
    """`None` for a duplicate: only the first publish learns it."""
    message_id: str
    duplicate: bool


class Appended(msgspec.Struct, frozen=True):
    """Where a batch is. For a duplicate this is the place of the first one."""

    base_offset: Offset
    cursor: Cursor | None
    """`None` when nothing new was written."""
    append_time: int
    """The broker's time in milliseconds where the topic keeps it, else -1."""
    duplicates: int
    """Records of the batch that were there already and were not written again."""
    log_start: Offset
    """The first offset that the partition holds; -1 if it is deleted by now."""


class RawBatch(msgspec.Struct, frozen=True):
    """One Kafka RecordBatch (v2) on its way to a partition, as a client sent it."""

    topic: str
    """Name or alias."""
    partition: int
    batch: Buffer


DIGEST_BYTES = 32


class PayloadReference(NamedTuple):
    """Which content, and how large it is."""

    digest: bytes
    """SHA-256 of the content."""
    size: int


def reference_to(content: bytes) -> PayloadReference:
    return PayloadReference(sha256(content).digest(), len(content))
