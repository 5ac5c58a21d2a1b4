"""Takes the captured transactions of sources into the log.

The events of a transaction and the move of its source's position are one frame; many small transactions share one. A
transaction that is larger than a frame is staged first and then written as a large write, while readers of its topics are held
back. What was taken before is skipped, and what does not begin at the position is rejected, so each transaction is in the log
once, whatever process sends it.
"""

from collections.abc import Callable, Iterable, Sequence

from tailrace.broker.commits import Committer
from tailrace.broker.pipelines.pipelines import Pipelines
from tailrace.broker.pipelines.staged_chunks import PublishChunks, Stage, check_staged
from tailrace.broker.pipelines.staged_writes import StagedWrites
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.security.principals import current_principal
from tailrace.broker.sources.sources import Sources
from tailrace.model.errors import InvalidRequestError
from tailrace.model.pipeline import MarkMove, StagedPublish
from tailrace.model.source import HELD, POSITION, Source
from tailrace.wire.staged_chunks import StagedChunk, decode_staged_chunks


class CapturedTransactions:
    def __init__(
        self,
        committer: Committer,
        context: PublishContext,
        threads: ReadThreads,
        writes: StagedWrites,
        pipelines: Pipelines,
        sources: Sources,
    ) -> None:
        self._committer = committer
        self._context = context
        self._threads = threads
        self._writes = writes
        self._pipelines = pipelines
        self._sources = sources

    async def append(self, source: Source, epoch: int, body: bytes) -> StagedPublish:
        """Commit chunks, each with whole transactions and the move of the position behind them."""
        return await self._append(source, source.writer, epoch, body, _check_position)

    async def append_rows(self, source: Source, epoch: int, body: bytes) -> StagedPublish:
        """Commit rows of a snapshot and the move of a mark behind them."""
        return await self._append(source, source.snapshot_writer, epoch, body, _check_mark)

    async def _append(
        self, source: Source, writer: str, epoch: int, body: bytes, check_moves: Callable[[StagedChunk], None]
    ) -> StagedPublish:
        def check() -> None:
            self._sources.check_attached(source, epoch)

        def read() -> list[StagedChunk]:
            chunks = check_staged(body, self._context.checks)
            for chunk in chunks:
                check_moves(chunk)
            return chunks

        check()
        chunks = await self._threads.run(read)
        self._require_publish(source, chunks)
        proposal = PublishChunks(self._context, writer, chunks, check_lease=check, to_reserved=True)
        return await self._committer.submit(proposal)

    async def stage(self, source: Source, stage: str, part: int, body: bytes) -> None:
        """Keep a part of a transaction or of rows until all of it is written."""
        self._require_publish(source, decode_staged_chunks(body))
        await self._pipelines.stage_captured(stage, part, body)

    async def write_large(
        self, source: Source, writer: str, epoch: int, stages: Sequence[Stage], move: MarkMove, wait_seconds: float
    ) -> StagedPublish | None:
        """Write a transaction or rows that were staged. Return `None` if that takes longer: it continues, ask again."""
        self._sources.check_attached(source, epoch)
        return await self._writes.write(writer, stages, move, wait_seconds, is_captured=True)

    def _require_publish(self, source: Source, chunks: Iterable[StagedChunk]) -> None:
        """Raise an error unless the principal of the request may publish to all topics that are not the source's own.

        Those are its outbox's and its dead letters'.
        """
        if self._context.permissions.is_on and not current_principal().is_server:
            self._pipelines.require_publish(chunks, self._sources.own_topics(source))


def _check_position(chunk: StagedChunk) -> None:
    if [move.source for move in chunk.moves] not in ([POSITION], [HELD]):
        raise InvalidRequestError(
            "a chunk of captured transactions must move one mark: the position of its source, or what was released"
        )


def _check_mark(chunk: StagedChunk) -> None:
    if len(chunk.moves) != 1:
        raise InvalidRequestError("a chunk of rows must move one mark, so that it is published once")
