"""The one thread that writes to the tables: takes jobs in order, runs each against SQLite and the log, and sends the results.

Writes of clients run in groups (`group_commit`). Tables that are created, altered or dropped, routes with a snapshot and the
rows of snapshots run between the groups: no change comes between reading rows and logging them, so the log tells what happened
to a row in the order in which it happened. `table_storage` repairs the file when it is damaged or behind the log.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from tailrace.broker.tables.change_log import ChangeLog
from tailrace.model.clock import Clock
from tailrace.model.errors import StorageFailedError, TailraceError, UnknownTableError
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.sql.tables.alter import alter_table
from tailrace.sql.tables.database import failure_of
from tailrace.sql.tables.fast_write import FastWriter
from tailrace.sql.tables.group_commit import TableGroupCommit
from tailrace.sql.tables.jobs import (
    AlterJob,
    CatchUpJob,
    IndexJob,
    JobQueue,
    JobReplies,
    RebuildJob,
    RevealJob,
    RouteJob,
    SchemaJob,
    SnapshotJob,
    TableJob,
    TypeJob,
    WriteJob,
)
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_storage import TableStorage
from tailrace.sql.tables.writer_connection import WriterConnection

_log = logging.getLogger(__name__)

_IDLE_SECONDS = 0.5


class TableWriter:
    """Takes jobs on the event loop, runs them in its thread and sets their results on the event loop."""

    def __init__(
        self,
        open_connection: Callable[[], WriterConnection],
        why_rebuild: Callable[[], str | None],
        rebuild: Callable[[], int],
        catalog: TableCatalog,
        changes: ChangeLog,
        clock: Clock,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._catalog = catalog
        self._changes = changes
        self._stats = changes.stats
        self._limits = limits
        self._loop = loop
        self.queue = JobQueue(clock, limits, changes.stats)
        self._replies = replies = JobReplies(loop)
        self._storage = storage = TableStorage(
            open_connection, why_rebuild, rebuild, catalog, changes, self.queue, replies, limits, loop
        )
        self._taken: list[TableJob] = []
        """The jobs that the thread works on; each of them gets a result or an error, whatever happens."""
        self._group_commit = TableGroupCommit(storage, self.queue, replies, self._taken, catalog, changes, clock, limits, loop)
        self._fast = FastWriter(storage, self.queue, replies, catalog, changes, clock, limits, self._group_commit.count)
        self._thread = threading.Thread(target=self._run, name="tailrace-tables", daemon=True)
        self._opened: asyncio.Future[int] = loop.create_future()
        self.damaged = storage.damaged

    async def start(self) -> int:
        """Open the file, apply what the log has beyond it, and return the number of changes applied."""
        self._thread.start()
        return await self._opened

    @property
    def behind(self) -> TailraceError | None:
        """The error for readers and writers while the tables lack changes that the log has; otherwise `None`."""
        return self.queue.rejection

    def write(self, job: WriteJob) -> None:
        """Run a job at once if it is small and comes alone; else queue it."""
        if not self._fast.start(job):
            self.queue.put(job)

    async def close(self) -> None:
        """Finish the jobs that were accepted, end the thread and close the file."""
        self.queue.close()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            applied = self._storage.open()
            self._storage.checkpoint()
        except Exception as error:  # noqa: BLE001  the top of the thread: raised to the caller of `start`
            self._replies.call(self._opened.set_exception, failure_of(error, self._limits))
            return
        self._stats.replayed_changes = applied
        self._replies.call(self._opened.set_result, applied)
        try:
            while (job := self._next()) is not None:
                self._run_job(job)
            self._storage.connection.close()
        except BaseException as error:  # the thread ends here: nobody may wait for it
            _log.exception("The writer of the tables has stopped.")
            stopped = StorageFailedError(f"writing to tables has stopped because of {error!r}; restart the server")
            left = self.queue.reject(stopped)
            self._replies.reject([*self._taken, *left], stopped)
            raise

    def _next(self) -> TableJob | None:
        """Return the next job, waiting for one; `None` when the writer closes. Idle time is used for a checkpoint."""
        self._taken.clear()
        if self._storage.connection.is_due_for_checkpoint:
            self._storage.checkpoint()
        while self.queue.wait_idle(_IDLE_SECONDS):
            self._storage.checkpoint()
            self.queue.wait()
        job = self.queue.take()
        if job is not None:
            self._taken.append(job)
        return job

    def _run_job(self, job: TableJob) -> None:
        try:
            match job:
                case WriteJob():
                    self._group_commit.run(job)
                case SchemaJob():
                    self._change_schema(job)
                case AlterJob():
                    self._alter(job)
                case IndexJob():
                    self._change_indexes(job)
                case TypeJob():
                    self._change_type(job)
                case RouteJob():
                    self._add_route(job)
                case RevealJob():
                    self._reveal(job)
                case SnapshotJob():
                    self._read_snapshot(job)
                case RebuildJob():
                    self._storage.run_rebuild(job)
                case CatchUpJob():
                    if self._storage.catch_up(job.error, [job.write]):
                        self._replies.written([job.write], job.committed)
        except Exception as error:  # noqa: BLE001  the thread must go on for the other clients
            failure = failure_of(error, self._limits)
            # After an unexpected error it is not known whether the log has the changes.
            failure.__dict__["outcome"] = "unknown"
            if self._storage.catch_up(error, self._taken):
                self._replies.reject(self._taken, failure)

    def _change_schema(self, job: SchemaJob) -> None:
        connection = self._storage.connection
        try:
            if job.makes is not None and self._catalog.find(job.makes.name) is None:
                connection.try_out(job.makes)
            table = asyncio.run_coroutine_threadsafe(job.log(), self._loop).result()
        except Exception as error:  # noqa: BLE001  errors of SQLite and of the log are for the client
            connection.roll_back()
            self._replies.reject([job], self._storage.failure(error))
            return
        killpoint("change.logged")
        if job.drops is None:
            self._catalog.add([table])
        else:
            self._catalog.remove(table)
            del self._stats.rows[table.name]
        try:
            connection.change_schema(table, job.drops)
        except Exception as error:  # noqa: BLE001  the log has the change, whatever the error of SQLite is
            if not self._storage.catch_up(error, [job]):
                return
        self._replies.done(job, table)

    def _alter(self, job: AlterJob) -> None:
        """Alter a table: rows first, in a transaction that is committed when the log has the new definition."""
        connection = self._storage.connection
        try:
            table = self._catalog.find(job.asked.name)
            if table is None:
                raise UnknownTableError(f"there is no table {job.asked.name!r}", job.asked.line, job.asked.column)
            altered = alter_table(table, job.asked, self._limits, self._changes.now_ms())
            if altered is None:
                self._replies.done(job, table)
                return
            connection.alter(table, altered)
            killpoint("change.made")
            asyncio.run_coroutine_threadsafe(job.log(table, altered), self._loop).result()
        except Exception as error:  # noqa: BLE001  errors of SQLite and of the log are for the client
            connection.roll_back()
            self._replies.reject([job], self._storage.failure(error))
            return
        killpoint("change.logged")
        self._catalog.replace(table, altered.table)
        try:
            connection.commit({})
        except Exception as error:  # noqa: BLE001  the log has the change, whatever the error of SQLite is
            if not self._storage.catch_up(error, [job]):
                return
        killpoint("change.applied")
        self._replies.done(job, altered.table)

    def _change_indexes(self, job: IndexJob) -> None:
        """Make or drop indexes, in a transaction that is committed when the log has the new definition."""
        connection = self._storage.connection
        try:
            table = self._catalog.find(job.table)
            if table is None:
                raise UnknownTableError(f"there is no table {job.table!r}")
            changed = job.change(table)
            connection.change_indexes(changed)
            killpoint("change.made")
            asyncio.run_coroutine_threadsafe(job.log(table, changed), self._loop).result()
        except Exception as error:  # noqa: BLE001  errors of SQLite and of the log are for the client
            connection.roll_back()
            self._replies.reject([job], self._storage.failure(error))
            return
        killpoint("change.logged")
        self._catalog.replace(table, changed)
        try:
            connection.commit({})
        except Exception as error:  # noqa: BLE001  the log has the change, whatever the error of SQLite is
            if not self._storage.catch_up(error, [job]):
                return
        killpoint("change.applied")
        self._replies.done(job, changed)

    def _change_type(self, job: TypeJob) -> None:
        try:
            changed = asyncio.run_coroutine_threadsafe(job.log(), self._loop).result()
        except Exception as error:  # noqa: BLE001  errors of the log are for the client
            self._replies.reject([job], self._storage.failure(error))
            return
        for table, new in changed:
            self._catalog.replace(table, new)
        self._replies.done(job, None)

    def _add_route(self, job: RouteJob) -> None:
        """Add a route in this thread, because changes on their way to the log do not know of the route yet."""
        if job.future.cancelled():
            return
        try:
            route = asyncio.run_coroutine_threadsafe(job.log(), self._loop).result()
        except Exception as error:  # noqa: BLE001  errors of the log are for the client
            self._replies.reject([job], self._storage.failure(error))
            return
        self._replies.done(job, route)

    def _reveal(self, job: RevealJob) -> None:
        """Make a table visible, even if the client no longer waits: its rows are complete."""
        try:
            table = asyncio.run_coroutine_threadsafe(job.log(), self._loop).result()
        except Exception as error:  # noqa: BLE001  errors of the log are for the client
            self._replies.reject([job], self._storage.failure(error))
            return
        killpoint("fill.revealed")
        self._catalog.add([table])
        self._replies.done(job, table)

    def _read_snapshot(self, job: SnapshotJob) -> None:
        """Log the next rows of a snapshot."""
        connection = self._storage.connection
        snapshot = self._changes.snapshots.find(job.route)
        if snapshot is not None and not snapshot.is_done and not job.future.cancelled():
            connection.begin(self._changes.now_ms(), self._changes.snapshots.running)
            try:
                moved = connection.read_snapshot(snapshot, job.tx)
                batches = connection.recorder.batches()
                killpoint("change.made")
                committing = self._changes.commit_snapshot(batches, moved)
                committed = asyncio.run_coroutine_threadsafe(committing, self._loop).result()
            except Exception as error:  # noqa: BLE001  whatever it is, the snapshot is tried again
                connection.roll_back()
                self._replies.reject([job], self._storage.failure(error))
                return
            if committed is None:
                connection.roll_back()
            elif not self._storage.commit(batches, committed, [job]):
                return
        self._replies.done(job, None)
