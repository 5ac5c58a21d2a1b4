"""Runs queries of tables in a few threads with a connection each, which see what is committed and block nobody.

A query can be cancelled at any time, and stops at the limits of time, memory and rows. Short queries do not wait for long ones
(`sql/query_scheduler.py`).
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from tailrace.model.clock import Clock
from tailrace.model.errors import QueryLimitError, StoreClosedError
from tailrace.model.limits import Limits
from tailrace.sql.parameters import Parameters
from tailrace.sql.query_scheduler import QueryScheduler, QuerySlot
from tailrace.sql.results import Result, ResultStream, StreamSlots
from tailrace.sql.statements import Query
from tailrace.sql.syntax_trees import columns_in, with_position
from tailrace.sql.tables.database import abandon, allow, failure_of, open_reader
from tailrace.sql.tables.functions import register_functions
from tailrace.sql.tables.programs import SqliteStatement, StatementGuard, fetch, fetch_in_parts, result_of, values_for
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_file import TableFile, check_sealed, is_damage, judged

T = TypeVar("T")


class TableReaders:
    def __init__(
        self, file: TableFile, catalog: TableCatalog, clock: Clock, limits: Limits, on_damage: Callable[[Exception], None]
    ) -> None:
        self._file = file
        self._on_damage = on_damage
        self._catalog = catalog
        self._clock = clock
        self._limits = limits
        self._scheduler = QueryScheduler(limits)
        self._threads = ThreadPoolExecutor(2 * limits.query_threads, "tailrace-query")
        self._streaming = ThreadPoolExecutor(limits.streamed_answers, "tailrace-stream")
        """Threads for streams only, because they wait for their clients and would block other queries."""
        self._stream_slots = StreamSlots(limits)
        self._free: list[_Reader] = []
        self._running: set[_Work] = set()
        """The queries that run in a thread."""
        self._is_closed = False

    async def run(self, query: Query, params: Parameters, most_rows: int) -> Result:
        """Return the rows of a query, at most `most_rows` of them."""

        async def attempt(slot: QuerySlot) -> Result:
            work = _Work()
            slot.begin(work.cancel)
            return await self._in_thread(self._threads, work, partial(self._query, work, query, params, most_rows))

        return await self._scheduler.run(attempt)

    async def stream(self, query: Query, params: Parameters, out: ResultStream) -> None:
        """Write all rows to `out`, however many."""
        work = _Work()
        async with self._stream_slots.slot():
            await self._in_thread(self._streaming, work, partial(self._stream, work, query, params, out))

    async def _in_thread(self, threads: ThreadPoolExecutor, work: "_Work", call: Callable[[], T]) -> T:
        if self._is_closed:
            raise _closing()
        self._running.add(work)
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, call)
        except asyncio.CancelledError:
            work.cancel()
            raise
        except QueryLimitError as error:
            if self._is_closed:
                raise _closing() from error
            raise
        finally:
            self._running.discard(work)

    async def close(self) -> None:
        """Stop the running queries and close the file."""
        self._is_closed = True
        for work in self._running:
            work.cancel()
        for threads in (self._threads, self._streaming):
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)
        for reader in self._free:
            reader.close()

    def _query(self, work: "_Work", query: Query, params: Parameters, most_rows: int) -> Result:
        with self._reporting_damage():
            reader = self._take()
            try:
                return reader.query(query, params, most_rows, work.is_cancelled)
            finally:
                self._free.append(reader)

    def _stream(self, work: "_Work", query: Query, params: Parameters, out: ResultStream) -> None:
        with self._reporting_damage():
            reader = self._take()
            try:
                reader.stream(query, params, out, work.is_cancelled)
            finally:
                reader.close()

    @contextmanager
    def _reporting_damage(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if not is_damage(cause):
                raise
            self._on_damage(cause)
            raise failure_of(cause, self._limits) from cause

    def _take(self) -> "_Reader":
        """Return a reader of the current file."""
        with self._file.lock:
            while self._free:
                reader = self._free.pop()
                if reader.generation == self._file.generation:
                    return reader
                reader.close()
            return _Reader(self._file, self._catalog, self._clock, self._limits)


def _closing() -> StoreClosedError:
    return StoreClosedError("the server is stopping; run the query again after the restart")


class _Work:
    """A query, and whether it was cancelled."""

    def __init__(self) -> None:
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def is_cancelled(self) -> bool:
        return self._is_cancelled


class _Reader:
    """A connection, used by one thread at a time."""

    def __init__(self, file: TableFile, catalog: TableCatalog, clock: Clock, limits: Limits) -> None:
        self.generation = file.generation
        self._catalog = catalog
        self._limits = limits
        connection = self._connection = open_reader(file, limits)
        self._guard = StatementGuard(connection, clock, limits)
        register_functions(connection, catalog.columns, catalog.types, self._guard.now_ms)
        connection.authorizer = allow(catalog.events, writes=False)

    def query(self, query: Query, params: Parameters, most_rows: int, is_cancelled: Callable[[], bool]) -> Result:
        self._guard.start(is_cancelled)
        try:
            program = self._catalog.program(query)
            values = values_for(program.parameters, params)
            fetched = fetch(self._connection, self._guard, program.sql, values, self._limits, most_rows)
            check_sealed(self._connection)
            types = program.returning.types if isinstance(program, SqliteStatement) and program.returning is not None else None
            return result_of(fetched, types, self._catalog.find)
        except Exception as why:  # noqa: BLE001  whatever it is, the client gets an error
            error = judged(self._connection, why)
            known = columns_in([query.tree], self._catalog.find)
            raise (self._guard.rejection or with_position(failure_of(error, self._limits), [query.tree], known)) from error
        finally:
            self._guard.stop()

    def stream(self, query: Query, params: Parameters, out: ResultStream, is_cancelled: Callable[[], bool]) -> None:
        self._guard.start(lambda: is_cancelled() or out.is_closed)
        try:
            program = self._catalog.program(query)
            values = values_for(program.parameters, params)
            types = program.returning.types if isinstance(program, SqliteStatement) and program.returning is not None else None
            for part in fetch_in_parts(self._connection, self._guard, program.sql, values, self._limits):
                check_sealed(self._connection)
                result = result_of(part, types, self._catalog.find)
                out.put(result.columns, result.rows)
                self._guard.begin_part()
        except Exception as why:  # noqa: BLE001  whatever it is, the client gets an error
            error = judged(self._connection, why)
            known = columns_in([query.tree], self._catalog.find)
            raise (self._guard.rejection or with_position(failure_of(error, self._limits), [query.tree], known)) from error
        finally:
            self._guard.stop()

    def close(self) -> None:
        abandon(self._connection)
