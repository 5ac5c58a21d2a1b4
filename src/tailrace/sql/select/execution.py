"""One query from its tree to its result: planned on the event loop, run in a thread, stopped from any thread."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.broker.reading.scan import TopicScan
from tailrace.model.errors import SqlError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.table import CHANGES_PREFIX
from tailrace.sql.parameters import Parameters, by_name
from tailrace.sql.results import Result, ResultStream
from tailrace.sql.select.sources import NamedSource, QuerySource, constants_query, resolve, scan_bounds
from tailrace.sql.select.system import NAMESPACE, SYSTEM_TABLES, SystemRelation
from tailrace.sql.select.tables import ReadTables, read_table
from tailrace.sql.select.topics import HIDDEN_COLUMNS, TOPIC_COLUMNS, FieldReader, TopicRelation
from tailrace.sql.select.translate import to_duckdb, with_constants
from tailrace.sql.select.worker_protocol import Relation
from tailrace.sql.select.workers import WorkerPool, WorkerProcess
from tailrace.sql.statements import Query
from tailrace.sql.syntax_trees import with_column_names, with_position

_COPIES = 3
"""Rows are in memory as they come from DuckDB, as values, and encoded, for a short time all at once."""


class QueryPlanner:
    """Prepares queries to run. Lives as long as the server."""

    def __init__(self, broker: Broker, tables: ReadTables, limits: Limits, workers: WorkerPool | None = None) -> None:
        """Worker processes that are passed in are closed by their owner."""
        self._broker = broker
        self._tables = tables
        self._limits = limits
        self._workers = workers or WorkerPool(limits)
        self._owns_workers = workers is None
        self.read_fields = FieldReader()

    async def prepare(self, query: Query, params: Parameters, answer: ReadAnswer) -> "QueryExecution":
        """Look up everything that the query names, with a view of the topics as of now."""
        tree = with_constants(with_column_names(query.tree), by_name(query, params), self._limits)
        sources = resolve(tree, self._find, lambda: tables_and_topics(self._broker))
        views: dict[str, TopicScan] = {}
        relations: dict[str, Relation] = {}
        for source in sources:
            named = source.named
            if named.kind in ("topic", "changes"):
                topic = named.name if named.kind == "topic" else CHANGES_PREFIX + named.name
                views[source.relation] = self._broker.scanner.view(topic)
            elif named.kind == "system":
                table = SYSTEM_TABLES[named.name]
                relations[source.relation] = SystemRelation(table, table.read(self._broker))
        # Read after the views of topics are taken, so that the row of every record that the query sees exists.
        for source in sources:
            if source.named.kind == "table" and source.named.table is not None:
                relations[source.relation] = await read_table(
                    self._tables, source.named.table, source.columns, source.where, self._limits
                )
        return QueryExecution(
            query,
            tree,
            sources,
            relations,
            views,
            self._limits,
            self._workers,
            self.read_fields,
            answer,
        )

    def close(self) -> None:
        if self._owns_workers:
            self._workers.close()

    def _find(self, name: str) -> NamedSource | None:
        namespace, _, rest = name.lower().partition(".")
        if namespace == NAMESPACE:
            if rest not in SYSTEM_TABLES:
                raise SqlError(
                    f"there is no table {name!r}; use {', '.join(f'{NAMESPACE}.{table}' for table in SYSTEM_TABLES)}"
                )
            return NamedSource("system", rest, list(SYSTEM_TABLES[rest].columns))
        table = self._broker.tables.find(name)
        if table is not None:
            return NamedSource("table", table.name, [column.name for column in table.columns], table=table)
        live = self._broker.topics.find(name)
        return None if live is None else NamedSource("topic", live.topic.name, list(TOPIC_COLUMNS), list(HIDDEN_COLUMNS))


class QueryExecution:
    def __init__(
        self,
        query: Query,
        tree: exp.Expr,
        sources: Sequence[QuerySource],
        relations: Mapping[str, Relation],
        views: Mapping[str, TopicScan],
        limits: Limits,
        workers: WorkerPool,
        read_fields: FieldReader,
        answer: ReadAnswer,
    ) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._query = query
        self._tree = tree
        self._sources = sources
        self._relations = relations
        self._views = views
        self._limits = limits
        self._workers = workers
        self._read_fields = read_fields
        self._lock = threading.Lock()
        self._worker: WorkerProcess | None = None
        self._stopped_by: TailraceError | None = None

    def run(self, on_start: Callable[[], None], out: ResultStream | None = None) -> Result:
        """Run the query in the calling thread.

        `on_start` is called when it starts. With `out`, all rows go there instead of the result.
        """
        try:
            return self._run(on_start, out)
        except TailraceError as error:
            if self._stopped_by is not None:
                raise self._stopped_by from error
            known = (column for _, named, *_ in self._sources for column in (*named.columns, *named.hidden))
            raise with_position(error, [self._query.tree], known) from error
        finally:
            with self._lock:
                worker, self._worker = self._worker, None
                was_stopped = self._stopped_by is not None
            if worker is not None:
                self._workers.release(worker, was_stopped=was_stopped)

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

    def _run(self, on_start: Callable[[], None], out: ResultStream | None) -> Result:
        worker = self._workers.take()
        with self._lock:
            self._worker = worker
            if self._stopped_by is not None:
                raise self._stopped_by
        worker.wait()
        on_start()
        relations = {**self._relations, **self._topics(worker)}
        most_rows = None if out is not None else self._limits.query_rows + 1
        text = to_duckdb(self._tree, most_rows)
        return worker.run(text, relations, out, lambda size: self._answer.keep_from_thread(_COPIES * size, self._loop))

    def _topics(self, worker: WorkerProcess) -> dict[str, Relation]:
        sources = [source for source in self._sources if source.relation in self._views]
        found = [condition for source in sources for condition in source.conditions]
        left = iter(worker.constants(constants_query(found)) if found else ())
        relations: dict[str, Relation] = {}
        for source in sources:
            known = [next(left) for condition in source.conditions for _ in condition.constants]
            relations[source.relation] = TopicRelation(
                self._views[source.relation],
                source.columns,
                scan_bounds(source.conditions, known),
                self._limits,
                self._read_fields,
                self._answer,
            )
        return relations


def tables_and_topics(broker: Broker) -> Iterable[str]:
    """Yield every name that a statement can use for a table or a topic."""
    yield from (table.name for table in broker.tables)
    for live in broker.topics:
        if not live.is_reserved:
            yield live.topic.name
            if live.topic.alias is not None:
                yield live.topic.alias
