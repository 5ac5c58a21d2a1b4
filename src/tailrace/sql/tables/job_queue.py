"""Jobs that wait for the writer's thread: put on the event loop, taken in the thread, bounded in number and bytes.

There are two lines. Transactions that are known to take long, by their size or because they were interrupted, wait in the
second one; the thread takes from both in turn.
"""

import threading
from collections import deque

from tailrace.model.clock import Clock
from tailrace.model.errors import OverloadedError, StoreClosedError, TailraceError
from tailrace.model.limits import KIB, Limits
from tailrace.model.stats import SqlStats
from tailrace.sql.tables.jobs import Job, WriteJob

_LONG_BYTES = 256 * KIB
"""Statements and parameters of a transaction that is taken to be long from the start."""


class JobQueue:
    def __init__(self, clock: Clock, limits: Limits, stats: SqlStats) -> None:
        self._clock = clock
        self._limits = limits
        self._stats = stats
        self._waiting: deque[Job] = deque()
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

    def put(self, job: Job) -> None:
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

    def take(self) -> Job | None:
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

    def refuse(self, error: TailraceError) -> list[Job]:
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

    def _put(self, job: Job) -> None:
        if isinstance(job, WriteJob) and job.is_long:
            self._long.append(job)
        else:
            self._waiting.append(job)
        self._bytes += job.size
        self._count()

    def _taken(self, job: Job) -> Job:
        self._bytes -= job.size
        self._count()
        return job

    def _count(self) -> None:
        self._stats.waiting_writes = len(self)
        self._stats.waiting_write_bytes = self._bytes
