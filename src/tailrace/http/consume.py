"""Bodies and answers of consume and ack, and their way to the broker's values and back."""

from collections.abc import Sequence

from tailrace.api.consume import (
    AckBody,
    AckResponse,
    ConsumeBody,
    ConsumeResponse,
    FetchBody,
    PartitionRead,
    StartPlace,
    StartTime,
)
from tailrace.api.messages import CorruptRange
from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.disconnect import ASGIReceive, while_connected
from tailrace.http.messages import to_read
from tailrace.http.requests import read_body
from tailrace.model.consume import Acked, AckRequest, Consumed, ConsumeRequest, PartitionOffset
from tailrace.model.errors import InvalidRequestError
from tailrace.model.fetch import AtOffset, AtTime, CorruptBatch, StartAt, StartEdge
from tailrace.model.group import MemberIdentity
from tailrace.model.ids import Offset
from tailrace.wire.batch_stream import FetchedPartitionHead, FetchedPartitionPart, PlacedBatch, encode_fetched


def to_start(asked: StartPlace) -> StartAt:
    if isinstance(asked, StartEdge):
        return asked
    return AtTime(asked.timestamp_ms) if isinstance(asked, StartTime) else AtOffset(asked)


def to_consume(asked: ConsumeBody) -> ConsumeRequest:
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


def to_answer(consumed: Consumed, corrupt: Sequence[CorruptBatch] = ()) -> ConsumeResponse:
    positions = consumed.positions
    return ConsumeResponse(
        [to_read(consumed.topic, partition, record) for partition, record in consumed.records],
        positions[0].next_offset if len(positions) == 1 else None,
        consumed.has_more,
        [PartitionRead(*position) for position in positions],
        consumed.topic_uuid,
        [CorruptRange(*batch) for batch in corrupt],
    )


def to_ack(asked: AckBody) -> AckRequest:
    member = MemberIdentity(asked.member_id, asked.generation)
    return AckRequest(asked.topic, asked.group_id, asked.partition_id, asked.upto_offset, member, asked.topic_uuid)


def to_acked(acked: Acked) -> AckResponse:
    return AckResponse(*acked)


OCTET_STREAM = "application/octet-stream"


async def fetch_batches(body: bytes, broker: Broker, receive: ASGIReceive, answer: ReadAnswer) -> bytes:
    asked = read_body(body, FetchBody)
    starts = [PartitionOffset(position.partition_id, Offset(position.offset)) for position in asked.positions]
    if len({start.partition for start in starts}) < len(starts):
        raise InvalidRequestError("positions name a partition twice")
    reading = broker.committed_reader.batches_of_many(
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
