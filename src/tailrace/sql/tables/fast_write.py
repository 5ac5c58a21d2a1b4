"""Fast path of `group_commit.py`: a small write that comes alone runs on the event loop.

A write of one client would otherwise pass from the event loop to the writer's thread, back for the commit of the log, and once
more there and back for the commit of SQLite. Triggered by a transaction of one short statement without queries and messages
while the writer's thread waits for work. The event loop borrows the connection (`JobQueue.lend`) until SQLite has committed;
writes that come meanwhile are queued, and the thread runs them as a group. A statement that takes longer than its time slice
is rolled back and queued, and the next ones are queued for a while too (`EventLoopTime`).
`tests/unit/sql/tables/test_fast_write.py` holds both ways equal.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tailrace.broker.tables.change_log import ChangeBatch, ChangeLog, CommittedChanges
from tailrace.model.clock import Clock
from tailrace.model.ids import TableId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import KIB, Limits
from tailrace.sql.statements import Write
from tailrace.sql.tables.database import failure_of
from tailrace.sql.tables.jobs import CatchUpJob, JobQueue, JobReplies, WriteJob
from tailrace.sql.tables.statement_guard import EventLoopTime, TimeSlice
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_storage import TableStorage

_SMALL_BYTES = 16 * KIB
_SLICE = TimeSlice(EventLoopTime.SLICE_SECONDS, lambda: True)

CountWritten = Callable[[Sequence[WriteJob], Sequence[ChangeBatch], float], None]
"""Counts jobs that are committed; the last argument is when the commit was started."""


class FastWriter:
    """Runs jobs on the event loop, one at a time."""

    def __init__(
        self,
        storage: TableStorage,
        queue: JobQueue,
        replies: JobReplies,
        catalog: TableCatalog,
        changes: ChangeLog,
        clock: Clock,
        limits: Limits,
        count: CountWritten,
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._replies = replies
        self._catalog = catalog
        self._changes = changes
        self._clock = clock
        self._limits = limits
        self._count = count
        self._time = EventLoopTime(clock)

    def start(self, job: WriteJob) -> bool:
        """Run a job, if it is of the kind and the connection is free. Return false if it has to be queued."""
        began = self._time.begin()
        if began is None or not _is_small(job) or not self._queue.lend():
            return False
        connection = self._storage.connection
        is_committing = False
        try:
            if connection.is_due_for_checkpoint:
                return False
            job.submitted = began
            connection.begin(self._changes.now_ms(), self._changes.snapshots.running)
            connection.run(job, _SLICE)
            batches = connection.recorder.batches()
            if not batches:
                self._replies.written([job], None)
                return True
            killpoint("change.made")
            numbers = self._catalog.numbers.unsaved()
            committing = self._changes.submit(batches, numbers)
            committing.add_done_callback(partial(self._logged, job, batches, numbers, self._clock.monotonic()))
            is_committing = True
        except Exception as error:  # noqa: BLE001  whatever it is, it concerns only this client
            if connection.was_preempted:
                return False
            self._replies.reject([job], self._storage.failure(connection.judged(error)))
        finally:
            self._time.end(began)
            if not is_committing:
                self._end()
        return True

    def _logged(
        self,
        job: WriteJob,
        batches: Sequence[ChangeBatch],
        numbers: Mapping[TableId, Mapping[int, int]],
        started: float,
        committing: "asyncio.Future[CommittedChanges]",
    ) -> None:
        """Commit to SQLite what the log has, and send the results."""
        left: CatchUpJob | None = None
        try:
            error = committing.exception()
            if error is not None:
                self._replies.reject([job], self._storage.failure(error))  # type: ignore[arg-type]
                return
            committed = committing.result()
            self._catalog.numbers.saved(numbers)
            began = self._clock.monotonic()
            try:
                self._storage.apply(batches, committed)
            except Exception as failure:  # noqa: BLE001  the log has the changes, whatever the error of SQLite is
                left = CatchUpJob(failure, job, committed, committing.get_loop().create_future())
                return
            self._time.end(began)
            self._count([job], batches, started)
            self._replies.written([job], committed)
        except Exception as error:  # noqa: BLE001  the client must get an answer
            unexpected = failure_of(error, self._limits)
            unexpected.__dict__["outcome"] = "unknown"
            self._replies.reject([job], unexpected)
        finally:
            self._end(left)

    def _end(self, left: CatchUpJob | None = None) -> None:
        """Roll back what was not committed, and return the connection."""
        try:
            if left is None:
                self._storage.connection.roll_back()
        finally:
            self._queue.give_back(left)


def _is_small(job: WriteJob) -> bool:
    if len(job.statements) != 1 or job.messages or job.size > _SMALL_BYTES or job.timing is not None or job.filling is not None:
        return False
    (statement,) = job.statements
    return isinstance(statement, Write) and statement.queries is None
