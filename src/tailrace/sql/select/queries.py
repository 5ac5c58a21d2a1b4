"""Runs queries over tables, topics, `system.*` and change feeds.

Names are looked up on the event loop, where a query also gets its view of the topics. It is then planned in one of a few
threads. DuckDB runs it in a process of its own and requests the rows that it needs, which the thread reads and decodes, without
the interpreter's lock where possible, so that producers and consumers are served meanwhile. A query is stopped when it takes
too long or its caller has gone. Short queries do not wait for long ones (`sql/query_scheduler.py`). A row by its key is read
without all that (`fast_point_select.py`), and so are a few rows of one table (`fast_row_select.py`).

Arrow is loaded by the first query, in a thread, so that the server starts without it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.clock import Clock
from tailrace.model.errors import InvariantError, QueryLimitError, StoreClosedError, TableAlteredError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.table import Table
from tailrace.sql.explain.points import explained_point, explained_rows
from tailrace.sql.parameters import NO_PARAMETERS, Parameters, is_many
from tailrace.sql.query_scheduler import QueryScheduler, QuerySlot
from tailrace.sql.results import Result, RowSink, StreamSlots
from tailrace.sql.select.fast_point_select import PointSelects
from tailrace.sql.select.fast_row_select import RowSelects
from tailrace.sql.statements import Query, Write
from tailrace.sql.tables.columnar_copies import ColumnarCopies
from tailrace.sql.tables.readers import StoredRows, TableSnapshot
from tailrace.sql.tables.values import StoredValue

if TYPE_CHECKING:
    from tailrace.sql.analysis.write_tree import AnalyzedWrite
    from tailrace.sql.explain.nodes import ExplainedPlan, PlanNode
    from tailrace.sql.select.execution import QueryExecution, QueryInTransaction, QueryRun, QuerySources
    from tailrace.sql.select.plan import FoundRelation, QueryOutline
    from tailrace.sql.select.workers import WorkerPool
    from tailrace.sql.select.write_queries import WriteExecution


T = TypeVar("T")
_ALTERED_SECONDS = 10.0
"""How long a query is planned again while one of its tables is altered."""
_ALTERED_PAUSE_SECONDS = 0.005


class QueryTables(Protocol):
    """The rows of tables; see `sql.tables`."""

    @property
    def copies(self) -> ColumnarCopies: ...
    async def read_rows(self, sql: str, values: Sequence[StoredValue], table: Table) -> StoredRows: ...
    def read_one(self, sql: str, values: Sequence[StoredValue], table: Table) -> tuple[StoredValue, ...] | None: ...
    async def read_few(self, work: Callable[[TableSnapshot], T], table: Table) -> T: ...
    def snapshot(self, is_cancelled: Callable[[], bool]) -> AbstractContextManager[TableSnapshot]: ...


class QueryRunner:
    def __init__(
        self, broker: Broker, tables: QueryTables, clock: Clock, limits: Limits, workers: "WorkerPool | None" = None
    ) -> None:
        self._broker = broker
        self._tables = tables
        self._clock = clock
        self._points = PointSelects(self._readable_table)
        self._rows = RowSelects(self._readable_table, limits)
        self._limits = limits
        self._workers = workers
        self._threads = ThreadPoolExecutor(2 * limits.query_threads, "tailrace-select")
        self._scheduler = QueryScheduler(limits)
        self._streaming = ThreadPoolExecutor(limits.streamed_answers, "tailrace-select-stream")
        """Threads for streams only, because they wait for their clients and would block other queries."""
        self._stream_slots = StreamSlots(limits)
        self._running: set[QueryRun] = set()
        self._sources: QuerySources | None = None
        self._loading = asyncio.Lock()
        self._is_closed = False

    async def run(self, query: Query, params: Parameters, answer: ReadAnswer | None = None) -> Result:
        """Return all rows, up to `query_rows`, within the memory budget of `answer`. Cancel the task to stop it."""
        return await with_present_tables(lambda: self._run(query, params, answer))

    def run_at_once(self, query: Query, params: Parameters) -> Result | None:
        """Return the result of a SELECT of one row by a unique key; `None` if `run` has to be asked."""
        point = self._points.bind(query, params)
        if point is None or point.one_row_sql is None:
            return None
        row = self._tables.read_one(point.one_row_sql, point.values, point.table)
        return None if row is None else point.result((row,))

    async def _run(self, query: Query, params: Parameters, answer: ReadAnswer | None) -> Result:
        point = self._points.bind(query, params)
        if point is not None:
            found = point.result(await self._tables.read_rows(point.sql, point.values, point.table))
            if found is not None:
                return found
        found = await self._few_rows(query, params)
        if found is not None:
            return found
        return await self._scheduler.run(
            lambda slot: self._attempt(slot, query, params, answer or self._broker.answers.answer())
        )

    async def _few_rows(self, query: Query, params: Parameters) -> Result | None:
        """Return the result of a query that reads a few rows of one table; `None` if it has to be run by a worker."""
        bound = None if self._is_closed else self._rows.bind(query, params)
        if bound is None:
            return None
        plan, values = bound
        if not plan.is_by_key and self._tables.copies.has_copy(plan.table):
            return None
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return await self._tables.read_few(lambda snapshot: plan.run(snapshot, values, now), plan.table)

    async def _attempt(self, slot: QuerySlot, query: Query, params: Parameters, answer: ReadAnswer) -> Result:
        execution = await self._prepared(query, params, answer)
        return await self._answered(execution, self._threads, on_start=lambda: slot.begin(execution.interrupt))

    async def stream(
        self,
        query: Query,
        params: Parameters,
        out: RowSink,
        answer: ReadAnswer,
        build: "type[QueryExecution] | None" = None,
    ) -> None:
        """Write all rows to `out`, however many. Cancel the task to stop it. `build` is the kind of execution."""

        async def attempt() -> Result:
            return await self._answered(await self._prepared(query, params, answer, build), self._streaming, out)

        async with self._stream_slots.slot():
            await with_present_tables(attempt)

    async def in_transaction(self, query: Query, params: Parameters, answer: ReadAnswer) -> "QueryInTransaction":
        """Return the query for the writer's thread, in which it sees what its transaction has written."""
        execution = await self._prepared(query, params, answer)
        from tailrace.sql.select.execution import QueryInTransaction

        # The writer's thread does not know the principal, so it is asked here who may read the row.
        points = None if self._points.bind(query, params) is None else self._points
        return QueryInTransaction(execution, query, points, params)

    async def explain(self, query: Query, params: Parameters, answer: ReadAnswer, *, analyze: bool) -> "ExplainedPlan":
        """Return how the query runs; with `analyze` run it, and measure that. Its rows are discarded."""
        return await with_present_tables(lambda: self._explain(query, params, answer, analyze=analyze))

    async def _explain(self, query: Query, params: Parameters, answer: ReadAnswer, *, analyze: bool) -> "ExplainedPlan":
        point = self._points.bind(query, params)
        if point is not None:
            return await explained_point(point, self._tables.read_rows, analyze=analyze)
        few = await self._explain_few_rows(query, params, analyze=analyze)
        if few is not None:
            return few
        from tailrace.sql.explain.queries import ExplainedQuery

        async def attempt(slot: QuerySlot) -> "ExplainedPlan":
            execution = await self._prepared(query, params, answer, ExplainedQuery)
            if not isinstance(execution, ExplainedQuery):
                raise InvariantError("another kind of execution was prepared than was asked for")
            execution.is_measured = analyze
            await self._answered(execution, self._threads, on_start=lambda: slot.begin(execution.interrupt))
            return execution.plan()

        return await self._scheduler.run(attempt)

    async def explain_write(
        self, write: Write, params: Parameters, answer: ReadAnswer
    ) -> "tuple[AnalyzedWrite, Sequence[PlanNode]]":
        """Return a write that has queries in its analyzed form, and the plans of the queries. They are not run."""
        from tailrace.sql.explain.queries import ExplainedWriteQueries

        async def attempt(slot: QuerySlot) -> "tuple[AnalyzedWrite, Sequence[PlanNode]]":
            execution = (await self._loaded()).prepare_write(write, params, answer, ExplainedWriteQueries)
            if not isinstance(execution, ExplainedWriteQueries):
                raise InvariantError("another kind of execution was prepared than was asked for")
            await self._answered(execution, self._threads, on_start=lambda: slot.begin(execution.interrupt))
            return execution.explained()

        return await with_present_tables(lambda: self._scheduler.run(attempt))

    async def _explain_few_rows(self, query: Query, params: Parameters, *, analyze: bool) -> "ExplainedPlan | None":
        bound = None if self._is_closed else self._rows.bind(query, params)
        if bound is None or (not bound[0].is_by_key and self._tables.copies.has_copy(bound[0].table)):
            return None
        started = time.perf_counter()
        result = await self._few_rows(query, params) if analyze else None
        if analyze and result is None:
            return None
        return await explained_rows(bound[0], self._tables.read_rows, result, time.perf_counter() - started)

    async def outline(
        self, query: Query, params: Parameters = NO_PARAMETERS
    ) -> "tuple[QueryOutline, Mapping[str, FoundRelation]]":
        """Return the columns of a query and what it reads, and what the names in it refer to. It is not run."""
        planner, found = (await self._loaded()).outline(query, params)
        outline = await asyncio.get_running_loop().run_in_executor(self._threads, planner.outline)
        return outline, found

    async def for_write(
        self, write: Write, params: Parameters, answer: ReadAnswer, *, in_transaction: bool = False
    ) -> "WriteExecution":
        """Return what runs the queries of a write. Those that do not need its transaction have run."""
        sources = await self._loaded()
        execution = sources.prepare_write(write, params, answer)
        if write.kind != "insert" or in_transaction or execution.reads_tables or is_many(params, write):
            execution.check_in_transaction()
            # A worker takes long to start, and nobody else writes while the transaction waits for one.
            await asyncio.get_running_loop().run_in_executor(self._threads, sources.workers.warm_up)
        else:
            await self._scheduler.run(
                lambda slot: self._answered(execution, self._threads, on_start=lambda: slot.begin(execution.interrupt))
            )
        return execution

    def _readable_table(self, name: str) -> Table | None:
        """Return the table of a name for fast paths, if the principal may read it; the general way says that it may not."""
        table = self._broker.tables.find(name)
        return table if table is not None and self._broker.permissions.may("select", "table", table.name) else None

    def close(self) -> None:
        """Stop the running queries, accept no more, and wait for the threads."""
        self._is_closed = True
        for execution in self._running:
            execution.stop(_closing())
        for threads in (self._threads, self._streaming):
            threads.shutdown(wait=True, cancel_futures=True)
        if self._sources is not None:
            self._sources.close()

    async def _prepared(
        self, query: Query, params: Parameters, answer: ReadAnswer, build: "type[QueryExecution] | None" = None
    ) -> "QueryExecution":
        return (await self._loaded()).prepare(query, params, answer, build)

    async def _loaded(self) -> "QuerySources":
        if self._is_closed:
            raise _closing()
        if self._sources is None:
            # The first queries may come at once; they share what is loaded, above all the worker processes.
            async with self._loading:
                if self._sources is None:
                    self._sources = await asyncio.get_running_loop().run_in_executor(self._threads, self._load)
        return self._sources

    def _load(self) -> "QuerySources":
        from tailrace.sql.select.execution import QuerySources

        return QuerySources(self._broker, self._tables, self._clock, self._limits, self._workers)

    async def _answered(
        self,
        execution: "QueryRun",
        threads: ThreadPoolExecutor,
        out: RowSink | None = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> Result:
        loop = asyncio.get_running_loop()
        watch = _TimeLimit(execution, self._limits.query_seconds, out, on_start)

        def ended(work: "asyncio.Future[Result]") -> None:
            self._running.discard(execution)
            watch.end()
            if not work.cancelled():
                # Retrieved even if the caller has gone, so that asyncio does not log it.
                work.exception()

        self._running.add(execution)
        work = loop.run_in_executor(threads, execution.run, watch.started_in_thread, out)
        work.add_done_callback(ended)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise _closing() from None
            execution.stop(QueryLimitError("the query was cancelled"))
            raise


async def with_present_tables(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what an attempt returns. It is made again if a table was altered after it was planned: nothing was read then."""
    end = time.monotonic() + _ALTERED_SECONDS
    while True:
        try:
            return await attempt()
        except TableAlteredError:
            if time.monotonic() > end:
                raise
        await asyncio.sleep(_ALTERED_PAUSE_SECONDS)


class _TimeLimit:
    """Stops a query that takes longer than `query_seconds` in total, or from one part of its stream to the next.

    It must not refer to the rows of the query: they would stay in memory until the garbage collector runs.
    """

    def __init__(self, execution: "QueryRun", seconds: int, out: RowSink | None, on_start: Callable[[], None]) -> None:
        self._execution = execution
        self._seconds = seconds
        self._out = out
        self._on_start = on_start
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def started_in_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._begin, time.monotonic())

    def end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, started_at: float) -> None:
        if not self._is_over:
            self._on_start()
            self._check(started_at)

    def _check(self, started_at: float) -> None:
        since = started_at if self._out is None else max(started_at, self._out.last_part_at)
        left = since + self._seconds - time.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check, started_at)
        else:
            self._execution.stop(
                QueryLimitError(
                    f"the query took longer than query_seconds allows ({self._seconds}) and was stopped; read fewer records"
                )
            )


def _closing() -> TailraceError:
    return StoreClosedError("the server is stopping; run the query again after the restart")
