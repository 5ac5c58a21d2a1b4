"""CREATE TABLE AS: a table with the columns and the rows of a query, all of them or none.

The table is created hidden, filled by as many transactions as its rows need, and made visible by one commit. A server that dies
before that drops it at the next start. While it is filled, its name is taken and nobody finds it.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import wait

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.model.errors import (
    InvariantError,
    LimitExceededError,
    QueryLimitError,
    SqlError,
    StoreClosedError,
    TableExistsError,
    TailraceError,
    UnsupportedSqlError,
)
from tailrace.model.killpoint import killpoint
from tailrace.model.limits import MIB, Limits
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.analysis.types import SqlType, to_column
from tailrace.sql.parameters import Parameters
from tailrace.sql.parse import parse
from tailrace.sql.results import Result, ResultColumn, ResultRows
from tailrace.sql.select.queries import QueryRunner
from tailrace.sql.statements import CreateTableAsStatement, CreateTableStatement, Write
from tailrace.sql.tables.jobs import size_of
from tailrace.sql.tables.tables import Tables

_log = logging.getLogger(__name__)

_CHUNK_ROWS = 5_000
_CHUNK_BYTES = MIB
_INVALID_DEFINITION = "42P16"
_SYNTAX_ERROR = "42601"
_ABORT_SECONDS = 0.1
_DROP_PAUSES = (0.1, 0.5, 2.0, 10.0, 30.0)


class CreateTableAsHandler:
    def __init__(self, broker: Broker, tables: Tables, queries: QueryRunner, limits: Limits) -> None:
        self._broker = broker
        self._tables = tables
        self._queries = queries
        self._limits = limits
        self._cleaning: set[asyncio.Task[None]] = set()
        self._fillers: set[TableFiller] = set()

    async def create(self, asked: CreateTableAsStatement, params: Parameters, answer: ReadAnswer) -> Result:
        if asked.if_not_exists and self._exists(asked.name):
            return Result(status="CREATE TABLE AS, which exists")
        definition = await self.definition(asked, params)
        if not asked.with_data:
            await self._tables.create(definition)
            return Result(status="CREATE TABLE AS")
        try:
            table = await self._tables.create(definition, is_filling=True)
        except TableExistsError:
            if asked.if_not_exists and self._exists(asked.name):
                return Result(status="CREATE TABLE AS, which exists")
            raise
        is_complete = False
        try:
            killpoint("fill.created")
            rows = await self._fill(table, asked, params, answer)
            killpoint("fill.filled")
            is_complete = True
            await self._tables.reveal(table)
        except BaseException as error:
            # Once it is told to become visible, it does, unless that is refused.
            if not is_complete or isinstance(error, TailraceError):
                await self._clean(table)
            raise
        return Result(status=f"SELECT {rows}", affected=rows)

    async def definition(self, asked: CreateTableAsStatement, params: Parameters) -> CreateTableStatement:
        """Return the table that the statement would create."""
        outline, _ = await self._queries.outline(asked.query, params)
        place = asked.line, asked.column
        if len(asked.columns) > len(outline.names):
            raise SqlError("too many column names were specified", *place, sqlstate=_SYNTAX_ERROR)
        names = [*asked.columns, *outline.names[len(asked.columns) :]]
        for name in names:
            if names.count(name) > 1:
                raise SqlError(f'column "{name}" specified more than once', *place, sqlstate="42701")
        columns = [_column(name, kind, place) for name, kind in zip(names, outline.declared_types, strict=True)]
        key: Sequence[str] = asked.primary_key
        if not key and outline.key is not None and all(_can_be_key(columns[at]) for at in outline.key):
            key = [names[at] for at in outline.key]
        if not key:
            raise SqlError(
                f"the primary key of table {asked.name!r} does not follow from the query; write it: CREATE TABLE"
                f" {asked.name} (PRIMARY KEY ({names[0]})) AS ...",
                *place,
                sqlstate=_INVALID_DEFINITION,
            )
        return CreateTableStatement(
            text=asked.text,
            line=asked.line,
            column=asked.column,
            name=asked.name,
            columns=tuple(columns),
            primary_key=tuple(key),
        )

    def abort(self) -> None:
        """Make statements that run fail, because the server stops. Their queries can end then."""
        for filler in self._fillers:
            filler.is_aborted = True

    async def close(self) -> None:
        """Wait for tables that are being dropped because they were not filled."""
        if self._cleaning:
            await asyncio.gather(*self._cleaning, return_exceptions=True)

    def _exists(self, name: str) -> bool:
        broker = self._broker
        return any(find(name) is not None for find in (broker.tables.find, broker.views.find, broker.topics.find))

    async def _fill(self, table: Table, asked: CreateTableAsStatement, params: Parameters, answer: ReadAnswer) -> int:
        from tailrace.sql.select.filling import FillingQuery

        filler = TableFiller(self._tables, table, self._limits)
        self._fillers.add(filler)
        try:
            await self._queries.stream(asked.query, params, filler, answer, FillingQuery)
        finally:
            # The thread of the query may still wait for a part after its client has gone.
            filler.is_aborted = True
            self._fillers.discard(filler)
        await filler.flush()
        return filler.row_count

    async def _clean(self, table: Table) -> None:
        """Drop a table that was not filled, even if the client no longer waits."""
        task = asyncio.ensure_future(self._drop(table))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        await asyncio.shield(task)

    async def _drop(self, table: Table) -> None:
        for pause in _DROP_PAUSES:
            try:
                await self._tables.drop_filling(table)
            except TailraceError as error:
                _log.warning("Table %s was not filled and could not be dropped: %s", table.name, error)
                if not error.retriable:
                    return
                await asyncio.sleep(pause)
            else:
                return


class TableFiller:
    """Inserts the rows of a query into a table, in parts. `put` is called in the query's thread, which waits for each part."""

    def __init__(self, tables: Tables, table: Table, limits: Limits) -> None:
        self._tables = tables
        self._table = table
        self._loop = asyncio.get_running_loop()
        self._insert = _insert_statement(table, limits)
        self._rows: list[Sequence[object]] = []
        self._ended_at = time.monotonic()
        self._is_inserting = False
        self.is_aborted = False
        self.row_count = 0

    @property
    def last_part_at(self) -> float:
        return time.monotonic() if self._is_inserting else self._ended_at

    def put(self, columns: Sequence[ResultColumn], rows: ResultRows) -> None:
        self.row_count += len(rows)
        self._rows += rows
        if len(self._rows) < _CHUNK_ROWS and size_of((), [self._rows]) < _CHUNK_BYTES:
            return
        self._is_inserting = True
        try:
            inserting = asyncio.run_coroutine_threadsafe(self.flush(), self._loop)
            while not inserting.done():
                # The event loop waits for this thread when the server stops.
                if self.is_aborted:
                    raise StoreClosedError("the server is stopping; run the statement again after the restart")
                wait((inserting,), timeout=_ABORT_SECONDS)
            inserting.result()
        finally:
            self._ended_at = time.monotonic()
            self._is_inserting = False

    async def flush(self) -> None:
        """Insert the rows that wait."""
        rows, self._rows = self._rows, []
        if rows:
            await self._write(rows)
            killpoint("fill.between")

    async def _write(self, rows: list[Sequence[object]]) -> None:
        try:
            await self._tables.write([self._insert], [rows], filling=self._table)
        except (LimitExceededError, QueryLimitError):
            # Rows differ in size, and what a transaction may hold is known once it is made.
            if len(rows) == 1:
                raise
            half = len(rows) // 2
            await self._write(rows[:half])
            await self._write(rows[half:])


def _insert_statement(table: Table, limits: Limits) -> Write:
    names = ", ".join('"' + column.name.replace('"', '""') + '"' for column in table.columns)
    name = ".".join('"' + part.replace('"', '""') + '"' for part in table.name.split("."))
    text = f"INSERT INTO {name} ({names}) VALUES ({', '.join('?' * len(table.columns))})"  # noqa: S608  quoted names
    (statement,) = parse(text, limits)
    if not isinstance(statement, Write):
        raise InvariantError("an INSERT was not parsed as one")
    return statement


def _column(name: str, kind: SqlType, place: tuple[int, int]) -> Column:
    return Column(name=name, type=_column_type(name, kind, place))


def _column_type(name: str, kind: SqlType, place: tuple[int, int]) -> ColumnType:
    if kind.is_array:
        return ColumnType("list", element=_column_type(name, kind.element, place))
    if kind.name == "numeric":
        return ColumnType("decimal", precision=kind.precision, scale=kind.scale)
    if kind.name == "record":
        raise UnsupportedSqlError(f"column {name!r} is {kind}, which a table can't store; cast it to text", *place)
    if kind.name == "varchar" and kind.length is not None:
        return ColumnType("text", length=kind.length)
    if kind.name == "bpchar":
        return ColumnType("char", length=kind.length or 1)
    return to_column(kind)


def _can_be_key(column: Column) -> bool:
    return column.type.kind not in ("json", "list")
