"""Queries over topics, `system.*` and change feeds, joined with tables.

What belongs to the event loop is done there: names are looked up, topics are looked at as they are now. DuckDB then runs in a
process of its own and asks for the rows that it wants, which one of a few threads reads and decodes, without the interpreter's
lock where it can, so that producers and consumers go on. A query that takes too long is stopped, and so is one whose caller has
gone. Short ones do not wait for long ones (`sql/lanes.py`).

Arrow is loaded by the first query, in a thread: the server is ready without it.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.errors import QueryLimitError, StoreClosedError, TailraceError
from tailrace.model.limits import Limits
from tailrace.sql.lanes import QueryLanes, Slot
from tailrace.sql.parameters import Parameters
from tailrace.sql.result import Result
from tailrace.sql.statements import Query

if TYPE_CHECKING:
    from tailrace.sql.select.execution import Execution, Preparation
    from tailrace.sql.select.tables import ReadTables
    from tailrace.sql.select.workers import Workers


class Queries:
    def __init__(self, broker: Broker, tables: "ReadTables", limits: Limits, workers: "Workers | None" = None) -> None:
        self._broker = broker
        self._tables = tables
        self._limits = limits
        self._workers = workers
        self._threads = ThreadPoolExecutor(2 * limits.query_threads, "tailrace-select")
        self._lanes = QueryLanes(limits)
        self._running: set[Execution] = set()
        self._preparation: Preparation | None = None
        self._is_closed = False

    async def run(self, query: Query, params: Parameters, answer: ReadAnswer | None = None) -> Result:
        """All rows, up to the limit `query_rows`, which take the room of `answer`. Cancel the task to stop it."""
        return await self._lanes.run(lambda slot: self._attempt(slot, query, params, answer or self._broker.answers.answer()))

    async def _attempt(self, slot: Slot, query: Query, params: Parameters, answer: ReadAnswer) -> Result:
        return await self._answered(await self._prepared(query, params, answer), slot)

    def close(self) -> None:
        """Stop what runs, take nothing new, and wait for the threads."""
        self._is_closed = True
        for execution in self._running:
            execution.stop(_closing())
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._preparation is not None:
            self._preparation.close()

    async def _prepared(self, query: Query, params: Parameters, answer: ReadAnswer) -> "Execution":
        if self._is_closed:
            raise _closing()
        if self._preparation is None:
            self._preparation = await asyncio.get_running_loop().run_in_executor(self._threads, self._load)
        return await self._preparation.prepare(query, params, answer)

    def _load(self) -> "Preparation":
        from tailrace.sql.select.execution import Preparation

        return Preparation(self._broker, self._tables, self._limits, self._workers)

    async def _answered(self, execution: "Execution", slot: Slot) -> Result:
        loop = asyncio.get_running_loop()
        seconds = self._limits.query_seconds
        late = QueryLimitError(f"the query took longer than query_seconds allows ({seconds}); it was stopped")
        timers: list[asyncio.TimerHandle] = []

        def start_timer() -> None:
            if not work.done():
                timers.append(loop.call_later(seconds, execution.stop, late))
                slot.begin(execution.interrupt)

        def on_start() -> None:
            loop.call_soon_threadsafe(start_timer)

        def ended(work: "asyncio.Future[Result]") -> None:
            self._running.discard(execution)
            for timer in timers:
                timer.cancel()
            if not work.cancelled():
                # Seen, even if the caller has gone.
                work.exception()

        self._running.add(execution)
        work = loop.run_in_executor(self._threads, execution.run, on_start)
        work.add_done_callback(ended)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise _closing() from None
            execution.stop(QueryLimitError("the query was cancelled"))
            raise


def _closing() -> TailraceError:
    return StoreClosedError("the server is closing; query again after the restart")
