"""Checkpoints of the rows of tables: what the log keeps of a table when retention takes its oldest changes away.

A checkpoint is the rows of a table as records, in a partition beside its changes, and a value of the state that says which
records and from which change on the table is to be brought up. It is taken in pieces, each a commit that also says how far
it has come; the last one makes it the newest whole checkpoint and takes away the one before. So there is a whole one or
none, whatever dies in between, and one that was begun is finished by the next start.

Retention of changes never goes beyond the newest whole checkpoint. It asks for another when changes that are due wait for
it: as many bytes of them as the last checkpoint has, or for longer than `table_checkpoint_seconds`. Who reads the rows is
`sql.tables`, the only one who has them.
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
    """Asked for and taken on the event loop; `find`, `unfinished`, `floor` and `read` are for any thread."""

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
        """Whether somebody is there who takes them."""

    def find(self, table: Table) -> TableCheckpoint | None:
        """The newest that is whole."""
        value = self._store.get(keys.checkpoint_key(table.id))
        return None if value is None else _decode(value)

    def unfinished(self, table: Table) -> TableCheckpoint | None:
        """The one that is being taken."""
        value = self._store.get(keys.unfinished_checkpoint_key(table.id))
        return None if value is None else _decode(value)

    def floor(self, table: Table) -> Offset:
        """The first change that is needed to make the rows again."""
        found = self.find(table)
        return _NOTHING if found is None else found.offset

    def want(self, table: Table) -> None:
        """Have one taken as soon as possible."""
        self._wanted.add(table)
        self._is_wanted.set()

    async def next_wanted(self) -> Table:
        """The table of which one is to be taken next, once there is one."""
        while True:
            while self._wanted:
                table = self._wanted.pop()
                if not self._tables.is_dropped(table):
                    return table
            self._is_wanted.clear()
            await self._is_wanted.wait()

    def held_back(self, partition: PartitionId, start: Offset) -> None:
        """Retention would make `start` the first offset of these changes, and could not go so far."""
        table = self._tables.of_topic(partition.topic_id)
        if table is None or start <= self.floor(table):
            return
        last = self.find(table)
        if last is None or self._waiting_bytes(partition, last.offset, start) >= last.bytes or self._is_old(last):
            self.want(table)

    async def cover(self, partition: PartitionId, start: Offset) -> None:
        """Have one taken that makes the changes before `start` dispensable, if somebody takes them and it is soon done."""
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
        """Rows of a checkpoint, and how far it is with them, in one commit. `None` when the table was dropped: then nothing."""
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
        """Its rows from a record on; none at the end. For any thread: it may wait for the disk."""
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
