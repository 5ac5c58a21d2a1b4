"""`GET /api/shadows` lists shadows, which are created in SQL; the other endpoints are for the processes that copy them and
for the commands that cut over."""

from litestar import Controller, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, RawBody

from tailrace.api.shadows import (
    AttachShadowBody,
    AttachShadowResponse,
    CutOverBody,
    FenceBody,
    FencedPartition,
    FenceResponse,
    ReportShadowBody,
    ReportShadowResponse,
    RollBackBody,
    ShadowDetails,
    ShadowPartitionView,
    ShadowResponse,
    ShadowStatusResponse,
    ShadowView,
    UnfenceBody,
)
from tailrace.broker.broker import Broker
from tailrace.http.health import ServerStatus
from tailrace.http.requests import read_body
from tailrace.model.limits import Limits
from tailrace.model.shadow import Shadow, ShadowStatus


class ShadowEndpoints(Controller):
    path = "/api/shadows"
    tags = ("shadows",)
    include_in_schema = False

    @get(include_in_schema=True)
    async def shadows(self, broker: NamedDependency[Broker]) -> list[ShadowView]:
        """List shadows, and how far they are copied."""
        return [_view(status) for status in broker.shadows.statuses()]

    @get("/{name:str}", include_in_schema=True)
    async def shadow(self, name: FromPath[str], broker: NamedDependency[Broker]) -> ShadowDetails:
        """Describe a shadow, with the partitions that it copies."""
        return _details(broker.shadows.status(broker.shadows.get(name)))

    @get("/{name:str}/status")
    async def status(
        self, name: FromPath[str], broker: NamedDependency[Broker], status: NamedDependency[ServerStatus]
    ) -> ShadowStatusResponse:
        found = broker.shadows.status(broker.shadows.get(name))
        return ShadowStatusResponse(found, status.kafka, broker.cluster_id)

    @post("/{name:str}/attach", status_code=200)
    async def attach(
        self,
        name: FromPath[str],
        body: RawBody,
        broker: NamedDependency[Broker],
        status: NamedDependency[ServerStatus],
    ) -> AttachShadowResponse:
        parsed = read_body(body, AttachShadowBody)
        shadow = broker.shadows.get(name)
        epoch = broker.shadows.attach(shadow, parsed.owner)
        return AttachShadowResponse(shadow, epoch, status.kafka, broker.cluster_id)

    @post("/{name:str}/report", status_code=200)
    async def report(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ReportShadowResponse:
        parsed = read_body(body, ReportShadowBody)
        shadow = broker.shadows.get(name)
        broker.shadows.report(shadow, parsed.epoch, parsed.owner, parsed.report)
        return ReportShadowResponse(shadow)

    @post("/{name:str}/fence", status_code=200)
    async def fence(
        self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker], limits: NamedDependency[Limits]
    ) -> FenceResponse:
        parsed = read_body(body, FenceBody)
        shadow = broker.shadows.get(name)
        if parsed.is_rehearsal:
            broker.cut_overs.check_can_fence(shadow, parsed.producers)
        elif parsed.fence is not None:
            shadow = broker.cut_overs.renew(shadow, parsed.fence)
        else:
            shadow = await broker.cut_overs.fence(shadow, parsed.owner, parsed.producers)
        return _fenced(broker, shadow, limits)

    @post("/{name:str}/unfence", status_code=200)
    async def unfence(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ShadowResponse:
        parsed = read_body(body, UnfenceBody)
        return ShadowResponse(await broker.cut_overs.give_up(broker.shadows.get(name), parsed.fence, parsed.note))

    @post("/{name:str}/cut-over", status_code=200)
    async def cut_over(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ShadowResponse:
        parsed = read_body(body, CutOverBody)
        return ShadowResponse(await broker.cut_overs.finish(broker.shadows.get(name), parsed.producers, parsed.fence))

    @post("/{name:str}/roll-back", status_code=200)
    async def roll_back(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ShadowResponse:
        parsed = read_body(body, RollBackBody)
        return ShadowResponse(await broker.cut_overs.roll_back(broker.shadows.get(name), parsed.note))


def _fenced(broker: Broker, shadow: Shadow, limits: Limits) -> FenceResponse:
    partitions = []
    for live, partition in broker.cut_overs.partitions(shadow):
        start, end = broker.store.bounds(partition)
        partitions.append(FencedPartition(live.topic.name, live.topic.kafka_id, partition.number, start, end))
    return FenceResponse(
        0 if shadow.fence is None else shadow.fence.number,
        partitions,
        broker.cut_overs.open_transactions(shadow),
        broker.cut_overs.open_writes(),
        limits.shadow_fence_silence_seconds,
        broker.cut_overs.seconds_left(shadow),
    )


def _view(status: ShadowStatus) -> ShadowView:
    shadow, report = status.shadow, status.report
    return ShadowView(
        name=shadow.name,
        direction=shadow.direction,
        bootstrap=shadow.bootstrap,
        topics=list(shadow.topics),
        groups=list(shadow.groups),
        phase=shadow.phase,
        producers=shadow.producers if shadow.phase == "cut over" and shadow.direction == "to" else None,
        state=status.state,
        error=report.error,
        advice=report.advice,
        notes=status.notes,
        owner=status.owner,
        lag=report.lag,
        lag_seconds=report.lag_seconds,
        records=report.records,
        bytes=report.bytes,
        records_per_second=report.records_per_second,
        bytes_per_second=report.bytes_per_second,
    )


def _details(status: ShadowStatus) -> ShadowDetails:
    view = _view(status)
    partitions = [
        ShadowPartitionView(one.topic, one.partition, one.position, one.end, one.start, one.target_end)
        for one in status.report.partitions
    ]
    return ShadowDetails(**{name: getattr(view, name) for name in view.__struct_fields__}, partitions=partitions)
