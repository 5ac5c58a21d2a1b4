"""Embedded tables: created, written and queried, with every change in the log.

This is what the rest of the server sees of them; it lives on the event loop. Definitions belong to the broker, rows to SQLite;
one thread writes (`writer`), a few read (`readers`).
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tailrace.broker.broker import Broker
from tailrace.model.clock import Clock
from tailrace.model.errors import UnknownTableError
from tailrace.model.ids import TableId, TopicId
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tailrace.model.route import Route
from tailrace.model.table import Table
from tailrace.sql.answer_stream import AnswerStream
from tailrace.sql.parameters import NO_PARAMETERS, Parameters
from tailrace.sql.result import Result
from tailrace.sql.statements import CreateTable, Query, Write
from tailrace.sql.tables.checkpoints import CheckpointTurns
from tailrace.sql.tables.execution import Execution
from tailrace.sql.tables.jobs import RouteJob, SchemaJob, WriteJob, size_of
from tailrace.sql.tables.library import Library
from tailrace.sql.tables.readers import TableReaders
from tailrace.sql.tables.rebuild import rebuild
from tailrace.sql.tables.schema import checked_shape
from tailrace.sql.tables.snapshots import SnapshotTurns
from tailrace.sql.tables.table_file import TableFile
from tailrace.sql.tables.writer import TableWriter

FILE_NAME = "tables.db"


class Tables:
    """Opened with `Tables.open` once the broker has started, and closed before it."""

    @classmethod
    async def open(cls, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> "Tables":
        """Open the file in the folder, make it if it is not there, and bring it up to the log."""
        tables = cls(folder / FILE_NAME, broker, clock, limits)
        try:
            tables.replayed = await tables._writer.start()
        except BaseException:
            await tables.close()
            raise
        tables._snapshots.start()
        tables._checkpoints.start()
        return tables

    def __init__(self, path: Path, broker: Broker, clock: Clock, limits: Limits) -> None:
        self._definitions = broker.tables
        self._routes = broker.routes
        self._changes = broker.changes
        self._limits = limits
        library = self._library = Library(limits)
        library.add(broker.tables)
        file = TableFile(path, broker.cluster_id)
        self._writer = TableWriter(
            partial(Execution, file, library, clock, limits),
            file.why_made_again,
            partial(rebuild, file, library.events.values(), broker.changes, limits),
            library,
            broker.changes,
            clock,
            limits,
            asyncio.get_running_loop(),
        )
        self._snapshots = SnapshotTurns(broker.changes, self._writer.submit)
        self._readers = TableReaders(file, library, clock, limits, self._writer.damaged)
        self._checkpoints = CheckpointTurns(
            file, library, broker.changes, limits, lambda: self._writer.behind, self._writer.damaged
        )
        self.replayed = 0
        """Changes that opening applied, because the file lacked them."""

    async def close(self) -> None:
        await self._snapshots.close()
        await self._checkpoints.close()
        await self._readers.close()
        await self._writer.close()

    def __iter__(self) -> Iterator[Table]:
        return iter(self._definitions)

    def get(self, name: str) -> Table:
        return self._definitions.get(name)

    async def create(self, asked: CreateTable) -> Table:
        """Make a table. Raises `TableExistsError` if there is one, whatever it looks like."""
        shape = checked_shape(asked, self._limits)
        future: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        log = partial(self._definitions.create, asked.name, shape.columns, shape.primary_key)
        draft = Table(
            id=TableId(0),
            name=asked.name,
            columns=shape.columns,
            primary_key=shape.primary_key,
            changes=TopicId(0),
            created_ms=0,
        )
        self._writer.submit(SchemaJob(log, draft, None, future))
        return await future

    async def drop(self, name: str, *, cascade: bool = False) -> Table:
        """Remove a table with its rows and its changes, in one commit; with `cascade` its routes end in it too."""
        table = self.get(name)
        future: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        log = partial(self._definitions.drop, table.name, self._routes.ending(table) if cascade else None)
        self._writer.submit(SchemaJob(log, None, (table.id, table.name), future))
        return await future

    async def add_route(self, route: Route) -> Route:
        """Put a route in force. If it has a snapshot, the rows that are there are told first, from now on."""
        if not route.snapshot:
            return await self._routes.add(route)
        future: asyncio.Future[Route] = asyncio.get_running_loop().create_future()
        self._writer.submit(RouteJob(partial(self._begin_snapshot, route), future))
        return await future

    async def _begin_snapshot(self, route: Route) -> Route:
        """Also for a client that waits no more."""
        added = await self._routes.add(route)
        self._snapshots.begun()
        return added

    async def write(
        self,
        statements: Sequence[Write | Query],
        params: Sequence[Parameters] = (),
        messages: Sequence[Message] = (),
    ) -> list[Result]:
        """Run statements as one transaction: all of it in one frame of the log, with messages for topics, or nothing.

        `params` has the parameters of each statement; where they are rows, it is run once for each.
        """
        for statement in statements:
            if isinstance(statement, Write) and self._definitions.find(statement.target) is None:
                raise UnknownTableError(f"there is no table {statement.target!r}", statement.line, statement.column)
        if messages:
            self._changes.check(messages)
        given = list(params) or [NO_PARAMETERS] * len(statements)
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        tx = str(self._changes.next_transaction())
        self._writer.submit(WriteJob(tx, statements, given, messages, future, size_of(statements, given)))
        return await future

    async def query(self, query: Query, params: Parameters = NO_PARAMETERS, *, most_rows: int | None = None) -> Result:
        """Read what is committed. Cancel the task to stop it."""
        if self._writer.behind is not None:
            raise self._writer.behind.afresh()
        return await self._readers.run(query, params, self._limits.query_rows if most_rows is None else most_rows)

    async def stream(self, query: Query, params: Parameters, out: AnswerStream) -> None:
        """The same for any number of rows, which are handed over as they are read."""
        if self._writer.behind is not None:
            raise self._writer.behind.afresh()
        await self._readers.stream(query, params, out)
