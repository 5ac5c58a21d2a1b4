"""Writes of users' Spark jobs and queries: each batch of a writer takes effect exactly once, whatever its size.

A batch that fits into a frame is committed in one, together with the move of the writer's mark. A larger one is **decided**
first: its stages are made durable, and a commit says that they will be published. From then on the server finishes it by
itself, also after a restart: frame by frame, each with a mark of its progress, and at the end the writer's mark. It does not
matter whether the writer asks again, or would stage the same rows in the same order.

A writer has one batch in progress at a time. A repeated request for the same batch waits for it.

A transaction of a source that is larger than a frame is such a batch too. Readers of its topics wait until it is whole.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Container, Sequence
from typing import Any, NamedTuple

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.isolation import StableOffsets
from tailrace.broker.pipelines.staged_chunks import (
    PublishChunks,
    Stage,
    checked,
    frames_of,
    read_mark,
    staged_chunks,
    submit_in_turn,
)
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.read_threads import ReadThreads
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes, CommitReceipt
from tailrace.model.errors import LimitExceededError, OverloadedError, StoreClosedError, TailraceError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.model.pipeline import MarkMove, StagedPublish
from tailrace.model.source import SOURCE_WRITERS
from tailrace.store.contract import Staging, Store
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk

OnWhole = Callable[[PartitionId], None]

_log = logging.getLogger(__name__)

_BATCHES = "_batches"
"""The source whose mark counts the published batches of a large write."""
_NOTHING = StagedPublish(0, 0, 0)
_UNSYNCED_SECONDS = 10.0
"""Longer than a `relaxed` log takes to sync what it has acknowledged."""


class HeldPartition(NamedTuple):
    topic_id: TopicId
    number: int
    offset: Offset


class DecidedWrite(msgspec.Struct, frozen=True, array_like=True):
    """A large write that will be finished."""

    stages: tuple[Stage, ...]
    source: str
    number: int
    """The writer's mark after the write."""
    held: tuple[HeldPartition, ...] | None = None
    """Of a transaction of a source, the offsets at which readers wait until it is whole."""


class StagedWrites:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        context: PublishContext,
        threads: ReadThreads,
        staging: Staging,
        limits: Limits,
        stable: StableOffsets,
        on_whole: OnWhole,
    ) -> None:
        """`on_whole` is called with a partition whose readers were held back."""
        self._store = store
        self._committer = committer
        self._context = context
        self._threads = threads
        self._staging = staging
        self._limits = limits
        self._stable = stable
        self._on_whole = on_whole
        self._turns = asyncio.Semaphore(limits.staged_writes)
        self._running: dict[str, _RunningWrite] = {}
        self._decided: dict[str, DecidedWrite] = {}
        self._kept: set[str] = set()
        """The stages of writes that are decided or about to be."""
        self._resuming: asyncio.Task[None] | None = None
        self._removing: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        for key, value in self._store.range(keys.WRITES):
            decided = self._decided[keys.writer_of(key)] = msgspec.msgpack.decode(value, type=DecidedWrite)
            self._hold(decided)
        self._kept = {stage.name for decided in self._decided.values() for stage in decided.stages}
        self._staging.retain(self._kept)
        if self._decided:
            self._resuming = asyncio.create_task(self.resume())

    async def close(self) -> None:
        """Stop all writes. Those that are decided continue after a restart; others are lost."""
        tasks: list[asyncio.Task[Any]] = [running.task for running in self._running.values()]
        if self._resuming is not None:
            tasks.append(self._resuming)
        tasks += self._removing
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_busy(self, name: str) -> bool:
        """Return whether a write of this writer is in progress or decided."""
        return name in self._running or name in self._decided

    def unfinished(self) -> int:
        """Return how many large writes to topics were decided and are not done. Those of sources go to changes of tables."""
        return sum(decided.held is None for decided in self._decided.values())

    async def write(
        self, name: str, stages: Sequence[Stage], move: MarkMove, wait_seconds: float, *, is_captured: bool = False
    ) -> StagedPublish | None:
        """Publish the stages in their order, and move the mark. Return `None` if that takes longer: it continues, ask again.

        With `is_captured` they are a transaction of a source, which readers see whole or not at all.
        """
        asked = _WriteRequest(tuple(stages), move, is_captured)
        deadline = self._committer.loop.time() + wait_seconds
        while True:
            running = self._running.get(name) or self._begin(name, asked)
            await asyncio.wait((running.task,), timeout=deadline - self._committer.loop.time())
            if not running.task.done():
                return None
            if running.task.cancelled():
                raise StoreClosedError("the server is stopping; try again when it is back")
            if running.asked == asked:
                return running.task.result()

    async def resume(self) -> None:
        """Continue writes that are decided and not done, after a restart or a full disk."""
        for name in list(self._decided):
            running = self._running.get(name) or self._begin(name, None)
            await asyncio.wait((running.task,))
            error = None if running.task.cancelled() else running.task.exception()
            if error is not None:
                _log.error("the large write of %s can't be finished now: %s", name, error)

    async def discard(self, stages: Sequence[Stage]) -> None:
        """Remove stages that will not be published. Those of decided writes stay, even if the writer does not know of it."""
        await self._remove([stage for stage in stages if stage.name not in self._kept])

    async def clean(self) -> None:
        """Remove stages that were never published, and retry writes that could not be finished."""
        await self._threads.run(self._staging.remove_older_than, self._limits.staged_seconds, frozenset(self._kept))
        await self.resume()

    def _begin(self, name: str, asked: "_WriteRequest | None") -> "_RunningWrite":
        if len(self._running) >= self._limits.waiting_publishes:
            raise OverloadedError(
                f"{len(self._running)} writes are in progress, as many as waiting_publishes allows; try again"
            )

        def ended(task: asyncio.Task[StagedPublish]) -> None:
            del self._running[name]
            if not task.cancelled():
                # Marks the exception as retrieved, because nobody may wait for it any more.
                task.exception()

        task = asyncio.create_task(self._run(name, asked))
        task.add_done_callback(ended)
        running = self._running[name] = _RunningWrite(asked, task)
        return running

    async def _run(self, name: str, asked: "_WriteRequest | None") -> StagedPublish:
        async with self._turns:
            decided = self._decided.get(name)
            if decided is not None:
                await self._finish(name, decided)
            return _NOTHING if asked is None else await self._write(name, *asked)

    async def _write(self, name: str, stages: Sequence[Stage], move: MarkMove, is_captured: bool) -> StagedPublish:
        if read_mark(self._store.get(keys.mark_key(name, move.source))) >= move.after:
            await self.discard(stages)
            return _NOTHING._replace(skipped=1)
        batches = await self._in_one_frame(stages)
        if batches is not None:
            try:
                chunk = StagedChunk([move], batches)
                done = await self._committer.submit(PublishChunks(self._context, name, [chunk], to_reserved=is_captured))
            except LimitExceededError:
                # A topic's window for duplicates may take more room than the records. Any other cause is found by the check
                # before the decision.
                pass
            else:
                await self._remove(stages)
                return done
        return await self._finish(name, await self._decide(name, stages, move, is_captured))

    async def _in_one_frame(self, stages: Sequence[Stage]) -> list[StagedBatch] | None:
        """Return all staged batches; `None` if they are too large for one frame."""
        if sum(self._staging.size(stage.name) for stage in stages) > self._limits.frame_bytes:
            return None
        batches: list[StagedBatch] = []
        async for chunk in staged_chunks(self._threads, self._staging, stages, self._context.checks):
            batches += chunk.batches
        return batches

    async def _decide(self, name: str, stages: Sequence[Stage], move: MarkMove, is_captured: bool) -> DecidedWrite:
        """Commit the decision to publish the stages. It is durable on return and can't be undone."""
        partitions: dict[PartitionId, None] = {}
        async for chunk in staged_chunks(self._threads, self._staging, stages):
            for staged in chunk.batches:
                checked(self._context, staged, to_reserved=is_captured)
                partitions[PartitionId(staged.topic_id, staged.partition)] = None
        decided = DecidedWrite(tuple(stages), move.source, move.after)
        names = {stage.name for stage in stages}

        def decide() -> Changes:
            nonlocal decided
            self._release(decided)
            for partition in partitions:
                live = self._context.topics.by_id(partition.topic_id)
                if live is not None:
                    live.check_takes_records()
            if is_captured:
                # What is settled was seen; what is in flight may fail, so the first record may get any offset from here on.
                held = tuple(HeldPartition(*one, self._store.bounds(one).end) for one in partitions)
                decided = msgspec.structs.replace(decided, held=held)
                self._hold(decided)
            return Changes(puts=((keys.write_key(name), msgspec.msgpack.encode(decided)),))

        def settled(_: CommitReceipt | None) -> DecidedWrite:
            self._decided[name] = decided
            return decided

        self._kept |= names
        try:
            await self._threads.run(self._staging.sync, names)
            killpoint("large.kept")
            return await self._committer.submit(Change(decide, settled))
        except TailraceError:
            self._kept -= names
            self._release(decided)
            raise

    def _hold(self, decided: DecidedWrite) -> None:
        for topic_id, number, offset in decided.held or ():
            self._stable.hold(PartitionId(topic_id, number), offset)

    def _release(self, decided: DecidedWrite) -> None:
        for topic_id, number, offset in decided.held or ():
            partition = PartitionId(topic_id, number)
            self._stable.release(partition, offset)
            self._on_whole(partition)

    async def _finish(self, name: str, decided: DecidedWrite) -> StagedPublish:
        killpoint("large.decided")
        done = await submit_in_turn(self._committer, self._frames_left(name, decided))
        killpoint("large.done")
        self._release(decided)
        del self._decided[name]
        self._kept.difference_update(stage.name for stage in decided.stages)
        removing = asyncio.create_task(self._remove_later(decided.stages))
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)
        return done

    async def _frames_left(self, name: str, decided: DecidedWrite) -> AsyncIterator[PublishChunks]:
        """Yield the remaining frames, of a few MiB each, so that other requests are served in between."""
        mark = keys.mark_key(name, _BATCHES)
        is_captured = decided.held is not None
        before = read_mark(self._store.get(mark))
        chunks = staged_chunks(self._threads, self._staging, decided.stages, self._context.checks)
        single = _single_batches(chunks, max(0, before))
        async for frame in frames_of(single, self._limits.group_commit_bytes):
            after = max(0, before) + len(frame)
            # The part for a topic that is deleted meanwhile is left out.
            batches = [staged._replace(needs=staged.topic_id) for chunk in frame for staged in chunk.batches]
            chunk = StagedChunk([MarkMove(_BATCHES, before, after)], batches)
            yield PublishChunks(self._context, name, [chunk], to_reserved=is_captured, is_decided=True)
            killpoint("large.between")
            before = after
        # It moves the mark of batches too, so that it fails if a frame before it has failed.
        ending = MarkMove(_BATCHES, before, max(0, before) + 1)
        last = StagedChunk([ending, MarkMove(decided.source, None, decided.number)], [])
        yield PublishChunks(self._context, name, [last], puts={mark: None, keys.write_key(name): None})

    async def _remove_later(self, stages: Sequence[Stage]) -> None:
        """Remove stages once the log is surely synced: they are needed if a power cut undoes the end of a `relaxed` log."""
        await asyncio.sleep(_UNSYNCED_SECONDS)
        await self._remove(stages)

    async def _remove(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            await self._threads.run(self._staging.remove, stage.name)


class _WriteRequest(NamedTuple):
    stages: tuple[Stage, ...]
    move: MarkMove
    is_captured: bool


class _RunningWrite(NamedTuple):
    asked: _WriteRequest | None
    """`None` if a decided write continues without a request."""
    task: asyncio.Task[StagedPublish]


async def _single_batches(chunks: AsyncIterator[StagedChunk], done: int) -> AsyncIterator[StagedChunk]:
    """Yield each batch as a chunk of its own, without the first `done` ones. No moves of marks hold them together."""
    async for chunk in chunks:
        for staged in chunk.batches:
            if done > 0:
                done -= 1
            else:
                yield StagedChunk([], [staged])


_AT_ONCE = 1_000


class Writers:
    """The writers without a lease, each with a mark by which a repeated batch is recognised.

    A mark is of no use once its batch can't be sent again, so writers that have been idle for long are forgotten, and the
    longest idle ones when there are too many.
    """

    def __init__(
        self, store: Store, committer: Committer, clock: Clock, limits: Limits, is_busy: Callable[[str], bool]
    ) -> None:
        """`is_busy` returns whether a writer must be kept, however long it has been idle."""
        self._is_busy = is_busy
        self._store = store
        self._committer = committer
        self._clock = clock
        self._limits = limits
        self._active_at: OrderedDict[str, float] = OrderedDict()
        """The longest idle first."""

    def __len__(self) -> int:
        return len(self._active_at)

    def load(self, with_lease: Container[str]) -> None:
        """Load the writers: those with a mark and without a lease. When they were last active is not stored; it is now."""
        now = self._clock.monotonic()
        for key, _ in self._store.range(keys.MARKS):
            name = keys.pipeline_of_mark(key)
            # The position of a source is kept as long as the source.
            if name not in with_lease and not name.startswith(SOURCE_WRITERS):
                self._active_at[name] = now

    async def touch(self, name: str) -> None:
        self._active_at[name] = self._clock.monotonic()
        self._active_at.move_to_end(name)
        if len(self._active_at) > self._limits.writers:
            # Some more than needed, so that not every new writer costs a commit.
            await self._forget(self._idle()[: max(1, self._limits.writers // 100)])

    async def forget_idle(self) -> None:
        oldest = self._clock.monotonic() - self._limits.writer_seconds
        await self._forget([name for name in self._idle() if self._active_at[name] < oldest])

    def _idle(self) -> list[str]:
        return [name for name in self._active_at if not self._is_busy(name)]

    async def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            del self._active_at[name]
        for first in range(0, len(names), _AT_ONCE):
            marks = [key for name in names[first : first + _AT_ONCE] for key, _ in self._store.range(keys.marks_of(name))]
            if marks:
                changes = Changes(puts=tuple((key, None) for key in marks))
                await self._committer.submit(Change(lambda changes=changes: changes, lambda _: None))  # type: ignore[misc]
