"""Pipelines: who may run one, how far each has come, and the publish of what its tasks have staged, once.

What a pipeline publishes and the move of its marks are one frame. A chunk whose marks have moved already is skipped, so a
batch that is sent again after a crash, by whatever way, takes effect once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tailrace.broker import keys
from tailrace.broker.admission import check_batch_for
from tailrace.broker.commit import Change, Committer, Proposal
from tailrace.broker.draft import Draft
from tailrace.broker.intake import Intake, Windows
from tailrace.broker.placing import Placed, place
from tailrace.broker.reader import Reader
from tailrace.broker.writers import Writers
from tailrace.model.changes import Buffer, Changes, Receipt
from tailrace.model.clock import Clock
from tailrace.model.errors import InvalidRequestError, LimitExceededError, PipelineConflictError, PipelineFencedError
from tailrace.model.limits import Limits
from tailrace.model.names import check_pipeline_name
from tailrace.model.pipeline import NO_MARK, Lease, MarkMove, PipelineReport, PipelineStatus, StagedPublish
from tailrace.store.contract import Staging, Store
from tailrace.wire.batch import NO_PRODUCER
from tailrace.wire.staged import Chunk, decode_chunks

_FRAMES_IN_FLIGHT = 3


class Stage(NamedTuple):
    """What one task has staged."""

    name: str
    parts: int


class Pipelines:
    def __init__(
        self, store: Store, committer: Committer, intake: Intake, reader: Reader, staging: Staging, clock: Clock, limits: Limits
    ) -> None:
        self._store = store
        self._committer = committer
        self._intake = intake
        self._reader = reader
        self._staging = staging
        self._clock = clock
        self._limits = limits
        self._known: dict[str, _Pipeline] = {}
        self._writers = Writers(store, committer, clock, limits)

    def load(self) -> None:
        for key, value in self._store.range(keys.PIPELINES):
            self._known[keys.pipeline_of(key)] = _Pipeline(msgspec.msgpack.decode(value, type=_Stored))
        self._writers.load(self._known)

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
                report=pipeline.report,
            )

    def marks(self, name: str) -> dict[str, int]:
        """How far the pipeline has come in each of its sources."""
        prefix = keys.marks_of(name)
        return {key[len(prefix) :].decode(): int.from_bytes(value, signed=True) for key, value in self._store.range(prefix)}

    async def lease(self, name: str, owner: str, *, take_over: bool = False) -> Lease:
        """Become the one that runs the pipeline. Refused while another one does, unless it is taken over."""
        pipeline = self._get_or_make(name)
        if self._is_running(pipeline) and not take_over and pipeline.stored.owner != owner:
            raise PipelineFencedError(
                f"pipeline {name!r} is run by {pipeline.stored.owner}, heard of {self._silent_ms(pipeline)} ms ago; stop it"
                f" and try again after {self._limits.pipeline_lease_seconds} s, or take it over"
            )
        # At once, not when it is durable: of two that ask at the same time, the second must find the first.
        pipeline.stored = stored = _Stored(pipeline.stored.epoch + 1, owner)
        pipeline.report = PipelineReport()
        self._heard_of(pipeline)
        changes = Changes(puts=((keys.pipeline_key(name), msgspec.msgpack.encode(stored)),))
        await self._committer.submit(Change(lambda: changes, lambda _: None))
        return Lease(name, stored.epoch, self.marks(name))

    async def release(self, name: str, epoch: int) -> None:
        """Stop running it: the next one need not wait."""
        self._holder(name, epoch).seen_at = None

    async def pin(self, name: str, epoch: int, starts: Mapping[str, int]) -> dict[str, int]:
        """Where to begin in each source that the pipeline has not come to yet. All its marks, after that."""
        return await self._set_marks(name, epoch, starts, lambda at, _: at == NO_MARK)

    async def skip(self, name: str, epoch: int, starts: Mapping[str, int], gone: Iterable[str]) -> dict[str, int]:
        """Go on to where there is something to do, never back, and forget sources that are gone. All its marks, after that."""
        return await self._set_marks(name, epoch, starts, lambda at, start: at < start, gone)

    def check_epoch(self, name: str, epoch: int) -> None:
        """Raises if somebody else runs the pipeline by now."""
        self._holder(name, epoch)

    async def stage(self, name: str, stage: str, part: int, body: bytes) -> None:
        """Keep what a task has made until it is published."""
        for chunk in decode_chunks(body):
            for staged in chunk.batches:
                self._intake.topics.get(staged.topic).partition(staged.partition)
        await self._reader.in_thread(self._staging.write, stage, part, body)

    async def publish(
        self, name: str, epoch: int | None, stages: Sequence[Stage], moves: Sequence[MarkMove] = (), *, atomic: bool = False
    ) -> StagedPublish:
        """Publish the stages, in their order, and move the marks.

        Atomic: all in one frame, with `moves`. Else each chunk with its own moves, in as few frames as their size allows.
        """
        pipeline = await self._writer(name) if epoch is None else self._holder(name, epoch)
        self._heard_of(pipeline)
        done: list[StagedPublish] = []
        in_flight: deque[asyncio.Future[StagedPublish]] = deque()
        try:
            async for chunks in self._frames(stages, moves, atomic):
                in_flight.append(self._committer.submit(_PublishChunks(self._intake, name, pipeline, epoch, chunks)))
                if len(in_flight) == _FRAMES_IN_FLIGHT:
                    done.append(await in_flight.popleft())
            while in_flight:
                done.append(await in_flight.popleft())
        finally:
            # Those behind one that failed fail too; nobody needs to hear it of each.
            await asyncio.gather(*in_flight, return_exceptions=True)
        await self.discard(stages)
        pipeline.published_at = self._clock.monotonic()
        return StagedPublish(*(sum(each) for each in zip(*done, strict=True))) if done else StagedPublish(0, 0, 0)

    async def discard(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            await self._reader.in_thread(self._staging.remove, stage.name)

    def report(self, name: str, epoch: int, report: PipelineReport) -> None:
        pipeline = self._holder(name, epoch)
        pipeline.report = report
        self._heard_of(pipeline)

    async def clean(self) -> None:
        """Forget stages that nobody published, and writers that have been silent for long."""
        await self._reader.in_thread(self._staging.remove_older_than, self._limits.staged_seconds)
        await self._writers.forget_silent()

    async def _frames(self, stages: Sequence[Stage], moves: Sequence[MarkMove], atomic: bool) -> AsyncIterator[list[Chunk]]:
        limit = self._limits.frame_bytes if atomic else self._limits.group_commit_bytes
        chunks: list[Chunk] = []
        size = 0
        for stage in stages:
            for part in range(stage.parts):
                body = await self._reader.in_thread(self._staging.read, stage.name, part)
                for chunk in decode_chunks(body):
                    if chunks and size + chunk.size > limit:
                        if atomic:
                            raise LimitExceededError(
                                f"the batch has more than {size} bytes, more than fits into one frame (frame_bytes {limit});"
                                " write smaller batches"
                            )
                        yield chunks
                        chunks, size = [], 0
                    chunks.append(chunk)
                    size += chunk.size
        if atomic:
            batches = [staged for chunk in chunks for staged in chunk.batches]
            yield [Chunk(moves, batches)]
        elif chunks:
            yield chunks

    async def _set_marks(
        self, name: str, epoch: int, starts: Mapping[str, int], applies: Callable[[int, int], bool], gone: Iterable[str] = ()
    ) -> dict[str, int]:
        """Set those marks for which it applies, given where they stand and where they are to stand."""
        pipeline = self._holder(name, epoch)
        known = self.marks(name)
        if len(known.keys() | starts.keys()) - len(known.keys() & set(gone)) > self._limits.pipeline_marks:
            raise LimitExceededError(
                f"pipeline {name!r} would have more marks than pipeline_marks allows ({self._limits.pipeline_marks})"
            )

        def decide() -> Changes | None:
            _check_epoch(name, pipeline, epoch)
            draft = Draft(self._store)
            for source in gone:
                draft.put(keys.mark_key(name, source), None)
            for source, at in starts.items():
                if applies(_standing(draft, name, source), at):
                    draft.put(keys.mark_key(name, source), _mark(at))
            return None if draft.is_empty else draft.changes()

        await self._committer.submit(Change(decide, lambda _: None))
        return self.marks(name)

    async def _writer(self, name: str) -> "_Pipeline":
        if name in self._known:
            raise InvalidRequestError(f"{name!r} is a pipeline with a lease; only its holder publishes, with the epoch of it")
        check_pipeline_name(name, self._limits)
        await self._writers.heard_of(name)
        return _Pipeline(_Stored(0, ""))

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

    def _is_running(self, pipeline: "_Pipeline") -> bool:
        return pipeline.seen_at is not None and self._silent_ms(pipeline) < self._limits.pipeline_lease_seconds * 1000

    def _silent_ms(self, pipeline: "_Pipeline") -> int:
        return 0 if pipeline.seen_at is None else int((self._clock.monotonic() - pipeline.seen_at) * 1000)

    def _heard_of(self, pipeline: "_Pipeline") -> None:
        pipeline.seen_at = self._clock.monotonic()
        pipeline.seen_ms = self._clock.now_ms()


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    owner: str


class _Pipeline:
    __slots__ = ("published_at", "report", "seen_at", "seen_ms", "stored")

    def __init__(self, stored: _Stored) -> None:
        self.stored = stored
        self.seen_at: float | None = None
        """`None` when nobody runs it."""
        self.seen_ms = 0
        self.published_at: float | None = None
        """When it last published something, since the server was started."""
        self.report = PipelineReport()


class _PublishChunks(Proposal[StagedPublish]):
    __slots__ = ("_chunks", "_epoch", "_intake", "_name", "_pipeline", "_placed", "_skipped", "_windows")

    def __init__(self, intake: Intake, name: str, pipeline: _Pipeline, epoch: int | None, chunks: Sequence[Chunk]) -> None:
        self._intake = intake
        self._name = name
        self._pipeline = pipeline
        self._epoch = epoch
        self._chunks = chunks
        self._placed: list[Placed] = []
        self._windows: Windows | None = None
        self._skipped = 0

    @property
    def held_bytes(self) -> int:
        return sum(chunk.size for chunk in self._chunks)

    def decide(self) -> Changes | None:
        if self._epoch is not None:
            _check_epoch(self._name, self._pipeline, self._epoch)
        draft = Draft(self._intake.store)
        windows = self._windows = Windows(self._intake.dedup, draft)
        self._placed = []
        self._skipped = 0
        for chunk in self._chunks:
            if _has_happened(draft, self._name, chunk.moves):
                self._skipped += 1
                continue
            for staged in chunk.batches:
                self._placed.append(self._place(draft, windows, staged.topic, staged.partition, staged.batch))
            for move in chunk.moves:
                draft.put(keys.mark_key(self._name, move.source), _mark(move.after))
        windows.close()
        return None if draft.is_empty else draft.changes()

    def settled(self, receipt: Receipt | None) -> StagedPublish:
        records = duplicates = 0
        for placed in self._placed:
            duplicates += placed.duplicates
            if placed.append is not None:
                records += placed.append.records
                self._intake.arrived(placed.live, placed.append.partition, placed.append.records, len(placed.append.batch))
        if self._windows is not None:
            self._windows.count()
        return StagedPublish(records, duplicates, self._skipped)

    def _place(self, draft: Draft, windows: Windows, topic: str, partition: int, batch: Buffer) -> Placed:
        intake = self._intake
        checked = check_batch_for(intake.topics.get(topic), partition, batch, intake.clock.now_ms(), intake.limits)
        if checked.header.producer_id != NO_PRODUCER:
            raise InvalidRequestError("staged batches belong to no producer; their marks say how often they count")
        return place(intake, draft, windows, checked)


def _has_happened(draft: Draft, name: str, moves: Sequence[MarkMove]) -> bool:
    """Whether the pipeline is past all of these moves. Raises where it stands elsewhere than a move begins."""
    past = 0
    for source, before, after in moves:
        at = _standing(draft, name, source)
        if at >= after:
            past += 1
        elif before is not None and at != before:
            raise PipelineConflictError(
                f"pipeline {name!r} stands at {at} in {source!r}, and the step goes from {before} to {after}: start again from"
                " the mark"
            )
    if past and past < len(moves):
        raise PipelineConflictError(f"some steps of a chunk of pipeline {name!r} have been done and others not: {list(moves)}")
    return bool(moves) and past == len(moves)


def _standing(draft: Draft, name: str, source: str) -> int:
    value = draft.latest(keys.mark_key(name, source))
    return NO_MARK if value is None else int.from_bytes(value, signed=True)


def _check_epoch(name: str, pipeline: _Pipeline, epoch: int) -> None:
    if pipeline.stored.epoch != epoch:
        raise PipelineFencedError(
            f"pipeline {name!r} was taken over: its epoch is {pipeline.stored.epoch}, not {epoch}. This one must stop"
        )


def _mark(at: int) -> bytes:
    return at.to_bytes(8, signed=True)
