"""Faults of the log: syncs, recovery, offsets, reads, producers, and the tables that follow it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from tailrace.broker.producers.producers import Producers
from tailrace.broker.reading.fetch import Fetcher
from tailrace.log.catalog import Catalog, NewBatch
from tailrace.log.recovery import Recovery, SegmentFile, SyncEvidence
from tailrace.model.fetch import PartitionBatches
from tailrace.model.ids import Offset, PartitionId, TableId
from tailrace.sql.tables.writer_connection import WriterConnection
from tailrace.store.sequencer import Sequencer
from tests.support.folders import frames_of

_LOST_FRAMES = 5
_EVERY = 10


def ack_before_sync() -> None:
    """Syncs of the log do nothing, so records are acked while they are in memory only."""
    os.fdatasync = lambda fd: None


def lose_the_tail() -> None:
    """A start cuts off the last few frames, as if they were torn."""
    create = Recovery.__init__

    def careless(self: Recovery, files: Sequence[SegmentFile], start: int, evidence: Sequence[SyncEvidence]) -> None:
        frames = frames_of(files[-1].path) if files else []
        if len(frames) > 2 * _LOST_FRAMES:
            os.truncate(files[-1].path, frames[-_LOST_FRAMES].position - files[-1].base)
        create(self, files, start, ())

    Recovery.__init__ = careless  # type: ignore[method-assign]


def reuse_offsets() -> None:
    """After a start, every partition has forgotten its last record, and gives its offset to the next one."""
    create, show = Sequencer.__init__, Catalog.append

    def forgetful(
        self: Sequencer, clock: Any, limits: Any, ends: Mapping[PartitionId, Offset], cursor: Any, topic_names: Any = None
    ) -> None:
        short = {partition: Offset(max(0, end - 1)) for partition, end in ends.items()}
        create(self, clock, limits, short, cursor, topic_names)

    def trusting(self: Catalog, batches: Iterable[NewBatch]) -> None:
        for batch in batches:
            partition, base, *_ = batch
            self.partitions[partition].end = base
            show(self, [batch])

    Sequencer.__init__ = forgetful  # type: ignore[method-assign]
    Catalog.append = trusting  # type: ignore[method-assign]


def skip_batches() -> None:
    """Now and then a read leaves out the first of several batches."""
    read = Fetcher._read_one
    numbers = count(1)

    async def hasty(self: Fetcher, *asked: Any) -> PartitionBatches:
        answer = await read(self, *asked)
        if len(answer.batches) > 1 and next(numbers) % _EVERY == 0:
            return answer._replace(batches=answer.batches[1:], cursors=answer.cursors[1:])
        return answer

    Fetcher._read_one = hasty  # type: ignore[method-assign, assignment]


def check_no_sequences() -> None:
    """A batch that an idempotent producer sends again is stored again."""
    Producers.find_duplicate = lambda self, draft, partition, header: None  # type: ignore[method-assign]


def leave_rows_out() -> None:
    """Now and then a change that the log has does not get into its table."""
    commit = WriterConnection.commit
    numbers = count(1)

    def careless(self: WriterConnection, reached: Mapping[TableId, Offset]) -> None:
        if next(numbers) % _EVERY:
            commit(self, reached)
        else:
            self.roll_back()

    WriterConnection.commit = careless  # type: ignore[method-assign]
