"""`/api/queues`: each record is delivered to one consumer of a group, which settles it by its receipt."""

from collections.abc import Sequence
from typing import Any

from litestar import Controller, Request, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody
from litestar.types import ASGIApp

from tailrace.api.messages import CorruptRange
from tailrace.api.queues import (
    AckReceiptsBody,
    DeliveredMessage,
    ExtendReceiptsBody,
    NackReceiptsBody,
    QueuePage,
    QueueView,
    ReceiptsResponse,
    ReceiveBody,
    ReceiveResponse,
    ShareView,
)
from tailrace.broker.broker import Broker
from tailrace.http.disconnect import while_connected
from tailrace.http.messages import to_read_message
from tailrace.http.openapi import describe_endpoint
from tailrace.http.request_guard import JSON
from tailrace.http.requests import DEFAULT_PAGE, PageSize, page, read_body
from tailrace.http.responses import HeldResponse, encode_json
from tailrace.model.fetch import CorruptBatch
from tailrace.model.limits import Limits
from tailrace.model.queue import Delivery, QueueStatus, ReceiveRequest, SettleResult


class QueueEndpoints(Controller):
    path = "/api/queues"
    tags = ("queues",)

    @get()
    async def all(
        self, broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
    ) -> QueuePage:
        """List queues by group with records in flight, records to deliver again, and lag."""
        queues, last = page(broker.queues.all(), lambda queue: queue.group, after, limit)
        return QueuePage([_queue_view(queue) for queue in queues], last)

    @delete("/{group_id:str}")
    async def remove(self, group_id: FromPath[str], broker: NamedDependency[Broker]) -> None:
        """Delete a queue and its state."""
        await broker.queues.delete(group_id)

    @post("/{group_id:str}/receive", status_code=200, opt=describe_endpoint(ReceiveBody, response=ReceiveResponse))
    async def receive(
        self,
        group_id: FromPath[str],
        request: Request[Any, Any, Any],
        body: RawBody,
        broker: NamedDependency[Broker],
        limits: NamedDependency[Limits],
    ) -> ASGIApp:
        """Deliver records to one consumer, each with a receipt. Wait for the first one if there is none yet."""
        parsed = read_body(body, ReceiveBody)
        wanted = ReceiveRequest(
            group=group_id,
            pattern=parsed.pattern,
            max_records=parsed.max,
            wait_ms=parsed.wait_ms,
            visibility_ms=parsed.visibility_ms,
            order_by_key=parsed.order_by_key,
            owner=parsed.consumer,
            attempt=parsed.attempt,
            is_repeated=parsed.is_repeated,
            max_deliveries=parsed.max_deliveries,
            start=parsed.start,
        )
        with broker.answers.answer(skips_corrupt=parsed.corrupt_batches == "skip").until_sent() as answer:
            receiving = broker.queues.receive(wanted, answer)
            received = await (while_connected(request.receive, receiving) if parsed.wait_ms else receiving)
            encoded = await encode_json(broker, answer, lambda: _received(received, answer.corrupt))
            return HeldResponse(encoded, JSON, answer, limits)

    @post("/{group_id:str}/ack", status_code=200, opt=describe_endpoint(AckReceiptsBody))
    async def ack(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ReceiptsResponse:
        """Acknowledge records. Durable when answered."""
        parsed = read_body(body, AckReceiptsBody)
        return _settled(await broker.queues.acknowledge(group_id, parsed.receipts))

    @post("/{group_id:str}/nack", status_code=200, opt=describe_endpoint(NackReceiptsBody))
    async def nack(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ReceiptsResponse:
        """Deliver records again after a delay; after `max_deliveries` they become dead letters."""
        parsed = read_body(body, NackReceiptsBody)
        released = broker.queues.release(group_id, parsed.receipts, parsed.delay_ms, parsed.reason, unseen=parsed.unseen)
        return _settled(await released)

    @post("/{group_id:str}/extend", status_code=200, opt=describe_endpoint(ExtendReceiptsBody))
    async def extend(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ReceiptsResponse:
        """Extend the visibility timeout of records."""
        parsed = read_body(body, ExtendReceiptsBody)
        return _settled(await broker.queues.extend(group_id, parsed.receipts, parsed.visibility_ms))


def _received(received: Sequence[Delivery], corrupt: Sequence[CorruptBatch]) -> ReceiveResponse:
    return ReceiveResponse([_delivered(each) for each in received], [CorruptRange(*batch) for batch in corrupt])


def _delivered(delivery: Delivery) -> DeliveredMessage:
    message = to_read_message(delivery.topic, delivery.partition, delivery.record)
    return DeliveredMessage(delivery.receipt, delivery.deliveries, message)


def _settled(settled: SettleResult) -> ReceiptsResponse:
    return ReceiptsResponse(settled.accepted, list(settled.refused))


def _queue_view(queue: QueueStatus) -> QueueView:
    shares = [ShareView(*share) for share in queue.shares]
    in_flight = sum(share.in_flight for share in shares)
    return QueueView(queue.group, queue.max_deliveries, queue.waiting, in_flight, sum(share.lag for share in shares), shares)
