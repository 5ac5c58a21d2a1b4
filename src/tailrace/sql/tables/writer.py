"""The one thread that writes to the tables: statements of many clients in one transaction of SQLite and one commit of the log.

A group goes through four steps:

1. The statements of all clients that wait are run inside one SQLite transaction. One that fails is taken back alone.
2. The change events of all of them become one commit of the log, which is synced once.
3. SQLite commits, without a sync, together with the offsets that its tables have reached.
4. The clients are answered.

The rows of a snapshot go the same way, in turns of their own between the groups: no change comes between reading them and
logging them, so what the log says about a row is in the order in which it was.

If the log refuses, SQLite rolls back and the clients are told. If the process dies after 2, opening applies the events. If
SQLite can't commit although the log has, the tables are *behind*: nobody reads or writes them until the events are applied.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from tailrace.broker.change_log import ChangeBatch, ChangeLog, Committed
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    OverloadedError,
    StorageFailedError,
    StoreClosedError,
    TablesBehindError,
    TailraceError,
)
from tailrace.model.ids import Cursor, Offset, TableId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tailrace.sql.tables.execution import Execution
from tailrace.sql.tables.failures import failure_of
from tailrace.sql.tables.jobs import Job, RouteJob, SchemaJob, SnapshotJob, WriteJob
from tailrace.sql.tables.library import Library
from tailrace.sql.unknown_columns import with_place

_log = logging.getLogger(__name__)

_GROUP_JOBS = 1_000
_IDLE_SECONDS = 0.5
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


class TableWriter:
    """Takes jobs on the event loop, runs them in its thread, answers on the event loop."""

    def __init__(
        self,
        open_execution: Callable[[], Execution],
        library: Library,
        changes: ChangeLog,
        clock: Clock,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._open_execution = open_execution
        self._library = library
        self._changes = changes
        self._stats = changes.stats
        self._clock = clock
        self._limits = limits
        self._loop = loop
        self._waiting: deque[Job] = deque()
        self._waiting_bytes = 0
        self._taken: list[Job] = []
        """The group that is worked on; whatever happens, each of them is answered."""
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="tailrace-tables", daemon=True)
        self._execution: Execution
        self._opened: asyncio.Future[int] = loop.create_future()
        self.behind: TailraceError | None = None
        """Why the tables lack changes that the log has, while they do."""

    async def start(self) -> int:
        """Open the file, apply what the log has beyond it, and give the number of changes applied."""
        self._thread.start()
        return await self._opened

    def submit(self, job: Job) -> None:
        limits = self._limits
        with self._changed:
            if self._closing:
                raise StoreClosedError("the tables are closing and take nothing new")
            if self.behind is not None:
                raise self.behind.afresh()
            if len(self._waiting) >= limits.queued_writes or self._waiting_bytes + job.size > limits.queued_write_bytes:
                raise OverloadedError(
                    f"{len(self._waiting)} requests of {self._waiting_bytes} bytes wait to write to tables, as much as"
                    " queued_writes and queued_write_bytes allow; try again after a pause"
                )
            if isinstance(job, WriteJob):
                job.submitted = self._clock.monotonic()
            self._waiting.append(job)
            self._waiting_bytes += job.size
            self._count_waiting()
            self._changed.notify()

    async def close(self) -> None:
        """Finish what was taken, end the thread, close the file."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            self._execution = self._open_execution()
            applied = self._execution.bring_up(self._changes)
            self._checkpoint()
        except Exception as error:  # noqa: BLE001  the top of the thread: whoever opens the tables is told
            self._call(self._opened.set_exception, failure_of(error, self._limits))
            return
        self._stats.replayed_changes = applied
        self._call(self._opened.set_result, applied)
        try:
            while (job := self._next()) is not None:
                self._do(job)
            self._execution.close()
        except BaseException as error:  # the thread ends here: nobody may wait for it
            _log.exception("the tables' writer has stopped")
            with self._changed:
                self.behind = StorageFailedError(f"writing to tables has stopped because of {error!r}; restart the server")
                left, self._waiting = list(self._waiting), deque()
            self._refuse([*self._taken, *left], self.behind)
            raise

    def _do(self, job: Job) -> None:
        try:
            match job:
                case SchemaJob():
                    self._change_schema(job)
                case RouteJob():
                    self._add_route(job)
                case SnapshotJob():
                    self._read_on(job)
                case WriteJob():
                    self._run_group(job)
        except Exception as error:  # noqa: BLE001  it must go on for the other clients
            failure = failure_of(error, self._limits)
            # Nobody foresaw this, so nobody knows whether the log has the changes.
            failure.__dict__["outcome"] = "unknown"
            if self._catch_up(error, self._taken):
                self._refuse(self._taken, failure)

    def _next(self) -> Job | None:
        """The next job, once there is one; `None` at the end. A pause is used to make durable what was committed."""
        self._taken = []
        if self._execution.is_due_for_checkpoint:
            self._checkpoint()
        with self._changed:
            if not self._waiting and not self._closing:
                self._changed.wait(_IDLE_SECONDS)
        if not self._waiting:
            self._checkpoint()
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            return self._take()

    def _checkpoint(self) -> None:
        try:
            durable = self._execution.checkpoint()
        except Exception as error:  # noqa: BLE001  the thread must go on for the clients
            # Nothing is lost: the log keeps the changes until a checkpoint succeeds.
            _log.warning("the tables could not be made durable: %s; the next attempt comes with the next change", error)
            return
        if durable is not None:
            self._call(self._changes.applied, durable)

    def _take(self) -> Job:
        job = self._waiting.popleft()
        self._waiting_bytes -= job.size
        self._count_waiting()
        self._taken.append(job)
        return job

    def _count_waiting(self) -> None:
        self._stats.waiting_writes = len(self._waiting)
        self._stats.waiting_write_bytes = self._waiting_bytes

    def _next_of_group(self) -> WriteJob | None:
        with self._changed:
            if self._waiting and isinstance(self._waiting[0], WriteJob):
                return self._take()  # type: ignore[return-value]
        return None

    def _run_group(self, first: WriteJob) -> None:
        execution = self._execution
        self._begin()
        done: list[WriteJob] = []
        job: WriteJob | None = first
        while job is not None:
            if not job.future.cancelled():
                try:
                    execution.run(job)
                    done.append(job)
                except Exception as error:  # noqa: BLE001  whatever it is, it belongs to this client
                    self._refuse([job], self._failure_of(job, error))
                    if not execution.is_open:
                        # SQLite gave up the whole transaction, so the others are run again.
                        done = self._again(done)
            full = len(done) >= _GROUP_JOBS or execution.recorder.size >= self._limits.group_commit_bytes
            job = None if full else self._next_of_group()
        if done:
            self._commit(done)
        else:
            execution.roll_back()

    def _again(self, jobs: Sequence[WriteJob]) -> list[WriteJob]:
        """Run jobs in a new transaction that went well in one that is gone. Gives those that went well again."""
        execution = self._execution
        left = list(jobs)
        while True:
            self._begin()
            done: list[WriteJob] = []
            for number, job in enumerate(left, start=1):
                try:
                    execution.run(job)
                    done.append(job)
                except Exception as error:  # noqa: BLE001  whatever it is, it belongs to this client
                    self._refuse([job], self._failure_of(job, error))
                    if not execution.is_open:
                        left = [*done, *left[number:]]
                        break
            else:
                return done

    def _failure_of(self, job: WriteJob, error: Exception) -> TailraceError:
        return with_place(failure_of(error, self._limits), [statement.tree for statement in job.statements])

    def _commit(self, jobs: list[WriteJob]) -> None:
        execution = self._execution
        messages = [message for job in jobs for message in job.messages]
        batches = execution.recorder.batches()
        if not batches and not messages:
            execution.roll_back()
            self._answer(jobs, None)
            return
        killpoint("change.made")
        try:
            committed = self._on_loop(batches, messages)
        except Exception as error:  # noqa: BLE001  the log's answer is for all clients of the group
            execution.roll_back()
            failure = failure_of(error, self._limits)
            if len(jobs) > 1 and not failure.retriable:
                self._one_by_one(jobs)
            else:
                self._refuse(jobs, failure)
            return
        if not self._apply(batches, committed, jobs):
            return
        self._count(jobs, batches)
        self._answer(jobs, committed)

    def _count(self, jobs: Sequence[WriteJob], batches: Sequence[ChangeBatch]) -> None:
        stats, now = self._stats, self._clock.monotonic()
        stats.transactions += len(jobs)
        stats.transactions_per_commit.observe(len(jobs))
        for batch in batches:
            stats.rows[batch.table.name] += batch.records
        for job in jobs:
            stats.write_seconds.observe(now - job.submitted)

    def _begin(self) -> None:
        self._execution.begin(self._changes.now_ms(), self._changes.snapshots.running)

    def _apply(self, batches: Sequence[ChangeBatch], committed: Committed, jobs: Sequence[Job]) -> bool:
        """What the log has, SQLite gets. False when the clients were told something else."""
        killpoint("change.logged")
        reached: dict[TableId, Offset] = {}
        for batch, end in zip(batches, committed.ends, strict=True):
            reached[batch.table.id] = end
        try:
            self._execution.commit(reached)
        except Exception as error:  # noqa: BLE001  whatever keeps SQLite from it, the log has the changes
            if not self._catch_up(error, jobs):
                return False
        killpoint("change.applied")
        return True

    def _add_route(self, job: RouteJob) -> None:
        """Here, because changes that are on their way to the log do not know of the route yet."""
        if job.future.cancelled():
            return
        try:
            route = asyncio.run_coroutine_threadsafe(job.log(), self._loop).result()
        except Exception as error:  # noqa: BLE001  whatever the log has against it is for the client
            self._refuse([job], failure_of(error, self._limits))
            return
        self._call(_set_result, job.future, route)

    def _read_on(self, job: SnapshotJob) -> None:
        execution = self._execution
        snapshot = self._changes.snapshots.find(job.route)
        if snapshot is not None and not snapshot.is_done and not job.future.cancelled():
            self._begin()
            try:
                moved = execution.read_on(snapshot, job.tx)
                batches = execution.recorder.batches()
                killpoint("change.made")
                logging_it = self._changes.commit_snapshot(batches, moved)
                committed = asyncio.run_coroutine_threadsafe(logging_it, self._loop).result()
            except Exception as error:  # noqa: BLE001  whatever it is, the snapshot comes again
                execution.roll_back()
                self._refuse([job], failure_of(error, self._limits))
                return
            if committed is None:
                execution.roll_back()
            elif not self._apply(batches, committed, [job]):
                return
        self._call(_set_result, job.future, None)

    def _one_by_one(self, jobs: Sequence[WriteJob]) -> None:
        """What the log refused for good is the fault of one; find it."""
        for job in jobs:
            done = self._again([job])
            if done:
                self._commit(done)
            else:
                self._execution.roll_back()

    def _on_loop(self, batches: Sequence[ChangeBatch], messages: Sequence[Message]) -> Committed:
        return asyncio.run_coroutine_threadsafe(self._changes.commit(batches, messages), self._loop).result()

    def _change_schema(self, job: SchemaJob) -> None:
        execution = self._execution
        try:
            if job.makes is not None and self._library.find(job.makes.name) is None:
                execution.try_out(job.makes)
            table = asyncio.run_coroutine_threadsafe(job.log(), self._loop).result()
        except Exception as error:  # noqa: BLE001  whatever SQLite or the log have against it is for the client
            execution.roll_back()
            self._refuse([job], failure_of(error, self._limits))
            return
        killpoint("change.logged")
        if job.drops is None:
            self._library.add([table])
        else:
            self._library.remove(table)
            del self._stats.rows[table.name]
        try:
            execution.change_schema(table, job.drops)
        except Exception as error:  # noqa: BLE001  whatever keeps SQLite from it, the log has the change
            if not self._catch_up(error, [job]):
                return
        self._call(_set_result, job.future, table)

    def _catch_up(self, error: Exception, jobs: Sequence[Job]) -> bool:
        """Apply what the log has and the tables lack, until that works. False when the clients were told something else."""
        self._execution.roll_back()
        _log.error("a write to tables did not come to its end (%s); applying what the log has of it", error)
        is_told = False
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                self._execution.bring_up(self._changes)
            except Exception as again:  # noqa: BLE001  whatever it is, the next attempt may do better
                self._execution.roll_back()
                with self._changed:
                    self.behind = TablesBehindError(
                        f"the tables lack changes that are in the log and are brought up to it as soon as that works: {again}"
                    )
                    waiting, self._waiting = list(self._waiting), deque()
                    self._waiting_bytes = 0
                    self._count_waiting()
                if not is_told:
                    self._refuse(jobs, self.behind)
                    is_told = True
                self._refuse(waiting, OverloadedError(f"nothing was written: {again}"))
                with self._changed:
                    if self._closing:
                        return False
                    self._changed.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            self.behind = None
            _log.warning("the tables have all changes again")
            return not is_told

    def _answer(self, jobs: Sequence[WriteJob], committed: Committed | None) -> None:
        answers = []
        for job in jobs:
            results = job.results
            if committed is not None:
                results = [
                    result if first is None else result._replace(cursor=Cursor(committed.cursor + first))
                    for result, first in zip(results, job.firsts, strict=True)
                ]
            answers.append((job.future, results))
        self._call(_set_results, answers)

    def _refuse(self, jobs: Sequence[Job], error: TailraceError) -> None:
        for job in jobs:
            self._call(_set_exception, job.future, error.afresh())

    def _call(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            _log.debug("the event loop is closed, and nobody is left who could be told")


def _set_results(answers: Sequence[tuple["asyncio.Future[object]", object]]) -> None:
    for future, result in answers:
        _set_result(future, result)


def _set_result(future: "asyncio.Future[object]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: "asyncio.Future[object]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
