"""`GET /api/sources` lists sources, which are created in SQL; the other endpoints are for the processes that capture them."""

from litestar import Controller, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody

from tailrace.api.pipelines import PublishStagesResponse
from tailrace.api.snapshots import (
    BeginSnapshotBody,
    ChunkView,
    ClaimChunkBody,
    ClaimChunkResponse,
    FailedChunkBody,
    FinishTableBody,
    OfferChunksBody,
    OfferProgressBody,
    OfferProgressView,
    SnapshotBody,
    SnapshotWorkView,
    StagedChunkBody,
    StagedRowsView,
    WantSnapshotBody,
)
from tailrace.api.sources import (
    AttachBody,
    AttachResponse,
    BeginSourceBody,
    DefineTableBody,
    ReportSourceBody,
    ReportSourceResponse,
    SourceTableView,
    SourceView,
    WriteLargeBody,
)
from tailrace.broker.broker import Broker
from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.broker.sources.snapshots import ChunkOffer, SnapshotChunk, StagedRows
from tailrace.http.login_watch import until_login_ends
from tailrace.http.openapi import describe_endpoint
from tailrace.http.requests import read_body
from tailrace.model.errors import OverloadedError
from tailrace.model.limits import Limits
from tailrace.model.pipeline import MarkMove
from tailrace.model.source import Source, SourceSnapshot, SourceStatus, SourceTable, format_lsn

_BYTES = "application/octet-stream"
_WAIT_SECONDS = 20.0
"""How long to wait for a large transaction: shorter than the timeout of its capture."""


class SourceEndpoints(Controller):
    path = "/api/sources"
    tags = ("sources",)
    include_in_schema = False

    @get(include_in_schema=True)
    async def sources(self, broker: NamedDependency[Broker]) -> list[SourceView]:
        """List sources, their state and their tables."""
        return [_view(broker, status) for status in broker.sources.statuses()]

    @post("/{name:str}/attach", status_code=200)
    async def attach(
        self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker], limits: NamedDependency[Limits]
    ) -> AttachResponse:
        parsed = read_body(body, AttachBody)
        source = broker.sources.get(name)
        epoch = broker.sources.attach(source, parsed.owner)
        await broker.committer.settled()
        if broker.staged_writes.is_busy(source.writer):
            raise OverloadedError(
                f"a large transaction of source {name!r} is still being written; its position is not known yet"
            )
        return AttachResponse(
            source,
            epoch,
            broker.sources.position(source),
            broker.sources.tables_of(source),
            broker.source_snapshots.empty_tables(source),
            limits.change_bytes,
            broker.source_snapshots.find(source),
            broker.source_snapshots.released(source),
            limits.snapshot_chunk_bytes,
        )

    @post("/{name:str}/begin", status_code=200)
    async def begin(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> Source:
        parsed = read_body(body, BeginSourceBody)
        source = _attached(broker, name, parsed.epoch)
        return await broker.sources.begin(source, parsed.position, parsed.system_id, parsed.timeline)

    @post("/{name:str}/tables", status_code=200)
    async def define_table(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> SourceTable:
        parsed = read_body(body, DefineTableBody)
        source = _attached(broker, name, parsed.epoch)
        return await broker.sources.define_table(source, parsed.table)

    @post("/{name:str}/transactions", status_code=200, opt=describe_endpoint(content_type=_BYTES))
    async def append(
        self, name: FromPath[str], epoch: FromQuery[int], body: RawBody, broker: NamedDependency[Broker]
    ) -> PublishStagesResponse:
        return PublishStagesResponse(*await broker.captured.append(broker.sources.get(name), epoch, body))

    @post("/{name:str}/rows", status_code=200, opt=describe_endpoint(content_type=_BYTES))
    async def append_rows(
        self, name: FromPath[str], epoch: FromQuery[int], body: RawBody, broker: NamedDependency[Broker]
    ) -> PublishStagesResponse:
        return PublishStagesResponse(*await broker.captured.append_rows(broker.sources.get(name), epoch, body))

    @put("/{name:str}/stages/{stage:str}/{part:int}", status_code=204, opt=describe_endpoint(content_type=_BYTES))
    async def stage(
        self, name: FromPath[str], stage: FromPath[str], part: FromPath[int], body: RawBody, broker: NamedDependency[Broker]
    ) -> None:
        await broker.captured.stage(broker.sources.get(name), stage, part, body)

    @post("/{name:str}/large", status_code=200)
    async def write_large(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> PublishStagesResponse:
        parsed = read_body(body, WriteLargeBody)
        stages = [Stage(stage, parts) for stage, parts in parsed.stages]
        move = MarkMove(parsed.mark, parsed.before, parsed.after)
        source = broker.sources.get(name)
        writer = source.snapshot_writer if parsed.is_snapshot else source.writer
        done = await broker.captured.write_large(source, writer, parsed.epoch, stages, move, _WAIT_SECONDS)
        return PublishStagesResponse(is_done=False) if done is None else PublishStagesResponse(*done)

    @post("/{name:str}/report", status_code=200)
    async def report(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ReportSourceResponse:
        parsed = read_body(body, ReportSourceBody)
        source = broker.sources.get(name)
        broker.sources.report(source, parsed.epoch, parsed.owner, parsed.report)
        return ReportSourceResponse(source.wanted, source.resync)

    @post("/{name:str}/snapshot/want", status_code=204)
    async def want_snapshot(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        parsed = read_body(body, WantSnapshotBody)
        source = _attached(broker, name, parsed.epoch)
        await broker.sources.want_snapshot(source, parsed.wanted)

    @post("/{name:str}/snapshot/begin", status_code=200)
    async def begin_snapshot(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> SourceSnapshot:
        parsed = read_body(body, BeginSnapshotBody)
        source = _attached(broker, name, parsed.epoch)
        return await broker.source_snapshots.begin(source, parsed.tables, parsed.wanted, holds_all=parsed.holds_all)

    @post("/{name:str}/snapshot/offer", status_code=204)
    async def offer_chunks(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        parsed = read_body(body, OfferChunksBody)
        source = _attached(broker, name, parsed.epoch)
        tables = {table.id: table for table in broker.sources.tables_of(source)}
        chunks = [SnapshotChunk(number, tables[one.table], one.query, one.oid) for number, one in enumerate(parsed.chunks)]
        offer = ChunkOffer(parsed.offer, parsed.snapshot, parsed.lsn, parsed.time_us, chunks)
        broker.source_snapshots.offer(source, offer)

    @post("/{name:str}/snapshot/progress", status_code=200)
    async def snapshot_progress(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> OfferProgressView:
        parsed = read_body(body, OfferProgressBody)
        source = _attached(broker, name, parsed.epoch)
        wait_seconds = min(parsed.wait_ms / 1000, _WAIT_SECONDS)
        with until_login_ends():
            found = await broker.source_snapshots.progress(source, parsed.offer, parsed.published, wait_seconds)
        if found is None:
            return OfferProgressView([], False, is_offered=False)
        staged = [StagedRowsView(*rows) for rows in found.staged]
        return OfferProgressView(staged, found.is_read_by_spark, found.error, found.is_stale)

    @post("/{name:str}/snapshot/finish", status_code=200)
    async def finish_table(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> SourceSnapshot:
        parsed = read_body(body, FinishTableBody)
        source = _attached(broker, name, parsed.epoch)
        return await broker.source_snapshots.finish_table(source, parsed.table, parsed.lsn)

    @post("/{name:str}/snapshot/end", status_code=204)
    async def end_snapshot(self, name: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        parsed = read_body(body, SnapshotBody)
        await broker.source_snapshots.end(_attached(broker, name, parsed.epoch))


class SnapshotEndpoints(Controller):
    """Chunks of snapshots, for those who read them: tasks of pipelines, and captures."""

    path = "/api/snapshots"
    include_in_schema = False

    @get()
    async def work(self, broker: NamedDependency[Broker]) -> SnapshotWorkView:
        return SnapshotWorkView(broker.source_snapshots.note_pipeline())

    @post("/claim", status_code=200)
    async def claim(
        self, body: RawBody, broker: NamedDependency[Broker], limits: NamedDependency[Limits]
    ) -> ClaimChunkResponse:
        parsed = read_body(body, ClaimChunkBody)
        claimed, is_later = broker.source_snapshots.claim(parsed.worker, parsed.source, is_spark=parsed.is_spark)
        if claimed is None:
            return ClaimChunkResponse(is_later=is_later)
        source, offer, chunk = claimed
        return ClaimChunkResponse(
            ChunkView(
                source=source,
                table=chunk.table,
                offer=offer.name,
                number=chunk.number,
                query=chunk.query,
                oid=chunk.oid,
                snapshot=offer.snapshot,
                lsn=offer.lsn,
                time_us=offer.time_us,
                change_bytes=limits.change_bytes,
            )
        )

    @post("/staged", status_code=204)
    async def staged(self, body: RawBody, broker: NamedDependency[Broker]) -> None:
        parsed = read_body(body, StagedChunkBody)
        rows = StagedRows(parsed.number, parsed.stage, parsed.parts, parsed.rows)
        if not broker.source_snapshots.staged(parsed.source, parsed.offer, rows):
            await broker.pipelines.discard([Stage(parsed.stage, parsed.parts)])

    @post("/failed", status_code=204)
    async def failed(self, body: RawBody, broker: NamedDependency[Broker]) -> None:
        parsed = read_body(body, FailedChunkBody)
        broker.source_snapshots.failed(parsed.source, parsed.offer, parsed.number, parsed.error, is_stale=parsed.is_stale)


def _attached(broker: Broker, name: str, epoch: int) -> Source:
    """Return the source. Raises if another process captures it."""
    source = broker.sources.get(name)
    broker.sources.check_attached(source, epoch)
    return source


def _view(broker: Broker, status: SourceStatus) -> SourceView:
    source, report = status.source, status.report
    return SourceView(
        source.name,
        source.url,
        status.state,
        report.error,
        report.advice,
        None if status.position is None else format_lsn(status.position),
        report.retained_bytes,
        [_table_view(broker, table) for table in broker.sources.tables_of(source)],
    )


def _table_view(broker: Broker, table: SourceTable) -> SourceTableView:
    live = broker.topics.by_id(table.table.changes)
    return SourceTableView(
        table.table.name,
        "" if live is None else live.topic.name,
        table.identity,
        table.table.schema_version,
        list(table.table.primary_key),
    )
