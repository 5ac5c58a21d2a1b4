"""Schemas of `POST /api/topics/consume`, `/api/topics/fetch` and `/api/topics/ack`.

A fetch returns record batches as bytes (`tailrace.wire`).
"""

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from tailrace.api.messages import AtLeastOne, CorruptRange, NonNegative, ReadMessage
from tailrace.model.fetch import StartEdge
from tailrace.model.group import NO_GENERATION, NO_MEMBER

CorruptBatchPolicy = Literal["report", "skip"]


class StartTime(msgspec.Struct, forbid_unknown_fields=True):
    timestamp_ms: NonNegative


StartPlace = StartEdge | NonNegative | StartTime


class StartPosition(msgspec.Struct, forbid_unknown_fields=True):
    partition_id: NonNegative
    offset: NonNegative


class ConsumeBody(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    group_id: str | None = None
    partition_id: NonNegative | None = None
    """If left out, all partitions."""
    start: StartPlace | None = None
    positions: list[StartPosition] | None = None
    """Instead of `partition_id` and `start`: the partitions to read, each with the offset to start at."""
    limit: AtLeastOne = 100
    timeout_ms: NonNegative = 0
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    topic_uuid: UUID | None = None
    """If set, a topic that was deleted and created again under the same name is an error."""
    corrupt_batches: CorruptBatchPolicy = "report"
    """Whether a batch that can't be decoded is an error, once everything before it is read, or is skipped."""


class PartitionRead(msgspec.Struct):
    partition_id: int
    next_offset: int
    """Where to continue."""
    start_offset: int
    """The oldest offset that is still stored."""
    end_offset: int
    """The offset that the next record will get."""


class ConsumeResponse(msgspec.Struct):
    messages: list[ReadMessage]
    """In the order of their cursors."""
    next_offset: int | None
    """Where to continue if one partition was read, else `null`; `partitions` has it for each."""
    has_more: bool
    """Whether more can be read at once."""
    partitions: list[PartitionRead]
    topic_uuid: UUID
    """Identifies the topic that was read. A client that sends it along with later requests never uses these offsets for a
    topic that was created again under the same name."""
    corrupt: list[CorruptRange] = []
    """Batches that can't be decoded: those that were skipped, or the one that the next read will report."""


class AckBody(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    group_id: str
    upto_offset: NonNegative
    """The last offset that is processed."""
    partition_id: NonNegative = 0
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    topic_uuid: UUID | None = None
    """If set, a topic that was deleted and created again under the same name is an error."""


class AckResponse(msgspec.Struct):
    topic_name: str
    group_id: str
    partition_id: int
    acknowledged_offset: int
    committed_offset: int
    """Where the group continues: one after the acknowledged offset."""


class FetchBody(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    positions: Annotated[list[StartPosition], Meta(min_length=1)]
    max_bytes: AtLeastOne = 1 << 20
    timeout_ms: NonNegative = 0
    topic_uuid: UUID | None = None
    """If set, a topic that was deleted and created again under the same name is an error."""
