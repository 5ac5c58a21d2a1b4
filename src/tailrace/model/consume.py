"""Consuming a topic, alone or as a group, acknowledging records, and the events of subscriptions."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tailrace.model.fetch import StartAt
from tailrace.model.group import MemberIdentity
from tailrace.model.ids import Cursor, Offset
from tailrace.model.record import Record


class PartitionOffset(NamedTuple):
    partition: int
    offset: Offset


class ConsumeRequest(NamedTuple):
    topic: str
    """Name or alias."""
    group: str | None = None
    partition: int | None = None
    """`None` reads all partitions of the topic."""
    start: StartAt | None = None
    """Where to begin if the group has committed nothing. An offset applies in any case. `None` is the earliest record."""
    positions: Sequence[PartitionOffset] = ()
    """Read exactly these partitions from these offsets, instead of `partition` and `start`."""
    limit: int = 100
    wait_ms: int = 0
    member: MemberIdentity = MemberIdentity()
    """The consumer. Only used if something is written for the group."""
    topic_uuid: UUID | None = None
    """Read the topic only if it is still this one. `None` reads whichever topic has the name."""


class GroupStart(NamedTuple):
    """The positions at which a group continues in a topic."""

    topic: str
    topic_uuid: UUID
    positions: Sequence[PartitionOffset]


class ConsumedRecord(NamedTuple):
    partition: int
    record: Record


class ReadPosition(NamedTuple):
    """The progress of a read in one partition."""

    partition: int
    next_offset: Offset
    """The offset to continue at."""
    start: Offset
    """The first offset that the partition still holds."""
    end: Offset
    """The offset that the next record will get."""


class Consumed(NamedTuple):
    topic: str
    """The topic's name, even if the request gave its alias."""
    records: Sequence[ConsumedRecord]
    """Records in the order of their cursors."""
    positions: Sequence[ReadPosition]
    has_more: bool
    """Whether more records can be read right now."""
    topic_uuid: UUID
    """The topic that these offsets belong to. A new topic of the same name has another one."""


class AckRequest(NamedTuple):
    """A group has processed everything up to and including `upto_offset`."""

    topic: str
    group: str
    partition: int
    upto_offset: int
    member: MemberIdentity = MemberIdentity()
    topic_uuid: UUID | None = None


class Acked(NamedTuple):
    topic: str
    group: str
    partition: int
    acknowledged_offset: Offset
    """The last offset that was acknowledged."""
    committed_offset: Offset
    """The offset at which the group continues, which is the next one."""


class LogEdge(StrEnum):
    BEGINNING = "beginning"
    LATEST = "latest"


StartCursor = LogEdge | Cursor
"""Where a subscription begins. A cursor is the first one that may be sent."""


class EventBatch:
    """Consecutive records of one partition. It is never changed.

    All subscribers that are sent the same records get the same object, so work that is done for one of them, such as
    encoding, can be cached by it.
    """

    __slots__ = ("__weakref__", "partition", "records", "topic")

    def __init__(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
