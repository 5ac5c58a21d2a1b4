"""Pipelines: their leases, their marks, and the publishing of what their tasks have staged.

What a pipeline publishes and the move of its marks are one frame. A chunk whose marks have moved already is skipped, so a batch
that is sent again, after a crash or otherwise, takes effect once.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer, Draft
from tailrace.broker.pipelines.staged_chunks import (
    PublishChunks,
    Stage,
    check_staged,
    frames_of,
    is_unwanted,
    live_topic,
    mark_at,
    put_mark,
    read_mark,
    staged_chunks,
    submit_in_turn,
)
from tailrace.broker.pipelines.staged_writes import StagedWrites, Writers
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.errors import InvalidRequestError, LimitExceededError, PipelineFencedError
from tailrace.model.ids import TopicId
from tailrace.model.limits import Limits
from tailrace.model.names import check_pipeline_name
from tailrace.model.pipeline import NO_MARK, ROUTER, Latency, Lease, MarkMove, PipelineReport, PipelineStatus, StagedPublish
from tailrace.model.security import Operation
from tailrace.store.contract import Staging, Store
from tailrace.wire.staged_chunks import StagedChunk, decode_staged_chunks


class Pipelines:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        context: PublishContext,
        threads: ReadThreads,
        staging: Staging,
        clock: Clock,
        limits: Limits,
        writes: StagedWrites,
    ) -> None:
        self._store = store
        self._committer = committer
        self._context = context
        self._threads = threads
        self._staging = staging
        self._clock = clock
        self._limits = limits
        self._writes = writes
        self._known: dict[str, _Pipeline] = {}
        self._writers = Writers(store, committer, clock, limits, self._writes.is_busy)

    def load(self) -> None:
        for key, value in self._store.range(keys.PIPELINES):
            self._known[keys.pipeline_of(key)] = _Pipeline(msgspec.msgpack.decode(value, type=_Stored))
        self._writers.load(self._known)
        self._writes.load()

    async def close(self) -> None:
        await self._writes.close()

    def require(self, name: str, operation: Operation = "consume") -> None:
        """Raise `ForbiddenError` unless the principal of the request may run a pipeline.

        The marks of a pipeline are to it what offsets are to a group, so the grants on the group of its name count. The router
        acts for the owners of all routes, and needs `cluster_action`.
        """
        permissions = self._context.permissions
        if name == ROUTER:
            permissions.require("cluster_action", "cluster")
        else:
            permissions.require(operation, "group", name)

    def require_writer(self, name: str) -> None:
        """Raise `ForbiddenError` unless the principal of the request may write under this name.

        A writer without a lease needs no more than `publish` on what it stages, as an idempotent producer does. Its name has a
        random id, which nobody else is told.
        """
        if name == ROUTER or name in self._known:
            self.require(name)
        else:
            self._context.permissions.require_publish_somewhere()

    def may_describe(self, name: str) -> bool:
        """Return whether the principal of the request may see the status and the marks of a pipeline."""
        permissions = self._context.permissions
        return permissions.may("describe", "cluster") if name == ROUTER else permissions.may("describe", "group", name)

    def __iter__(self) -> Iterator[PipelineStatus]:
        now = self._clock.monotonic()
        for name, pipeline in sorted(self._known.items()):
            yield PipelineStatus(
                name=name,
                epoch=pipeline.stored.epoch,
                owner=pipeline.stored.owner,
                running=self._is_running(pipeline),
                seen_ms=pipeline.seen_ms,
                marks=self.marks(name),
                idle_seconds=None if pipeline.published_at is None else now - pipeline.published_at,
                latency=pipeline.stored.latency,
                report=self._reported(pipeline),
            )

    def marks(self, name: str) -> dict[str, int]:
        """Return the position of the pipeline in each of its sources."""
        prefix = keys.marks_of(name)
        return {key[len(prefix) :].decode(): read_mark(value) for key, value in self._store.range(prefix)}

    async def lease(self, name: str, owner: str, *, take_over: bool = False) -> Lease:
        """Take the lease of the pipeline. Fails while another owner has it, unless it is taken over."""
        self.require(name)
        pipeline = self._get_or_make(name)
        if self._is_running(pipeline) and not take_over and pipeline.stored.owner != owner:
            raise PipelineFencedError(
                f"pipeline {name!r} is run by {pipeline.stored.owner}, last seen {self._silent_ms(pipeline)} ms ago; stop it"
                f" and try again after {self._limits.pipeline_lease_seconds} s, or take it over"
            )
        # Before it is durable: of two requests at the same time, the second must see the first.
        pipeline.stored = stored = msgspec.structs.replace(pipeline.stored, epoch=pipeline.stored.epoch + 1, owner=owner)
        pipeline.report = PipelineReport()
        self._mark_seen(pipeline)
        await self._submit_stored(name, lambda latest: msgspec.structs.replace(latest, epoch=stored.epoch, owner=owner))
        return Lease(name, stored.epoch, self.marks(name), pipeline.stored.latency)

    async def set_latency(self, name: str, latency: Latency) -> None:
        """Set how the router is to route, for one that runs and for later ones."""
        self._context.permissions.require("alter", "cluster")
        if name != ROUTER:
            raise InvalidRequestError(f"pipeline {name!r} has no latency; set that of the pipeline {ROUTER!r}")
        pipeline = self._get_or_make(name)
        await self._submit_stored(name, lambda latest: msgspec.structs.replace(latest, latency=latency))
        pipeline.stored = msgspec.structs.replace(pipeline.stored, latency=latency)

    async def release(self, name: str, epoch: int) -> None:
        """Release the lease, so that the next owner need not wait."""
        self.require(name)
        self._holder(name, epoch).seen_at = None

    async def pin(self, name: str, epoch: int, starts: Mapping[str, int]) -> dict[str, int]:
        """Set the start of each source that has no mark yet. Return all marks."""
        self.require(name)
        return await self._set_marks(name, epoch, starts, lambda at, _: at == NO_MARK)

    async def skip(self, name: str, epoch: int, starts: Mapping[str, int], deleted: Iterable[str]) -> dict[str, int]:
        """Move marks forward to these positions, never back, and remove those of deleted sources. Return all marks."""
        return await self._set_marks(name, epoch, starts, lambda at, start: at < start, deleted)

    def check_epoch(self, name: str, epoch: int) -> None:
        """Raise an error if another owner has taken over the pipeline."""
        self._holder(name, epoch)

    async def stage(self, name: str, stage: str, part: int, body: bytes) -> None:
        """Keep the chunks of a task until they are published. Whoever stages them needs `publish` on their topics."""
        self.require_writer(name)
        if self._context.permissions.is_on and name != ROUTER:
            self.require_publish(decode_staged_chunks(body))
        await self.stage_captured(stage, part, body)

    def require_publish(self, chunks: Iterable[StagedChunk], own: Collection[TopicId] = ()) -> None:
        """Raise `TopicForbiddenError` unless the principal may publish to all topics of the chunks but its `own`."""
        # By their ids, because it is by these that topics are found when the chunks are published.
        names = {staged.topic_id: staged.topic for chunk in chunks for staged in chunk.batches if staged.topic_id not in own}
        for topic_id, name in names.items():
            live = self._context.topics.by_id(topic_id)
            self._context.topics.require("publish", name if live is None else live.topic.name)

    async def stage_captured(self, stage: str, part: int, body: bytes) -> None:
        """Keep the chunks of a capture, which are for topics of changes. Permissions are not checked."""
        for chunk in decode_staged_chunks(body):
            for staged in chunk.batches:
                if not is_unwanted(self._context, staged):
                    live_topic(self._context, staged).partition(staged.partition)
        await self._threads.run(self._check_and_stage, stage, part, body)

    async def publish(self, name: str, epoch: int, stages: Sequence[Stage]) -> StagedPublish:
        """Publish the stages in their order, each chunk with its moves of marks, in as few frames as possible."""
        self.require(name)
        pipeline = self._holder(name, epoch)
        self._mark_seen(pipeline)
        chunks = staged_chunks(self._threads, self._staging, stages, self._context.checks)

        def check_lease() -> None:
            _check_epoch(name, pipeline, epoch)

        async def frames() -> AsyncIterator[PublishChunks]:
            async for frame in frames_of(chunks, self._limits.group_commit_bytes):
                yield PublishChunks(self._context, name, frame, check_lease=check_lease)

        done = await submit_in_turn(self._committer, frames())
        await self.discard(stages)
        self.mark_published(name)
        return done

    def mark_published(self, name: str) -> None:
        """Note that the pipeline has published something now."""
        self._known[name].published_at = self._clock.monotonic()

    async def write(self, name: str, stages: Sequence[Stage], move: MarkMove, wait_seconds: float) -> StagedPublish | None:
        """Publish what a writer without a lease has staged. See `StagedWrites.write`."""
        self.require_writer(name)
        if name in self._known:
            raise InvalidRequestError(f"{name!r} is a pipeline with a lease; only its owner can publish, with its epoch")
        check_pipeline_name(name, self._limits)
        await self._writers.touch(name)
        return await self._writes.write(name, stages, move, wait_seconds)

    async def discard(self, stages: Sequence[Stage]) -> None:
        await self._writes.discard(stages)

    def report(self, name: str, epoch: int, report: PipelineReport) -> Latency:
        """Take the report of the owner as a heartbeat. Return the latency that is set."""
        self.require(name)
        pipeline = self._holder(name, epoch)
        pipeline.report = report
        self._mark_seen(pipeline)
        return pipeline.stored.latency

    async def clean(self) -> None:
        """Remove stages that were never published, and writers that have been idle for long."""
        await self._writes.clean()
        await self._writers.forget_idle()

    def _check_and_stage(self, stage: str, part: int, body: bytes) -> None:
        check_staged(body, self._context.checks)
        self._staging.write(stage, part, body)

    async def _set_marks(
        self, name: str, epoch: int, starts: Mapping[str, int], applies: Callable[[int, int], bool], deleted: Iterable[str] = ()
    ) -> dict[str, int]:
        """Set each mark for which `applies` is true of its present and its new position."""
        pipeline = self._holder(name, epoch)
        known = self.marks(name)
        if len(known.keys() | starts.keys()) - len(known.keys() & set(deleted)) > self._limits.pipeline_marks:
            raise LimitExceededError(
                f"pipeline {name!r} would have more marks than pipeline_marks allows ({self._limits.pipeline_marks})"
            )

        def decide() -> Changes | None:
            _check_epoch(name, pipeline, epoch)
            draft = Draft(self._store)
            for source in deleted:
                draft.put(keys.mark_key(name, source), None)
            for source, at in starts.items():
                if applies(mark_at(draft, name, source), at):
                    put_mark(draft, name, source, at)
            return None if draft.is_empty else draft.changes()

        await self._committer.submit(Change(decide, lambda _: None))
        return self.marks(name)

    async def _submit_stored(self, name: str, change: "Callable[[_Stored], _Stored]") -> None:
        """Commit a change of what is stored of a pipeline. Requests at the same time change different parts of it."""
        key = keys.pipeline_key(name)

        def decide() -> Changes:
            value = self._store.latest(key)
            latest = _Stored(0, "") if value is None else msgspec.msgpack.decode(value, type=_Stored)
            return Changes(puts=((key, msgspec.msgpack.encode(change(latest))),))

        await self._committer.submit(Change(decide, lambda _: None))

    def _get_or_make(self, name: str) -> "_Pipeline":
        pipeline = self._known.get(name)
        if pipeline is None:
            check_pipeline_name(name, self._limits)
            if len(self._known) >= self._limits.pipelines:
                raise LimitExceededError(f"there are {len(self._known)} pipelines, as many as pipelines allows")
            pipeline = self._known[name] = _Pipeline(_Stored(0, ""))
        return pipeline

    def _holder(self, name: str, epoch: int) -> "_Pipeline":
        pipeline = self._known.get(name)
        if pipeline is None:
            raise InvalidRequestError(f"there is no pipeline {name!r}; take a lease first")
        _check_epoch(name, pipeline, epoch)
        return pipeline

    def _reported(self, pipeline: "_Pipeline") -> PipelineReport:
        """Return its last report, or that it ended without releasing the lease."""
        if pipeline.seen_at is None or self._is_running(pipeline) or pipeline.report.last_error is not None:
            return pipeline.report
        return msgspec.structs.replace(
            pipeline.report,
            last_error=f"no heartbeat for {self._limits.pipeline_lease_seconds} s, and the lease was not released: its process"
            " was killed, hangs or can't reach the server. Check its output and start it again",
        )

    def _is_running(self, pipeline: "_Pipeline") -> bool:
        return pipeline.seen_at is not None and self._silent_ms(pipeline) < self._limits.pipeline_lease_seconds * 1000

    def _silent_ms(self, pipeline: "_Pipeline") -> int:
        return 0 if pipeline.seen_at is None else int((self._clock.monotonic() - pipeline.seen_at) * 1000)

    def _mark_seen(self, pipeline: "_Pipeline") -> None:
        pipeline.seen_at = self._clock.monotonic()
        pipeline.seen_ms = self._clock.now_ms()


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    owner: str
    latency: Latency = "batch"


class _Pipeline:
    __slots__ = ("published_at", "report", "seen_at", "seen_ms", "stored")

    def __init__(self, stored: _Stored) -> None:
        self.stored = stored
        self.seen_at: float | None = None
        """When the last heartbeat came; `None` if nobody has the lease."""
        self.seen_ms = 0
        self.published_at: float | None = None
        """When it last published something, since the server was started."""
        self.report = PipelineReport()


def _check_epoch(name: str, pipeline: _Pipeline, epoch: int) -> None:
    if pipeline.stored.epoch != epoch:
        raise PipelineFencedError(
            f"pipeline {name!r} was taken over: its epoch is {pipeline.stored.epoch}, not {epoch}. This process must stop"
        )
