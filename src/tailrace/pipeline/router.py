"""The router: reads changes from a source, and publishes what the routes make of them, once.

It is one streaming query. For each batch the routes are asked for anew, after it is known how far the batch goes, so routes
that are added or dropped count from exactly their place in the log. The server keeps the marks; Spark's checkpoint only
numbers the batches of one query and is thrown away with it. A query that fails is started again from the marks.
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

from tailrace.model.backoff import Backoff
from tailrace.model.errors import PipelineFencedError
from tailrace.model.killpoint import killpoint
from tailrace.model.pipeline import ROUTER, PipelineReport
from tailrace.model.route import Route
from tailrace.pipeline.connection import RETRY_SECONDS, ServerAddress, ServerConnection
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.lease import RouterLease, error_line
from tailrace.pipeline.plan import CellSlots, RoutingPlan, slots_of, wanted_cells
from tailrace.pipeline.routed_records import RouteTarget
from tailrace.pipeline.routed_steps import STAGED_SCHEMA, stage_routed
from tailrace.pipeline.session import worker_failure
from tailrace.pipeline.staging import StagedTask, publish

_log = logging.getLogger("tailrace.pipeline")

_LOOK_SECONDS = 0.2
_FINISH_SECONDS = 4.0
"""How long a stop waits for the batch under way."""
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 15.0
_SLOW_STARTS = 10
"""How often a run that ends by itself puts up with a worker that was too slow."""
_SLOW_START = "Python worker failed to connect back"
"""Spark gives a worker ten seconds to start, which is not long on a machine with much else to do, and nothing changes that."""


class RouterSettings(NamedTuple):
    server: ServerAddress
    checkpoint: Path | None = None
    """Where Spark's notes go while a query runs; `None` is a temporary folder, in memory where that is possible."""
    retry_seconds: float = RETRY_SECONDS
    """How long the server may be away."""
    lease_wait_seconds: float = 15.0
    """How long to wait for the end of another router's lease: longer than a lease lasts, for one that was killed."""
    take_over: bool = False


class ChangeSource(Protocol):
    """Whatever hands out changes in steps, as `change_rows.py` has them, and goes on at the marks that the server keeps."""

    def frame(self, spark: SparkSession, epoch: int, slots: CellSlots) -> DataFrame:
        """A stream with the rows of steps. `epoch` is that of the router's lease."""
        ...


class Router:
    def __init__(
        self, spark: SparkSession, source: ChangeSource, settings: RouterSettings, on_batch: Callable[[PipelineReport], None]
    ) -> None:
        self._spark = spark
        self._source = source
        self._settings = settings
        self._on_batch = on_batch
        self._stopping = threading.Event()
        self._tenure = RouterLease(
            settings.server,
            self._stopping,
            retry_seconds=settings.retry_seconds,
            lease_wait_seconds=settings.lease_wait_seconds,
            take_over=settings.take_over,
        )
        self._slots = CellSlots()
        """Of the query that runs."""
        self._plan = RoutingPlan([], self._slots)
        self._failure: BaseException | None = None
        """What went wrong in the batch, before Spark has put it into its own words."""
        self._between_batches = threading.Event()
        self._between_batches.set()

    def run(self, *, once: bool = False, on_lease: Callable[[], None] = lambda: None) -> None:
        """Route until `stop`, or with `once` until everything that is there now is routed.

        `on_lease` is called when the server has agreed that this one runs.
        """
        with self._tenure as tenure:
            on_lease()
            backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            slow_starts = 0
            while not self._stopping.is_set():
                batches = tenure.report.batches
                try:
                    self._run_query(once)
                except _OtherCellsError:
                    continue
                except Exception as error:
                    if self._stopping.is_set() and tenure.loss is None:
                        # Whatever a batch says that was torn off.
                        break
                    if once and _SLOW_START in str(error) and slow_starts < _SLOW_STARTS:
                        slow_starts += 1
                        _log.warning("a worker of Spark took too long to start, and is started again")
                        continue
                    if self._is_final(error) or once:
                        raise
                    self._tell_failure(error)
                    if tenure.report.batches > batches:
                        backoff.reset()
                    self._stopping.wait(backoff.next_pause())
                else:
                    if once:
                        break
            if tenure.loss is not None:
                raise tenure.loss

    def stop(self) -> None:
        """End soon, behind the batch under way if it is done soon. If not, the next router does it again."""
        self._stopping.set()

    def _run_query(self, once: bool) -> None:
        self._failure = None
        with self._connect() as connection:
            self._slots = slots_of(_routes(connection))
        self._plan = RoutingPlan([], self._slots)
        frame = self._source.frame(self._spark, self._tenure.epoch, self._slots)
        with self._checkpoint() as folder:
            writer = frame.writeStream.foreachBatch(self._route).option("checkpointLocation", str(folder))
            query = (writer.trigger(availableNow=True) if once else writer).start()
            try:
                self._watch(query)
            finally:
                query.stop()
        if self._failure is not None:
            raise self._failure

    def _watch(self, query: StreamingQuery) -> None:
        """Until the query ends or is to end."""
        while query.isActive and not self._stopping.wait(_LOOK_SECONDS):
            pass
        # Spark tells at length of a batch that was torn off.
        self._between_batches.wait(_FINISH_SECONDS)
        error = query.exception()
        if error is not None and self._failure is None:
            raise PipelineError(f"the query failed: {error}")

    def _route(self, changes: DataFrame, number: int) -> None:
        """One batch. Called by Spark, in a thread of its own."""
        began = time.monotonic()
        self._between_batches.clear()
        try:
            if self._stopping.is_set():
                # Spark takes it for done and notes so where nobody looks; the marks say that it is not.
                return
            with self._connect() as connection:
                plan = self._plan_for(_routes(connection))
                killpoint("route.before")
                rows = plan.apply(changes).mapInArrow(self._stage(plan), STAGED_SCHEMA).collect()
                killpoint("route.staged")
                tasks = [StagedTask(row.stage, row.parts, row.records) for row in rows if row.parts]
                if tasks:
                    publish(connection, ROUTER, tasks, self._tenure.epoch)
                killpoint("route.published")
        except Exception as error:  # noqa: BLE001  whatever it is, it is told by `run`, which knows what to do
            self._failure = error
            # A line for Spark, which would take the whole trace apart by regular expressions, as deep as it is long.
            raise PipelineError(error_line(error)) from None
        finally:
            self._between_batches.set()
        self._tell_batch(
            number, len(plan.routes), sum(row.changes for row in rows), sum(row.dead_letters for row in rows), began
        )

    def _plan_for(self, routes: list[Route]) -> RoutingPlan:
        if routes != self._plan.routes:
            if not self._slots.cover(wanted_cells(routes)):
                raise _OtherCellsError("routes name cells that this query does not read; the next one will")
            self._plan = RoutingPlan(routes, self._slots)
        return self._plan

    def _stage(self, plan: RoutingPlan) -> Callable[..., Iterator[object]]:
        targets = [
            RouteTarget(route.id, route.topic, route.topic_name, route.table_name, route.payload, bits)
            for route, bits in zip(plan.routes, plan.bits, strict=True)
        ]
        return stage_routed(targets, self._settings.server, ROUTER, self._settings.retry_seconds)

    def _connect(self) -> ServerConnection:
        """A new one for each batch, because a batch of a query that was given up may still be under way."""
        return ServerConnection(self._settings.server, self._settings.retry_seconds, self._stopping)

    @contextlib.contextmanager
    def _checkpoint(self) -> Iterator[Path]:
        """An empty folder, for one query: it goes on at the marks, whatever an older folder says."""
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
        """Whether trying again can't help."""
        if not _is_alive(self._spark):
            raise PipelineError(f"Spark has ended, and the router with it: {error_line(error)}") from error
        failure = worker_failure(error, self._spark.sparkContext.pythonExec)
        if failure is not None:
            raise failure from error
        return isinstance(error, PipelineFencedError)

    def _tell_batch(self, number: int, routes: int, changes: int, dead_letters: int, began: float) -> None:
        seconds = time.monotonic() - began
        report = self._tenure.report
        self._tenure.report = msgspec.structs.replace(
            report,
            batch=number,
            batches=report.batches + 1,
            rows=report.rows + changes,
            rows_per_second=changes / seconds if seconds else 0.0,
            batch_seconds=seconds,
            routes=routes,
            dead_letters=report.dead_letters + dead_letters,
            last_error=None,
        )
        self._on_batch(self._tenure.report)

    def _tell_failure(self, error: BaseException) -> None:
        _log.error("a batch failed and is done again from the mark: %s", error_line(error))
        self._tenure.report = msgspec.structs.replace(self._tenure.report, last_error=error_line(error))
        self._on_batch(self._tenure.report)


class _OtherCellsError(Exception):
    """A query ends because another one must read more of the rows."""


def _routes(connection: ServerConnection) -> list[Route]:
    return msgspec.convert(connection.ask("GET", "/api/pipelines/router/routes"), list[Route])


def _memory() -> str | None:
    """A folder that costs no disk, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  a folder of an unforeseeable name within


def _is_alive(spark: SparkSession) -> bool:
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False
