"""Bodies and answers of consume and ack, and their way to the broker's values and back."""

from collections.abc import Sequence
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.disconnect import ASGIReceive, while_connected
from tailrace.http.messages import ReadMessage, read_body, to_read
from tailrace.model.consume import Acked, AckRequest, Consumed, ConsumeRequest, PartitionOffset
from tailrace.model.errors import InvalidRequestError
from tailrace.model.fetch import AtOffset, AtTime, CorruptBatch, StartAt, StartEdge
from tailrace.model.group import NO_GENERATION, NO_MEMBER, MemberIdentity
from tailrace.model.ids import Offset
from tailrace.wire.batch_stream import FetchedPartitionHead, FetchedPartitionPart, PlacedBatch, encode_fetched

NonNegative = Annotated[int, Meta(ge=0)]
CorruptBatches = Literal["report", "skip"]


class StartTime(msgspec.Struct, forbid_unknown_fields=True):
    timestamp_ms: NonNegative


StartPlace = StartEdge | NonNegative | StartTime


class StartPosition(msgspec.Struct, forbid_unknown_fields=True):
    partition_id: NonNegative
    offset: NonNegative


class Consume(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    group_id: str | None = None
    partition_id: NonNegative | None = None
    """All partitions if it is left out."""
    start: StartPlace | None = None
    positions: list[StartPosition] | None = None
    """Instead of `partition_id` and `start`: which partitions to read, and where from."""
    limit: Annotated[int, Meta(ge=1)] = 100
    timeout_ms: NonNegative = 0
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    topic_uuid: UUID | None = None
    """The topic must still be this one: another that was made again under its name is refused."""
    corrupt_batches: CorruptBatches = "report"
    """Whether batches that can't be decoded are an error, once what comes before them is read, or are left out."""


class CorruptRange(msgspec.Struct):
    """A stored batch that can't be decoded."""

    topic_name: str
    partition_id: int
    first_offset: int
    last_offset: int
    reason: str


class PartitionRead(msgspec.Struct):
    partition_id: int
    next_offset: int
    """Where to go on."""
    start_offset: int
    """The oldest offset that retention has left."""
    end_offset: int
    """The offset that the next record will get."""


class ConsumeAnswer(msgspec.Struct):
    messages: list[ReadMessage]
    """In the order of their cursors."""
    next_offset: int | None
    """Where to go on, where one partition was read; for several, `partitions` says it."""
    has_more: bool
    """Whether there is more to read right now."""
    partitions: list[PartitionRead]
    topic_uuid: UUID
    """Which topic was read. A topic that is made again under the same name has another; sent along with what follows, it
    makes sure that offsets are not used for a topic that they do not belong to."""
    corrupt: list[CorruptRange] = []
    """Batches that can't be decoded: what was left out, or what the next read will report."""


class Ack(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    group_id: str
    upto_offset: NonNegative
    """The last offset that is done."""
    partition_id: NonNegative = 0
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    topic_uuid: UUID | None = None
    """The topic must still be this one."""


class AckAnswer(msgspec.Struct):
    topic_name: str
    group_id: str
    partition_id: int
    acknowledged_offset: int
    committed_offset: int
    """Where the group goes on: one after the acknowledged offset."""


def to_start(asked: StartPlace) -> StartAt:
    if isinstance(asked, StartEdge):
        return asked
    return AtTime(asked.timestamp_ms) if isinstance(asked, StartTime) else AtOffset(asked)


def to_consume(asked: Consume) -> ConsumeRequest:
    if asked.positions is not None and not asked.positions:
        raise InvalidRequestError("positions name no partition; leave them out to read all")
    return ConsumeRequest(
        asked.topic,
        asked.group_id,
        asked.partition_id,
        None if asked.start is None else to_start(asked.start),
        [PartitionOffset(position.partition_id, Offset(position.offset)) for position in asked.positions or ()],
        asked.limit,
        asked.timeout_ms,
        MemberIdentity(asked.member_id, asked.generation),
        asked.topic_uuid,
    )


def to_answer(consumed: Consumed, corrupt: Sequence[CorruptBatch] = ()) -> ConsumeAnswer:
    positions = consumed.positions
    return ConsumeAnswer(
        [to_read(consumed.topic, partition, record) for partition, record in consumed.records],
        positions[0].next_offset if len(positions) == 1 else None,
        consumed.has_more,
        [PartitionRead(*position) for position in positions],
        consumed.topic_uuid,
        [CorruptRange(*batch) for batch in corrupt],
    )


def to_ack(asked: Ack) -> AckRequest:
    member = MemberIdentity(asked.member_id, asked.generation)
    return AckRequest(asked.topic, asked.group_id, asked.partition_id, asked.upto_offset, member, asked.topic_uuid)


def to_acked(acked: Acked) -> AckAnswer:
    return AckAnswer(*acked)


OCTET_STREAM = "application/octet-stream"


class FetchBatches(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    positions: Annotated[list[StartPosition], Meta(min_length=1)]
    max_bytes: Annotated[int, Meta(ge=1)] = 1 << 20
    timeout_ms: NonNegative = 0
    topic_uuid: UUID | None = None
    """The topic must still be this one: another that was made again under its name is refused."""


async def fetch_batches(body: bytes, broker: Broker, receive: ASGIReceive, answer: ReadAnswer) -> bytes:
    asked = read_body(body, FetchBatches)
    starts = [PartitionOffset(position.partition_id, Offset(position.offset)) for position in asked.positions]
    if len({start.partition for start in starts}) < len(starts):
        raise InvalidRequestError("positions name a partition twice")
    reading = broker.committed_many(
        asked.topic, starts, answer, topic_uuid=asked.topic_uuid, max_bytes=asked.max_bytes, max_wait_ms=asked.timeout_ms
    )
    found = await (while_connected(receive, reading) if asked.timeout_ms else reading)
    parts = [
        FetchedPartitionPart(
            FetchedPartitionHead(number, read.next_offset, *read.bounds, 0),
            [PlacedBatch(cursor, batch) for cursor, batch in zip(read.cursors, read.batches, strict=True)],
        )
        for number, read in found.items()
    ]
    return encode_fetched(parts)
