"""Queries over topics, `system.*` and change feeds, joined with tables.

What belongs to the event loop is done there: names are looked up, topics are looked at as they are now. DuckDB then runs in one
of a few threads, pulls what it needs and lets go of the interpreter's lock while it works, so that producers and consumers go
on. A query that takes too long is stopped, and so is one whose caller has gone.

DuckDB and Arrow are loaded by the first query, in a thread: the server is ready without them.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tailrace.broker.broker import Broker
from tailrace.model.errors import OverloadedError, QueryLimitError, StoreClosedError, TailraceError
from tailrace.model.limits import Limits
from tailrace.sql.parameters import Parameters
from tailrace.sql.result import Result
from tailrace.sql.select.memory import MemoryWatch
from tailrace.sql.statements import Query

if TYPE_CHECKING:
    from tailrace.sql.select.execution import Execution, Preparation
    from tailrace.sql.select.tables import ReadTables


class Queries:
    def __init__(self, broker: Broker, tables: "ReadTables", limits: Limits) -> None:
        self._broker = broker
        self._tables = tables
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.query_threads, "tailrace-select")
        self._slots = asyncio.Semaphore(limits.query_threads)
        self._queued = 0
        self._running: set[Execution] = set()
        self._preparation: Preparation | None = None
        self._is_closed = False

    async def run(self, query: Query, params: Parameters) -> Result:
        """All rows, up to the limit `query_rows`. Cancel the task to stop it."""
        if self._queued >= self._limits.queued_queries:
            raise OverloadedError(
                f"{self._queued} queries wait for a thread, as many as queued_queries allows; try again after a pause"
            )
        self._queued += 1
        try:
            await self._slots.acquire()
        finally:
            self._queued -= 1
        try:
            execution = await self._prepared(query, params)
            work = asyncio.get_running_loop().run_in_executor(self._threads, execution.run)
        except BaseException:
            self._slots.release()
            raise
        return await self._finished(execution, work)

    def close(self) -> None:
        """Stop what runs, take nothing new, and wait for the threads."""
        self._is_closed = True
        for execution in self._running:
            execution.stop(_closing())
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._preparation is not None:
            self._preparation.close()

    async def _prepared(self, query: Query, params: Parameters) -> "Execution":
        if self._is_closed:
            raise _closing()
        if self._preparation is None:
            self._preparation = await asyncio.get_running_loop().run_in_executor(self._threads, self._load)
        return await self._preparation.prepare(query, params)

    def _load(self) -> "Preparation":
        from tailrace.sql.select.execution import Preparation

        return Preparation(self._broker, self._tables, self._limits)

    async def _finished(self, execution: "Execution", work: "asyncio.Future[Result]") -> Result:
        limits = self._limits
        self._running.add(execution)

        def ended(work: "asyncio.Future[Result]") -> None:
            # Not when the caller stops waiting, but when the thread is free again.
            self._running.discard(execution)
            self._slots.release()
            if not work.cancelled():
                # Seen, even if the caller has gone.
                work.exception()

        work.add_done_callback(ended)
        late = QueryLimitError(f"the query took longer than query_seconds allows ({limits.query_seconds}); it was stopped")
        timer = asyncio.get_running_loop().call_later(limits.query_seconds, execution.stop, late)
        try:
            with MemoryWatch(limits.query_bytes, execution.stop):
                return await asyncio.shield(work)
        except asyncio.CancelledError:
            execution.stop(QueryLimitError("the query was cancelled"))
            raise
        finally:
            timer.cancel()


def _closing() -> TailraceError:
    return StoreClosedError("the server is closing; query again after the restart")
