"""The router: reads the changes of all tables that have routes, and publishes what the routes make of them, once.

It is one streaming query. For each batch the routes are asked for anew, after it is known how far the batch goes, so routes
that are added or dropped count from exactly their place in the log. The server keeps the marks; Spark's checkpoint only
numbers the batches and may be lost.
"""

import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.model.pipeline import PipelineReport
from tailrace.model.route import Route
from tailrace.model.table import CHANGES_PREFIX
from tailrace.pipeline.connection import ServerConnection
from tailrace.pipeline.errors import PipelineError, RefusedError
from tailrace.pipeline.plan import routed
from tailrace.pipeline.routed_rows import DEAD_LETTERS, STAGED_SCHEMA, RouteTarget, stage_routed
from tailrace.pipeline.staging import StagedTask, publish
from tailrace.pipeline.table_changes import FORMAT, ChangedTable, ChangeOptions, TableChangesSource

_log = logging.getLogger("tailrace.pipeline")

_IDLE_SECONDS = 0.2
_HEARTBEAT_SECONDS = 2.0
_LEASE_PATIENCE_SECONDS = 15.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 15.0


class RouterSettings(NamedTuple):
    server: str
    name: str = "router"
    checkpoint: Path | None = None
    most_rows: int = 200_000
    """Changes of one batch."""
    patience_seconds: float = 60.0
    take_over: bool = False


class Routing(NamedTuple):
    """The routes at one moment, and the tables that they lead from."""

    routes: Sequence[Route]
    tables: Sequence[ChangedTable]


class Router:
    def __init__(self, spark: SparkSession, settings: RouterSettings, on_batch: Callable[[PipelineReport], None]) -> None:
        self._spark = spark
        self._settings = settings
        self._on_batch = on_batch
        self._connection = ServerConnection(settings.server, settings.patience_seconds)
        self._stopping = threading.Event()
        self._epoch = 0
        self._owner = f"process {os.getpid()} on {socket.gethostname()}"
        self._report = PipelineReport()
        self._with_dead_letters: set[str] = set()
        self._pinned: set[str] = set()
        self._failure: BaseException | None = None
        spark.dataSource.register(TableChangesSource)

    def run(self, *, once: bool = False) -> None:
        """Route until `stop`, or with `once` until everything that is there now is routed."""
        self._take_lease()
        heartbeat = threading.Thread(target=self._beat, name="tailrace-heartbeat", daemon=True)
        heartbeat.start()
        pause = _FIRST_PAUSE_SECONDS
        try:
            while not self._stopping.is_set():
                routing = self._routing()
                if not routing.tables:
                    if once:
                        return
                    self._stopping.wait(_IDLE_SECONDS)
                    continue
                try:
                    self._route(routing, once)
                    pause = _FIRST_PAUSE_SECONDS
                except Exception as error:
                    if once or _is_final(error):
                        raise
                    self._tell_failure(error)
                    self._stopping.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                    continue
                if once:
                    return
        finally:
            self._stopping.set()
            heartbeat.join()
            self._release()

    def stop(self) -> None:
        """Let the batch that is under way finish, then end."""
        self._stopping.set()

    def _route(self, routing: Routing, once: bool) -> None:
        """One query, until the set of tables changes."""
        options = ChangeOptions(
            self._settings.server,
            self._settings.name,
            tuple(routing.tables),
            self._settings.most_rows,
            self._spark.sparkContext.defaultParallelism,
            self._settings.patience_seconds,
        )
        self._failure = None
        with tempfile.TemporaryDirectory(prefix="tailrace-checkpoint-") as folder:
            # A new one for each set of tables: where to go on is said by the marks, not by it.
            place = str(self._settings.checkpoint / _name_of(routing) if self._settings.checkpoint else Path(folder))
            reader = self._spark.readStream.format(FORMAT).option("options", msgspec.json.encode(options).decode())
            writer = reader.load().writeStream.foreachBatch(self._publish_batch).option("checkpointLocation", place)
            query = (writer.trigger(availableNow=True) if once else writer).start()
            try:
                self._watch(query, routing)
            finally:
                query.stop()
        if self._failure is not None:
            raise self._failure

    def _watch(self, query: StreamingQuery, routing: Routing) -> None:
        while query.isActive and not self._stopping.is_set():
            if self._stopping.wait(_IDLE_SECONDS):
                break
            if self._routing().tables != routing.tables:
                return
        error = query.exception()
        if error is not None and self._failure is None:
            raise PipelineError(f"the query failed: {error}")

    def _publish_batch(self, changes: DataFrame, number: int) -> None:
        began = time.monotonic()
        try:
            routing = self._routing()
            self._make_dead_letters(routing.routes)
            targets = [RouteTarget(route.id, route.topic_name, route.table_name, route.payload) for route in routing.routes]
            settings = self._settings
            stage = stage_routed(targets, settings.server, settings.name, settings.patience_seconds)
            rows = routed(changes, routing.routes).mapInArrow(stage, STAGED_SCHEMA).collect()
            tasks = [StagedTask(row.stage, row.parts, row.records) for row in rows if row.parts]
            if tasks:
                publish(self._connection, settings.name, tasks, epoch=self._epoch)
        except BaseException as error:
            self._failure = error
            raise
        self._tell_batch(number, sum(row.changes for row in rows), sum(row.dead_letters for row in rows), began, len(targets))

    def _routing(self) -> Routing:
        """Asked for when it is known how far the batch goes, so that no route of it is missing."""
        found = self._connection.ask("GET", f"/api/pipelines/{self._settings.name}/routing")
        pending = msgspec.convert(found, list[_RouteToDo])
        self._pin({each.source: each.start for each in reversed(pending)})
        tables = {
            each.route.table: ChangedTable(each.route.table, CHANGES_PREFIX + each.route.table_name, each.source)
            for each in pending
        }
        return Routing([each.route for each in pending], [tables[table] for table in sorted(tables)])

    def _pin(self, starts: Mapping[str, int]) -> None:
        """Begin sources that are new to the pipeline, each at the first change that a route of it counts for."""
        if starts.keys() - self._pinned:
            question = {"epoch": self._epoch, "starts": starts}
            marks = self._connection.ask("POST", f"/api/pipelines/{self._settings.name}/pin", question)["marks"]
            self._pinned = set(marks)

    def _make_dead_letters(self, routes: Sequence[Route]) -> None:
        for topic in {route.topic_name for route in routes} - self._with_dead_letters:
            self._connection.ask("POST", "/api/topics", {"name": topic + DEAD_LETTERS, "partitions": 1})
            self._with_dead_letters.add(topic)

    def _take_lease(self) -> None:
        """Wait for as long as the one before may still hold it: after a crash nobody has given it back."""
        deadline = time.monotonic() + _LEASE_PATIENCE_SECONDS
        question = {"owner": self._owner, "take_over": self._settings.take_over}
        while True:
            try:
                lease = self._connection.ask("POST", f"/api/pipelines/{self._settings.name}/lease", question)
            except RefusedError as error:
                if error.kind != "pipeline-fenced" or time.monotonic() > deadline or self._stopping.wait(_IDLE_SECONDS):
                    raise
            else:
                self._epoch = lease["epoch"]
                self._pinned = set(lease["marks"])
                return

    def _release(self) -> None:
        try:
            self._connection.ask("POST", f"/api/pipelines/{self._settings.name}/release", {"epoch": self._epoch})
        except PipelineError as error:
            _log.warning("the lease was not given back: %s", error)
        self._connection.close()

    def _beat(self) -> None:
        """Tell the server that the pipeline lives and how it does, also while nothing is to be routed."""
        with ServerConnection(self._settings.server, self._settings.patience_seconds) as connection:
            while not self._stopping.wait(_HEARTBEAT_SECONDS):
                try:
                    connection.ask(
                        "POST",
                        f"/api/pipelines/{self._settings.name}/report",
                        {"epoch": self._epoch, "report": msgspec.to_builtins(self._report)},
                    )
                except RefusedError as error:
                    _log.error("%s", error)
                    self._failure = error
                    self._stopping.set()
                except PipelineError as error:
                    _log.warning("%s", error)

    def _tell_batch(self, number: int, changes: int, dead_letters: int, began: float, routes: int) -> None:
        seconds = time.monotonic() - began
        self._report = msgspec.structs.replace(
            self._report,
            batch=number,
            rows=changes,
            rows_per_second=changes / seconds if seconds else 0.0,
            batch_seconds=seconds,
            routes=routes,
            dead_letters=self._report.dead_letters + dead_letters,
            last_error=None,
        )
        self._on_batch(self._report)

    def _tell_failure(self, error: BaseException) -> None:
        _log.error("the batch failed and is done again from the mark: %s", error)
        self._report = msgspec.structs.replace(self._report, last_error=str(error)[:1000])
        self._on_batch(self._report)


class _RouteToDo(msgspec.Struct):
    route: Route
    source: str
    start: int


def _is_final(error: BaseException) -> bool:
    """Whether doing it again can't help."""
    return isinstance(error, RefusedError) and error.kind == "pipeline-fenced"


def _name_of(routing: Routing) -> str:
    return "tables-" + "-".join(str(table.id) for table in routing.tables)[:200]
