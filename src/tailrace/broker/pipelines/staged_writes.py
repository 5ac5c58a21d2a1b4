"""What Spark jobs and queries of users write: each batch of a writer takes effect once, whatever its size and whatever dies.

A batch that fits into a frame is one, together with the move of the writer's mark. A larger one is **decided** first: its
stages are made durable, and a commit says that they are to be published. From then on it is the server's own task, also after
a restart: frame by frame, each with a mark of how far it is, and at the end the writer's mark. Nothing depends on whether the
writer comes again, nor on whether it would stage the same rows in the same order.

One batch of a writer is under way at a time. Whoever asks for the same again waits for that.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Container, Sequence
from typing import Any, NamedTuple

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
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
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.model.pipeline import MarkMove, StagedPublish
from tailrace.store.contract import Staging, Store
from tailrace.wire.staged_chunks import StagedBatch, StagedChunk

_log = logging.getLogger(__name__)

_BATCHES = "_batches"
"""The source in which a large write counts its own batches."""
_NOTHING = StagedPublish(0, 0, 0)
_UNSYNCED_SECONDS = 10.0
"""Longer than a `relaxed` log takes to sync what it has answered."""


class DecidedWrite(msgspec.Struct, frozen=True, array_like=True):
    """A large write that will happen."""

    stages: tuple[Stage, ...]
    source: str
    number: int
    """Where the writer's mark stands when it is done."""


class StagedWrites:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        context: PublishContext,
        threads: ReadThreads,
        staging: Staging,
        limits: Limits,
    ) -> None:
        self._store = store
        self._committer = committer
        self._context = context
        self._threads = threads
        self._staging = staging
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.staged_writes)
        self._under_way: dict[str, _RunningWrite] = {}
        self._decided: dict[str, DecidedWrite] = {}
        self._kept: set[str] = set()
        """Stages of writes that are decided or about to be."""
        self._resuming: asyncio.Task[None] | None = None
        self._removing: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        for key, value in self._store.range(keys.WRITES):
            self._decided[keys.writer_of(key)] = msgspec.msgpack.decode(value, type=DecidedWrite)
        self._kept = {stage.name for decided in self._decided.values() for stage in decided.stages}
        self._staging.retain(self._kept)
        if self._decided:
            self._resuming = asyncio.create_task(self.resume())

    async def close(self) -> None:
        """What is decided goes on when the server is back; what is not comes to nothing."""
        tasks: list[asyncio.Task[Any]] = [under_way.task for under_way in self._under_way.values()]
        if self._resuming is not None:
            tasks.append(self._resuming)
        tasks += self._removing
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_busy(self, name: str) -> bool:
        """Whether something of this writer is under way or will be."""
        return name in self._under_way or name in self._decided

    async def write(self, name: str, stages: Sequence[Stage], move: MarkMove, wait_seconds: float) -> StagedPublish | None:
        """Publish the stages, in their order, and move the mark. `None` if that is not done yet: it goes on, ask again."""
        asked = _WriteRequest(tuple(stages), move)
        deadline = self._committer.loop.time() + wait_seconds
        while True:
            under_way = self._under_way.get(name) or self._begin(name, asked)
            await asyncio.wait((under_way.task,), timeout=deadline - self._committer.loop.time())
            if not under_way.task.done():
                return None
            if under_way.task.cancelled():
                raise StoreClosedError("the broker is closing; ask again when it is back")
            if under_way.asked == asked:
                return under_way.task.result()

    async def resume(self) -> None:
        """Go on with what is decided and not done, as after a restart or a full disk."""
        for name in list(self._decided):
            under_way = self._under_way.get(name) or self._begin(name, None)
            await asyncio.wait((under_way.task,))
            error = None if under_way.task.cancelled() else under_way.task.exception()
            if error is not None:
                _log.error("the write of %s was decided and can't be finished now: %s", name, error)

    async def discard(self, stages: Sequence[Stage]) -> None:
        """Forget stages that will not be published. What is decided stays, whatever the writer has heard of it."""
        await self._remove([stage for stage in stages if stage.name not in self._kept])

    async def clean(self) -> None:
        """Forget stages that nobody published, and try again what could not be finished."""
        await self._threads.run(self._staging.remove_older_than, self._limits.staged_seconds, frozenset(self._kept))
        await self.resume()

    def _begin(self, name: str, asked: "_WriteRequest | None") -> "_RunningWrite":
        if len(self._under_way) >= self._limits.waiting_publishes:
            raise OverloadedError(
                f"{len(self._under_way)} writes are under way, as many as waiting_publishes allows; try again"
            )

        def ended(task: asyncio.Task[StagedPublish]) -> None:
            del self._under_way[name]
            if not task.cancelled():
                # Whoever waits is told; it is no fault if nobody does any more.
                task.exception()

        task = asyncio.create_task(self._run(name, asked))
        task.add_done_callback(ended)
        under_way = self._under_way[name] = _RunningWrite(asked, task)
        return under_way

    async def _run(self, name: str, asked: "_WriteRequest | None") -> StagedPublish:
        async with self._turns:
            decided = self._decided.get(name)
            if decided is not None:
                await self._finish(name, decided)
            return _NOTHING if asked is None else await self._write(name, *asked)

    async def _write(self, name: str, stages: Sequence[Stage], move: MarkMove) -> StagedPublish:
        if read_mark(self._store.get(keys.mark_key(name, move.source))) >= move.after:
            await self.discard(stages)
            return _NOTHING._replace(skipped=1)
        batches = await self._in_one_frame(stages)
        if batches is not None:
            try:
                done = await self._committer.submit(PublishChunks(self._context, name, [StagedChunk([move], batches)]))
            except LimitExceededError:
                # What a topic remembers to find duplicates may take more room than the records. Whatever else it is, is told
                # by the check before the decision.
                pass
            else:
                await self._remove(stages)
                return done
        return await self._finish(name, await self._decide(name, stages, move))

    async def _in_one_frame(self, stages: Sequence[Stage]) -> list[StagedBatch] | None:
        """All that is staged; `None` if it is more than a frame takes."""
        batches: list[StagedBatch] = []
        size = 0
        async for chunk in staged_chunks(self._threads, self._staging, stages):
            size += chunk.size
            if size > self._limits.frame_bytes:
                return None
            batches += chunk.batches
        return batches

    async def _decide(self, name: str, stages: Sequence[Stage], move: MarkMove) -> DecidedWrite:
        """Durable on return: from here on there is no way back."""
        async for chunk in staged_chunks(self._threads, self._staging, stages):
            for staged in chunk.batches:
                checked(self._context, staged)
        decided = DecidedWrite(tuple(stages), move.source, move.after)
        changes = Changes(puts=((keys.write_key(name), msgspec.msgpack.encode(decided)),))
        names = {stage.name for stage in stages}

        def settled(_: CommitReceipt | None) -> DecidedWrite:
            self._decided[name] = decided
            return decided

        self._kept |= names
        try:
            await self._threads.run(self._staging.sync, names)
            killpoint("large.kept")
            return await self._committer.submit(Change(lambda: changes, settled))
        except TailraceError:
            self._kept -= names
            raise

    async def _finish(self, name: str, decided: DecidedWrite) -> StagedPublish:
        killpoint("large.decided")
        done = await submit_in_turn(self._committer, self._frames_left(name, decided))
        killpoint("large.done")
        del self._decided[name]
        self._kept.difference_update(stage.name for stage in decided.stages)
        removing = asyncio.create_task(self._remove_later(decided.stages))
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)
        return done

    async def _frames_left(self, name: str, decided: DecidedWrite) -> AsyncIterator[PublishChunks]:
        """Frames of a few MiB: nobody sees the write as one anyhow, and others get their turn in between."""
        mark = keys.mark_key(name, _BATCHES)
        before = read_mark(self._store.get(mark))
        single = _single_batches(staged_chunks(self._threads, self._staging, decided.stages), max(0, before))
        async for frame in frames_of(single, self._limits.group_commit_bytes):
            after = max(0, before) + len(frame)
            # A topic that is dropped meanwhile takes its part with it.
            batches = [staged._replace(needs=staged.topic_id) for chunk in frame for staged in chunk.batches]
            yield PublishChunks(self._context, name, [StagedChunk([MarkMove(_BATCHES, before, after)], batches)])
            killpoint("large.between")
            before = after
        # It counts itself too: it must not be taken where a frame before it has failed.
        ending = MarkMove(_BATCHES, before, max(0, before) + 1)
        last = StagedChunk([ending, MarkMove(decided.source, None, decided.number)], [])
        yield PublishChunks(self._context, name, [last], puts={mark: None, keys.write_key(name): None})

    async def _remove_later(self, stages: Sequence[Stage]) -> None:
        """A power cut may take the end of a `relaxed` log away and bring the decision back, which needs them then."""
        await asyncio.sleep(_UNSYNCED_SECONDS)
        await self._remove(stages)

    async def _remove(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            await self._threads.run(self._staging.remove, stage.name)


class _WriteRequest(NamedTuple):
    stages: tuple[Stage, ...]
    move: MarkMove


class _RunningWrite(NamedTuple):
    asked: _WriteRequest | None
    """`None` where a decided write goes on and nobody has asked for anything."""
    task: asyncio.Task[StagedPublish]


async def _single_batches(chunks: AsyncIterator[StagedChunk], done: int) -> AsyncIterator[StagedChunk]:
    """All but the first so many batches, each as a chunk of its own: they move no marks that would hold them together."""
    async for chunk in chunks:
        for staged in chunk.batches:
            if done > 0:
                done -= 1
            else:
                yield StagedChunk([], [staged])


_AT_ONCE = 1_000


class Writers:
    def __init__(
        self, store: Store, committer: Committer, clock: Clock, limits: Limits, is_busy: Callable[[str], bool]
    ) -> None:
        """`is_busy` says of whom nothing may be forgotten now, however long it has been silent."""
        self._is_busy = is_busy
        self._store = store
        self._committer = committer
        self._clock = clock
        self._limits = limits
        self._heard_at: OrderedDict[str, float] = OrderedDict()
        """The longest silent first."""

    def __len__(self) -> int:
        return len(self._heard_at)

    def load(self, with_lease: Container[str]) -> None:
        """Those that have a mark and no lease. When they were heard of is not stored: they begin anew."""
        now = self._clock.monotonic()
        for key, _ in self._store.range(keys.MARKS):
            name = keys.pipeline_of_mark(key)
            if name not in with_lease:
                self._heard_at[name] = now

    async def heard_of(self, name: str) -> None:
        self._heard_at[name] = self._clock.monotonic()
        self._heard_at.move_to_end(name)
        if len(self._heard_at) > self._limits.writers:
            # Some more than needed, so that not every new writer costs a commit.
            await self._forget(self._idle()[: max(1, self._limits.writers // 100)])

    async def forget_silent(self) -> None:
        oldest = self._clock.monotonic() - self._limits.writer_seconds
        await self._forget([name for name in self._idle() if self._heard_at[name] < oldest])

    def _idle(self) -> list[str]:
        return [name for name in self._heard_at if not self._is_busy(name)]

    async def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            del self._heard_at[name]
        for first in range(0, len(names), _AT_ONCE):
            marks = [key for name in names[first : first + _AT_ONCE] for key, _ in self._store.range(keys.marks_of(name))]
            if marks:
                changes = Changes(puts=tuple((key, None) for key in marks))
                await self._committer.submit(Change(lambda changes=changes: changes, lambda _: None))  # type: ignore[misc]
