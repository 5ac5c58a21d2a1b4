"""Jobs that wait for the writer's thread: put on the event loop, taken in the thread, bounded in number and bytes."""

import threading
from collections import deque

from tailrace.model.clock import Clock
from tailrace.model.errors import OverloadedError, StoreClosedError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.sql_stats import SqlStats
from tailrace.sql.tables.jobs import Job, WriteJob


class JobQueue:
    def __init__(self, clock: Clock, limits: Limits, stats: SqlStats) -> None:
        self._clock = clock
        self._limits = limits
        self._stats = stats
        self._waiting: deque[Job] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self.refusal: TailraceError | None = None
        """Why no job is taken, while none is."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, job: Job) -> None:
        limits = self._limits
        with self._changed:
            if self._is_closing:
                raise StoreClosedError("the tables are closing and take nothing new")
            if self.refusal is not None:
                raise self.refusal.afresh()
            if len(self._waiting) >= limits.queued_writes or self._bytes + job.size > limits.queued_write_bytes:
                raise OverloadedError(
                    f"{len(self._waiting)} requests of {self._bytes} bytes wait to write to tables, as much as"
                    " queued_writes and queued_write_bytes allow; try again after a pause"
                )
            if isinstance(job, WriteJob):
                job.submitted = self._clock.monotonic()
            self._waiting.append(job)
            self._bytes += job.size
            self._count()
            self._changed.notify()

    def close(self) -> None:
        """Nothing new is taken; what waits is."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Until there is a job, or the end, but not longer than this."""
        with self._changed:
            if not self._waiting and not self._is_closing:
                self._changed.wait(seconds)

    def take(self) -> Job | None:
        """The next job, once there is one; `None` at the end."""
        with self._changed:
            while not self._waiting:
                if self._is_closing:
                    return None
                self._changed.wait()
            return self._take()

    def take_write(self) -> WriteJob | None:
        """The next job, if it is there and a write."""
        with self._changed:
            if self._waiting and isinstance(self._waiting[0], WriteJob):
                return self._take()  # type: ignore[return-value]
        return None

    def refuse(self, error: TailraceError) -> list[Job]:
        """Take no jobs from here on. Gives those that waited."""
        with self._changed:
            self.refusal = error
            left, self._waiting = list(self._waiting), deque()
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

    def _take(self) -> Job:
        job = self._waiting.popleft()
        self._bytes -= job.size
        self._count()
        return job

    def _count(self) -> None:
        self._stats.waiting_writes = len(self._waiting)
        self._stats.waiting_write_bytes = self._bytes
