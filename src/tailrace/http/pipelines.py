"""`/api/pipelines`: what a pipeline needs of the server. Its tasks send record batches as bytes, undecoded."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec
from litestar import Controller, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, RawBody

from tailrace.broker.broker import Broker
from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.http.messages import read_body
from tailrace.http.openapi import describe_endpoint
from tailrace.model.errors import UnknownTopicError
from tailrace.model.fetch import AtTime, Isolation, StartEdge
from tailrace.model.limits import Limits
from tailrace.model.names import parse_pattern
from tailrace.model.pipeline import Lease, MarkMove, PipelineReport, PipelineStatus
from tailrace.model.route import Route

_BYTES = "application/octet-stream"
_WAIT_SECONDS = 20.0
"""How long a large write is waited for: not so long that its writer takes the server for dead."""


class TakeLease(msgspec.Struct, forbid_unknown_fields=True):
    owner: str
    """Who asks, in words for a person: host, process, command."""
    take_over: bool = False


class Release(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int


class Pin(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    starts: dict[str, int]


class Marks(msgspec.Struct):
    marks: Mapping[str, int]


class AskSources(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    beyond: dict[str, int] = {}
    """Wait until one of these sources has grown beyond its offset."""
    wait_ms: int = 0


class Source(msgspec.Struct):
    """`PendingSource` with names."""

    source: str
    table: int
    changes: str
    changes_uuid: UUID
    mark: int
    end: int
    routes: int


class NamedStages(msgspec.Struct, forbid_unknown_fields=True):
    stages: list[tuple[str, int]]
    """Names of stages and how many parts each has, in the order in which they take effect."""


class PublishStages(NamedStages, forbid_unknown_fields=True):
    epoch: int
    """Of the lease."""


class WriteStages(NamedStages, forbid_unknown_fields=True):
    """What a writer without a lease has staged."""

    source: str
    number: int
    """Which batch it is. One with this number, or a higher one, that was written before is not written again."""


class PublishedStages(msgspec.Struct):
    records: int = 0
    duplicates: int = 0
    skipped: int = 0
    is_done: bool = True
    """If not, it goes on; ask the same again."""


class Report(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    report: PipelineReport


class AskOffsets(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str] = []
    pattern: str | None = None
    """All topics that match it, besides those that are named."""
    at: StartEdge | int = StartEdge.LATEST
    """An edge, or milliseconds since 1970: the first record at that time or later."""
    beyond: dict[str, list[int]] = {}
    """Wait until a partition of one of these topics has grown beyond these offsets."""
    wait_ms: int = 0


class TopicOffsets(msgspec.Struct):
    topic: str
    topic_id: int
    topic_uuid: UUID
    """A topic that is made again under the same name has another."""
    partitions: list[int]
    max_batch_bytes: int
    """Of one batch as stored; none of its records can be larger."""


class Offsets(msgspec.Struct):
    topics: Sequence[TopicOffsets]
    cursor: int
    """The end of the log, not before these offsets."""
    max_key_bytes: int
    max_value_bytes: int


class PipelineEndpoints(Controller):
    path = "/api/pipelines"
    tags = ("pipelines",)
    include_in_schema = False

    @get(include_in_schema=True)
    async def pipelines(self, broker: NamedDependency[Broker]) -> list[PipelineStatus]:
        """Pipelines, and how they do."""
        return broker.pipeline_statuses()

    @post("/{name:str}/lease", status_code=200)
    async def lease(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> Lease:
        asked = read_body(body, TakeLease)
        return await broker.pipelines.lease(name, asked.owner, take_over=asked.take_over)

    @post("/{name:str}/release", status_code=204)
    async def release(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        await broker.pipelines.release(name, read_body(body, Release).epoch)

    @post("/{name:str}/pin", status_code=200)
    async def pin(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> Marks:
        asked = read_body(body, Pin)
        return Marks(await broker.pipelines.pin(name, asked.epoch, asked.starts))

    @get("/{name:str}/marks")
    async def marks(self, name: FromPath[str], broker: NamedDependency[Broker]) -> Marks:
        return Marks(broker.pipelines.marks(name))

    @get("/router/routes")
    async def routes(self, broker: NamedDependency[Broker]) -> list[Route]:
        """The routes that count for changes which the router has not come to yet."""
        return await broker.routing.pending()

    @post("/router/sources", status_code=200)
    async def sources(self, body: RawBody, broker: NamedDependency[Broker]) -> list[Source]:
        """Where these changes are."""
        asked = read_body(body, AskSources)
        return [Source(*source) for source in await broker.routing.sources(asked.epoch, asked.beyond, asked.wait_ms)]

    @put("/{name:str}/stages/{stage:str}/{part:int}", status_code=204, opt=describe_endpoint(takes=_BYTES))
    async def stage(
        self, name: FromPath[str], stage: FromPath[str], part: FromPath[int], body: RawBody, broker: NamedDependency[Broker]
    ) -> None:
        await broker.pipelines.stage(name, stage, part, body)

    @post("/{name:str}/publish", status_code=200)
    async def publish(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> PublishedStages:
        asked = read_body(body, PublishStages)
        return PublishedStages(*await broker.pipelines.publish(name, asked.epoch, _stages(asked)))

    @post("/{name:str}/write", status_code=200)
    async def write(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> PublishedStages:
        asked = read_body(body, WriteStages)
        move = MarkMove(asked.source, None, asked.number)
        done = await broker.pipelines.write(name, _stages(asked), move, _WAIT_SECONDS)
        return PublishedStages(is_done=False) if done is None else PublishedStages(*done)

    @post("/{name:str}/discard", status_code=204)
    async def discard(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        await broker.pipelines.discard(_stages(read_body(body, NamedStages)))

    @post("/{name:str}/report", status_code=204)
    async def report(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        asked = read_body(body, Report)
        broker.pipelines.report(name, asked.epoch, asked.report)


class BatchEndpoints(Controller):
    """Where partitions begin and end. Their batches are read as everybody reads them, by `/api/topics/fetch`."""

    path = "/api/batches"
    tags = ("pipelines",)
    include_in_schema = False

    @post("/offsets", status_code=200)
    async def offsets(self, body: RawBody, broker: NamedDependency[Broker], limits: NamedDependency[Limits]) -> Offsets:
        asked = read_body(body, AskOffsets)
        if asked.beyond and asked.wait_ms:
            await broker.await_growth(asked.beyond, asked.wait_ms)
        start = AtTime(asked.at) if isinstance(asked.at, int) else asked.at
        found = []
        topics = [broker.topics.get(name).topic for name in asked.topics]
        if asked.pattern is not None:
            pattern = parse_pattern(asked.pattern, limits)
            topics += [live.topic for live in broker.topics if pattern.matches(live.topic.name)]
        for topic in topics:
            offsets = [
                await broker.positions.resolve(topic.name, number, start, isolation=Isolation.READ_COMMITTED)
                for number in range(topic.partitions)
            ]
            if broker.topics.by_id(topic.id) is None:
                raise UnknownTopicError(f"the topic {topic.name!r} was deleted while its offsets were looked up; ask again")
            most = topic.settings.max_message_bytes or limits.batch_bytes
            found.append(TopicOffsets(topic.name, topic.id, topic.uuid, [int(offset) for offset in offsets], most))
        return Offsets(found, broker.end_cursor(), limits.key_bytes, limits.payload_bytes)


def _stages(asked: NamedStages) -> list[Stage]:
    return [Stage(name, parts) for name, parts in asked.stages]
