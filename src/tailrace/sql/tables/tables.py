"""Embedded tables: created, written and queried, with every change in the log.

This is the interface for the rest of the server, used on the event loop. The broker has the definitions, SQLite the rows; one
thread writes (`writer`) and a few read (`readers`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import act_as, current_principal
from tailrace.broker.tables.change_log import ChangeLog
from tailrace.model.backoff import Backoff
from tailrace.model.clock import Clock
from tailrace.model.errors import SqlError, TableExistsError, UnknownTableError
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tailrace.model.route import Route, RouteSnapshot
from tailrace.model.security import Principal
from tailrace.model.table import Column, ColumnType, Table, TableIndex
from tailrace.sql.grammar.columns import unknown_type
from tailrace.sql.parameters import NO_PARAMETERS, Parameters
from tailrace.sql.results import Result
from tailrace.sql.statements import (
    AddColumn,
    AddConstraint,
    AlterAction,
    AlterTableStatement,
    AlterTypeStatement,
    CreateIndexStatement,
    CreateTableStatement,
    SetColumnType,
    Write,
)
from tailrace.sql.tables.alter import AlteredTable, alter_table
from tailrace.sql.tables.checkpoints import CheckpointTask
from tailrace.sql.tables.columnar_copies import FOLDER_NAME, ColumnarCopies
from tailrace.sql.tables.identities import IdentityNumbers
from tailrace.sql.tables.indexes import new_index, relation_names
from tailrace.sql.tables.jobs import (
    AlterJob,
    IndexJob,
    RevealJob,
    RouteJob,
    SchemaJob,
    SnapshotJob,
    TableJob,
    TableStatement,
    TypeJob,
    WriteJob,
    WriteTiming,
    size_of,
)
from tailrace.sql.tables.readers import StoredRows, TableReaders, TableSnapshot
from tailrace.sql.tables.rows import rebuild
from tailrace.sql.tables.schema import checked_table
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_file import TableFile
from tailrace.sql.tables.values import StoredValue
from tailrace.sql.tables.writer import TableWriter
from tailrace.sql.tables.writer_connection import WriterConnection

T = TypeVar("T")

FILE_NAME = "tables.db"
_NOWHERE: Mapping[str, tuple[int, int]] = {}


_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 10.0


class Tables:
    """Open it with `Tables.open` once the broker has started, and close it before the broker."""

    @classmethod
    async def open(cls, folder: Path, broker: Broker, clock: Clock, limits: Limits) -> "Tables":
        """Open the file in the folder, create it if it is missing, and bring it up to date with the log."""
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
        self._views = broker.views
        self._changes = broker.changes
        self._limits = limits
        catalog = self._catalog = TableCatalog(limits, IdentityNumbers(broker.changes.identity_numbers))
        catalog.add(broker.tables)
        file = TableFile(path, broker.cluster_id)
        self.copies = ColumnarCopies(path.with_name(FOLDER_NAME), file, limits)
        self._writer = TableWriter(
            partial(WriterConnection, file, catalog, clock, limits, self.copies),
            file.why_rebuild,
            partial(rebuild, file, catalog.events.values(), broker.changes, limits),
            catalog,
            broker.changes,
            clock,
            limits,
            asyncio.get_running_loop(),
        )
        self._snapshots = SnapshotTask(broker.changes, self._writer.queue.put)
        self._readers = TableReaders(file, clock, limits, self._writer.damaged)
        self._checkpoints = CheckpointTask(
            file, catalog, broker.changes, limits, lambda: self._writer.behind, self._writer.damaged
        )
        self.replayed = 0
        """The number of changes that were applied on opening, because the file lacked them."""

    async def close(self) -> None:
        await self._snapshots.close()
        await self._checkpoints.close()
        await self._readers.close()
        await asyncio.to_thread(self.copies.close)
        await self._writer.close()

    def __iter__(self) -> Iterator[Table]:
        return iter(self._definitions)

    def get(self, name: str) -> Table:
        return self._definitions.get(name)

    async def create(self, asked: CreateTableStatement, *, is_filling: bool = False) -> Table:
        """Create a table. Raises `TableExistsError` if one of this name exists, even if it has the same columns.

        One that is filled first (`is_filling`) is found by nobody before `reveal`.
        """
        asked = msgspec.structs.replace(asked, columns=[self._with_labels(column, asked.enums) for column in asked.columns])
        taken = relation_names(self._definitions, asked.name.rpartition(".")[0])
        draft = msgspec.structs.replace(checked_table(asked, taken, self._limits), is_filling=is_filling)
        future: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        log = partial(self._definitions.create_as, draft)
        self._writer.queue.put(SchemaJob(log, draft, None, future))
        return await future

    def _with_labels(self, column: Column, places: Mapping[str, tuple[int, int]]) -> Column:
        return msgspec.structs.replace(column, type=self._enum_with_labels(column.type, places))

    def _enum_with_labels(self, type_: ColumnType, places: Mapping[str, tuple[int, int]]) -> ColumnType:
        """Return a type whose enum has its labels. Raises `SqlError` if there is no such type."""
        if type_.element is not None:
            return msgspec.structs.replace(type_, element=self._enum_with_labels(type_.element, places))
        if type_.kind != "enum":
            return type_
        found = self._definitions.types.find(type_.name)
        if found is None:
            raise unknown_type(type_.name, places.get(type_.name, ()))
        return msgspec.structs.replace(type_, name=found.name, labels=found.labels)

    async def add_label(self, asked: AlterTypeStatement) -> bool:
        """Add a label to an enum, and return whether it was not there."""
        there = self._definitions.types.get(asked.name)
        if asked.if_not_exists and asked.label in there.labels:
            return False
        log = partial(self._definitions.add_label, there.name, asked.label, asked.neighbor, is_after=asked.is_after)
        await self._change_type(log)
        return True

    async def drop_type(self, name: str) -> None:
        """Drop an enum that no table uses."""
        await self._change_type(partial(self._definitions.drop_type, self._definitions.types.get(name).name))

    async def _change_type(self, log: Callable[[], Coroutine[Any, Any, list[tuple[Table, Table]]]]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.queue.put(TypeJob(log, future))
        await future

    async def create_index(self, asked: CreateIndexStatement) -> Table | None:
        """Make an index of the rows that are there and of those to come. Return `None` if it is there and may be."""
        taken = relation_names(self._definitions, asked.table.rpartition(".")[0])
        if asked.name in taken:
            if asked.if_not_exists:
                return None
            raise TableExistsError(f"relation {asked.name!r} already exists", asked.line, asked.column)

        def with_index(table: Table) -> Table:
            return msgspec.structs.replace(table, indexes=(*table.indexes, new_index(asked, table, taken)))

        table = self._definitions.find(asked.table)
        if table is None:
            raise UnknownTableError(f"there is no table {asked.table!r}", asked.line, asked.column)
        with_index(table)
        return await self._change_indexes(table.name, with_index)

    def find_index(
        self, name: str, is_visible: Callable[[Table], bool] = lambda table: True
    ) -> tuple[Table, TableIndex] | None:
        """Return an index of a visible table by its name, behind the namespace of its table. Raises `SqlError` if a
        constraint needs it."""
        namespace, _, base = name.rpartition(".")
        for table in self._definitions:
            if table.name.rpartition(".")[0] != namespace or not is_visible(table):
                continue
            found = next((index for index in table.indexes if index.name == base), None)
            if found is not None and not found.is_constraint:
                return table, found
            if base in table.unique_keys:
                raise SqlError(
                    f"cannot drop index {name!r} because constraint {base!r} of table {table.name!r} requires it",
                    sqlstate="2BP01",
                )
        return None

    async def drop_index(self, table: Table, index: TableIndex) -> Table:
        def without_index(table: Table) -> Table:
            return msgspec.structs.replace(table, indexes=tuple(one for one in table.indexes if one.name != index.name))

        return await self._change_indexes(table.name, without_index)

    async def _change_indexes(self, name: str, change: Callable[[Table], Table]) -> Table:
        future: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        self._writer.queue.put(IndexJob(name, change, self._log_indexes, future))
        return await future

    async def _log_indexes(self, table: Table, changed: Table) -> Table:
        return await self._definitions.alter(table, changed, lambda: None)

    async def drop(self, name: str, *, cascade: bool = False) -> Table:
        """Drop a table with its rows and its changes, and with `cascade` its routes and views, in one commit."""
        table = self.get(name)
        future: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        dependent = self._views.removal_of(table.changes, self._routes.removal_of(table)) if cascade else None
        log = partial(self._definitions.drop, table.name, dependent)
        self._writer.queue.put(SchemaJob(log, None, (table.id, table.name), future))
        return await future

    async def reveal(self, table: Table) -> Table:
        """Make a table that was filled visible."""
        future: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        self._writer.queue.put(RevealJob(partial(self._definitions.reveal, table), future))
        return await future

    async def drop_filling(self, table: Table) -> None:
        """Drop a table that is still being filled."""
        future: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        log = partial(self._definitions.drop_filling, table)
        self._writer.queue.put(SchemaJob(log, None, (table.id, table.name), future))
        await future

    async def alter(self, asked: AlterTableStatement) -> Table:
        """Alter a table. Rows that are written before it have the old shape in the log, rows after it the new one."""
        table = self.get(asked.name)
        asked = msgspec.structs.replace(asked, actions=[self._action_with_labels(action) for action in asked.actions])
        # What can be refused at once is, before the rows are touched.
        altered = alter_table(table, asked, self._limits, self._changes.now_ms())
        if altered is None:
            return table
        taken = relation_names(self._definitions, table.name.rpartition(".")[0])
        for action in asked.actions:
            if isinstance(action, AddConstraint) and action.unique is not None and action.name in taken:
                raise TableExistsError(f"relation {action.name!r} already exists", *action.position)
        self._check_uses(table, altered)
        future: asyncio.Future[Table] = asyncio.get_running_loop().create_future()
        self._writer.queue.put(AlterJob(asked, self._log_altered, future))
        return await future

    def _action_with_labels(self, action: AlterAction) -> AlterAction:
        match action:
            case AddColumn(column=Column(type=type_)) | SetColumnType(type=type_):
                found = self._enum_with_labels(type_, _NOWHERE)
                if isinstance(action, AddColumn):
                    column = msgspec.structs.replace(action.column, type=found)
                    return msgspec.structs.replace(action, column=column)
                return msgspec.structs.replace(action, type=found)
        return action

    async def _log_altered(self, table: Table, altered: AlteredTable) -> Table:
        return await self._definitions.alter(table, altered.table, lambda: self._check_uses(table, altered))

    def _check_uses(self, table: Table, altered: AlteredTable) -> None:
        if altered.changed:
            self._routes.check_unused(table, sorted(altered.changed), is_key=altered.changes_key)
        for column in sorted(altered.changed):
            self._views.check_column(table.changes, column)

    async def add_route(self, route: Route, table: Table) -> Route:
        """Add a route from a table as it was when the route was checked. If it has a snapshot, reading the existing rows
        starts now."""
        if not route.snapshot:
            return await self._routes.add(route, partial(self._definitions.check_unaltered, table))
        future: asyncio.Future[Route] = asyncio.get_running_loop().create_future()
        self._writer.queue.put(RouteJob(partial(self._begin_snapshot, route, table, current_principal()), future))
        return await future

    async def _begin_snapshot(self, route: Route, table: Table, principal: Principal) -> Route:
        """Add the route and start its snapshot, even if the client no longer waits."""
        # The writer's thread has asked for this, and knows no principal.
        act_as(principal)
        added = await self._routes.add(route, partial(self._definitions.check_unaltered, table))
        self._snapshots.begun()
        return added

    async def write(
        self,
        statements: Sequence[TableStatement],
        params: Sequence[Parameters] = (),
        messages: Sequence[Message] = (),
        timing: WriteTiming | None = None,
        filling: Table | None = None,
    ) -> list[Result]:
        """Run statements as one transaction: one frame of the log, with messages for topics, or nothing.

        `params` has the parameters of each statement; a statement whose parameters are rows runs once for each row.
        `filling` is the table that the statements fill, which nobody else finds.
        """
        for statement in statements:
            if isinstance(statement, Write) and filling is None and self._definitions.find(statement.target) is None:
                raise UnknownTableError(f"there is no table {statement.target!r}", statement.line, statement.column)
        if messages:
            self._changes.check(messages)
        given = list(params) or [NO_PARAMETERS] * len(statements)
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        tx = str(self._changes.next_transaction())
        size = size_of(statements, given)
        self._writer.write(WriteJob(tx, statements, given, messages, future, size, timing=timing, filling=filling))
        return await future

    async def read_rows(self, sql: str, values: Sequence[StoredValue], table: Table) -> StoredRows:
        """Return the rows of a statement of SQLite that reads few rows of what is committed of a table."""
        self._check()
        return await self._readers.get(sql, values, table)

    def read_one(self, sql: str, values: Sequence[StoredValue], table: Table) -> tuple[StoredValue, ...] | None:
        """Call `TableReaders.get_one`."""
        self._check()
        return self._readers.get_one(sql, values, table)

    async def read_few(self, work: Callable[[TableSnapshot], T], table: Table) -> T:
        """Return what a function makes of a few committed rows of a table; it runs in a thread of the readers."""
        self._check()
        return await self._readers.run(work, table)

    @contextmanager
    def snapshot(self, is_cancelled: Callable[[], bool]) -> Iterator[TableSnapshot]:
        """Return the rows of all tables as of one commit, for a query that runs in the calling thread."""
        self._check()
        with self._readers.snapshot(is_cancelled) as snapshot:
            yield snapshot

    def _check(self) -> None:
        if self._writer.behind is not None:
            raise self._writer.behind.afresh()


class SnapshotTask:
    """Keeps snapshots running: while routes have rows to read, the writer gets a job for each of them, chunk by chunk.

    A job waits in the writer's queue like a write of a client, and the next one is queued when it is done. So clients wait for
    one chunk at most, and a snapshot for the clients that came before it. A job that fails is retried after a pause.
    """

    def __init__(self, changes: ChangeLog, submit: Callable[[TableJob], None]) -> None:
        self._changes = changes
        self._submit = submit
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)

    def start(self) -> None:
        """Continue the snapshots that an earlier run of the server left unfinished."""
        self._begun.set()
        self._task = asyncio.create_task(self._run(), name="tailrace-snapshots")

    def begun(self) -> None:
        """Wake the task for a new snapshot."""
        self._begun.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await self._begun.wait()
            self._begun.clear()
            while running := [snapshot for of_table in self._changes.snapshots.running.values() for snapshot in of_table]:
                for snapshot in running:
                    await self._read_chunk(snapshot)

    async def _read_chunk(self, snapshot: RouteSnapshot) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._submit(SnapshotJob(snapshot.route, str(self._changes.next_transaction()), done))
            await done
        except Exception as error:  # noqa: BLE001  the top of a background task; the next attempt may succeed
            pause = self._backoff.next_pause()
            _log.warning("The snapshot of route %d failed and is retried in %.2f s: %s", snapshot.route, pause, error)
            await asyncio.sleep(pause)
        else:
            self._backoff.reset()
