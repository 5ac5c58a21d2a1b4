"""What tasks have staged, on its way into the log: whole chunks, each with the moves of its marks.

Chunks go into as few frames as their size allows. One whose marks have moved already is left out, so whatever is sent again
takes effect once. Topics and tables are known by id, and whether they are still there is decided with the frame: what was
made of a table that is dropped meanwhile, or for a topic that is, comes to nothing, whoever has the name by then.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits import Committer, Draft, Proposal
from tailrace.broker.publishing.context import PlacedAppend, PublishContext, place
from tailrace.broker.publishing.dedup import DedupWindows
from tailrace.broker.publishing.validation import CheckedBatch, RecordChecks, checked_batch, read_batch_for
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import InvalidRecordsError, InvalidRequestError, PipelineConflictError, UnknownTopicError
from tailrace.model.pipeline import NO_MARK, ROUTER, MarkMove, StagedPublish, changes_of
from tailrace.store.contract import Staging
from tailrace.wire.batch import NO_PRODUCER, TIMESTAMP_TYPE_MASK, check_batch
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, decode_staged_chunks

_FRAMES_IN_FLIGHT = 3
_FRAME_BATCHES = 2_000
"""Each is looked at before the frame is submitted, and nobody else is served meanwhile."""


class Stage(NamedTuple):
    """What one task has staged."""

    name: str
    parts: int


async def staged_chunks(threads: ReadThreads, staging: Staging, stages: Sequence[Stage]) -> AsyncIterator[StagedChunk]:
    """The chunks of the stages, in their order. One part is in memory at a time."""
    for stage in stages:
        for part in range(stage.parts):
            for chunk in decode_staged_chunks(await threads.run(staging.read, stage.name, part)):
                yield chunk


async def frames_of(chunks: AsyncIterator[StagedChunk], most_bytes: int) -> AsyncIterator[list[StagedChunk]]:
    """Chunks that go into one frame together, none of it empty. A chunk larger than that is a frame of its own."""
    frame: list[StagedChunk] = []
    size = batches = 0
    async for chunk in chunks:
        if frame and (size + chunk.size > most_bytes or batches + len(chunk.batches) > _FRAME_BATCHES):
            yield frame
            frame, size, batches = [], 0, 0
        frame.append(chunk)
        size += chunk.size
        batches += len(chunk.batches)
    if frame:
        yield frame


async def submit_in_turn(committer: Committer, frames: AsyncIterator["PublishChunks"]) -> StagedPublish:
    """A few frames are under way at a time. The first that fails is told; those behind it fail with it."""
    done = StagedPublish(0, 0, 0)
    in_flight: deque[asyncio.Future[StagedPublish]] = deque()
    try:
        async for frame in frames:
            in_flight.append(committer.submit(frame))
            if len(in_flight) == _FRAMES_IN_FLIGHT:
                done = done.plus(await in_flight.popleft())
        while in_flight:
            done = done.plus(await in_flight.popleft())
    finally:
        # Nobody needs to hear the failure of each.
        await asyncio.gather(*in_flight, return_exceptions=True)
    return done


def checked(context: PublishContext, staged: StagedBatch) -> CheckedBatch:
    """Raises where the batch can't be stored. Its records were checked when it was staged."""
    read = read_batch_for(live_topic(context, staged), staged.partition, staged.batch, context.limits)
    if read.header.producer_id != NO_PRODUCER:
        raise InvalidRequestError("staged batches belong to no producer; their marks say how often they count")
    return checked_batch(read, read.header.max_timestamp, context.clock.now_ms(), context.limits)


def check_staged(body: bytes, checks: RecordChecks) -> None:
    """Check the records of what is about to be staged. Takes long; may be called from any thread."""
    for chunk in decode_staged_chunks(body):
        for staged in chunk.batches:
            header = check_batch(staged.batch)
            newest = checks.check(staged.batch, header)
            if newest != header.max_timestamp and not header.attributes & TIMESTAMP_TYPE_MASK:
                raise InvalidRecordsError(
                    f"a staged batch for topic {staged.topic!r} says that its newest timestamp is {header.max_timestamp},"
                    f" and it is {newest}"
                )


def live_topic(context: PublishContext, staged: StagedBatch) -> LiveTopic:
    live = context.topics.by_id(staged.topic_id)
    if live is None:
        raise UnknownTopicError(f"the topic {staged.topic!r} that records were staged for was deleted; stage them again")
    return live


def is_unwanted(context: PublishContext, staged: StagedBatch) -> bool:
    """Whether nobody wants the batch any more, because the topic is gone that it needs."""
    return staged.needs is not None and context.topics.by_id(staged.needs) is None


class PublishChunks(Proposal[StagedPublish]):
    """Some chunks in one frame."""

    __slots__ = ("_check_right", "_chunks", "_context", "_name", "_placed", "_puts", "_skipped", "_windows")

    def __init__(
        self,
        context: PublishContext,
        name: str,
        chunks: Sequence[StagedChunk],
        *,
        check_right: Callable[[], None] | None = None,
        puts: Mapping[bytes, bytes | None] | None = None,
    ) -> None:
        """`check_right` raises if the pipeline is run by somebody else by now; `puts` is state that changes with the frame."""
        self._context = context
        self._name = name
        self._chunks = chunks
        self._check_right = check_right
        self._puts = puts or {}
        self._placed: list[PlacedAppend] = []
        self._windows: DedupWindows | None = None
        self._skipped = 0

    @property
    def held_bytes(self) -> int:
        return sum(chunk.size for chunk in self._chunks)

    def decide(self) -> Changes | None:
        if self._check_right is not None:
            self._check_right()
        draft = Draft(self._context.store)
        windows = self._windows = DedupWindows(self._context.dedup, draft)
        self._placed = []
        self._skipped = 0
        for chunk in self._chunks:
            if self._has_lost_its_source(chunk) or is_applied(draft, self._name, chunk.moves):
                self._skipped += 1
                continue
            for staged in chunk.batches:
                if not is_unwanted(self._context, staged):
                    self._placed.append(place(self._context, draft, windows, checked(self._context, staged)))
            for move in chunk.moves:
                put_mark(draft, self._name, move.source, move.after)
        windows.close()
        for key, value in self._puts.items():
            draft.put(key, value)
        return None if draft.is_empty else draft.changes()

    def _has_lost_its_source(self, chunk: StagedChunk) -> bool:
        """Whether the router has read it from a table that is gone. What a table has changed goes with it."""
        if self._name != ROUTER:
            return False
        sources = (changes_of(move.source) for move in chunk.moves)
        return any(source is not None and self._context.topics.by_id(source) is None for source in sources)

    def settled(self, receipt: CommitReceipt | None) -> StagedPublish:
        records = duplicates = 0
        for placed in self._placed:
            duplicates += placed.duplicates
            if placed.append is not None:
                records += placed.append.records
                self._context.arrived(placed.live, placed.append.partition, placed.append.records, len(placed.append.batch))
        if self._windows is not None:
            self._windows.count()
        return StagedPublish(records, duplicates, self._skipped)


def read_mark(value: bytes | None) -> int:
    return NO_MARK if value is None else int.from_bytes(value, signed=True)


def put_mark(draft: Draft, name: str, source: str, at: int) -> None:
    draft.put(keys.mark_key(name, source), at.to_bytes(8, signed=True))


def mark_at(draft: Draft, name: str, source: str) -> int:
    return read_mark(draft.latest(keys.mark_key(name, source)))


def is_applied(draft: Draft, name: str, moves: Sequence[MarkMove]) -> bool:
    """Whether the pipeline is past all of these moves. Raises where it stands elsewhere than a move begins."""
    past = 0
    for source, before, after in moves:
        at = mark_at(draft, name, source)
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
