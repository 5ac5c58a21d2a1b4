"""Queries of tables: a few threads with a connection each, which see what is committed and hold up nobody.

A query can be cancelled at any time, and stops by itself at the limits of time, memory and rows. Short ones do not wait for
long ones (`sql/lanes.py`).
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
from tailrace.sql.answer_stream import AnswerStream, StreamSlots
from tailrace.sql.lanes import QueryLanes, Slot
from tailrace.sql.parameters import Parameters
from tailrace.sql.result import Result
from tailrace.sql.statements import Query
from tailrace.sql.tables.database import abandon, allow, open_reader
from tailrace.sql.tables.failures import failure_of
from tailrace.sql.tables.functions import register_functions
from tailrace.sql.tables.library import Library
from tailrace.sql.tables.programs import Run
from tailrace.sql.tables.runner import Watch, fetch, fetch_in_parts, result_of, values_for
from tailrace.sql.tables.table_file import TableFile, check_sealed, is_damage, judged
from tailrace.sql.unknown_columns import columns_in, with_place

T = TypeVar("T")


class TableReaders:
    def __init__(
        self, file: TableFile, library: Library, clock: Clock, limits: Limits, on_damage: Callable[[Exception], None]
    ) -> None:
        self._file = file
        self._on_damage = on_damage
        self._library = library
        self._clock = clock
        self._limits = limits
        self._lanes = QueryLanes(limits)
        self._threads = ThreadPoolExecutor(2 * limits.query_threads, "tailrace-query")
        self._streaming = ThreadPoolExecutor(limits.streamed_answers, "tailrace-stream")
        """Of their own: they wait for their clients, and others must not wait for that."""
        self._stream_slots = StreamSlots(limits)
        self._free: list[_Reader] = []
        self._running: set[_Work] = set()
        """Queries in a thread."""
        self._is_closed = False

    async def run(self, query: Query, params: Parameters, most_rows: int) -> Result:
        """All rows, up to so many."""

        async def attempt(slot: Slot) -> Result:
            work = _Work()
            slot.begin(work.cancel)
            return await self._in_thread(self._threads, work, partial(self._query, work, query, params, most_rows))

        return await self._lanes.run(attempt)

    async def stream(self, query: Query, params: Parameters, out: AnswerStream) -> None:
        """Hand over all rows, however many."""
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
        """Stop the queries that run, and close the file."""
        self._is_closed = True
        for work in self._running:
            work.cancel()
        for threads in (self._threads, self._streaming):
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)
        for reader in self._free:
            reader.close()

    def _query(self, work: "_Work", query: Query, params: Parameters, most_rows: int) -> Result:
        with self._damage_told():
            reader = self._take()
            try:
                return reader.query(query, params, most_rows, work.is_cancelled)
            finally:
                self._free.append(reader)

    def _stream(self, work: "_Work", query: Query, params: Parameters, out: AnswerStream) -> None:
        with self._damage_told():
            reader = self._take()
            try:
                reader.stream(query, params, out, work.is_cancelled)
            finally:
                reader.close()

    @contextmanager
    def _damage_told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if not is_damage(cause):
                raise
            self._on_damage(cause)
            raise failure_of(cause, self._limits) from cause

    def _take(self) -> "_Reader":
        """A reader of the file that is in its place now."""
        with self._file.lock:
            while self._free:
                reader = self._free.pop()
                if reader.generation == self._file.generation:
                    return reader
                reader.close()
            return _Reader(self._file, self._library, self._clock, self._limits)


def _closing() -> StoreClosedError:
    return StoreClosedError("the tables are closing; query again after the restart")


class _Work:
    """A query, and whether anybody still waits for it."""

    def __init__(self) -> None:
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def is_cancelled(self) -> bool:
        return self._is_cancelled


class _Reader:
    """One connection, used by one thread at a time."""

    def __init__(self, file: TableFile, library: Library, clock: Clock, limits: Limits) -> None:
        self.generation = file.generation
        self._library = library
        self._limits = limits
        connection = self._connection = open_reader(file, limits)
        self._watch = Watch(connection, clock, limits)
        register_functions(connection, library.columns, library.types, self._watch.now_ms)
        connection.authorizer = allow(library.events, writes=False)

    def query(self, query: Query, params: Parameters, most_rows: int, is_cancelled: Callable[[], bool]) -> Result:
        self._watch.start(is_cancelled)
        try:
            program = self._library.program(query)
            values = values_for(program.parameters, params)
            fetched = fetch(self._connection, self._watch, program.sql, values, self._limits, most_rows)
            check_sealed(self._connection)
            types = program.returning.types if isinstance(program, Run) and program.returning is not None else None
            return result_of(fetched, types, self._library.find)
        except Exception as why:  # noqa: BLE001  whatever it is, the client is told
            error = judged(self._connection, why)
            known = columns_in([query.tree], self._library.find)
            raise (self._watch.refusal or with_place(failure_of(error, self._limits), [query.tree], known)) from error
        finally:
            self._watch.stop()

    def stream(self, query: Query, params: Parameters, out: AnswerStream, is_cancelled: Callable[[], bool]) -> None:
        self._watch.start(lambda: is_cancelled() or out.is_closed)
        try:
            program = self._library.program(query)
            values = values_for(program.parameters, params)
            types = program.returning.types if isinstance(program, Run) and program.returning is not None else None
            for part in fetch_in_parts(self._connection, self._watch, program.sql, values, self._limits):
                check_sealed(self._connection)
                result = result_of(part, types, self._library.find)
                out.put(result.columns, result.rows)
                self._watch.begin_part()
        except Exception as why:  # noqa: BLE001  whatever it is, the client is told
            error = judged(self._connection, why)
            known = columns_in([query.tree], self._library.find)
            raise (self._watch.refusal or with_place(failure_of(error, self._limits), [query.tree], known)) from error
        finally:
            self._watch.stop()

    def close(self) -> None:
        abandon(self._connection)
