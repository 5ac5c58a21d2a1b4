"""Checkpoints of the rows of tables, from which a table can be rebuilt after retention has removed its oldest changes.

A checkpoint consists of the rows of a table as records, in a partition beside its changes, and a value of the state that says
which records they are and which change comes next. It is written in several commits, each of which also stores its progress;
the last one makes it the newest complete checkpoint and removes the previous one. So a crash never leaves an incomplete one,
and a checkpoint that was started is finished after the next start.

Retention never removes changes after the newest complete checkpoint. It requests a new one when changes wait to be removed: as
many bytes as the last checkpoint has, or for longer than `table_checkpoint_seconds`. `sql.tables`, which has the rows, writes
them.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.tables.tables import TableDefinitions
from tailrace.model.clock import Clock
from tailrace.model.commit import Append, Changes, CommitReceipt
from tailrace.model.errors import UnknownPartitionError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.model.record import Record
from tailrace.model.table import Table, TableCheckpoint, checkpoint_partition
from tailrace.store.contract import Store
from tailrace.wire.records import decode_batch

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TableCheckpoint).decode

_NOTHING = Offset(0)
_COVER_SECONDS = 10.0


class TableCheckpoints:
    """Used on the event loop; `find`, `unfinished`, `floor` and `read` may be called from any thread."""

    def __init__(self, store: Store, committer: Committer, tables: TableDefinitions, clock: Clock, limits: Limits) -> None:
        self._store = store
        self._committer = committer
        self._tables = tables
        self._clock = clock
        self._limits = limits
        self._wanted: set[Table] = set()
        self._is_wanted = asyncio.Event()
        self._is_taken = asyncio.Event()
        self.is_served = False
        """Whether `sql.tables` runs, which writes checkpoints."""

    def find(self, table: Table) -> TableCheckpoint | None:
        """Return the newest complete checkpoint."""
        value = self._store.get(keys.checkpoint_key(table.id))
        return None if value is None else _decode(value)

    def unfinished(self, table: Table) -> TableCheckpoint | None:
        """Return the checkpoint that is being written."""
        value = self._store.get(keys.unfinished_checkpoint_key(table.id))
        return None if value is None else _decode(value)

    def floor(self, table: Table) -> Offset:
        """Return the first change that is needed to rebuild the rows."""
        found = self.find(table)
        return _NOTHING if found is None else found.offset

    def want(self, table: Table) -> None:
        """Request a checkpoint as soon as possible."""
        self._wanted.add(table)
        self._is_wanted.set()

    async def next_wanted(self) -> Table:
        """Wait for a request, and return its table."""
        while True:
            while self._wanted:
                table = self._wanted.pop()
                if not self._tables.is_dropped(table):
                    return table
            self._is_wanted.clear()
            await self._is_wanted.wait()

    def held_back(self, partition: PartitionId, start: Offset) -> None:
        """Request a checkpoint if it is due. Retention calls this when it could not remove all changes before `start`."""
        table = self._tables.of_topic(partition.topic_id)
        if table is None or start <= self.floor(table):
            return
        last = self.find(table)
        if last is None or self._waiting_bytes(partition, last.offset, start) >= last.bytes or self._is_old(last):
            self.want(table)

    async def cover(self, partition: PartitionId, start: Offset) -> None:
        """Request a checkpoint that covers the changes before `start`, and wait a while for it."""
        table = self._tables.of_topic(partition.topic_id)
        if table is None or not self.is_served:
            return
        try:
            async with asyncio.timeout(_COVER_SECONDS):
                while self.floor(table) < start and not self._tables.is_dropped(table):
                    self.want(table)
                    taken = self._is_taken
                    await taken.wait()
        except TimeoutError:
            return

    async def append(
        self, table: Table, before: TableCheckpoint | None, moved: TableCheckpoint, appends: Sequence[Append], *, is_done: bool
    ) -> TableCheckpoint | None:
        """Commit rows of a checkpoint and its progress. Return `None`, and commit nothing, if the table was dropped."""
        partition = checkpoint_partition(table)
        made: list[TableCheckpoint] = []

        def decide() -> Changes | None:
            made.clear()
            if self._tables.is_dropped(table):
                return None
            creates: tuple[tuple[TopicId, int], ...] = ()
            try:
                end = self._store.next_offset(partition)
            except UnknownPartitionError:
                creates, end = ((table.changes, partition.number + 1),), Offset(0)
            first = end if before is None else before.first
            placed = []
            for append in appends:
                placed.append(append._replace(base_offset=end))
                end = Offset(end + append.records)
            checkpoint = msgspec.structs.replace(moved, first=first, end=end)
            made.append(checkpoint)
            unfinished = keys.unfinished_checkpoint_key(table.id)
            if not is_done:
                return Changes(creates=creates, appends=placed, puts=((unfinished, _encode(checkpoint)),))
            return Changes(
                creates=creates,
                trims=((partition, first),) if self._has_older(partition, first) else (),
                appends=placed,
                puts=((keys.checkpoint_key(table.id), _encode(checkpoint)), (unfinished, None)),
            )

        def settled(receipt: CommitReceipt | None) -> TableCheckpoint | None:
            if receipt is None:
                return None
            if is_done:
                self._is_taken.set()
                self._is_taken = asyncio.Event()
            return made[0]

        killpoint("rows.read")
        appended = await self._committer.submit(Change(decide, settled))
        killpoint("rows.done" if is_done else "rows.between")
        return appended

    def read(self, table: Table, checkpoint: TableCheckpoint, offset: Offset, max_bytes: int) -> list[Record]:
        """Read its rows from this record on; none at the end. May be called from any thread, and may wait for the disk."""
        if offset >= checkpoint.end:
            return []
        fetched = self._store.fetch(checkpoint_partition(table), offset, max_bytes)
        records = [record for batch in fetched.batches for record in decode_batch(batch, self._limits)]
        return [record for record in records if offset <= record.offset < checkpoint.end]

    def _has_older(self, partition: PartitionId, first: Offset) -> bool:
        try:
            return self._store.bounds(partition).start < first
        except UnknownPartitionError:
            return False

    def _waiting_bytes(self, partition: PartitionId, floor: Offset, start: Offset) -> int:
        return self._store.size(partition, floor) - self._store.size(partition, start)

    def _is_old(self, checkpoint: TableCheckpoint) -> bool:
        return self._clock.now_ms() - checkpoint.began_ms >= self._limits.table_checkpoint_seconds * 1000
