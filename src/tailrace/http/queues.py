"""`/api/queues`: consumers of a group share records, each to one of them, and say by receipts what became of it."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Controller, Request, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody
from litestar.types import ASGIApp
from msgspec import Meta

from tailrace.broker.broker import Broker
from tailrace.http.consume import CorruptBatches, CorruptRange
from tailrace.http.disconnect import while_connected
from tailrace.http.messages import ReadMessage, read_body, to_read
from tailrace.http.openapi import describe_endpoint
from tailrace.http.requests import DEFAULT_PAGE, PageSize, page
from tailrace.http.responses import HeldResponse, encode_json
from tailrace.model.fetch import CorruptBatch, StartEdge
from tailrace.model.limits import Limits
from tailrace.model.queue import DEFAULT_VISIBILITY_MS, Delivery, QueueStatus, ReceiveRequest, RejectedReceipt, SettleResult

JSON = "application/json"

AtLeastOne = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[int, Meta(ge=0)]


class Receive(msgspec.Struct, forbid_unknown_fields=True):
    pattern: str
    """Topics to take from: a name, or a pattern such as `orders.*`."""
    max: AtLeastOne = 1
    wait_ms: NonNegative = 0
    visibility_ms: AtLeastOne = DEFAULT_VISIBILITY_MS
    """How long the records are with this consumer."""
    order_by_key: bool = False
    """No record is handed out before those of the same key that came earlier are done."""
    consumer: str = ""
    attempt: str = ""
    """Names this request among those of the consumer."""
    is_repeated: bool = False
    """The answer to an attempt of this name was lost: what that took goes back first, as if it had not been taken."""
    max_deliveries: AtLeastOne | None = None
    """For the whole group, from now on."""
    start: StartEdge = StartEdge.EARLIEST
    """Where a new group begins in topics that are there already."""
    corrupt_batches: CorruptBatches = "report"
    """Whether batches that can't be decoded are an error, once what comes before them is handed out, or are left out."""


class DeliveredMessage(msgspec.Struct):
    receipt: str
    deliveries: int
    """How often it was handed out, this time included."""
    message: ReadMessage


class ReceiveAnswer(msgspec.Struct):
    messages: list[DeliveredMessage]
    corrupt: list[CorruptRange] = []
    """Batches that can't be decoded: what was left out, or what a later receive will report."""


class AckReceipts(msgspec.Struct, forbid_unknown_fields=True):
    receipts: list[str]


class NackReceipts(msgspec.Struct, forbid_unknown_fields=True):
    receipts: list[str]
    delay_ms: NonNegative = 0
    reason: str = ""
    """Kept with the dead letter, if it becomes one."""
    unseen: bool = False
    """Nobody has tried to deal with them, so the delivery does not count."""


class ExtendReceipts(msgspec.Struct, forbid_unknown_fields=True):
    receipts: list[str]
    visibility_ms: AtLeastOne = DEFAULT_VISIBILITY_MS
    """From now on."""


class SettledAnswer(msgspec.Struct):
    accepted: int
    refused: list[RejectedReceipt]
    """Receipts that did not count, each with the reason. If none counts, the answer is an error."""


class ShareView(msgspec.Struct):
    topic_name: str
    partition_id: int
    start_offset: int
    """Everything before it is done."""
    next_offset: int
    """From here on nothing was handed out yet."""
    end_offset: int
    in_flight: int
    """Records that consumers have now."""
    to_repeat: int
    """Records that came back."""
    lag: int


class QueueView(msgspec.Struct):
    group_id: str
    max_deliveries: int
    waiting: int
    """Consumers that wait for a record."""
    in_flight: int
    lag: int
    partitions: list[ShareView]


class QueuePage(msgspec.Struct):
    queues: list[QueueView]
    next: str | None


class QueueEndpoints(Controller):
    path = "/api/queues"
    tags = ("queues",)

    @get()
    async def all(
        self, broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
    ) -> QueuePage:
        """Queues by group: what is out, what came back, and how much is left."""
        queues, last = page(broker.queues.all(), lambda queue: queue.group, after, limit)
        return QueuePage([_queue_view(queue) for queue in queues], last)

    @delete("/{group_id:str}")
    async def remove(self, group_id: FromPath[str], broker: NamedDependency[Broker]) -> None:
        """Forget a queue and how far it has come."""
        await broker.queues.delete(group_id)

    @post("/{group_id:str}/receive", status_code=200, opt=describe_endpoint(Receive, answer=ReceiveAnswer))
    async def receive(
        self,
        group_id: FromPath[str],
        request: Request[Any, Any, Any],
        body: RawBody,
        broker: NamedDependency[Broker],
        limits: NamedDependency[Limits],
    ) -> ASGIApp:
        """Records for one consumer, each with a receipt; waits for the first one if there is none yet."""
        asked = read_body(body, Receive)
        wanted = ReceiveRequest(
            group=group_id,
            pattern=asked.pattern,
            max_records=asked.max,
            wait_ms=asked.wait_ms,
            visibility_ms=asked.visibility_ms,
            order_by_key=asked.order_by_key,
            owner=asked.consumer,
            attempt=asked.attempt,
            is_repeated=asked.is_repeated,
            max_deliveries=asked.max_deliveries,
            start=asked.start,
        )
        with broker.answers.answer(skips_corrupt=asked.corrupt_batches == "skip").until_sent() as answer:
            receiving = broker.queues.receive(wanted, answer)
            received = await (while_connected(request.receive, receiving) if asked.wait_ms else receiving)
            encoded = await encode_json(broker, answer, lambda: _received(received, answer.corrupt))
            return HeldResponse(encoded, JSON, answer, limits)

    @post("/{group_id:str}/ack", status_code=200, opt=describe_endpoint(AckReceipts))
    async def ack(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> SettledAnswer:
        """These records are done. Durable when answered."""
        asked = read_body(body, AckReceipts)
        return _settled(await broker.queues.acknowledge(group_id, asked.receipts))

    @post("/{group_id:str}/nack", status_code=200, opt=describe_endpoint(NackReceipts))
    async def nack(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> SettledAnswer:
        """Hand these records out again, after a while; after the last time they go to the dead letters."""
        asked = read_body(body, NackReceipts)
        released = broker.queues.release(group_id, asked.receipts, asked.delay_ms, asked.reason, unseen=asked.unseen)
        return _settled(await released)

    @post("/{group_id:str}/extend", status_code=200, opt=describe_endpoint(ExtendReceipts))
    async def extend(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> SettledAnswer:
        """Keep these records for longer."""
        asked = read_body(body, ExtendReceipts)
        return _settled(await broker.queues.extend(group_id, asked.receipts, asked.visibility_ms))


def _received(received: Sequence[Delivery], corrupt: Sequence[CorruptBatch]) -> ReceiveAnswer:
    return ReceiveAnswer([_delivered(each) for each in received], [CorruptRange(*batch) for batch in corrupt])


def _delivered(delivery: Delivery) -> DeliveredMessage:
    message = to_read(delivery.topic, delivery.partition, delivery.record)
    return DeliveredMessage(delivery.receipt, delivery.deliveries, message)


def _settled(settled: SettleResult) -> SettledAnswer:
    return SettledAnswer(settled.accepted, list(settled.refused))


def _queue_view(queue: QueueStatus) -> QueueView:
    shares = [ShareView(*share) for share in queue.shares]
    in_flight = sum(share.in_flight for share in shares)
    return QueueView(queue.group, queue.max_deliveries, queue.waiting, in_flight, sum(share.lag for share in shares), shares)
