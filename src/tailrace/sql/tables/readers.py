"""Reads rows of tables as of one commit, with connections of its own that block nobody.

A query takes a snapshot and reads from it, in its own thread, whatever it needs. A few rows by an index are read by
`TableReaders.get` in one of a few threads; one row by a unique key is read by `TableReaders.get_one` on the event loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import apsw

from tailrace.model.clock import Clock
from tailrace.model.errors import QueryLimitError, StoreClosedError, TableAlteredError
from tailrace.model.limits import MIB, Limits
from tailrace.model.table import Table
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.database import CATALOG, abandon, failure_of, open_reader, quoted
from tailrace.sql.tables.statement_guard import EventLoopTime
from tailrace.sql.tables.table_file import TableFile, check_sealed, is_damage, judged
from tailrace.sql.tables.values import StoredValue

_PART_ROWS = 10_000
_PART_BYTES = MIB
_CHECK_EVERY_STEPS = 20_000

T = TypeVar("T")
_VERSION_SQL = f"SELECT schema_version FROM {quoted(CATALOG)} WHERE id = ?"  # noqa: S608

StoredRows = list[tuple[StoredValue, ...]]


def _never() -> bool:
    return False


class TableReaders:
    def __init__(self, file: TableFile, clock: Clock, limits: Limits, on_damage: Callable[[Exception], None]) -> None:
        self._file = file
        self._on_damage = on_damage
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.query_threads, "tailrace-get")
        self._free: list[TableSnapshot] = []
        self._time = EventLoopTime(clock)
        self._is_closed = False

    async def get(self, sql: str, values: Sequence[StoredValue], table: Table) -> StoredRows:
        """Return the rows of a statement that reads few of a table. Raises `TableAlteredError` if it was altered."""
        if self._is_closed:
            raise _closing()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._get, sql, values, table)

    def get_one(self, sql: str, values: Sequence[StoredValue], table: Table) -> tuple[StoredValue, ...] | None:
        """Return the row of a statement made by `one_row_sql`, read on the event loop.

        `None` means that `get` has to be asked: there is no such row, the table was altered, or reads have lately been slow.
        """
        began = self._time.begin()
        if self._is_closed or began is None:
            return None
        reader = self._take()
        try:
            found = reader.read_one(sql, (table.id, *values))
        finally:
            self._free.append(reader)
            self._time.end(began)
        return None if found is None or found[0] != table.schema_version else found[1:]

    async def run(self, work: Callable[["TableSnapshot"], T], table: Table) -> T:
        """Return what a function that reads few rows of a table makes of them. It runs in one of the threads."""
        if self._is_closed:
            raise _closing()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work, table)

    def _run(self, work: Callable[["TableSnapshot"], T], table: Table) -> T:
        with self.snapshot(_never) as snapshot:
            snapshot.check_tables((table,))
            return work(snapshot)

    def _get(self, sql: str, values: Sequence[StoredValue], table: Table) -> StoredRows:
        with self.snapshot(_never) as snapshot:
            snapshot.check_tables((table,))
            return [row for part in snapshot.read(sql, values) for row in part]

    @contextmanager
    def snapshot(self, is_cancelled: Callable[[], bool]) -> Iterator["TableSnapshot"]:
        """Return the rows as they are when the first of them is read. Use it in one thread."""
        if self._is_closed:
            raise _closing()
        try:
            reader = self._take()
            try:
                with reader.transaction(is_cancelled):
                    yield reader
            finally:
                self._free.append(reader)
        except Exception as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if not is_damage(cause):
                raise
            self._on_damage(cause)
            raise failure_of(cause, self._limits) from cause

    async def close(self) -> None:
        """Close the connections. The queries must have ended."""
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        for reader in self._free:
            reader.close()

    def _take(self) -> "TableSnapshot":
        """Return a reader of the current file."""
        with self._file.lock:
            while self._free:
                reader = self._free.pop()
                if reader.generation == self._file.generation:
                    return reader
                reader.close()
            return TableSnapshot(self._file, self._limits)


class TableSnapshot:
    """A connection, used by one thread at a time."""

    def __init__(self, file: TableFile, limits: Limits) -> None:
        self.generation = file.generation
        self._limits = limits
        self._is_cancelled: Callable[[], bool] = _never
        self.steps = 0
        """The work of SQLite so far, in steps of its virtual machine: a few for each row that it looks at."""
        self._connection = open_reader(file, limits)
        register_collations(self._connection)
        self._connection.set_progress_handler(self._progress, _CHECK_EVERY_STEPS)

    @contextmanager
    def transaction(self, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Read from one state of the tables."""
        self._connection.execute("BEGIN")
        self._is_cancelled = is_cancelled
        try:
            yield
        finally:
            self._is_cancelled = _never
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def stop_if(self, condition: Callable[[], bool]) -> None:
        """Make the statements of this transaction fail with a `QueryLimitError` when the condition holds."""
        self._is_cancelled = condition

    def check_tables(self, tables: Iterable[Table]) -> None:
        """Raise `TableAlteredError` if the rows of a table have another shape than these. Call it before the first `read`."""
        try:
            check_versions(self._connection, tables)
        except apsw.Error as why:
            cause = judged(self._connection, why)
            raise failure_of(cause, self._limits) from cause

    def start(self) -> None:
        """Fix the state that is read, which else happens when the first row is read."""
        try:
            self._connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        except apsw.Error as why:
            cause = judged(self._connection, why)
            raise failure_of(cause, self._limits) from cause

    def read(self, sql: str, values: Sequence[StoredValue], sized: Sequence[int] = ()) -> Iterator[StoredRows]:
        """Call `read_parts` for this connection."""
        return self._checked(read_parts(self._connection, sql, (values,), sized))

    def read_by_keys(self, sql: str, keys: Sequence[Sequence[StoredValue]], sized: Sequence[int] = ()) -> Iterator[StoredRows]:
        """Yield the rows of a statement that is run for each of the keys, in parts of bounded size."""
        return self._checked(read_parts(self._connection, sql, keys, sized))

    def read_one(self, sql: str, values: Sequence[StoredValue]) -> tuple[StoredValue, ...] | None:
        """Return the first row of a statement outside of a transaction; `None` if there is none or it fails."""
        try:
            found: tuple[StoredValue, ...] | None = self._connection.execute(sql, values).fetchone()
            check_sealed(self._connection)
        except apsw.Error:
            return None
        return found

    def _progress(self) -> bool:
        self.steps += _CHECK_EVERY_STEPS
        return self._is_cancelled()

    def _checked(self, parts: Iterator[StoredRows]) -> Iterator[StoredRows]:
        try:
            for part in parts:
                check_sealed(self._connection)
                yield part
            check_sealed(self._connection)
        except apsw.InterruptError as error:
            raise QueryLimitError("the query was cancelled") from error
        except apsw.Error as why:
            cause = judged(self._connection, why)
            raise failure_of(cause, self._limits) from cause

    def close(self) -> None:
        abandon(self._connection)


def one_row_sql(sql: str) -> str:
    """Return a SELECT of one row with the version of its table as the first column and the table's id as the first value."""
    return f"SELECT (SELECT schema_version FROM {quoted(CATALOG)} WHERE id = ?), {sql.removeprefix('SELECT ')}"  # noqa: S608


def check_versions(connection: apsw.Connection, tables: Iterable[Table]) -> None:
    """Raise `TableAlteredError` if a table was altered or dropped since these definitions were read."""
    for table in tables:
        if connection.execute(_VERSION_SQL, (table.id,)).fetchone() != (table.schema_version,):
            raise TableAlteredError.of(table.name)


def read_parts(
    connection: apsw.Connection, sql: str, runs: Sequence[Sequence[StoredValue]], sized: Sequence[int]
) -> Iterator[StoredRows]:
    """Yield the rows of a statement, which is run with each of these values, in parts of bounded size.

    `sized` are the columns whose values may be large.
    """
    cursor = connection.cursor()
    try:
        rows = cursor.executemany(sql, runs)
        if not sized:
            while part := list(islice(rows, _PART_ROWS)):
                yield part
            return
        part = []
        size = 0
        for row in rows:
            part.append(row)
            for at in sized:
                cell = row[at]
                if cell:
                    size += len(cell)
            if size > _PART_BYTES or len(part) == _PART_ROWS:
                yield part
                part, size = [], 0
        if part:
            yield part
    finally:
        cursor.close(force=True)


def _closing() -> StoreClosedError:
    return StoreClosedError("the server is stopping; run the query again after the restart")
