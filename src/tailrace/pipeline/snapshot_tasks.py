"""Snapshots of captured tables, read by Spark's tasks.

A capture offers the chunks of a snapshot at the server. While the router has its lease, a thread asks there every second
whether chunks wait, and runs a job beside the query whose tasks claim them, read them from the database and stage their rows.
The capture publishes them.

Asking also tells the server that Spark reads: for ten seconds the capture leaves the chunks to it. So nothing is asked while
Spark can't read, after a failure or while a job gets no core to run on, and the capture reads the chunks itself.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

from tailrace.api.server import Health
from tailrace.api.snapshots import SnapshotWorkView
from tailrace.model.errors import TailraceError
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.lease import error_line
from tailrace.pipeline.session import SLOW_START, worker_failure

_log = logging.getLogger("tailrace.pipeline")

_PATH = "/api/snapshots"
_ASK_SECONDS = 1.0
_RETRY_SECONDS = 5.0
_JOIN_SECONDS = 5.0
_TASK_SECONDS = 3.0
"""How long a task claims chunks. Batches of the router that wait for its core get it then."""
_IDLE_SECONDS = 30.0
"""How long a job waits for a core."""
_MAX_JOB_SECONDS = 300.0
"""A task ends with the chunk that it reads after `_TASK_SECONDS`, so one that lasts that long hangs."""
_PAUSE_SECONDS = 60.0
"""How long Spark is not tried after a failure."""
_MAX_SLOW_STARTS = 2
"""How often a job is run again at once because a worker was too slow to start."""
_NO_PSYCOPG = (
    "Python there has no psycopg with its libpq ({error}). Install it where tasks run with: pip install 'tailrace[postgres]';"
    " for a cluster, install it here and make the archive again with: tailrace pipeline package"
)


class TaskResult(NamedTuple):
    rows: int
    error: str | None


class SnapshotsRead(NamedTuple):
    """What one job has read."""

    rows: int
    tasks: int
    seconds: float


class SnapshotTasks:
    """Runs jobs that read snapshots, within a `with` block."""

    def __init__(self, spark: SparkSession, server: ServerAddress, on_read: Callable[[SnapshotsRead], None]) -> None:
        self._context = spark.sparkContext
        self._server = server
        self._on_read = on_read
        self._ended = threading.Event()
        self._wake = threading.Event()
        """Set when a job is done."""
        self._thread = InheritableThread(target=self._run, name="tailrace-snapshots", daemon=True)
        self._job: _Job | None = None
        self._paused_until = float("-inf")
        self._slow_starts = 0
        self.notice: str | None = None
        """Why Spark's tasks do not read snapshots, although there are some to be read."""

    def __enter__(self) -> "SnapshotTasks":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._wake.set()
        # The thread may wait for Java, which may have died.
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        with ServerConnection(self._server, _RETRY_SECONDS, self._ended) as connection:
            while not self._ended.is_set():
                self._wake.clear()
                # Java may have died, which the router reports.
                with contextlib.suppress(Py4JError, OSError):
                    self._look(connection)
                self._wake.wait(_ASK_SECONDS)
            if self._job is not None:
                with contextlib.suppress(Py4JError, OSError):
                    self._job.cancel()

    def _look(self, connection: ServerConnection) -> None:
        job = self._job
        if job is not None and job.is_done:
            self._finish(job)
            job = self._job = None
        if job is not None:
            if job.is_running:
                _pending(connection)
            why = job.why_it_hangs()
            if why is not None:
                job.cancel()
                self._job = None
                self._fail(why)
        elif time.monotonic() >= self._paused_until:
            pending = _pending(connection)
            if pending:
                self._job = _Job(self._context, self._server, min(pending, self._context.defaultParallelism), self._wake)
            elif pending == 0:
                self.notice = None

    def _finish(self, job: "_Job") -> None:
        rows = sum(result.rows for result in job.results)
        if rows:
            self._on_read(SnapshotsRead(rows, len(job.results), job.seconds))
        errors = [result.error for result in job.results if result.error is not None]
        self._slow_starts = self._slow_starts + 1 if job.is_slow_start else 0
        if job.is_slow_start and self._slow_starts <= _MAX_SLOW_STARTS:
            return
        if job.error is not None or errors:
            self._fail(job.error or errors[0])
        elif rows:
            self.notice = None

    def _fail(self, why: str) -> None:
        self._paused_until = time.monotonic() + _PAUSE_SECONDS
        notice = f"Spark's tasks can't read snapshots, so captures read them alone: {why}"
        if notice != self.notice and not self._ended.is_set():
            _log.warning("%s", notice)
        self.notice = notice


class _Job:
    """A job of Spark in a thread of its own."""

    def __init__(self, context: SparkContext, server: ServerAddress, tasks: int, done: threading.Event) -> None:
        self._context = context
        self._server = server
        self._tasks = tasks
        self._done = done
        self._group = f"tailrace-snapshots-{uuid4().hex}"
        self._began_at = self._active_at = time.monotonic()
        self.results: list[TaskResult] = []
        self.error: str | None = None
        self.is_slow_start = False
        self.is_done = False
        self.seconds = 0.0
        InheritableThread(target=self._run, name="tailrace-snapshot-job", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether one of its tasks runs. Until the first one does, it only waits."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        is_running = any(stage is not None and stage.numActiveTasks > 0 for stage in stages)
        if is_running:
            self._active_at = time.monotonic()
        return is_running

    def why_it_hangs(self) -> str | None:
        """Return why there is no point in waiting for it; `None` if there is."""
        now = time.monotonic()
        if now - self._active_at > _IDLE_SECONDS:
            return f"Spark had no core free for them for {_IDLE_SECONDS:g} s"
        if now - self._began_at > _MAX_JOB_SECONDS:
            return f"they did not end within {_MAX_JOB_SECONDS:g} s"
        return None

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, "reading snapshots of captured tables")
            server = self._server
            self.results = (
                self._context.parallelize(range(self._tasks), self._tasks).map(lambda _: read_snapshots(server)).collect()
            )
        except (Py4JNetworkError, OSError):
            # Java has ended, which the router reports.
            pass
        except Exception as error:  # noqa: BLE001  it is reported, whatever it is
            self.is_slow_start = SLOW_START in str(error)
            self.error = str(worker_failure(error, self._context.pythonExec) or error_line(error))
        self.seconds = time.monotonic() - self._began_at
        self.is_done = True
        self._done.set()


def read_snapshots(server: ServerAddress) -> TaskResult:
    """Read chunks for a while, in a task. Errors are returned, because Spark repeats a task that raises one."""
    rows, error = 0, None
    try:
        from tailrace.capture.snapshot_chunks import read_chunks

        with ServerConnection(server) as connection:
            # Reading chunks would wait without an end for a server that can't be reached from here.
            connection.get("/health", Health)
        rows, error = read_chunks(server.full_url, server.source, max_seconds=_TASK_SECONDS)
    except ImportError as missing:
        error = _NO_PSYCOPG.format(error=" ".join(str(missing).split()))
    except TailraceError as refused:
        error = str(refused)
    return TaskResult(rows, None if error is None else f"on {socket.gethostname()}: {error}")


def _pending(connection: ServerConnection) -> int | None:
    """Return how many chunks wait to be read, and tell the server that Spark reads them. `None` if it does not answer."""
    try:
        return connection.get(_PATH, SnapshotWorkView).pending
    except TailraceError:
        # Heartbeats report it.
        return None
