"""`POST /api/topics/fetch`: record batches as they are stored, for readers that decode them themselves."""

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.consuming import NonNegative, StartPosition
from tailrace.http.messages import read_body
from tailrace.http.patience import Receive, while_connected
from tailrace.model.consume import PartitionOffset
from tailrace.model.errors import InvalidRequestError
from tailrace.model.ids import Offset
from tailrace.wire.batch_stream import PlacedBatch
from tailrace.wire.fetched import FetchedPartition, PartitionPart, encode_fetched

BYTES = "application/octet-stream"


class FetchBatches(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    positions: Annotated[list[StartPosition], Meta(min_length=1)]
    max_bytes: Annotated[int, Meta(ge=1)] = 1 << 20
    timeout_ms: NonNegative = 0
    topic_uuid: UUID | None = None
    """The topic must still be this one: another that was made again under its name is refused."""


async def fetched(body: bytes, broker: Broker, receive: Receive, answer: ReadAnswer) -> bytes:
    asked = read_body(body, FetchBatches)
    starts = [PartitionOffset(position.partition_id, Offset(position.offset)) for position in asked.positions]
    if len({start.partition for start in starts}) < len(starts):
        raise InvalidRequestError("positions name a partition twice")
    reading = broker.committed_many(
        asked.topic, starts, answer, topic_uuid=asked.topic_uuid, max_bytes=asked.max_bytes, max_wait_ms=asked.timeout_ms
    )
    found = await (while_connected(receive, reading) if asked.timeout_ms else reading)
    parts = [
        PartitionPart(
            FetchedPartition(number, read.next_offset, *read.bounds, 0),
            [PlacedBatch(cursor, batch) for cursor, batch in zip(read.cursors, read.batches, strict=True)],
        )
        for number, read in found.items()
    ]
    return encode_fetched(parts)
