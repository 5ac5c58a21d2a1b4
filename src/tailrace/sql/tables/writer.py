"""The one thread that writes to the tables: statements of many clients in one transaction of SQLite and one commit of the log.

A group goes through four steps:

1. The statements of all clients that wait are run inside one SQLite transaction. One that fails is taken back alone.
2. The change events of all of them become one commit of the log, which is synced once.
3. SQLite commits, without a sync, together with the offsets that its tables have reached.
4. The clients are answered.

A transaction that takes longer than its turn while others wait is taken back and put into a line of its own, from which one is
run between two groups. There it may take `write_turn_ms` while others wait, and as long as any statement while nobody does. One
that had to make room three times is refused.

The rows of a snapshot go the same way, in turns of their own between the groups: no change comes between reading them and
logging them, so what the log says about a row is in the order in which it was.

If the log refuses, SQLite rolls back and the clients are told. If the process dies after 2, opening applies the events. If
SQLite can't commit although the log has, the tables are *behind*: nobody reads or writes them until the events are applied.
If the file is found to be damaged, the same holds until it is made again from the log (`rebuild`).
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from tailrace.broker.tables.change_log import ChangeBatch, ChangeLog, CommittedChanges
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    OverloadedError,
    StorageFailedError,
    TablesBehindError,
    TailraceError,
)
from tailrace.model.ids import Offset, TableId
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tailrace.sql.syntax_trees import columns_in, with_position
from tailrace.sql.tables.database import failure_of
from tailrace.sql.tables.jobs import JobQueue, JobReplies, RebuildJob, RouteJob, SchemaJob, SnapshotJob, TableJob, WriteJob
from tailrace.sql.tables.programs import TimeSlice
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_file import is_damage
from tailrace.sql.tables.writer_connection import WriterConnection

AnyJob = TypeVar("AnyJob", bound=TableJob)

_log = logging.getLogger(__name__)

_GROUP_JOBS = 1_000
_FIRST_TURN_SECONDS = 0.02
"""How long a transaction that nobody knows yet may take while others wait."""
_MOST_INTERRUPTIONS = 3
_IDLE_SECONDS = 0.5
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_UNTIL_DONE = TimeSlice(0.0, lambda: False)


class TableWriter:
    """Takes jobs on the event loop, runs them in its thread, answers on the event loop."""

    def __init__(
        self,
        open_execution: Callable[[], WriterConnection],
        why_made_again: Callable[[], str | None],
        rebuild: Callable[[], int],
        catalog: TableCatalog,
        changes: ChangeLog,
        clock: Clock,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._open_execution = open_execution
        self._why_made_again = why_made_again
        self._rebuild = rebuild
        self._catalog = catalog
        self._changes = changes
        self._stats = changes.stats
        self._clock = clock
        self._limits = limits
        self._loop = loop
        self._queue = JobQueue(clock, limits, changes.stats)
        self._replies = JobReplies(loop)
        self._taken: list[TableJob] = []
        """The group that is worked on; whatever happens, each of them is answered."""
        self._thread = threading.Thread(target=self._run, name="tailrace-tables", daemon=True)
        self._execution: WriterConnection
        self._is_rebuild_wanted = False
        self._opened: asyncio.Future[int] = loop.create_future()

    async def start(self) -> int:
        """Open the file, apply what the log has beyond it, and give the number of changes applied."""
        self._thread.start()
        return await self._opened

    @property
    def behind(self) -> TailraceError | None:
        """Why the tables lack changes that the log has, while they do."""
        return self._queue.refusal

    def submit(self, job: TableJob) -> None:
        self._queue.put(job)

    def damaged(self, error: Exception) -> None:
        """Have the file made again, because somebody met this in it. For any thread."""
        self._replies.call(self._want_rebuild, error)

    async def close(self) -> None:
        """Finish what was taken, end the thread, close the file."""
        self._queue.close()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            applied = self._open()
            self._checkpoint()
        except Exception as error:  # noqa: BLE001  the top of the thread: whoever opens the tables is told
            self._replies.call(self._opened.set_exception, failure_of(error, self._limits))
            return
        self._stats.replayed_changes = applied
        self._replies.call(self._opened.set_result, applied)
        try:
            while (job := self._next()) is not None:
                self._do(job)
            self._execution.close()
        except BaseException as error:  # the thread ends here: nobody may wait for it
            _log.exception("the tables' writer has stopped")
            stopped = StorageFailedError(f"writing to tables has stopped because of {error!r}; restart the server")
            left = self._queue.refuse(stopped)
            self._replies.refused([*self._taken, *left], stopped)
            raise

    def _do(self, job: TableJob) -> None:
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
                case RebuildJob():
                    self._is_rebuild_wanted = False
                    self._catch_up(job.error, [job])
        except Exception as error:  # noqa: BLE001  it must go on for the other clients
            failure = failure_of(error, self._limits)
            # Nobody foresaw this, so nobody knows whether the log has the changes.
            failure.__dict__["outcome"] = "unknown"
            if self._catch_up(error, self._taken):
                self._replies.refused(self._taken, failure)

    def _next(self) -> TableJob | None:
        """The next job, once there is one; `None` at the end. A pause is used to make durable what was committed."""
        self._taken = []
        if self._execution.is_due_for_checkpoint:
            self._checkpoint()
        self._queue.wait(_IDLE_SECONDS)
        if not self._queue:
            self._checkpoint()
        return self._note(self._queue.take())

    def _checkpoint(self) -> None:
        try:
            durable = self._execution.checkpoint()
        except Exception as error:  # noqa: BLE001  the thread must go on for the clients
            # Nothing is lost: the log keeps the changes until a checkpoint succeeds.
            _log.warning(
                "the tables could not be made durable: %s; the next attempt comes with the next change", self._failure(error)
            )
            return
        if durable is not None:
            self._replies.call(self._changes.applied, durable)

    def _open(self) -> int:
        """Open the file and bring it up to the log. What can't be opened as it is, is made again first."""
        why = self._why_made_again()
        if why is None:
            try:
                self._execution = self._open_execution()
                return self._execution.bring_up(self._changes)
            except Exception as error:
                if not is_damage(error):
                    raise
                self._stats.rebuilds += 1
                why = f"is damaged ({error})"
        if any(self._catalog.events):
            _log.warning("the file of the tables %s; it is made again from the log", why)
        applied = self._rebuild()
        self._execution = self._open_execution()
        return applied + self._execution.bring_up(self._changes)

    def _make_again(self, error: Exception) -> None:
        """The file is damaged: make it again. Nobody reads or writes tables meanwhile."""
        refusal = failure_of(error, self._limits)
        self._replies.refused(self._queue.refuse(refusal), refusal)
        self._execution.abandon()
        self._rebuild()
        self._execution = self._open_execution()
        self._execution.bring_up(self._changes)
        self._stats.rebuilds += 1

    def _want_rebuild(self, error: Exception) -> None:
        if self._is_rebuild_wanted:
            return
        try:
            self._queue.put(RebuildJob(error, self._loop.create_future()))
        except TailraceError as refusal:
            _log.warning("the file of the tables is damaged (%s) and can't be made again now: %s", error, refusal)
        else:
            self._is_rebuild_wanted = True

    def _failure(self, error: Exception) -> TailraceError:
        """The error of ours for what a statement ended with. If that is a damaged file, it is made again."""
        if is_damage(error):
            self.damaged(error)
        return failure_of(error, self._limits)

    def _note(self, job: AnyJob | None) -> AnyJob | None:
        if job is not None:
            self._taken.append(job)
        return job

    def _run_group(self, first: WriteJob) -> None:
        execution = self._execution
        self._begin()
        done: list[WriteJob] = []
        job: WriteJob | None = first
        while job is not None:
            full = job.is_long
            if not job.future.done():
                if self._went_well(job, self._turn_of(job, done)):
                    done.append(job)
                elif not execution.is_open:
                    # SQLite gave up the whole transaction, so the others are run again, and then wait no longer.
                    done = self._again(done)
                    full = True
            full = full or len(done) >= _GROUP_JOBS or execution.recorder.size >= self._limits.group_commit_bytes
            job = None if full else self._note(self._queue.take_write())
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
                if self._went_well(job, _UNTIL_DONE):
                    done.append(job)
                elif not execution.is_open:
                    left = [*done, *left[number:]]
                    break
            else:
                return done

    def _turn_of(self, job: WriteJob, done: Sequence[WriteJob]) -> TimeSlice:
        if job.is_long:
            return TimeSlice(self._limits.write_turn_ms / 1000, lambda: self._queue.is_held_up)
        # Those of its group that are done wait too, for the commit.
        return TimeSlice(_FIRST_TURN_SECONDS, lambda: bool(done) or self._queue.is_held_up)

    def _went_well(self, job: WriteJob, turn: TimeSlice) -> bool:
        """Runs it. Whoever asked for one that fails is told so, unless it gets another chance."""
        try:
            self._execution.run(job, turn)
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to this client
            if self._execution.made_room:
                job.interruptions += job.is_long
                if job.interruptions < _MOST_INTERRUPTIONS:
                    self._taken.remove(job)
                    self._queue.put_back(job)
                    return False
            self._replies.refused([job], self._failure_of(job, self._execution.judged(error)))
            return False
        return True

    def _failure_of(self, job: WriteJob, error: Exception) -> TailraceError:
        trees = [statement.tree for statement in job.statements]
        return with_position(self._failure(error), trees, columns_in(trees, self._catalog.find))

    def _commit(self, jobs: list[WriteJob]) -> None:
        execution = self._execution
        messages = [message for job in jobs for message in job.messages]
        batches = execution.recorder.batches()
        if not batches and not messages:
            execution.roll_back()
            self._replies.written(jobs, None)
            return
        killpoint("change.made")
        try:
            committed = self._on_loop(batches, messages)
        except Exception as error:  # noqa: BLE001  the log's answer is for all clients of the group
            execution.roll_back()
            failure = self._failure(error)
            if len(jobs) > 1 and not failure.retriable:
                self._one_by_one(jobs)
            else:
                self._replies.refused(jobs, failure)
            return
        if not self._apply(batches, committed, jobs):
            return
        self._count(jobs, batches)
        self._replies.written(jobs, committed)

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

    def _apply(self, batches: Sequence[ChangeBatch], committed: CommittedChanges, jobs: Sequence[TableJob]) -> bool:
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
            self._replies.refused([job], self._failure(error))
            return
        self._replies.done(job, route)

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
                self._replies.refused([job], self._failure(error))
                return
            if committed is None:
                execution.roll_back()
            elif not self._apply(batches, committed, [job]):
                return
        self._replies.done(job, None)

    def _one_by_one(self, jobs: Sequence[WriteJob]) -> None:
        """What the log refused for good is the fault of one; find it."""
        for job in jobs:
            done = self._again([job])
            if done:
                self._commit(done)
            else:
                self._execution.roll_back()

    def _on_loop(self, batches: Sequence[ChangeBatch], messages: Sequence[Message]) -> CommittedChanges:
        return asyncio.run_coroutine_threadsafe(self._changes.commit(batches, messages), self._loop).result()

    def _change_schema(self, job: SchemaJob) -> None:
        execution = self._execution
        try:
            if job.makes is not None and self._catalog.find(job.makes.name) is None:
                execution.try_out(job.makes)
            table = asyncio.run_coroutine_threadsafe(job.log(), self._loop).result()
        except Exception as error:  # noqa: BLE001  whatever SQLite or the log have against it is for the client
            execution.roll_back()
            self._replies.refused([job], self._failure(error))
            return
        killpoint("change.logged")
        if job.drops is None:
            self._catalog.add([table])
        else:
            self._catalog.remove(table)
            del self._stats.rows[table.name]
        try:
            execution.change_schema(table, job.drops)
        except Exception as error:  # noqa: BLE001  whatever keeps SQLite from it, the log has the change
            if not self._catch_up(error, [job]):
                return
        self._replies.done(job, table)

    def _catch_up(self, error: Exception, jobs: Sequence[TableJob]) -> bool:
        """Apply what the log has and the tables lack, until that works. False when the clients were told something else."""
        damage = error if is_damage(error) else None
        if damage is None:
            self._execution.roll_back()
            _log.error("a write to tables did not come to its end (%s); applying what the log has of it", error)
        else:
            _log.error("the file of the tables is damaged (%s); it is made again from the log", error)
        is_told = False
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self._stats.behind = str(error)
            try:
                if damage is None:
                    self._execution.bring_up(self._changes)
                else:
                    self._make_again(damage)
            except Exception as again:  # noqa: BLE001  whatever it is, the next attempt may do better
                error = again
                if is_damage(again):
                    damage = again
                elif damage is None:
                    self._execution.roll_back()
                behind = TablesBehindError(
                    f"the tables lack changes that are in the log and are brought up to it as soon as that works: {again}"
                )
                waiting = self._queue.refuse(behind)
                if not is_told:
                    self._replies.refused(jobs, behind)
                    is_told = True
                self._replies.refused(waiting, OverloadedError(f"nothing was written: {again}"))
                if not self._queue.pause(pause):
                    return False
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            self._queue.accept()
            self._stats.behind = ""
            _log.warning("the tables have all changes again")
            return not is_told
