"""Reading a topic as consumers do, alone or for a group, and saying what is done."""

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
    """Where to begin where the group has committed nothing; an offset counts always. `None` is the earliest record."""
    positions: Sequence[PartitionOffset] = ()
    """Read exactly these partitions from these offsets, instead of `partition` and `start`."""
    limit: int = 100
    wait_ms: int = 0
    member: MemberIdentity = MemberIdentity()
    """Who asks. Only looked at where something is written for the group."""
    topic_uuid: UUID | None = None
    """Read the topic only if it is still this one. `None`: whichever has the name."""


class GroupStart(NamedTuple):
    """Where a group goes on in a topic."""

    topic: str
    topic_uuid: UUID
    positions: Sequence[PartitionOffset]


class ConsumedRecord(NamedTuple):
    partition: int
    record: Record


class ReadPosition(NamedTuple):
    """How far a read has come in a partition."""

    partition: int
    next_offset: Offset
    """Where to go on."""
    start: Offset
    """The oldest offset that retention has left."""
    end: Offset
    """The offset that the next record will get."""


class Consumed(NamedTuple):
    topic: str
    """Its name, also where it was found by its alias."""
    records: Sequence[ConsumedRecord]
    """In the order of their cursors."""
    positions: Sequence[ReadPosition]
    has_more: bool
    """Whether there is more to read right now."""
    topic_uuid: UUID
    """Which topic these offsets belong to: one that is made again under the same name has another."""


class AckRequest(NamedTuple):
    """The group is done with everything up to and with `upto_offset`."""

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
    """The last offset that is done."""
    committed_offset: Offset
    """Where the group goes on: one after it."""


class LogEdge(StrEnum):
    BEGINNING = "beginning"
    LATEST = "latest"


StartCursor = LogEdge | Cursor
"""Where a subscription begins; a cursor is the first one that is sent."""


class EventBatch:
    """Records of one partition that follow each other. All subscribers who are sent the same records get the same object, so
    that work done for one of them, such as encoding, can be found again by it. It is never changed.
    """

    __slots__ = ("__weakref__", "partition", "records", "topic")

    def __init__(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
