"""Writes of many clients in one transaction of SQLite and one commit of the log.

A group goes through four steps:

1. The statements of all waiting clients run inside one SQLite transaction. One that fails is rolled back alone.
2. The change events of all of them become one commit of the log, which is synced once.
3. SQLite commits without a sync, together with the offsets that its tables have reached.
4. The clients get their results.

A transaction that exceeds its time slice while others wait is rolled back and queued as a long one; a long one runs alone,
between two groups. It may take `write_turn_ms` while others wait, and as long as any statement while nobody does. It is
rejected when it was interrupted three times.

If the log rejects a commit, SQLite rolls back and the clients get the error. If the process dies after step 2, the events are
applied when the tables are opened.
"""

import asyncio
from collections.abc import Sequence

from tailrace.broker.tables.change_log import ChangeBatch, ChangeLog
from tailrace.model.clock import Clock
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.sql.tables.jobs import JobQueue, JobReplies, TableJob, WriteJob
from tailrace.sql.tables.statement_guard import TimeSlice
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_storage import TableStorage

_GROUP_JOBS = 1_000
_FIRST_SLICE_SECONDS = 0.02
"""How long a transaction that is not known to be long may take while others wait."""
_MAX_INTERRUPTIONS = 3
_NO_LIMIT = TimeSlice(0.0, lambda: False)


class TableGroupCommit:
    """Runs write jobs in the writer's thread."""

    def __init__(
        self,
        storage: TableStorage,
        queue: JobQueue,
        replies: JobReplies,
        taken: list[TableJob],
        catalog: TableCatalog,
        changes: ChangeLog,
        clock: Clock,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._replies = replies
        self._taken = taken
        """The jobs that the writer's thread has taken and not answered yet."""
        self._catalog = catalog
        self._changes = changes
        self._stats = changes.stats
        self._clock = clock
        self._limits = limits
        self._loop = loop

    def run(self, first: WriteJob) -> None:
        """Run a job, and those that wait behind it, as one group."""
        connection = self._storage.connection
        self._begin()
        done: list[WriteJob] = []
        job: WriteJob | None = first
        while job is not None:
            is_full = job.is_long
            if not job.future.done():
                if self._run_job(job, self._time_slice(job, done)):
                    done.append(job)
                elif not connection.is_open:
                    # SQLite rolled back the whole transaction: the others run again, and wait for no more jobs.
                    done = self._run_again(done)
                    is_full = True
            is_full = is_full or len(done) >= _GROUP_JOBS or connection.recorder.size >= self._limits.group_commit_bytes
            job = None if is_full else self._next()
        if done:
            self._commit(done)
        else:
            connection.roll_back()

    def _next(self) -> WriteJob | None:
        job = self._queue.take_write()
        if job is not None:
            self._taken.append(job)
        return job

    def _run_again(self, jobs: Sequence[WriteJob]) -> list[WriteJob]:
        """Run jobs in a new transaction after theirs was rolled back, and return those that succeeded again."""
        left = list(jobs)
        while True:
            self._begin()
            done: list[WriteJob] = []
            for number, job in enumerate(left, start=1):
                if self._run_job(job, _NO_LIMIT):
                    done.append(job)
                elif not self._storage.connection.is_open:
                    left = [*done, *left[number:]]
                    break
            else:
                return done

    def _time_slice(self, job: WriteJob, done: Sequence[WriteJob]) -> TimeSlice:
        if job.is_long:
            return TimeSlice(self._limits.write_turn_ms / 1000, lambda: self._queue.has_waiting)
        # The jobs of the group that are done wait too, for the commit.
        return TimeSlice(_FIRST_SLICE_SECONDS, lambda: bool(done) or self._queue.has_waiting)

    def _run_job(self, job: WriteJob, time_slice: TimeSlice) -> bool:
        """Run a job and return whether it succeeded. If not, its client gets the error, or the job is queued again."""
        connection = self._storage.connection
        started = self._clock.monotonic()
        try:
            connection.run(job, time_slice)
            if job.timing is not None:
                job.timing.run_seconds = self._clock.monotonic() - started
        except Exception as error:  # noqa: BLE001  whatever it is, it concerns only this client
            if connection.was_preempted:
                job.interruptions += job.is_long
                if job.interruptions < _MAX_INTERRUPTIONS:
                    self._taken.remove(job)
                    self._queue.put_back(job)
                    return False
            self._replies.reject([job], self._storage.failure(connection.judged(error)))
            return False
        return True

    def _commit(self, jobs: list[WriteJob]) -> None:
        connection = self._storage.connection
        messages = [message for job in jobs for message in job.messages]
        batches = connection.recorder.batches()
        if not batches and not messages:
            connection.roll_back()
            self._replies.written(jobs, None)
            return
        killpoint("change.made")
        started = self._clock.monotonic()
        try:
            numbers = self._catalog.numbers.unsaved()
            committing = self._changes.commit(batches, messages, numbers)
            committed = asyncio.run_coroutine_threadsafe(committing, self._loop).result()
        except Exception as error:  # noqa: BLE001  the error of the log is for all clients of the group
            connection.roll_back()
            failure = self._storage.failure(error)
            if len(jobs) > 1 and not failure.retriable:
                self._commit_one_by_one(jobs)
            else:
                self._replies.reject(jobs, failure)
            return
        self._catalog.numbers.saved(numbers)
        if not self._storage.commit(batches, committed, jobs):
            return
        self.count(jobs, batches, started)
        self._replies.written(jobs, committed)

    def _commit_one_by_one(self, jobs: Sequence[WriteJob]) -> None:
        """Commit each job alone, after the log rejected the group for good because of one of them."""
        for job in jobs:
            done = self._run_again([job])
            if done:
                self._commit(done)
            else:
                self._storage.connection.roll_back()

    def count(self, jobs: Sequence[WriteJob], batches: Sequence[ChangeBatch], started: float) -> None:
        """Count jobs whose commit was started at this time and is done."""
        stats, now = self._stats, self._clock.monotonic()
        stats.transactions += len(jobs)
        stats.transactions_per_commit.observe(len(jobs))
        for batch in batches:
            stats.rows[batch.table.name] += batch.records
        for job in jobs:
            stats.write_seconds.observe(now - job.submitted)
            if job.timing is not None:
                job.timing.commit_seconds = now - started

    def _begin(self) -> None:
        self._storage.connection.begin(self._changes.now_ms(), self._changes.snapshots.running)
