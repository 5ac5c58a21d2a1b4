"""The changes of tables: written to the log, and read from it when a table has to catch up.

One commit has the changes of any number of tables and the messages that belong to the same transactions, or rows of a snapshot
and its progress. Only this module appends to change topics. It also knows up to which change the rows are durable, and from
which change on they can be rebuilt (`checkpoints`): retention stops there.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Committer, Draft, Proposal, StillInFlight
from tailrace.broker.publishing.context import PublishContext
from tailrace.broker.publishing.publish import Publisher, PublishMessages
from tailrace.broker.publishing.snowflake import Snowflakes
from tailrace.broker.routes.routes import Snapshots
from tailrace.broker.tables.checkpoints import TableCheckpoints
from tailrace.broker.tables.tables import TableDefinitions
from tailrace.model.commit import Append, Changes, CommitReceipt, OffsetBounds
from tailrace.model.errors import CorruptionError, UnknownTopicError
from tailrace.model.ids import Cursor, Offset, PartitionId, TableId
from tailrace.model.record import Message, Published, Record
from tailrace.model.route import RouteSnapshot
from tailrace.model.stats import SqlStats
from tailrace.model.table import Table, TableCheckpoint, changes_partition
from tailrace.wire.records import decode_batch

_NOTHING_DURABLE = Offset(0)
_decode_numbers = msgspec.msgpack.Decoder(dict[int, int]).decode
NO_NUMBERS: Mapping[TableId, Mapping[int, int]] = {}


class ChangeBatch(NamedTuple):
    """Encoded change events of one table, in order."""

    table: Table
    batch: bytearray
    records: int
    timestamp: int


class CommittedChanges(NamedTuple):
    """Where the changes were committed: the first at `cursor`, the others right after it."""

    cursor: Cursor
    ends: Sequence[Offset]
    """For each batch, the offset after its last record."""
    published: Sequence[Published]


class ChangeLog:
    def __init__(
        self,
        context: PublishContext,
        committer: Committer,
        publisher: Publisher,
        snowflakes: Snowflakes,
        tables: TableDefinitions,
        snapshots: Snapshots,
        checkpoints: TableCheckpoints,
    ) -> None:
        self._context = context
        self._committer = committer
        self._publisher = publisher
        self._snowflakes = snowflakes
        self._tables = tables
        self.snapshots = snapshots
        self.checkpoints = checkpoints
        self.stats = SqlStats()
        """Kept here, because SQL is loaded only when it is needed."""
        self._durable: dict[PartitionId, Offset] = {}

    def next_transaction(self) -> int:
        """Return a new, unique transaction id."""
        return self._snowflakes.next()

    def now_ms(self) -> int:
        return self._context.clock.now_ms()

    async def commit(
        self,
        batches: Sequence[ChangeBatch],
        messages: Sequence[Message] = (),
        numbers: Mapping[TableId, Mapping[int, int]] = NO_NUMBERS,
    ) -> CommittedChanges:
        """Commit changes and messages in one frame, with the last numbers of identity columns. They are durable on return."""
        if not messages:
            return await self.submit(batches, numbers)
        publish = self._publisher.propose(messages)
        await publish.prepare()
        return await self._committer.submit(_CommitChanges(self._context, self._snowflakes, batches, publish, numbers))

    def submit(
        self, batches: Sequence[ChangeBatch], numbers: Mapping[TableId, Mapping[int, int]] = NO_NUMBERS
    ) -> asyncio.Future[CommittedChanges]:
        """Submit changes without messages. The future gets the result of `commit`."""
        return self._committer.submit(_CommitChanges(self._context, self._snowflakes, batches, None, numbers))

    def identity_numbers(self, table: Table) -> Mapping[int, int]:
        """Return the last numbers of a table's identity columns. May be called from any thread."""
        value = self._context.store.get(keys.identity_numbers_key(table.id))
        return {} if value is None else _decode_numbers(value)

    async def commit_snapshot(self, batches: Sequence[ChangeBatch], snapshot: RouteSnapshot) -> CommittedChanges | None:
        """Commit rows of a snapshot and its progress. Return `None`, and commit nothing, if its route was dropped."""
        changes = _CommitChanges(self._context, self._snowflakes, batches, None)
        return await self._committer.submit(_CommitSnapshot(changes, self.snapshots, snapshot, is_empty=not batches))

    def check(self, messages: Sequence[Message]) -> None:
        """Raise the error that a commit of these messages would raise."""
        self._publisher.propose(messages)

    def bounds(self, table: Table) -> OffsetBounds:
        """Return the offsets of the changes in the log."""
        return self._context.store.bounds(changes_partition(table))

    def read(self, table: Table, offset: Offset, max_bytes: int) -> list[Record]:
        """Read changes from this offset on; none at the end. May be called from any thread, and may wait for the disk."""
        store, limits = self._context.store, self._context.limits
        start, end = self.bounds(table)
        if offset < start:
            raise CorruptionError(
                f"table {table.name!r} has its changes up to offset {offset}, and the next ones, up to {start}, are not in the"
                " log any more, which has no checkpoint of the rows: restore the table file that belongs to this log"
            )
        if offset > end:
            raise CorruptionError(
                f"table {table.name!r} has changes up to offset {offset}, but the log starts at {start} and ends at {end}: the"
                " rows are ahead of it and can't be rebuilt"
            )
        if offset == end:
            return []
        fetched = store.fetch(changes_partition(table), offset, max_bytes)
        return [record for batch in fetched.batches for record in decode_batch(batch, limits) if record.offset >= offset]

    def checkpoint(self, table: Table) -> TableCheckpoint | None:
        """Return the newest checkpoint of the rows."""
        return self.checkpoints.find(table)

    def read_rows(self, table: Table, checkpoint: TableCheckpoint, offset: Offset, max_bytes: int) -> list[Record]:
        """Read the rows of a checkpoint from this record on; none at the end. May be called from any thread."""
        return self.checkpoints.read(table, checkpoint, offset, max_bytes)

    def applied(self, offsets: Mapping[TableId, Offset]) -> None:
        """Note that the rows of these tables are on disk with all changes below the offsets."""
        self._durable = {changes_partition(table): offsets[table.id] for table in self._tables if table.id in offsets}

    def floor(self, partition: PartitionId) -> Offset | None:
        """Return the offset where retention has to stop; `None` if the partition has no changes of a table."""
        table = self._tables.of_topic(partition.topic_id)
        if table is None:
            return None
        return min(self._durable.get(partition, _NOTHING_DURABLE), self.checkpoints.floor(table))


class _CommitChanges(Proposal[CommittedChanges]):
    __slots__ = ("_batches", "_context", "_mark_ms", "_numbers", "_publish", "_snowflakes")

    def __init__(
        self,
        context: PublishContext,
        snowflakes: Snowflakes,
        batches: Sequence[ChangeBatch],
        publish: PublishMessages | None,
        numbers: Mapping[TableId, Mapping[int, int]] = NO_NUMBERS,
    ) -> None:
        self._numbers = numbers
        self._context = context
        self._snowflakes = snowflakes
        self._batches = batches
        self._publish = publish
        self._mark_ms: int | None = None

    @property
    def held_bytes(self) -> int:
        held = sum(len(batch.batch) for batch in self._batches)
        return held if self._publish is None else held + self._publish.held_bytes

    def decide(self) -> Changes | None:
        draft = Draft(self._context.store)
        for table, batch, records, timestamp in self._batches:
            partition = changes_partition(table)
            draft.append(Append(partition, batch, records, timestamp, draft.next_offset(partition), timestamp))
        for table_id, last in self._numbers.items():
            draft.put(keys.identity_numbers_key(table_id), msgspec.msgpack.encode(last))
        self._mark_ms = self._snowflakes.due_mark()
        if self._mark_ms is not None:
            draft.put(keys.MESSAGE_ID_MARK, self._mark_ms.to_bytes(8))
        changes = draft.changes()
        published = self._publish.decide() if self._publish is not None else None
        if published is not None:
            changes = Changes(
                appends=(*changes.appends, *published.appends),
                puts=(*changes.puts, *published.puts),
            )
        return changes if changes.appends else None

    def settled(self, receipt: CommitReceipt | None) -> CommittedChanges:
        if receipt is None:
            duplicates = self._publish.settled(None) if self._publish is not None else []
            return CommittedChanges(self._context.store.end_cursor(), (), duplicates)
        if self._mark_ms is not None:
            self._snowflakes.marked(self._mark_ms)
        published: Sequence[Published] = ()
        if self._publish is not None:
            records = sum(batch.records for batch in self._batches)
            published = self._publish.settled(receipt._replace(cursor=Cursor(receipt.cursor + records)))
        ends = []
        for batch, base_offset in zip(self._batches, receipt.offsets, strict=False):
            ends.append(Offset(base_offset + batch.records))
            live = self._context.topics.by_id(batch.table.changes)
            if live is None:
                raise UnknownTopicError(f"the table {batch.table.name!r} was dropped together with its changes")
            self._context.arrived(live, changes_partition(batch.table), batch.records, len(batch.batch))
        return CommittedChanges(receipt.cursor, ends, published)

    def failed(self, error: Exception) -> None:
        if self._publish is not None:
            self._publish.failed(error)


class _CommitSnapshot(Proposal[CommittedChanges | None]):
    __slots__ = ("_changes", "_is_empty", "_snapshot", "_snapshots")

    def __init__(self, changes: _CommitChanges, snapshots: Snapshots, snapshot: RouteSnapshot, *, is_empty: bool) -> None:
        self._changes = changes
        self._snapshots = snapshots
        self._snapshot = snapshot
        self._is_empty = is_empty

    @property
    def held_bytes(self) -> int:
        return self._changes.held_bytes

    def decide(self) -> Changes | None:
        is_gone = self._snapshots.is_gone(self._snapshot.route)
        if is_gone is None:
            raise StillInFlight
        if is_gone:
            return None
        changes = None if self._is_empty else self._changes.decide()
        appends, puts = ((), ()) if changes is None else (changes.appends, changes.puts)
        return Changes(appends=appends, puts=(*puts, self._snapshots.put(self._snapshot)))

    def settled(self, receipt: CommitReceipt | None) -> CommittedChanges | None:
        if receipt is None:
            return None
        self._snapshots.settled(self._snapshot)
        return CommittedChanges(receipt.cursor, (), ()) if self._is_empty else self._changes.settled(receipt)
