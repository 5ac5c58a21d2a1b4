"""Records, the messages that become records, where they were stored, and the payloads of large ones."""

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
"""The header that identifies a record. Topics with `dedup = 'id'` store each id once."""


class Record(NamedTuple):
    """One record. A value of `None` is a tombstone. A record with a key of `None` may go to any partition."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970."""
    offset: Offset = ASSIGN
    cursor: Cursor = NO_CURSOR


class Message(NamedTuple):
    """One record to be published. The broker fills in what is left out."""

    topic: str
    """Name or alias."""
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    message_id: str | None = None


class NumberedPublish(NamedTuple):
    """A publisher and the sequence number of its publish. A publish that is sent again is stored once."""

    publisher: str
    number: int


class Published(NamedTuple):
    """Where a message was stored. For a duplicate this is the place of the first one."""

    topic: str
    partition: int
    offset: Offset
    cursor: Cursor | None
    """`None` for a duplicate: only the first publish is told."""
    message_id: str
    duplicate: bool


class Appended(msgspec.Struct, frozen=True):
    """Where a batch was stored. For a duplicate this is the place of the first one."""

    base_offset: Offset
    cursor: Cursor | None
    """`None` when nothing new was written."""
    append_time: int
    """The broker's time in milliseconds if the topic stores that, else -1."""
    duplicates: int
    """Records of the batch that existed already and were not written again."""
    log_start: Offset
    """The first offset that the partition holds, or -1 if it was deleted meanwhile."""


class RawBatch(msgspec.Struct, frozen=True):
    """One Kafka RecordBatch (v2) for a partition, as a client sent it."""

    topic: str
    """Name or alias."""
    partition: int
    batch: Buffer


DIGEST_BYTES = 32


class PayloadReference(NamedTuple):
    """The digest and size of a payload: a value too large for the log, which is kept beside it once for each content."""

    digest: bytes
    """SHA-256 of the content."""
    size: int


def reference_to(content: bytes) -> PayloadReference:
    return PayloadReference(sha256(content).digest(), len(content))
