"""`/api/topics`: make a topic, publish to many at once, read one partition."""

from typing import Any

from litestar import Controller, post
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.params import RawBody

from tailrace.broker.broker import Broker
from tailrace.http.messages import (
    Consume,
    ConsumeAnswer,
    CreateTopic,
    Publish,
    PublishAnswer,
    read_body,
    to_messages,
    to_published,
    to_read,
    to_start,
)
from tailrace.model.fetch import Isolation
from tailrace.model.topic import Topic


def takes_json(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Only bodies that say they are JSON. A page in a browser can't send those to another site without asking it first."""
    kind = connection.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(
            status_code=415, detail=f"the body is {kind or 'of no type'!r}; send content-type: application/json"
        )


class TopicEndpoints(Controller):
    path = "/api/topics"
    guards = (takes_json,)

    @post(status_code=200)
    async def create(self, body: RawBody, broker: NamedDependency[Broker]) -> Topic:
        asked = read_body(body, CreateTopic)
        return await broker.topics.create(asked.name, asked.partitions, alias=asked.alias, options=asked.settings)

    @post("/publish", status_code=200)
    async def publish(self, body: RawBody, broker: NamedDependency[Broker]) -> PublishAnswer:
        asked = read_body(body, Publish)
        published = await broker.publish(to_messages(asked.messages))
        return PublishAnswer([to_published(each) for each in published])

    @post("/consume", status_code=200)
    async def consume(self, body: RawBody, broker: NamedDependency[Broker]) -> ConsumeAnswer:
        asked = read_body(body, Consume)
        offset = await broker.positions.resolve(
            asked.topic, asked.partition, to_start(asked.start), isolation=Isolation.READ_COMMITTED
        )
        read = await broker.read(asked.topic, asked.partition, offset, max_records=asked.limit, max_wait_ms=asked.wait_ms)
        return ConsumeAnswer([to_read(record) for record in read.records], read.next_offset, *read.bounds)
