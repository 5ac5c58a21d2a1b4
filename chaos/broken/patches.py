"""The patches that make a server a broken variant, each with one known fault, by name.

The server's process applies them (`chaos.launch`). In which run each shows, and as what, is in `chaos.broken.variants`. The
docstring of a patch says what is wrong with the server; the report prints it.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from tailrace.broker.groups import offsets
from tailrace.broker.groups.coordinator import GroupCoordinator
from tailrace.broker.isolation import AbortedTransactions
from tailrace.broker.producers.producers import Producers
from tailrace.broker.queues.share import _WriteShare
from tailrace.broker.reading.fetch import Fetcher
from tailrace.broker.transactions.ending import TransactionEnder
from tailrace.broker.transactions.state import TransactionMetadata
from tailrace.log.catalog import Catalog, NewBatch
from tailrace.log.recovery import Recovery, SegmentFile, SyncEvidence
from tailrace.model.fetch import PartitionBatches
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset, PartitionId, TableId
from tailrace.sql.tables.writer_connection import WriterConnection
from tailrace.store.sequencer import Sequencer
from tests.support.folders import frames_of

_LOST_FRAMES = 5
_EVERY_READ = 10


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
        if len(answer.batches) > 1 and next(numbers) % _EVERY_READ == 0:
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
        if next(numbers) % _EVERY_READ:
            commit(self, reached)
        else:
            self.roll_back()

    WriterConnection.commit = careless  # type: ignore[method-assign]


_EVERY_COMMIT = 7
_STEP_BACK = 3


def fence_nobody() -> None:
    """Members of an old generation may go on committing."""
    GroupCoordinator.check_commit = lambda self, name, member, *, in_transaction=False: None  # type: ignore[method-assign]


def move_offsets_back() -> None:
    """Now and then a lower offset is kept than was committed."""
    encode = offsets._encode
    numbers = count(1)

    def careless(commit: OffsetCommit, now_ms: int) -> bytes:
        if next(numbers) % _EVERY_COMMIT == 0:
            commit = commit._replace(offset=Offset(max(0, commit.offset - _STEP_BACK)))
        return encode(commit, now_ms)

    offsets._encode = careless


def forget_acks() -> None:
    """Acks of queues are answered and not kept, so the records come again after a restart."""
    _WriteShare.decide = lambda self: None  # type: ignore[method-assign]


_EVERY_TRANSACTION = 5


def serve_aborted() -> None:
    """Readers of committed records are not told which transactions were aborted."""
    AbortedTransactions.between = lambda self, partition, start, end: []  # type: ignore[method-assign]


def tear_transactions() -> None:
    """Now and then a transaction is committed in all of its partitions but one."""
    mark = TransactionEnder._mark
    numbers = count(1)

    def careless(
        self: TransactionEnder,
        draft: Any,
        partition: PartitionId,
        transaction: TransactionMetadata,
        marker: bytes,
        committed: bool,
    ) -> Offset | None:
        torn = len(transaction.partitions) > 1 and next(numbers) % _EVERY_TRANSACTION == 0
        return mark(self, draft, partition, transaction, marker, committed and not torn)

    TransactionEnder._mark = careless  # type: ignore[method-assign]


PATCHES: Mapping[str, Callable[[], None]] = {
    "ack-before-sync": ack_before_sync,
    "lost-tail": lose_the_tail,
    "offset-reuse": reuse_offsets,
    "skipped-batch": skip_batches,
    "sequence-check-off": check_no_sequences,
    "commit-not-fenced": fence_nobody,
    "offset-moved-back": move_offsets_back,
    "aborted-served": serve_aborted,
    "torn-transaction": tear_transactions,
    "queue-ack-forgotten": forget_acks,
    "table-behind-log": leave_rows_out,
}
