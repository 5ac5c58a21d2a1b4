"""`/api/pipelines`: what pipelines need of the server. Their tasks send record batches as bytes."""

from litestar import Controller, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, RawBody

from tailrace.api.pipelines import (
    MarksResponse,
    OffsetsBody,
    OffsetsResponse,
    PendingSourceView,
    PinBody,
    PublishStagesBody,
    PublishStagesResponse,
    RealtimeBody,
    RealtimeProgress,
    RealtimeView,
    ReleaseLeaseBody,
    ReportBody,
    ReportResponse,
    SourcesBody,
    StagesBody,
    TakeLeaseBody,
    TopicOffsetsView,
    WriteStagesBody,
)
from tailrace.broker.broker import Broker
from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.http.login_watch import until_login_ends
from tailrace.http.openapi import describe_endpoint
from tailrace.http.requests import read_body
from tailrace.model.errors import UnknownTopicError
from tailrace.model.fetch import AtTime, Isolation
from tailrace.model.limits import Limits
from tailrace.model.names import parse_pattern
from tailrace.model.pipeline import ROUTER, Lease, MarkMove, PipelineStatus
from tailrace.model.route import Route

_BYTES = "application/octet-stream"
_WAIT_SECONDS = 20.0
"""How long to wait for a large write: shorter than the timeout of its writer."""


class PipelineEndpoints(Controller):
    path = "/api/pipelines"
    tags = ("pipelines",)
    include_in_schema = False

    @get(include_in_schema=True)
    async def pipelines(self, broker: NamedDependency[Broker]) -> list[PipelineStatus]:
        """List pipelines and their status."""
        return broker.routing.pipeline_statuses()

    @post("/{name:str}/lease", status_code=200)
    async def lease(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> Lease:
        parsed = read_body(body, TakeLeaseBody)
        return await broker.pipelines.lease(name, parsed.owner, take_over=parsed.take_over)

    @post("/{name:str}/release", status_code=204)
    async def release(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        await broker.pipelines.release(name, read_body(body, ReleaseLeaseBody).epoch)

    @post("/{name:str}/pin", status_code=200)
    async def pin(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> MarksResponse:
        parsed = read_body(body, PinBody)
        return MarksResponse(await broker.pipelines.pin(name, parsed.epoch, parsed.starts))

    @get("/{name:str}/marks")
    async def marks(self, name: FromPath[str], broker: NamedDependency[Broker]) -> MarksResponse:
        broker.pipelines.require(name, "describe")
        return MarksResponse(broker.pipelines.marks(name))

    @get("/router/routes")
    async def routes(self, broker: NamedDependency[Broker]) -> list[Route]:
        """Return the routes that apply to changes that are not routed yet."""
        return [broker.tables.types.with_route_labels(route) for route in await broker.routing.pending()]

    @post("/router/sources", status_code=200)
    async def sources(self, body: RawBody, broker: NamedDependency[Broker]) -> list[PendingSourceView]:
        """Return the tables with changes that are not routed yet."""
        parsed = read_body(body, SourcesBody)
        with until_login_ends():
            found = await broker.routing.sources(parsed.epoch, parsed.beyond, parsed.wait_ms)
        return [PendingSourceView(*source) for source in found]

    @post("/router/realtime", status_code=200)
    async def realtime(self, body: RawBody, broker: NamedDependency[Broker]) -> RealtimeView:
        """Return where the real-time mode starts, and with which routes."""
        epoch = read_body(body, RealtimeBody).epoch
        await broker.intake.open()
        start = await broker.routing.first_unrouted(epoch)
        routes = await broker.routing.pending()
        return RealtimeView(broker.intake.version, start, [broker.tables.types.with_route_labels(route) for route in routes])

    @get("/router/realtime")
    async def realtime_progress(self, broker: NamedDependency[Broker]) -> RealtimeProgress:
        broker.pipelines.require(ROUTER)
        totals = broker.intake.totals
        return RealtimeProgress(
            broker.intake.version, broker.routing.lag(), totals.changes, totals.records, totals.dead_letters
        )

    @put("/{name:str}/stages/{stage:str}/{part:int}", status_code=204, opt=describe_endpoint(content_type=_BYTES))
    async def stage(
        self, name: FromPath[str], stage: FromPath[str], part: FromPath[int], body: RawBody, broker: NamedDependency[Broker]
    ) -> None:
        await broker.pipelines.stage(name, stage, part, body)

    @post("/{name:str}/publish", status_code=200)
    async def publish(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> PublishStagesResponse:
        parsed = read_body(body, PublishStagesBody)
        return PublishStagesResponse(*await broker.pipelines.publish(name, parsed.epoch, _stages(parsed)))

    @post("/{name:str}/write", status_code=200)
    async def write(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> PublishStagesResponse:
        parsed = read_body(body, WriteStagesBody)
        move = MarkMove(parsed.source, None, parsed.number)
        done = await broker.pipelines.write(name, _stages(parsed), move, _WAIT_SECONDS)
        return PublishStagesResponse(is_done=False) if done is None else PublishStagesResponse(*done)

    @post("/{name:str}/discard", status_code=204)
    async def discard(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        stages = _stages(read_body(body, StagesBody))
        broker.pipelines.require_writer(name)
        await broker.pipelines.discard(stages)

    @post("/{name:str}/report", status_code=200)
    async def report(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ReportResponse:
        parsed = read_body(body, ReportBody)
        return ReportResponse(broker.pipelines.report(name, parsed.epoch, parsed.report))


class BatchEndpoints(Controller):
    """Returns the offsets of partitions, whose batches are then read by `/api/topics/fetch`."""

    path = "/api/batches"
    tags = ("pipelines",)
    include_in_schema = False

    @post("/offsets", status_code=200)
    async def offsets(self, body: RawBody, broker: NamedDependency[Broker], limits: NamedDependency[Limits]) -> OffsetsResponse:
        parsed = read_body(body, OffsetsBody)
        for name in (*parsed.topics, *(parsed.beyond or ())):
            broker.topics.require("describe", name)
        if parsed.beyond and parsed.wait_ms:
            with until_login_ends():
                await broker.fetcher.await_growth(parsed.beyond, parsed.wait_ms)
        start = AtTime(parsed.at) if isinstance(parsed.at, int) else parsed.at
        found = []
        topics = [broker.topics.get(name).topic for name in parsed.topics]
        if parsed.pattern is not None:
            pattern = parse_pattern(parsed.pattern, limits)
            topics += [live.topic for live in broker.topics.visible() if pattern.matches(live.topic.name)]
        for topic in topics:
            offsets = [
                await broker.positions.resolve(topic.name, number, start, isolation=Isolation.READ_COMMITTED)
                for number in range(topic.partitions)
            ]
            if broker.topics.by_id(topic.id) is None:
                raise UnknownTopicError(f"topic {topic.name!r} was deleted while its offsets were looked up; try again")
            most = topic.settings.max_message_bytes or limits.batch_bytes
            found.append(TopicOffsetsView(topic.name, topic.id, topic.uuid, [int(offset) for offset in offsets], most))
        return OffsetsResponse(found, broker.store.end_cursor(), limits.key_bytes, limits.payload_bytes)


def _stages(parsed: StagesBody) -> list[Stage]:
    return [Stage(name, parts) for name, parts in parsed.stages]
