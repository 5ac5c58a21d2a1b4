"""Takes checkpoints of tables: reads their rows in key order and appends them to the log, some at a time.

It has a connection of its own and reads what is committed at the time, so writers are not blocked. What they change after the
offset at which the checkpoint started is applied on top of it. A table that is altered meanwhile goes on in its new shape: each
record has the version of its row. `broker.tables.checkpoints` decides when a checkpoint is due and
knows what is in the log.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import apsw
import msgspec

from tailrace.broker.tables.change_log import ChangeLog
from tailrace.model.backoff import Backoff
from tailrace.model.commit import Append
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.model.table import Table, TableCheckpoint, checkpoint_partition
from tailrace.sql.tables.change_recorder import ChangeRecorder
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.database import abandon, open_reader
from tailrace.sql.tables.readers import check_versions
from tailrace.sql.tables.rows import TableRows, can_be_rebuilt
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_file import TableFile, check_sealed, is_damage

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 10.0


class _CheckpointPart(NamedTuple):
    """Rows as they are appended to the log, and the progress of the checkpoint with them."""

    moved: TableCheckpoint
    appends: Sequence[Append]
    is_done: bool


class CheckpointTask:
    """Runs on the event loop; rows are read and encoded in a thread."""

    def __init__(
        self,
        file: TableFile,
        catalog: TableCatalog,
        changes: ChangeLog,
        limits: Limits,
        why_not: Callable[[], Exception | None],
        on_damage: Callable[[Exception], None],
    ) -> None:
        self._file = file
        self._catalog = catalog
        self._changes = changes
        self._checkpoints = changes.checkpoints
        self._limits = limits
        self._why_not = why_not
        """Returns the error for readers while the tables are behind the log; otherwise `None`."""
        self._on_damage = on_damage
        self._thread = ThreadPoolExecutor(1, "tailrace-checkpoint")
        self._connection: apsw.Connection | None = None
        self._generation = -1
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)

    def start(self) -> None:
        """Continue the checkpoints that an earlier run left unfinished, and take one of each table that only the file has."""
        for of in self._catalog.events.values():
            if self._checkpoints.unfinished(of.table) is not None or not can_be_rebuilt(of.table, self._changes):
                self._checkpoints.want(of.table)
        self._checkpoints.is_served = True
        self._task = asyncio.create_task(self._run(), name="tailrace-checkpoints")

    async def close(self) -> None:
        self._checkpoints.is_served = False
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await asyncio.to_thread(self._thread.shutdown, wait=True)
        if self._connection is not None:
            abandon(self._connection)

    async def _run(self) -> None:
        while True:
            table = await self._checkpoints.next_wanted()
            try:
                await self._take(table)
            except Exception as error:  # noqa: BLE001  the top of a background task; the next attempt may succeed
                if is_damage(error):
                    self._on_damage(error)
                pause = self._backoff.next_pause()
                _log.warning("The checkpoint of table %s failed and is retried in %.2f s: %s", table.name, pause, error)
                self._checkpoints.want(table)
                await asyncio.sleep(pause)
            else:
                self._backoff.reset()

    async def _take(self, table: Table) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if (why_not := self._why_not()) is not None:
                raise why_not
            before = self._checkpoints.unfinished(table)
            piece = await loop.run_in_executor(self._thread, self._read, table, before)
            if piece is None:
                return
            moved = await self._checkpoints.append(table, before, piece.moved, piece.appends, is_done=piece.is_done)
            stats = self._changes.stats
            if moved is None:
                stats.checkpoint_rows.pop(table.name, None)
                return
            stats.checkpoint_rows[table.name] = moved.rows
            if piece.is_done:
                stats.checkpoints += 1
                del stats.checkpoint_rows[table.name]
                _log.info(
                    "The log has a checkpoint of table %s: %d rows, %d bytes, followed by the changes from offset %d.",
                    table.name,
                    moved.rows,
                    moved.bytes,
                    moved.offset,
                )
                return

    def _read(self, table: Table, before: TableCheckpoint | None) -> _CheckpointPart | None:
        """Return the next rows, or `None` if the table no longer exists."""
        of = self._catalog.events.get(table.name)
        if of is None or of.table.id != table.id:
            return None
        now_ms = self._changes.now_ms()
        limits = self._limits
        connection = self._connected()
        rows = TableRows(connection)
        connection.execute("BEGIN")
        try:
            offset = rows.offsets().get(table.id)
            if offset is None:
                return None
            check_versions(connection, (of.table,))
            begun = before or TableCheckpoint(table=table.id, offset=offset, first=Offset(0), end=Offset(0), began_ms=now_ms)
            found, is_done = rows.behind(of.table, begun.last_key, limits.snapshot_rows, limits.snapshot_bytes)
            check_sealed(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        recorder = ChangeRecorder(limits)
        try:
            recorder.begin(now_ms, {})
            recorder.transaction("")
            recorder.read(of, found, None)
            batches = recorder.batches()
        finally:
            recorder.close()
        partition = checkpoint_partition(table)
        appends = [
            Append(partition, batch.batch, batch.records, batch.timestamp, oldest_timestamp=batch.timestamp)
            for batch in batches
        ]
        moved = msgspec.structs.replace(
            begun,
            rows=begun.rows + len(found),
            bytes=begun.bytes + sum(len(batch.batch) for batch in batches),
            last_key=tuple(of.key_of(found[-1])) if found else begun.last_key,
        )
        return _CheckpointPart(moved, appends, is_done)

    def _connected(self) -> apsw.Connection:
        """Return a connection to the current file."""
        with self._file.lock:
            if self._connection is None or self._generation != self._file.generation:
                if self._connection is not None:
                    abandon(self._connection)
                self._connection = open_reader(self._file, self._limits)
                self._generation = self._file.generation
                register_collations(self._connection)
            return self._connection
