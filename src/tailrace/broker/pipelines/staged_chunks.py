"""The publishing of staged chunks: each is committed as a whole, with the moves of its marks.

A mark is the position of a pipeline or a writer in one of its sources. It moves in the frame that holds what was made of the
source up to there. Chunks go into as few frames as possible. A chunk whose marks have moved already is skipped, so a chunk that
is sent again takes effect once. Topics and tables are known by id, and it is decided with the frame whether they still exist:
what was made from a table or for a topic that is dropped meanwhile is left out, even if another one has the name by then.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.broker import keys
from tailrace.broker.commits import Committer, Draft, Proposal
from tailrace.broker.publishing.context import PlacedAppend, PublishContext, place
from tailrace.broker.publishing.dedup import DedupWindows
from tailrace.broker.publishing.validation import CheckedBatch, RecordChecks, checked_batch, read_batch_for
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.topics.registry import LiveTopic
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import (
    InvalidRecordsError,
    InvalidRequestError,
    PipelineConflictError,
    TailraceError,
    UnknownTopicError,
)
from tailrace.model.pipeline import NO_MARK, ROUTER, MarkMove, StagedPublish, changes_of
from tailrace.store.contract import Staging
from tailrace.wire.batch import NO_PRODUCER, TIMESTAMP_TYPE_MASK, check_batch
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk, decode_staged_chunks

_FRAMES_IN_FLIGHT = 3
_FRAME_BATCHES = 2_000
"""Each is checked on the event loop before the frame is submitted, which blocks all other requests."""


class Stage(NamedTuple):
    """What one task has staged."""

    name: str
    parts: int


async def staged_chunks(
    threads: ReadThreads, staging: Staging, stages: Sequence[Stage], checks: RecordChecks | None = None
) -> AsyncIterator[StagedChunk]:
    """Yield the chunks of the stages, in their order. One part is in memory at a time.

    With `checks`, their batches have the oldest timestamps that are stored with them.
    """

    def read(stage: str, part: int) -> list[StagedChunk]:
        chunks = list(decode_staged_chunks(staging.read(stage, part)))
        return chunks if checks is None else [_with_oldest_timestamps(chunk, checks) for chunk in chunks]

    for stage in stages:
        for part in range(stage.parts):
            for chunk in await threads.run(read, stage.name, part):
                yield chunk


def _with_oldest_timestamps(chunk: StagedChunk, checks: RecordChecks) -> StagedChunk:
    """Find the oldest timestamps of batches. One that can't be read is left as it is; publishing it reports the error."""
    batches = list(chunk.batches)
    for number, staged in enumerate(batches):
        with suppress(TailraceError):
            oldest, _ = checks.check(staged.batch, check_batch(staged.batch))
            batches[number] = staged._replace(oldest_timestamp=oldest)
    return chunk._replace(batches=batches)


async def frames_of(chunks: AsyncIterator[StagedChunk], max_bytes: int) -> AsyncIterator[list[StagedChunk]]:
    """Yield the chunks of one frame after the other. A chunk larger than `max_bytes` is a frame of its own."""
    frame: list[StagedChunk] = []
    size = batches = 0
    async for chunk in chunks:
        if frame and (size + chunk.size > max_bytes or batches + len(chunk.batches) > _FRAME_BATCHES):
            yield frame
            frame, size, batches = [], 0, 0
        frame.append(chunk)
        size += chunk.size
        batches += len(chunk.batches)
    if frame:
        yield frame


async def submit_in_turn(committer: Committer, frames: AsyncIterator["PublishChunks"]) -> StagedPublish:
    """Submit frames in order, a few at a time. Raise the first error; the frames after it fail too."""
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
        # Only the first error is raised.
        await asyncio.gather(*in_flight, return_exceptions=True)
    return done


def checked(context: PublishContext, staged: StagedBatch, *, to_reserved: bool = False) -> CheckedBatch:
    """Raise an error if the batch can't be stored. Its records were checked when it was staged."""
    live = live_topic(context, staged)
    read = read_batch_for(live, staged.partition, staged.batch, context.limits, to_reserved=to_reserved)
    if read.header.producer_id != NO_PRODUCER:
        raise InvalidRequestError("staged batches must have no producer id; their marks prevent duplicates")
    if live.needs_keys:
        context.checks.check(staged.batch, read.header, needs_keys=True)
    timestamps = staged.oldest_timestamp, read.header.max_timestamp
    now_ms = context.clock.now_ms()
    if live.is_reserved:
        # Captured changes have the time of the database, whose clock may be ahead.
        now_ms = max(now_ms, read.header.max_timestamp)
    return checked_batch(read, timestamps, now_ms, context.limits)


def check_staged(body: bytes, checks: RecordChecks) -> list[StagedChunk]:
    """Check the records of a body, and return its chunks, with the oldest timestamps of their batches.

    Takes long; may be called from any thread.
    """
    chunks = []
    for chunk in decode_staged_chunks(body):
        batches = []
        for staged in chunk.batches:
            header = check_batch(staged.batch)
            oldest, newest = checks.check(staged.batch, header)
            if newest != header.max_timestamp and not header.attributes & TIMESTAMP_TYPE_MASK:
                raise InvalidRecordsError(
                    f"the header of a staged batch for topic {staged.topic!r} has the newest timestamp {header.max_timestamp},"
                    f" but its records have {newest}"
                )
            batches.append(staged._replace(oldest_timestamp=oldest))
        chunks.append(chunk._replace(batches=batches))
    return chunks


def live_topic(context: PublishContext, staged: StagedBatch) -> LiveTopic:
    live = context.topics.by_id(staged.topic_id)
    if live is None:
        raise UnknownTopicError(f"the topic {staged.topic!r} that records were staged for was deleted; stage them again")
    return live


def is_unwanted(context: PublishContext, staged: StagedBatch) -> bool:
    """Return whether the batch is to be left out, because the topic that it needs was deleted."""
    return staged.needs is not None and context.topics.by_id(staged.needs) is None


class PublishChunks(Proposal[StagedPublish]):
    """Publishes some chunks in one frame."""

    __slots__ = (
        "_check_lease",
        "_chunks",
        "_context",
        "_is_decided",
        "_name",
        "_placed",
        "_puts",
        "_skipped",
        "_to_reserved",
        "_windows",
    )

    def __init__(
        self,
        context: PublishContext,
        name: str,
        chunks: Sequence[StagedChunk],
        *,
        check_lease: Callable[[], None] | None = None,
        puts: Mapping[bytes, bytes | None] | None = None,
        to_reserved: bool = False,
        is_decided: bool = False,
    ) -> None:
        """`check_lease` raises if another owner has taken over the pipeline; `puts` is state that changes with the frame.

        With `to_reserved`, batches may go to the topics of changes. With `is_decided` they are of a large write that was
        decided on, which is finished whatever topics were fenced since.
        """
        self._context = context
        self._name = name
        self._chunks = chunks
        self._check_lease = check_lease
        self._puts = puts or {}
        self._to_reserved = to_reserved
        self._is_decided = is_decided
        self._placed: list[PlacedAppend] = []
        self._windows: DedupWindows | None = None
        self._skipped = 0

    @property
    def held_bytes(self) -> int:
        return sum(chunk.size for chunk in self._chunks)

    def decide(self) -> Changes | None:
        if self._check_lease is not None:
            self._check_lease()
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
                    batch = checked(self._context, staged, to_reserved=self._to_reserved)
                    if not self._is_decided:
                        batch.live.check_takes_records()
                    self._placed.append(place(self._context, draft, windows, batch))
            for move in chunk.moves:
                put_mark(draft, self._name, move.source, move.after)
        windows.close()
        for key, value in self._puts.items():
            draft.put(key, value)
        return None if draft.is_empty else draft.changes()

    def _has_lost_its_source(self, chunk: StagedChunk) -> bool:
        """Return whether the router has read it from a table that was dropped. The changes of a table are dropped with it."""
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
    """Return whether all these moves are done already. Raise an error if a mark is not where its move starts."""
    past = 0
    for source, before, after in moves:
        at = mark_at(draft, name, source)
        if at >= after:
            past += 1
        elif before is not None and at != before:
            raise PipelineConflictError(
                f"the mark of pipeline {name!r} in {source!r} is {at}, and the step goes from {before} to {after}: start again"
                " from the mark"
            )
    if past and past < len(moves):
        raise PipelineConflictError(f"only some steps of a chunk of pipeline {name!r} were done already: {list(moves)}")
    return bool(moves) and past == len(moves)
