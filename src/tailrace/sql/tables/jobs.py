"""What the writer's thread is asked to do: values between it and the event loop."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from tailrace.sql.statements import Query, Write

_PARAMETER_BYTES = 32
_SAMPLED_ROWS = 16


@dataclass(slots=True, eq=False)
class WriteJob:
    """One transaction of a client."""

    tx: str
    statements: Sequence[Write | Query]
    params: Sequence[Parameters]
    messages: Sequence[Message]
    future: "asyncio.Future[list[Result]]"
    size: int
    submitted: float = 0.0
    """When, by the clock that never goes back."""
    is_long: bool = False
    """Whether it is known to take long; then it waits in a line of its own."""
    interruptions: int = 0
    """How often it was interrupted as one that takes long, because others waited."""
    results: list[Result] = field(default_factory=list)
    firsts: list[int | None] = field(default_factory=list)
    """For each statement, the number of its first event in the group, if it changed anything."""


@dataclass(slots=True, eq=False)
class SchemaJob:
    """A table that is made or dropped, in the log first."""

    log: Callable[[], Coroutine[Any, Any, Table]]
    makes: Table | None
    """What the new table looks like, to be tried out before the log has it."""
    drops: tuple[TableId, str] | None
    future: "asyncio.Future[Table]"
    size: int = 0


@dataclass(slots=True, eq=False)
class RouteJob:
    """A route with a snapshot that is put in force while no change is on its way."""

    log: Callable[[], Coroutine[Any, Any, Route]]
    future: "asyncio.Future[Route]"
    size: int = 0


@dataclass(slots=True, eq=False)
class RebuildJob:
    """The file was found to be damaged, and is made again."""

    error: Exception
    future: "asyncio.Future[None]"
    size: int = 0


@dataclass(slots=True, eq=False)
class SnapshotJob:
    """The next rows of a snapshot."""

    route: RouteId
    tx: str
    future: "asyncio.Future[None]"
    size: int = 0


TableJob = WriteJob | SchemaJob | RouteJob | SnapshotJob | RebuildJob


def size_of(statements: Sequence[Write | Query], params: Sequence[Parameters]) -> int:
    """About how many bytes a request holds. Many rows are judged by a few of them."""
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


_LONG_BYTES = 256 * KIB
"""Statements and parameters of a transaction that is taken to be long from the start."""


class JobQueue:
    def __init__(self, clock: Clock, limits: Limits, stats: SqlStats) -> None:
        self._clock = clock
        self._limits = limits
        self._stats = stats
        self._waiting: deque[TableJob] = deque()
        self._long: deque[WriteJob] = deque()
        self._was_long = False
        """Whether the last job came from the line of the long ones."""
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self.refusal: TailraceError | None = None
        """Why no job is taken, while none is."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._long)

    @property
    def is_held_up(self) -> bool:
        """Whether somebody waits for whom a long transaction makes room."""
        return bool(self._waiting)

    def put(self, job: TableJob) -> None:
        limits = self._limits
        with self._changed:
            if self._is_closing:
                raise StoreClosedError("the tables are closing and take nothing new")
            if self.refusal is not None:
                raise self.refusal.afresh()
            if len(self) >= limits.queued_writes or self._bytes + job.size > limits.queued_write_bytes:
                raise OverloadedError(
                    f"{len(self)} requests of {self._bytes} bytes wait to write to tables, as much as"
                    " queued_writes and queued_write_bytes allow; try again after a pause"
                )
            if isinstance(job, WriteJob):
                job.submitted = self._clock.monotonic()
                job.is_long = job.size > _LONG_BYTES
            self._put(job)
            self._changed.notify()

    def put_back(self, job: WriteJob) -> None:
        """In the thread: a transaction that was taken, and waits among the long ones from now on."""
        with self._changed:
            job.is_long = True
            # The others waited for it, so it is their turn.
            self._was_long = True
            self._put(job)

    def close(self) -> None:
        """Nothing new is taken; what waits is."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Until there is a job, or the end, but not longer than this."""
        with self._changed:
            if not self and not self._is_closing:
                self._changed.wait(seconds)

    def take(self) -> TableJob | None:
        """The next job, once there is one; `None` at the end."""
        with self._changed:
            while not self:
                if self._is_closing:
                    return None
                self._changed.wait()
            # In turn, so that neither line waits for the other to be empty.
            self._was_long = bool(self._long) and not (self._was_long and self._waiting)
            return self._taken(self._long.popleft() if self._was_long else self._waiting.popleft())

    def take_write(self) -> WriteJob | None:
        """The next job, if it is there and a write that is not known to take long."""
        with self._changed:
            if self._waiting and isinstance(self._waiting[0], WriteJob):
                return self._taken(self._waiting.popleft())  # type: ignore[return-value]
        return None

    def refuse(self, error: TailraceError) -> list[TableJob]:
        """Take no jobs from here on. Gives those that waited."""
        with self._changed:
            self.refusal = error
            left = [*self._waiting, *self._long]
            self._waiting.clear()
            self._long.clear()
            self._bytes = 0
            self._count()
        return left

    def accept(self) -> None:
        """Take jobs again."""
        self.refusal = None

    def pause(self, seconds: float) -> bool:
        """Let time pass. False if the end has come."""
        with self._changed:
            if self._is_closing:
                return False
            self._changed.wait(seconds)
        return True

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


_log = logging.getLogger(__name__)


class JobReplies:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def done(self, job: TableJob, result: object) -> None:
        self.call(_set_result, job.future, result)

    def written(self, jobs: Sequence[WriteJob], committed: CommittedChanges | None) -> None:
        """Each statement's result, with the cursor of its first change, if the log has any."""
        answers = []
        for job in jobs:
            results = job.results
            if committed is not None:
                results = [
                    result if first is None else result._replace(cursor=Cursor(committed.cursor + first))
                    for result, first in zip(results, job.firsts, strict=True)
                ]
            answers.append((job.future, results))
        self.call(_set_results, answers)

    def refused(self, jobs: Sequence[TableJob], error: TailraceError) -> None:
        for job in jobs:
            self.call(_set_exception, job.future, error.afresh())

    def call(self, callback: Callable[..., None], *args: object) -> None:
        """Call something on the event loop."""
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
