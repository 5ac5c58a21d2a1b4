"""Jobs of the writer's thread: what it is asked to do, the queue they wait in, and how their results get back.

Jobs are queued on the event loop and taken in the thread. The queue is bounded in number and bytes. Transactions that are known
to be long, by their size or because they were interrupted, wait in a second queue; the thread takes from both in turn.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tailrace.broker.tables.change_log import CommittedChanges
from tailrace.model.clock import Clock
from tailrace.model.errors import OverloadedError, StoreClosedError, TailraceError
from tailrace.model.ids import Cursor, RouteId, TableId
from tailrace.model.limits import KIB, Limits
from tailrace.model.record import Message
from tailrace.model.route import Route
from tailrace.model.stats import SqlStats
from tailrace.model.table import Table
from tailrace.sql.parameters import Parameters
from tailrace.sql.results import Result
from tailrace.sql.statements import AlterTableStatement, TruncateStatement, Write
from tailrace.sql.tables.alter import AlteredTable
from tailrace.sql.tables.readers import StoredRows
from tailrace.sql.tables.values import StoredValue

_log = logging.getLogger(__name__)

_LONG_BYTES = 256 * KIB
"""A transaction with more bytes of statements and parameters is treated as long from the start."""
_PARAMETER_BYTES = 32
"""About how many bytes a value takes besides its content."""
_SAMPLED_ROWS = 16


class RowSource(Protocol):
    """The rows of the tables as the transaction sees them."""

    def read(self, sql: str, values: Sequence[StoredValue], sized: Sequence[int] = ()) -> Iterator[StoredRows]: ...

    def check(self) -> None:
        """Raise if the transaction must stop."""
        ...

    def check_tables(self, tables: Iterable[Table]) -> None:
        """Raise `TableAlteredError` if a table was altered or dropped since these definitions were read."""
        ...


class TransactionQuery(Protocol):
    """A query within a transaction. It reads what the transaction has written."""

    text: str

    def run(self, rows: RowSource) -> Result:
        """Run in the writer's thread."""
        ...


TableStatement = Write | TruncateStatement | TransactionQuery
"""What a transaction on tables consists of."""


@dataclass(slots=True, eq=False)
class WriteTiming:
    """How long the steps of a transaction took, for EXPLAIN ANALYZE."""

    run_seconds: float = 0.0
    """Its statements, until its changes were ready to be logged."""
    commit_seconds: float = 0.0
    """The commit of its group, in the log and in SQLite."""


@dataclass(slots=True, eq=False)
class WriteJob:
    """One transaction of a client."""

    tx: str
    statements: Sequence[TableStatement]
    params: Sequence[Parameters]
    messages: Sequence[Message]
    future: "asyncio.Future[list[Result]]"
    size: int
    submitted: float = 0.0
    """When it was queued, by the monotonic clock."""
    is_long: bool = False
    """Whether it is known to be long; then it waits in the queue of the long ones."""
    interruptions: int = 0
    """How often it was interrupted while it ran as a long one, because others waited."""
    results: list[Result] = field(default_factory=list)
    firsts: list[int | None] = field(default_factory=list)
    """For each statement, the index of its first event in the group, if it changed anything."""
    timing: WriteTiming | None = None
    """Filled if somebody asks for it."""
    filling: Table | None = None
    """The table that is filled. It may be gone when the job runs, and another one may have its name."""


@dataclass(slots=True, eq=False)
class SchemaJob:
    """A table that is created or dropped, in the log first."""

    log: Callable[[], Coroutine[Any, Any, Table]]
    makes: Table | None
    """The new table, which is tried out in SQLite before the log has it."""
    drops: tuple[TableId, str] | None
    future: "asyncio.Future[Table]"
    size: int = 0


@dataclass(slots=True, eq=False)
class AlterJob:
    """A table that is altered: in SQLite first, then in the log, then committed to SQLite."""

    asked: AlterTableStatement
    log: Callable[[Table, AlteredTable], Coroutine[Any, Any, Table]]
    future: "asyncio.Future[Table]"
    size: int = 0


@dataclass(slots=True, eq=False)
class IndexJob:
    """Indexes of a table that are made or dropped: in SQLite first, then in the log, then committed to SQLite."""

    table: str
    change: Callable[[Table], Table]
    """Returns the new definition. Raises `SqlError` if there is none."""
    log: Callable[[Table, Table], Coroutine[Any, Any, Table]]
    future: "asyncio.Future[Table]"
    size: int = 0


@dataclass(slots=True, eq=False)
class TypeJob:
    """An enum that gets another label or is dropped, while no table is changed."""

    log: Callable[[], Coroutine[Any, Any, list[tuple[Table, Table]]]]
    """Returns the tables that use the type, as they were and as they are then."""
    future: "asyncio.Future[None]"
    size: int = 0


@dataclass(slots=True, eq=False)
class RouteJob:
    """A route with a snapshot, which is added while no change is on its way to the log."""

    log: Callable[[], Coroutine[Any, Any, Route]]
    future: "asyncio.Future[Route]"
    size: int = 0


@dataclass(slots=True, eq=False)
class RevealJob:
    """A table that was filled and becomes visible, while no change is on its way to the log."""

    log: Callable[[], Coroutine[Any, Any, Table]]
    future: "asyncio.Future[Table]"
    size: int = 0


@dataclass(slots=True, eq=False)
class RebuildJob:
    """A rebuild of the file, which was found to be damaged."""

    error: Exception
    future: "asyncio.Future[None]"
    size: int = 0


@dataclass(slots=True, eq=False)
class CatchUpJob:
    """A write that is in the log and that SQLite could not commit on the event loop."""

    error: Exception
    write: WriteJob
    committed: CommittedChanges
    future: "asyncio.Future[None]"
    size: int = 0


@dataclass(slots=True, eq=False)
class SnapshotJob:
    """The next rows of a snapshot, to be read and logged."""

    route: RouteId
    tx: str
    future: "asyncio.Future[None]"
    size: int = 0


TableJob = WriteJob | SchemaJob | AlterJob | IndexJob | TypeJob | RouteJob | RevealJob | SnapshotJob | RebuildJob | CatchUpJob


def size_of(statements: Sequence[TableStatement], params: Sequence[Parameters]) -> int:
    """Return about how many bytes a request holds, estimated from a sample where it has many rows."""
    size = sum(len(statement.text) for statement in statements)
    return size + sum(_size_of(values) for values in params)


def _size_of(values: object) -> int:
    if isinstance(values, (str, bytes)):
        return _PARAMETER_BYTES + len(values)
    if isinstance(values, Mapping):
        values = list(values.values())
    if not isinstance(values, (list, tuple)) or not values:
        return _PARAMETER_BYTES
    step = max(1, len(values) // _SAMPLED_ROWS)
    sample = [_size_of(value) for value in values[::step]]
    return sum(sample) * len(values) // len(sample)


class JobQueue:
    """Used by the event loop (`put`, `lend`, `give_back`, `close`) and by the writer's thread.

    Who takes a job owns the writer's connection until it is done with it. That is the thread, unless it waits for a job: then
    the event loop may borrow the connection (`fast_write`).
    """

    def __init__(self, clock: Clock, limits: Limits, stats: SqlStats) -> None:
        self._clock = clock
        self._limits = limits
        self._stats = stats
        self._waiting: deque[TableJob] = deque()
        self._long: deque[WriteJob] = deque()
        self._was_long = False
        """Whether the last job was taken from the queue of the long ones."""
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_thread_waiting = False
        self._needs_notice = False
        """Whether the thread waits without a time limit, and must be told when the connection was lent."""
        self._is_lent = False
        self._lent_times = 0
        self._is_closing = False
        self.rejection: TailraceError | None = None
        """The error with which jobs are rejected, while they are."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._long)

    @property
    def has_waiting(self) -> bool:
        """Whether jobs wait that are not known to be long; long transactions are interrupted for them."""
        return bool(self._waiting)

    def put(self, job: TableJob) -> None:
        limits = self._limits
        with self._changed:
            if self._is_closing:
                raise StoreClosedError("the server is stopping and accepts no more writes; send them again after the restart")
            if self.rejection is not None:
                raise self.rejection.afresh()
            if len(self) >= limits.queued_writes or self._bytes + job.size > limits.queued_write_bytes:
                raise OverloadedError(
                    f"{len(self)} writes to tables with {self._bytes} bytes are waiting, as much as queued_writes and"
                    " queued_write_bytes allow; try again later"
                )
            if isinstance(job, WriteJob):
                job.submitted = self._clock.monotonic()
                # Queries take longer than the first time slice of a transaction.
                has_queries = any(isinstance(one, Write) and one.queries is not None for one in job.statements)
                job.is_long = has_queries or job.size > _LONG_BYTES
            self._put(job)
            self._changed.notify()

    def lend(self) -> bool:
        """Lend the connection to the event loop, if the thread and nobody else waits. Return whether it is lent."""
        with self._changed:
            is_free = self._is_thread_waiting and not self._is_lent and not self and not self._is_closing
            if is_free and self.rejection is None:
                self._is_lent = True
                self._lent_times += 1
                return True
        return False

    def give_back(self, left: CatchUpJob | None = None) -> None:
        """Return the connection to the thread, with the job that it has to do first."""
        with self._changed:
            self._is_lent = False
            if left is not None:
                self._waiting.appendleft(left)
                self._count()
            if self or self._is_closing or self._needs_notice or not self._is_thread_waiting:
                self._changed.notify()

    def put_back(self, job: WriteJob) -> None:
        """Queue a transaction again, as a long one. Called in the thread."""
        with self._changed:
            job.is_long = True
            # The others have waited for it, so they are next.
            self._was_long = True
            self._put(job)

    def close(self) -> None:
        """Accept no more jobs. Those that wait are still run."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until a job comes, the queue is closed, or nothing happened for so long. Return whether nothing happened."""
        with self._changed:
            lent_times = -1
            while not self and not self._is_closing:
                if lent_times == self._lent_times:
                    return True
                lent_times = self._lent_times
                self._wait(seconds)
        return False

    def wait(self) -> None:
        """Wait until a job comes, the queue is closed, or the event loop has borrowed the connection."""
        with self._changed:
            lent_times = self._lent_times
            while not self and not self._is_closing and lent_times == self._lent_times:
                self._wait(None)

    def take(self) -> TableJob | None:
        """Return the next job; `None` if there is none."""
        with self._changed:
            if not self:
                return None
            # In turn, so that neither queue waits until the other is empty.
            self._was_long = bool(self._long) and not (self._was_long and self._waiting)
            return self._taken(self._long.popleft() if self._was_long else self._waiting.popleft())

    def take_write(self) -> WriteJob | None:
        """Return the next job if it is a write that is not known to be long, without waiting."""
        with self._changed:
            if self._waiting and isinstance(self._waiting[0], WriteJob):
                return self._taken(self._waiting.popleft())  # type: ignore[return-value]
        return None

    def reject(self, error: TailraceError) -> list[TableJob]:
        """Reject jobs with this error from now on, and return those that waited."""
        with self._changed:
            self.rejection = error
            left = [*self._waiting, *self._long]
            self._waiting.clear()
            self._long.clear()
            self._bytes = 0
            self._count()
        return left

    def accept(self) -> None:
        """Accept jobs again."""
        self.rejection = None

    def pause(self, seconds: float) -> bool:
        """Wait for so long. Returns false if the queue is closed."""
        with self._changed:
            if self._is_closing:
                return False
            self._changed.wait(seconds)
        return True

    def _wait(self, seconds: float | None) -> None:
        """Wait for a notification. Meanwhile the event loop may borrow the connection."""
        self._is_thread_waiting = True
        self._needs_notice = seconds is None
        self._changed.wait(seconds)
        self._is_thread_waiting = self._needs_notice = False
        while self._is_lent:
            self._changed.wait()

    def _put(self, job: TableJob) -> None:
        if isinstance(job, WriteJob) and job.is_long:
            self._long.append(job)
        else:
            self._waiting.append(job)
        self._bytes += job.size
        self._count()

    def _taken(self, job: TableJob) -> TableJob:
        self._bytes -= job.size
        self._count()
        return job

    def _count(self) -> None:
        self._stats.waiting_writes = len(self)
        self._stats.waiting_write_bytes = self._bytes


class JobReplies:
    """Sets the results of jobs on the event loop, from the writer's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def done(self, job: TableJob, result: object) -> None:
        self.call(_set_result, job.future, result)

    def written(self, jobs: Sequence[WriteJob], committed: CommittedChanges | None) -> None:
        """Send the results of each job; a statement that changed rows gets the cursor of its first change."""
        replies = []
        for job in jobs:
            results = job.results
            if committed is not None:
                results = [
                    result if first is None else result._replace(cursor=Cursor(committed.cursor + first))
                    for result, first in zip(results, job.firsts, strict=True)
                ]
            replies.append((job.future, results))
        self.call(_set_results, replies)

    def reject(self, jobs: Sequence[TableJob], error: TailraceError) -> None:
        for job in jobs:
            self.call(_set_exception, job.future, error.afresh())

    def call(self, callback: Callable[..., None], *args: object) -> None:
        """Call a function on the event loop."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            _log.debug("The event loop is closed; nobody waits for the result of a job.")


def _set_results(replies: Sequence[tuple["asyncio.Future[object]", object]]) -> None:
    for future, result in replies:
        _set_result(future, result)


def _set_result(future: "asyncio.Future[object]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: "asyncio.Future[object]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
