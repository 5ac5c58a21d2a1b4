"""The router: reads changes from a source, and publishes the records that the routes make of them, exactly once.

It is one streaming query. For each batch it asks for the routes again, when it is known where the batch ends, so a route that
is added or dropped takes effect exactly at its position in the log. The server keeps the marks; Spark's checkpoint only
numbers the batches of one query and is deleted with it. A query that fails is started again from the marks.
"""

import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.api.pipelines import RealtimeBody, RealtimeProgress, RealtimeView
from tailrace.api.server import Health
from tailrace.model.backoff import Backoff
from tailrace.model.errors import PipelineFencedError
from tailrace.model.killpoint import killpoint
from tailrace.model.pipeline import ROUTER, Latency, PipelineMode, PipelineReport
from tailrace.model.route import Route
from tailrace.pipeline.connection import RETRY_SECONDS, ServerAddress, ServerConnection
from tailrace.pipeline.errors import PipelineError, SparkError
from tailrace.pipeline.executor_watch import ExecutorWatch
from tailrace.pipeline.lease import RouterLease, error_line
from tailrace.pipeline.plan import CellSlots, RoutingPlan, slots_of
from tailrace.pipeline.realtime_watch import BACKLOG_CHANGES, REALTIME_PATH, RealtimeWatch, RoutedRange
from tailrace.pipeline.routed_records import RouteTarget
from tailrace.pipeline.routed_steps import STAGED_SCHEMA, stage_routed
from tailrace.pipeline.session import SLOW_START, worker_failure
from tailrace.pipeline.snapshot_tasks import SnapshotsRead, SnapshotTasks
from tailrace.pipeline.staging import StagedTask, publish
from tailrace.sql.routes.check import analyzed_route

_log = logging.getLogger("tailrace.pipeline")

_POLL_SECONDS = 0.2
_FINISH_SECONDS = 4.0
"""How long a stop waits for the batch under way."""
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 15.0
_MAX_SLOW_STARTS = 10
"""How often a run with `once` retries after a worker was too slow to start."""
_MAX_EXECUTORS_WAIT_SECONDS = 600.0
"""How long a run with `once` waits for executors."""


class RouterSettings(NamedTuple):
    server: ServerAddress
    checkpoint: Path | None = None
    """Where Spark's checkpoint is kept while a query runs; `None` is a temporary folder, in memory if possible."""
    retry_seconds: float = RETRY_SECONDS
    """How long the server may be unreachable."""
    lease_wait_seconds: float = 15.0
    """How long to wait for another router's lease: longer than a lease lasts, in case that router was killed."""
    take_over: bool = False
    is_realtime: bool | None = None
    """Whether to route in real time when there is no backlog. `None` does what ALTER PIPELINE has set at the server."""
    kafka: str | None = None
    """The address of the server's Kafka listener, for real time; `None` asks the server."""


class ChangeSource(Protocol):
    """Emits changes in steps, as `steps.py` describes them, from the marks that the server keeps."""

    def frame(self, spark: SparkSession, epoch: int, slots: CellSlots) -> DataFrame:
        """Return a stream with the rows of steps. `epoch` is that of the router's lease."""
        ...


class Router:
    """Runs the streaming query under the router's lease, and restarts it when it fails."""

    def __init__(
        self,
        spark: SparkSession,
        source: ChangeSource,
        settings: RouterSettings,
        on_batch: Callable[[PipelineReport], None],
        on_snapshots: Callable[[SnapshotsRead], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._source = source
        self._settings = settings
        self._on_batch = on_batch
        self._stopping = threading.Event()
        self._lease = RouterLease(
            settings.server,
            self._stopping,
            retry_seconds=settings.retry_seconds,
            lease_wait_seconds=settings.lease_wait_seconds,
            take_over=settings.take_over,
        )
        self._slots = CellSlots()
        """The slots of the running query."""
        self._plan = RoutingPlan([], self._slots)
        self._targets: list[RouteTarget] = []
        """The routes of the plan."""
        self._failure: BaseException | None = None
        """The error of the batch, before Spark wraps it."""
        self._between_batches = threading.Event()
        self._between_batches.set()
        self._replacing = threading.Event()
        """Set when the query is to be replaced by one of the other mode: batches that start from then on do nothing."""
        self._latency: Latency = "batch"
        """What was wanted when the query started."""
        self._notice: str | None = None
        """Why changes are not routed in real time, although they are to be."""
        self._executors = ExecutorWatch(spark)
        self._snapshots = SnapshotTasks(spark, settings.server, on_snapshots)
        self._snapshot_notice: str | None = None
        """Why Spark's tasks do not read snapshots, as it was reported."""

    def run(self, *, once: bool = False, on_lease: Callable[[], None] = lambda: None) -> None:
        """Route until `stop`, or with `once` until all changes that exist now are routed.

        `on_lease` is called when the server has granted the lease.
        """
        with self._lease as lease, contextlib.nullcontext() if once else self._snapshots:
            on_lease()
            backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
            slow_starts = 0
            while not self._stopping.is_set():
                batches = lease.report.batches
                try:
                    self._latency = self._wanted_latency()
                    is_realtime = not once and self._can_run_realtime()
                    if is_realtime and self._lag() <= BACKLOG_CHANGES:
                        self._run_realtime()
                    else:
                        self._run_query(once, is_backlog=is_realtime)
                except _OtherCellsError:
                    continue
                except Exception as error:
                    if self._stopping.is_set() and lease.loss is None:
                        # The error of a batch that was interrupted.
                        break
                    if once and SLOW_START in str(error) and slow_starts < _MAX_SLOW_STARTS:
                        slow_starts += 1
                        _log.warning("a Spark worker took too long to start; starting the query again")
                        continue
                    if self._is_final(error) or once:
                        raise
                    self._report_failure(error)
                    if lease.report.batches > batches:
                        backoff.reset()
                    self._stopping.wait(backoff.next_pause())
                else:
                    if once:
                        break
            if lease.loss is not None:
                raise lease.loss

    def stop(self) -> None:
        """Stop soon, after the current batch if it takes not long. Otherwise the next router repeats that batch."""
        self._stopping.set()

    def _wanted_latency(self) -> Latency:
        if self._settings.is_realtime is None:
            return self._lease.latency
        return "realtime" if self._settings.is_realtime else "batch"

    def _can_run_realtime(self) -> bool:
        """Return whether real time is wanted and Spark has its Kafka connector. Without it, say once what to do."""
        if self._latency == "realtime":
            # Imported here, because only real time needs it.
            from tailrace.pipeline.realtime import NO_CONNECTOR, has_connector

            if has_connector(self._spark):
                return True
            if self._notice is None:
                _log.warning("%s", NO_CONNECTOR)
                self._report_notice(NO_CONNECTOR)
        elif self._notice is not None:
            self._report_notice(None)
        return False

    def _report_notice(self, notice: str | None) -> None:
        self._notice = notice
        self._lease.report = msgspec.structs.replace(self._lease.report, last_error=notice or self._snapshot_notice)

    def _run_query(self, once: bool, *, is_backlog: bool = False) -> None:
        self._failure = None
        self._replacing.clear()
        self._report_mode("micro-batch")
        with self._connect() as connection:
            self._slots = slots_of(_fetch_routes(connection))
        self._plan, self._targets = RoutingPlan([], self._slots), []
        frame = self._source.frame(self._spark, self._lease.epoch, self._slots)
        with self._checkpoint() as folder:
            writer = frame.writeStream.foreachBatch(self._route).option("checkpointLocation", folder.absolute().as_uri())
            query = (writer.trigger(availableNow=True) if once or is_backlog else writer).start()
            try:
                self._watch(query, once)
            finally:
                query.stop()
        if self._failure is not None:
            raise self._failure

    def _run_realtime(self) -> None:
        """Run the real-time query until it has to be replaced: by one that knows other routes, or by micro-batches."""
        from tailrace.pipeline.kafka_login import kafka_login
        from tailrace.pipeline.realtime import start_query

        self._report_mode("real-time")
        with self._connect() as connection, self._checkpoint() as folder:
            kafka = self._settings.kafka or connection.get("/health", Health).kafka
            view = connection.ask(REALTIME_PATH, RealtimeBody(self._lease.epoch), RealtimeView)
            watch = RealtimeWatch(lambda: connection.get(REALTIME_PATH, RealtimeProgress), view.version)
            login = kafka_login(self._settings.server)
            query = start_query(self._spark, kafka, login, view, self._lease.epoch, folder) if view.routes else None
            try:
                while not self._stopping.wait(_POLL_SECONDS) and (query is None or query.isActive):
                    self._watch_notices()
                    progress = watch.look()
                    if progress is not None:
                        self._report_realtime(progress, len(view.routes))
                    if watch.is_over(is_routing=query is not None) or self._wanted_latency() != self._latency:
                        return
                error = None if query is None else query.exception()
                if error is not None:
                    raise PipelineError(f"the query failed: {error}")
            finally:
                if query is not None:
                    query.stop()

    def _report_mode(self, mode: PipelineMode) -> None:
        self._lease.report = msgspec.structs.replace(self._lease.report, mode=mode)

    def _lag(self) -> int:
        with self._connect() as connection:
            return connection.get(REALTIME_PATH, RealtimeProgress).lag

    def _report_realtime(self, progress: RoutedRange, routes: int) -> None:
        report = self._lease.report
        self._lease.report = msgspec.structs.replace(
            report,
            batches=report.batches + 1,
            rows=report.rows + progress.changes,
            rows_per_second=progress.changes / progress.seconds,
            batch_seconds=progress.seconds,
            routes=routes,
            dead_letters=report.dead_letters + progress.dead_letters,
            last_error=self._snapshot_notice,
        )
        self._on_batch(self._lease.report)

    def _watch(self, query: StreamingQuery, once: bool) -> None:
        """Wait until the query ends or is to be stopped, or the other mode is wanted and no batch is under way."""
        while query.isActive and not self._stopping.wait(_POLL_SECONDS):
            self._watch_notices(once)
            if not once and self._wanted_latency() != self._latency:
                self._replacing.set()
                if self._between_batches.is_set():
                    break
        # Spark prints a long stack trace for a batch that is interrupted.
        self._between_batches.wait(_FINISH_SECONDS)
        error = query.exception()
        if error is not None and self._failure is None:
            raise PipelineError(f"the query failed: {error}")

    def _watch_notices(self, once: bool = False) -> None:
        """Report it when the cluster gives this application no executors, which Spark waits for without an end, and when
        snapshots can't be read."""
        if self._snapshots.notice != self._snapshot_notice and not self._executors.has_notice:
            self._snapshot_notice = self._snapshots.notice
            self._report_notice(self._notice)
        had_notice = self._executors.has_notice
        notice = self._executors.look()
        if notice is None and had_notice:
            self._report_notice(self._notice)
        elif notice is not None and not had_notice:
            _log.warning("%s", notice)
            self._lease.report = msgspec.structs.replace(self._lease.report, last_error=notice)
        if once and self._executors.missing_seconds > _MAX_EXECUTORS_WAIT_SECONDS:
            raise SparkError(notice)

    def _route(self, changes: DataFrame, number: int) -> None:
        """Route one batch. Spark calls it in a thread of its own."""
        began = time.monotonic()
        self._between_batches.clear()
        try:
            if self._stopping.is_set() or self._replacing.is_set():
                # Spark notes in its checkpoint that the batch is done, which does not matter: the marks say that it is not.
                return
            with self._connect() as connection:
                plan = self._plan_for(_fetch_routes(connection))
                killpoint("route.before")
                rows = plan.apply(changes).mapInArrow(self._stage(), STAGED_SCHEMA).collect()
                killpoint("route.staged")
                tasks = [StagedTask(row.stage, row.parts, row.records) for row in rows if row.parts]
                if tasks:
                    publish(connection, ROUTER, tasks, self._lease.epoch)
                killpoint("route.published")
        except Exception as error:  # noqa: BLE001  `run` handles it, whatever it is
            self._failure = error
            # One line, because Spark parses it with a regular expression that recurses over a whole stack trace.
            raise PipelineError(error_line(error)) from None
        finally:
            self._between_batches.set()
        self._report_batch(
            number, len(plan.routes), sum(row.changes for row in rows), sum(row.dead_letters for row in rows), began
        )

    def _plan_for(self, routes: list[Route]) -> RoutingPlan:
        if routes != self._plan.routes:
            if not self._slots.cover(slots_of(routes)):
                raise _OtherCellsError("routes name cells that this query does not read; the next query will")
            self._plan = RoutingPlan(routes, self._slots)
            self._targets = _targets(self._plan)
        return self._plan

    def _stage(self) -> Callable[..., Iterator[object]]:
        return stage_routed(self._targets, self._settings.server, ROUTER, self._settings.retry_seconds)

    def _connect(self) -> ServerConnection:
        """Open a new connection for each batch, because a batch of a query that was given up may still be running."""
        return ServerConnection(self._settings.server, self._settings.retry_seconds, self._stopping)

    @contextlib.contextmanager
    def _checkpoint(self) -> Iterator[Path]:
        """Provide an empty folder for one query, which continues from the marks and not from an older checkpoint."""
        if self._settings.checkpoint is None:
            with tempfile.TemporaryDirectory(
                prefix="tailrace-checkpoint-", dir=_memory(), ignore_cleanup_errors=True
            ) as folder:
                yield Path(folder)
            return
        folder_of_router = self._settings.checkpoint / ROUTER
        shutil.rmtree(folder_of_router, ignore_errors=True)
        yield folder_of_router

    def _is_final(self, error: BaseException) -> bool:
        """Return whether trying again can't help."""
        if not _is_alive(self._spark):
            raise PipelineError(f"Spark has ended: {error_line(error)}") from error
        failure = worker_failure(error, self._spark.sparkContext.pythonExec)
        if failure is not None:
            raise failure from error
        return isinstance(error, PipelineFencedError)

    def _report_batch(self, number: int, routes: int, changes: int, dead_letters: int, began: float) -> None:
        seconds = time.monotonic() - began
        report = self._lease.report
        self._lease.report = msgspec.structs.replace(
            report,
            batch=number,
            batches=report.batches + 1,
            rows=report.rows + changes,
            rows_per_second=changes / seconds if seconds else 0.0,
            batch_seconds=seconds,
            routes=routes,
            dead_letters=report.dead_letters + dead_letters,
            last_error=self._notice or self._snapshot_notice,
        )
        self._on_batch(self._lease.report)

    def _report_failure(self, error: BaseException) -> None:
        _log.error("a batch failed and is repeated from the mark: %s", error_line(error))
        self._lease.report = msgspec.structs.replace(self._lease.report, last_error=error_line(error))
        self._on_batch(self._lease.report)


class _OtherCellsError(Exception):
    """The query has to be replaced by one that reads more cells."""


def _fetch_routes(connection: ServerConnection) -> list[Route]:
    return connection.get("/api/pipelines/router/routes", list[Route])


def _targets(plan: RoutingPlan) -> list[RouteTarget]:
    """Return what tasks have to know of the routes of a plan."""
    return [
        RouteTarget(route.id, route.topic, route.topic_name, route.table_name, route.payload, bits, analyzed_route(route))
        for route, bits in zip(plan.routes, plan.bits, strict=True)
    ]


def _memory() -> str | None:
    """Return a folder in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  a folder of an unforeseeable name within


def _is_alive(spark: SparkSession) -> bool:
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False
