"""`/api/topics`: create, change, list and delete topics; publish, fetch, consume and ack."""

from typing import Any

from litestar import Controller, Request, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody
from litestar.types import ASGIApp

from tailrace.api.consume import AckBody, AckResponse, ConsumeBody, ConsumeResponse, FetchBody
from tailrace.api.messages import PublishBody, PublishResponse
from tailrace.api.topics import ChangeTopicBody, CreateTopicBody, PartitionPage, PartitionStatus, TopicPage
from tailrace.broker.broker import Broker
from tailrace.http.consume import OCTET_STREAM, fetch_batches, to_ack_request, to_consume_request, to_consume_response
from tailrace.http.disconnect import while_connected
from tailrace.http.messages import publish_messages
from tailrace.http.openapi import describe_endpoint
from tailrace.http.request_guard import JSON
from tailrace.http.requests import DEFAULT_PAGE, PageSize, page, read_body
from tailrace.http.responses import HeldResponse, encode_json
from tailrace.model.fetch import Isolation, StartEdge
from tailrace.model.limits import Limits
from tailrace.model.topic import Topic


class TopicEndpoints(Controller):
    path = "/api/topics"
    tags = ("topics",)

    @get()
    async def all(
        self, broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
    ) -> TopicPage:
        """List topics by name."""
        return TopicPage(*page((live.topic for live in broker.topics.visible()), lambda topic: topic.name, after, limit))

    @post(status_code=200, opt=describe_endpoint(CreateTopicBody))
    async def create(self, body: RawBody, broker: NamedDependency[Broker]) -> Topic:
        """Create a topic, or add partitions to an existing one."""
        parsed = read_body(body, CreateTopicBody)
        return await broker.topics.create(parsed.name, parsed.partitions, alias=parsed.alias, options=parsed.settings)

    @get("/{name:str}")
    async def one(self, name: FromPath[str], broker: NamedDependency[Broker]) -> Topic:
        """Return a topic by name or alias."""
        broker.topics.require("describe", name)
        return broker.topics.get(name).topic

    @patch("/{name:str}", opt=describe_endpoint(ChangeTopicBody))
    async def change(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> Topic:
        """Change the settings and the alias of a topic, and add partitions."""
        parsed = read_body(body, ChangeTopicBody)
        topic = await broker.topics.alter(name, parsed.settings, alias=parsed.alias)
        if parsed.partitions is not None:
            topic = await broker.topics.create(topic.name, parsed.partitions)
        return topic

    @delete("/{name:str}")
    async def remove(self, name: FromPath[str], broker: NamedDependency[Broker]) -> None:
        """Delete a topic with its records and the offsets of its groups."""
        await broker.topics.delete(name)

    @get("/{name:str}/partitions")
    async def partitions(
        self,
        name: FromPath[str],
        broker: NamedDependency[Broker],
        after: FromQuery[int] = -1,
        limit: FromQuery[PageSize] = DEFAULT_PAGE,
    ) -> PartitionPage:
        """List the partitions of a topic with their offsets."""
        broker.topics.require("describe", name)
        live = broker.topics.get(name)
        numbers = range(max(0, after + 1), len(live.partitions))
        chosen, last = page(numbers, str, "", limit)
        views = []
        for number in chosen:
            positions = broker.positions
            stable = await positions.resolve(name, number, StartEdge.LATEST, isolation=Isolation.READ_COMMITTED)
            views.append(PartitionStatus(number, *positions.bounds(name, number), stable, positions.size(name, number)))
        return PartitionPage(views, last)

    @post("/publish", status_code=200, opt=describe_endpoint(PublishBody))
    async def publish(self, body: RawBody, broker: NamedDependency[Broker]) -> PublishResponse:
        """Publish messages to one or more topics, all or nothing."""
        return await publish_messages(body, broker)

    @post("/fetch", status_code=200, opt=describe_endpoint(FetchBody, response_types={OCTET_STREAM: bytes}))
    async def fetch(
        self, request: Request[Any, Any, Any], body: RawBody, broker: NamedDependency[Broker], limits: NamedDependency[Limits]
    ) -> ASGIApp:
        """Return committed record batches of partitions of a topic. Wait for the first one if there is none yet."""
        with broker.answers.answer().until_sent() as answer:
            return HeldResponse(await fetch_batches(body, broker, request.receive, answer), OCTET_STREAM, answer, limits)

    @post("/consume", status_code=200, opt=describe_endpoint(ConsumeBody, response=ConsumeResponse))
    async def consume(
        self, request: Request[Any, Any, Any], body: RawBody, broker: NamedDependency[Broker], limits: NamedDependency[Limits]
    ) -> ASGIApp:
        """Read a topic, with or without a group. Wait for the first message if there is none yet."""
        parsed = read_body(body, ConsumeBody)
        with broker.answers.answer(skips_corrupt=parsed.corrupt_batches == "skip").until_sent() as answer:
            reading = broker.consumers.consume(to_consume_request(parsed), answer)
            consumed = await (while_connected(request.receive, reading) if parsed.timeout_ms else reading)
            encoded = await encode_json(broker, answer, lambda: to_consume_response(consumed, answer.corrupt))
            return HeldResponse(encoded, JSON, answer, limits)

    @post(["/ack", "/commit"], status_code=200, opt=describe_endpoint(AckBody))
    async def ack(self, body: RawBody, broker: NamedDependency[Broker]) -> AckResponse:
        """Commit everything up to an offset for a group."""
        return AckResponse(*await broker.consumers.ack(to_ack_request(read_body(body, AckBody))))
