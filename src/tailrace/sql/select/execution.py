"""One query from its parse tree to its result: prepared on the event loop, planned and run in a thread, stopped from any."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.scan import TopicScan
from tailrace.broker.security.principals import current_principal
from tailrace.model.clock import Clock
from tailrace.model.errors import TailraceError, UnknownTableError, UnsupportedSqlError
from tailrace.model.ids import TableId
from tailrace.model.limits import Limits
from tailrace.model.table import Table
from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.types import of_column, to_column
from tailrace.sql.parameters import Parameters, in_order, is_many
from tailrace.sql.privileges import Privileges, refusal
from tailrace.sql.results import Result, ResultColumn, RowSink
from tailrace.sql.select.fast_point_select import PointSelects
from tailrace.sql.select.plan import (
    NOTHING_REFUSED,
    FoundRelation,
    FoundView,
    PlannedScan,
    QueryPlan,
    QueryPlanner,
    RefusedNames,
    names_in,
    sql_type_of,
)
from tailrace.sql.select.sources import scan_bounds
from tailrace.sql.select.system import ReadRows, SystemRelation, visible_rows
from tailrace.sql.select.system_names import find_system, found_system, is_system_name
from tailrace.sql.select.tables import ChangedRowsRelation, RowReader, SnapshotReader, TableRelation, can_use_copy
from tailrace.sql.select.topics import HIDDEN_COLUMNS, TOPIC_COLUMNS, FieldReader, TopicRelation
from tailrace.sql.select.views import ViewExpansion
from tailrace.sql.select.worker_protocol import Relation
from tailrace.sql.select.workers import WorkerPool, WorkerProcess
from tailrace.sql.statements import PostgresStatement, Query, Write
from tailrace.sql.tables.columnar_copies import ColumnarCopies, ColumnarView
from tailrace.sql.tables.jobs import RowSource

if TYPE_CHECKING:
    from tailrace.sql.select.write_queries import WriteExecution

T = TypeVar("T")

_COPIES = 3
"""Rows are in memory as they come from DuckDB, as values, and encoded, for a short time all at once."""
_JSON_TEXTS = ("key", "value")


class ReadTables(Protocol):
    """The rows of tables; see `sql.tables`."""

    @property
    def copies(self) -> ColumnarCopies: ...
    def snapshot(self, is_cancelled: Callable[[], bool]) -> AbstractContextManager[SnapshotReader]: ...


class QuerySources:
    """What queries read: looks up names on the event loop, with a view of the topics as of now. Lives as long as the server."""

    def __init__(
        self, broker: Broker, tables: ReadTables, clock: Clock, limits: Limits, workers: WorkerPool | None = None
    ) -> None:
        """Worker processes that are passed in are closed by their owner."""
        self._broker = broker
        self._clock = clock
        self.tables = tables
        self.limits = limits
        self.workers = workers or WorkerPool(limits)
        self._owns_workers = workers is None
        self.read_fields = FieldReader()
        self._views = ViewExpansion(broker, limits)

    def prepare(
        self, query: Query, params: Parameters, answer: ReadAnswer, build: "type[QueryExecution] | None" = None
    ) -> "QueryExecution":
        """Look up everything that the query names. `build` is the kind of execution, if it is not the usual one."""
        values = in_order(query, params)
        looked_up = self.look_up(query, values)
        planner = QueryPlanner(query, values, looked_up.found, looked_up.names, self.now(), self.limits, looked_up.refused)
        return (build or QueryExecution)(query, planner, looked_up, self, answer)

    def prepare_write(
        self, write: Write, params: Parameters, answer: ReadAnswer, build: "type[WriteExecution] | None" = None
    ) -> "WriteExecution":
        """Look up everything that the queries of a write name. `build` is the kind of execution."""
        from tailrace.sql.select.write_queries import WriteExecution

        values = () if is_many(params, write) else in_order(write, params)
        looked_up = self.look_up(write, values)
        if write.target in looked_up.refused.names:
            # The target is found by the analysis, whether it may be read or not.
            place = write.position_of(write.target_location)
            raise refusal(looked_up.refused.principal, "select", write.target, place)
        return (build or WriteExecution)(write, values, looked_up, self, answer)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    def find_table(self, name: str) -> FoundRelation | None:
        """Return the table of a name."""
        return self._find(name) if self._broker.tables.find(name) is not None else None

    def look_up(self, statement: PostgresStatement, values: Sequence[object]) -> "LookedUp":
        """Look up everything that a statement reads, as far as the principal of the request may read it."""
        found, changes, is_complete, refused = self._resolved(statement, values)
        views: dict[str, TopicScan] = {}
        system: dict[str, ReadRows] = {}
        for name, relation in found.items():
            if relation.kind == "topic":
                views[relation.name] = self._broker.scanner.view(relation.name)
            elif relation.kind == "system":
                system[relation.name] = visible_rows(found_system(relation.name), self._broker)
            elif name in changes and relation.table is not None:
                views[relation.name] = self._broker.scanner.view(self._changes_topic(relation.table))
        # The names are for suggestions if one is not found.
        names = () if is_complete else tuple(tables_and_topics(self._broker))
        return LookedUp(found, names, views, system, bool(changes), refused)

    def outline(self, query: Query, params: Parameters) -> tuple[QueryPlanner, Mapping[str, FoundRelation]]:
        """Return a planner that tells the columns of a query and what it reads, and what the names in it refer to."""
        values = in_order(query, params)
        found, _, is_complete, refused = self._resolved(query, values)
        names = () if is_complete else tuple(tables_and_topics(self._broker))
        return QueryPlanner(query, values, found, names, self.now(), self.limits, refused), found

    def _resolved(
        self, statement: PostgresStatement, values: Sequence[object]
    ) -> tuple[dict[str, FoundRelation], set[str], bool, RefusedNames]:
        """Return what the names in a statement refer to, and the names in the views that it reads.

        Also returned are the names of tables whose changes are read, whether everything that it names was found, and what may
        not be read. That is not among what was found, so that nothing which is planned later can read it.
        """
        named, changes = names_in(statement, values)
        reading = ReadPermission(self._broker, self._find) if self._broker.permissions.is_on else None
        refused: set[str] = set()
        found: dict[str, FoundRelation] = {}
        all_changes = set(changes)
        waiting = list(named)
        while waiting:
            name = waiting.pop()
            relation = self._find(name, reads_changes=name in all_changes) if name not in found else None
            if reading is not None and name not in found and not reading.allows(name, relation):
                refused.add(name)
                continue
            if relation is None:
                continue
            found[name] = relation
            if relation.view is not None:
                waiting += [key for key, _ in relation.view.sources.values()]
                all_changes |= relation.view.changes
        names = RefusedNames(current_principal().name, frozenset(refused)) if refused else NOTHING_REFUSED
        return found, all_changes, all(name in found for name in named), names

    def close(self) -> None:
        if self._owns_workers:
            self.workers.close()

    def _changes_topic(self, table: Table) -> str:
        live = self._broker.topics.by_id(table.changes)
        if live is None:
            raise UnknownTableError(f"the table {table.name!r} was dropped")
        return live.topic.name

    def _find(self, name: str, *, reads_changes: bool = False) -> FoundRelation | None:
        known = find_system(name)
        if known is not None:
            key, system = known
            columns = [
                RelationColumn(column, system.types.get(column) or sql_type_of(kind)) for column, kind in system.columns.items()
            ]
            return FoundRelation("system", key, columns)
        if is_system_name(name):
            return None
        table = self._broker.tables.find(name)
        if table is None and reads_changes:
            captured = self._broker.sources.find_table(name)
            table = None if captured is None else captured.table
        if table is not None:
            columns = [
                RelationColumn(column.name, of_column(column.type), is_key=column.name in table.primary_key)
                for column in table.columns
            ]
            return FoundRelation("table", table.name, columns, table)
        view = self._broker.views.find(name)
        if view is not None:
            return self._views.found(view)
        live = self._broker.topics.find_folded(name)
        return None if live is None else FoundRelation("topic", live.topic.name, _TOPIC_RELATION)


_TOPIC_RELATION = [
    *(RelationColumn(name, sql_type_of(kind), is_json_text=name in _JSON_TEXTS) for name, kind in TOPIC_COLUMNS.items()),
    *(RelationColumn(name, sql_type_of(kind), is_hidden=True) for name, kind in HIDDEN_COLUMNS.items()),
]


class ReadPermission:
    """Decides for one statement what the principal of the request may read."""

    def __init__(self, broker: Broker, find: Callable[..., FoundRelation | None]) -> None:
        self._may = broker.permissions.may
        self._may_know = Privileges(broker).may_know
        self._find = find
        self._views: dict[str, bool] = {}

    def allows(self, name: str, relation: FoundRelation | None) -> bool:
        """Return whether a relation may be read; if there is none of the name, whether that may be known.

        A view needs permission for itself, and for all that it reads.
        """
        if relation is None:
            return is_system_name(name) or self._may_know(name)
        if relation.kind == "system":
            return True
        if relation.kind == "topic":
            return self._may("consume", "topic", relation.name)
        if not self._may("select", "table", relation.name):
            return False
        return relation.view is None or self._allows_view(relation.name, relation.view)

    def _allows_view(self, name: str, view: FoundView) -> bool:
        known = self._views.get(name)
        if known is None:
            known = self._views[name] = all(
                self.allows(key, self._find(key, reads_changes=key in view.changes)) for key, _ in view.sources.values()
            )
        return known


class LookedUp(NamedTuple):
    """What the names in a statement mean, with a view of the topics as of then."""

    found: Mapping[str, FoundRelation]
    names: Sequence[str]
    """All names, for suggestions, if one was not found."""
    views: Mapping[str, TopicScan]
    system: Mapping[str, ReadRows]
    reads_changes: bool
    """Whether the changes of a table are read."""
    refused: RefusedNames


class QueryRun:
    """Runs queries in the calling thread, one after another, and is stopped from any."""

    def __init__(self, looked_up: LookedUp, sources: QuerySources, answer: ReadAnswer) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._views = looked_up.views
        self._system = looked_up.system
        self._sources = sources
        self._limits = sources.limits
        self._workers = sources.workers
        self._lock = threading.Lock()
        self._worker: WorkerProcess | None = None
        self._stopped_by: TailraceError | None = None

    def run(self, on_start: Callable[[], None], out: RowSink | None = None) -> Result:
        """Run in the calling thread. `on_start` is called when it starts."""
        raise NotImplementedError

    @contextmanager
    def _tables(self, plans: Sequence[QueryPlan]) -> Iterator["ReadTable"]:
        """Return how tables are read, all as of one commit."""
        with ExitStack() as stack:
            read_table = _no_tables
            tables = [table for plan in plans for table in _tables_of(plan)]
            if tables:
                # In this order: what changes after the snapshot was taken is among the keys that have changed.
                leases = stack.enter_context(self._sources.tables.copies.leased(tables))
                snapshot = stack.enter_context(self._sources.tables.snapshot(lambda: self._stopped_by is not None))
                snapshot.check_tables(tables)
                read_table = partial(self._read_table, snapshot, leases.views(snapshot))
            yield read_table

    def _on_worker(
        self,
        plan: QueryPlan,
        read_table: "ReadTable",
        on_start: Callable[[], None],
        read: Callable[[WorkerProcess, Mapping[str, Relation]], T],
    ) -> T:
        """Take a worker, prepare what the query reads, and return what `read` returns."""
        try:
            worker = self._workers.take()
            with self._lock:
                self._worker = worker
                if self._stopped_by is not None:
                    raise self._stopped_by
            worker.wait()
            on_start()
            return read(worker, self._relations(plan, read_table, worker))
        except TailraceError as error:
            if self._stopped_by is not None:
                raise self._stopped_by from error
            raise
        finally:
            with self._lock:
                taken, self._worker = self._worker, None
                was_stopped = self._stopped_by is not None
            if taken is not None:
                self._workers.release(taken, was_stopped=was_stopped)

    def stop(self, why: TailraceError) -> None:
        """Make the query fail with this error, unless it has ended. May be called from any thread."""
        with self._lock:
            self._stopped_by = why
            if self._worker is not None:
                self._worker.stop()

    def interrupt(self) -> None:
        """Make the query end soon with a `QueryLimitError`, without ending its worker. Call it while the query runs."""
        with self._lock:
            if self._worker is not None:
                self._worker.interrupt()

    def _keep(self, size: int) -> None:
        self._answer.keep_from_thread(_COPIES * size, self._loop)

    def _read_table(
        self, snapshot: SnapshotReader, views: Mapping[TableId, ColumnarView], table: Table, scan: PlannedScan
    ) -> Relation:
        if not can_use_copy(table, scan.where):
            return TableRelation(snapshot, table, scan.columns, scan.where)
        view = views.get(table.id)
        if view is not None:
            return ChangedRowsRelation(snapshot, table, scan.columns, view)
        want = partial(self._sources.tables.copies.want, table)
        return TableRelation(snapshot, table, scan.columns, scan.where, want)

    def _relations(self, plan: QueryPlan, read_table: "ReadTable", worker: WorkerProcess) -> dict[str, Relation]:
        """Return what the query reads, by the names that DuckDB knows."""
        asked = [bounds.question.removeprefix("SELECT ") for bounds in plan.bounds if bounds.question is not None]
        count = sum(bounds.asked for bounds in plan.bounds)
        answers = iter(worker.constants(f"SELECT {', '.join(asked)}", count) if asked else ())
        relations: dict[str, Relation] = {}
        for scan, bounds in zip(plan.scans, plan.bounds, strict=True):
            values = [next(answers) for _ in range(bounds.asked)]
            if scan.relation.kind == "system":
                relations[scan.name] = SystemRelation(found_system(scan.relation.name), self._system[scan.relation.name])
            elif scan.relation.table is not None:
                relations[scan.name] = read_table(scan.relation.table, scan)
            else:
                found = list(bounds.answered(values))
                relations[scan.name] = TopicRelation(
                    self._views[scan.relation.name],
                    scan.columns,
                    scan_bounds(found),
                    self._limits,
                    self._sources.read_fields,
                    self._answer,
                    scan.fields,
                    self._sources.read_fields.json_kernels,
                )
        return relations


class QueryExecution(QueryRun):
    """One query of a client."""

    def __init__(
        self, query: Query, planner: QueryPlanner, looked_up: LookedUp, sources: QuerySources, answer: ReadAnswer
    ) -> None:
        super().__init__(looked_up, sources, answer)
        self._query = query
        self._planner = planner

    def run(self, on_start: Callable[[], None], out: RowSink | None = None) -> Result:
        """Run the query in the calling thread.

        `on_start` is called when it starts. With `out`, all rows go there instead of the result.
        """
        plan = self._planner.plan(None if out is not None else self._most_rows())
        with self._tables([plan]) as read_table:
            return self._run(plan, read_table, on_start, out)

    def _most_rows(self) -> int | None:
        """Return how many rows are computed, unless they are streamed: one more than are shown."""
        return self._limits.query_rows + 1

    def run_in_transaction(self, rows: RowSource) -> Result:
        """Run the query over the rows that a transaction sees, in the thread of the transaction."""
        plan = self._planner.plan(self._limits.query_rows + 1)
        if any(scan.relation.kind != "table" for scan in plan.scans):
            raise UnsupportedSqlError(
                "a transaction can only read tables; query topics outside of the transaction",
                self._query.line,
                self._query.column,
            )
        rows.check_tables(_tables_of(plan))
        return self._run(plan, partial(read_stored, rows), lambda: None, None, rows.check)

    def _run(
        self,
        plan: QueryPlan,
        read_table: "ReadTable",
        on_start: Callable[[], None],
        out: RowSink | None,
        check: Callable[[], None] | None = None,
    ) -> Result:
        columns = [ResultColumn(name, to_column(kind)) for name, kind in zip(plan.names, plan.types, strict=True)]

        def read(worker: WorkerProcess, relations: Mapping[str, Relation]) -> Result:
            return worker.run(plan.text, relations, columns, plan.types, out, self._keep, check)

        return self._on_worker(plan, read_table, on_start, read)


ReadTable = Callable[[Table, PlannedScan], Relation]


def _tables_of(plan: QueryPlan) -> list[Table]:
    return [scan.relation.table for scan in plan.scans if scan.relation.table is not None]


def _no_tables(table: Table, scan: PlannedScan) -> Relation:
    raise UnsupportedSqlError(f"the query can't read table {table.name!r}")


def read_stored(rows: RowReader, table: Table, scan: PlannedScan) -> Relation:
    """Return the rows of a table as they are stored."""
    return TableRelation(rows, table, scan.columns, scan.where)


class QueryInTransaction:
    """A query between BEGIN and COMMIT, which runs in the writer's thread."""

    def __init__(self, execution: QueryExecution, query: Query, points: PointSelects | None, params: Parameters) -> None:
        """`points` is left out if the query is not one of a row, or may not read it."""
        self.text = query.text
        self._execution = execution
        self._query = query
        self._points = points
        self._params = params

    def run(self, rows: RowSource) -> Result:
        point = None if self._points is None else self._points.bind(self._query, self._params)
        if point is not None:
            rows.check_tables((point.table,))
            found = point.result([row for part in rows.read(point.sql, point.values) for row in part])
            if found is not None:
                return found
        return self._execution.run_in_transaction(rows)


def tables_and_topics(broker: Broker) -> Iterable[str]:
    """Yield every name that a statement can use for a table, a view or a topic, and that its principal may know."""
    may = broker.permissions.may
    yield from (table.name for table in broker.tables if may("describe", "table", table.name))
    yield from (view.name for view in broker.views if may("describe", "table", view.name))
    for live in broker.topics.visible():
        if not live.is_reserved:
            yield live.topic.name
            if live.topic.alias is not None:
                yield live.topic.alias
