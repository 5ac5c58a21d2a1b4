"""Converts the bodies and responses of consume and ack to the broker's values and back, and fetches stored batches."""

from collections.abc import Sequence

from tailrace.api.consume import (
    AckBody,
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
from tailrace.http.messages import to_read_message
from tailrace.http.requests import read_body
from tailrace.model.consume import AckRequest, Consumed, ConsumeRequest, PartitionOffset
from tailrace.model.errors import InvalidRequestError
from tailrace.model.fetch import AtOffset, AtTime, CorruptBatch, StartAt, StartEdge
from tailrace.model.group import MemberIdentity
from tailrace.model.ids import Offset
from tailrace.wire.batch_stream import FetchedPartitionHead, FetchedPartitionPart, PlacedBatch, encode_fetched

OCTET_STREAM = "application/octet-stream"


def to_start(request: StartPlace) -> StartAt:
    if isinstance(request, StartEdge):
        return request
    return AtTime(request.timestamp_ms) if isinstance(request, StartTime) else AtOffset(request)


def to_consume_request(request: ConsumeBody) -> ConsumeRequest:
    if request.positions is not None and not request.positions:
        raise InvalidRequestError("positions is empty; leave it out to read all partitions")
    return ConsumeRequest(
        request.topic,
        request.group_id,
        request.partition_id,
        None if request.start is None else to_start(request.start),
        [PartitionOffset(position.partition_id, Offset(position.offset)) for position in request.positions or ()],
        request.limit,
        request.timeout_ms,
        MemberIdentity(request.member_id, request.generation),
        request.topic_uuid,
    )


def to_consume_response(consumed: Consumed, corrupt: Sequence[CorruptBatch] = ()) -> ConsumeResponse:
    positions = consumed.positions
    return ConsumeResponse(
        [to_read_message(consumed.topic, partition, record) for partition, record in consumed.records],
        positions[0].next_offset if len(positions) == 1 else None,
        consumed.has_more,
        [PartitionRead(*position) for position in positions],
        consumed.topic_uuid,
        [CorruptRange(*batch) for batch in corrupt],
    )


def to_ack_request(request: AckBody) -> AckRequest:
    member = MemberIdentity(request.member_id, request.generation)
    return AckRequest(request.topic, request.group_id, request.partition_id, request.upto_offset, member, request.topic_uuid)


async def fetch_batches(body: bytes, broker: Broker, receive: ASGIReceive, answer: ReadAnswer) -> bytes:
    """Return the record batches that `POST /api/topics/fetch` asks for, as bytes. `answer` holds their memory."""
    request = read_body(body, FetchBody)
    starts = [PartitionOffset(position.partition_id, Offset(position.offset)) for position in request.positions]
    if len({start.partition for start in starts}) < len(starts):
        raise InvalidRequestError("positions has a partition twice")
    reading = broker.committed_reader.batches_of_many(
        request.topic,
        starts,
        answer,
        topic_uuid=request.topic_uuid,
        max_bytes=request.max_bytes,
        max_wait_ms=request.timeout_ms,
    )
    found = await (while_connected(receive, reading) if request.timeout_ms else reading)
    parts = [
        FetchedPartitionPart(
            FetchedPartitionHead(number, read.next_offset, *read.bounds, 0),
            [PlacedBatch(cursor, batch) for cursor, batch in zip(read.cursors, read.batches, strict=True)],
        )
        for number, read in found.items()
    ]
    return encode_fetched(parts)
