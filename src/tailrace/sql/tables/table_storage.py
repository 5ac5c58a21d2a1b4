"""The writer's side of the tables' file: opens it, commits to it what the log has, and repairs it.

The log is the truth. If SQLite can't commit although the log has the changes, the tables are *behind*: nobody reads or writes
them until the changes are applied. If the file is damaged, the same holds until it is rebuilt from the log (`rows.rebuild`).
Everything here is used by the owner of the connection (`jobs.JobQueue`), except `damaged`, which any thread may call.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from tailrace.broker.tables.change_log import ChangeBatch, ChangeLog, CommittedChanges
from tailrace.model.backoff import Backoff
from tailrace.model.errors import OverloadedError, TablesBehindError, TailraceError
from tailrace.model.ids import Offset, TableId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.sql.tables.database import failure_of
from tailrace.sql.tables.jobs import JobQueue, JobReplies, RebuildJob, TableJob
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_file import is_damage
from tailrace.sql.tables.writer_connection import WriterConnection

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 2.0


class TableStorage:
    def __init__(
        self,
        open_connection: Callable[[], WriterConnection],
        why_rebuild: Callable[[], str | None],
        rebuild: Callable[[], int],
        catalog: TableCatalog,
        changes: ChangeLog,
        queue: JobQueue,
        replies: JobReplies,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._open_connection = open_connection
        self._why_rebuild = why_rebuild
        self._rebuild = rebuild
        self._catalog = catalog
        self._changes = changes
        self._stats = changes.stats
        self._queue = queue
        self._replies = replies
        self._limits = limits
        self._loop = loop
        self._is_rebuild_queued = False
        self.connection: WriterConnection
        """Replaced when the file is rebuilt."""

    def open(self) -> int:
        """Open the file, rebuild it first if necessary, apply what it lacks, and return the number of changes applied."""
        why = self._why_rebuild()
        if why is None:
            try:
                self.connection = self._open_connection()
                return self.connection.bring_up(self._changes)
            except Exception as error:
                if not is_damage(error):
                    raise
                self._stats.rebuilds += 1
                why = f"is damaged ({error})"
        if any(self._catalog.events):
            _log.warning("The file of the tables %s. It is rebuilt from the log.", why)
        applied = self._rebuild()
        self.connection = self._open_connection()
        return applied + self.connection.bring_up(self._changes)

    def checkpoint(self) -> None:
        """Sync what was committed, and report to the log which changes are durable in the tables."""
        try:
            durable = self.connection.checkpoint()
        except Exception as error:  # noqa: BLE001  the thread must go on for the clients
            # Nothing is lost: the log keeps the changes until a checkpoint succeeds.
            _log.warning("The tables could not be synced: %s. The next attempt follows the next change.", self.failure(error))
            return
        if durable is not None:
            self._replies.call(self._changes.applied, durable)

    def commit(self, batches: Sequence[ChangeBatch], committed: CommittedChanges, jobs: Sequence[TableJob]) -> bool:
        """Commit to SQLite what the log has. Returns false if the clients of the jobs were already sent an error."""
        try:
            self.apply(batches, committed)
        except Exception as error:  # noqa: BLE001  the log has the changes, whatever the error of SQLite is
            return self.catch_up(error, jobs)
        return True

    def apply(self, batches: Sequence[ChangeBatch], committed: CommittedChanges) -> None:
        """Commit to SQLite what the log has. If that fails, call `catch_up` in the writer's thread."""
        killpoint("change.logged")
        reached: dict[TableId, Offset] = {}
        for batch, end in zip(batches, committed.ends, strict=True):
            reached[batch.table.id] = end
        self.connection.commit(reached)
        killpoint("change.applied")

    def catch_up(self, error: Exception, jobs: Sequence[TableJob]) -> bool:
        """Apply what the log has and the tables lack, retrying until that succeeds.

        Returns false if the clients of the jobs were sent an error because the first attempt failed.
        """
        damage = error if is_damage(error) else None
        if damage is None:
            self.connection.roll_back()
            _log.error("A write to tables did not finish (%s). What the log has of it is applied.", error)
        else:
            _log.error("The file of the tables is damaged (%s). It is rebuilt from the log.", error)
        is_rejected = False
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        while True:
            self._stats.behind = str(error)
            try:
                if damage is None:
                    self.connection.bring_up(self._changes)
                else:
                    self._replace(damage)
            except Exception as again:  # noqa: BLE001  whatever it is, the next attempt may succeed
                error = again
                if is_damage(again):
                    damage = again
                elif damage is None:
                    self.connection.roll_back()
                behind = TablesBehindError(
                    f"the tables lack changes that are in the log, and the server keeps trying to apply them: {again};"
                    " try again later"
                )
                waiting = self._queue.reject(behind)
                if not is_rejected:
                    self._replies.reject(jobs, behind)
                    is_rejected = True
                self._replies.reject(waiting, OverloadedError(f"nothing was written: {again}; try again later"))
                if not self._queue.pause(backoff.next_pause()):
                    return False
                continue
            self._queue.accept()
            self._stats.behind = ""
            _log.warning("The tables are up to date with the log again.")
            return not is_rejected

    def run_rebuild(self, job: RebuildJob) -> None:
        self._is_rebuild_queued = False
        self.catch_up(job.error, [job])

    def damaged(self, error: Exception) -> None:
        """Queue a rebuild of the file because this error was found in it. May be called from any thread."""
        self._replies.call(self._queue_rebuild, error)

    def failure(self, error: Exception) -> TailraceError:
        """Return the error that a client gets for an error of a statement. A damaged file is also queued for a rebuild."""
        if is_damage(error):
            self.damaged(error)
        return failure_of(error, self._limits)

    def _replace(self, damage: Exception) -> None:
        """Rebuild the damaged file. Nobody reads or writes tables meanwhile."""
        rejection = failure_of(damage, self._limits)
        self._replies.reject(self._queue.reject(rejection), rejection)
        self.connection.abandon()
        self._rebuild()
        self.connection = self._open_connection()
        self.connection.bring_up(self._changes)
        self._stats.rebuilds += 1

    def _queue_rebuild(self, error: Exception) -> None:
        if self._is_rebuild_queued:
            return
        try:
            self._queue.put(RebuildJob(error, self._loop.create_future()))
        except TailraceError as rejection:
            _log.warning("The file of the tables is damaged (%s) and can't be rebuilt now: %s", error, rejection)
        else:
            self._is_rebuild_queued = True
