"""Statements on the writer's connection: transactions, savepoints, the images of changed rows.

Everything here runs in the writer's thread.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import apsw
import msgspec

from tailrace.model.clock import Clock
from tailrace.model.errors import ConstraintError
from tailrace.model.ids import Offset, TableId
from tailrace.model.limits import Limits
from tailrace.model.route import RouteSnapshot
from tailrace.model.table import Table
from tailrace.sql.parameters import Parameters, is_many
from tailrace.sql.results import Result
from tailrace.sql.statements import Query, Write
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.change_recorder import ChangeRecorder
from tailrace.sql.tables.database import abandon, allow, open_writer
from tailrace.sql.tables.functions import register_functions
from tailrace.sql.tables.jobs import WriteJob
from tailrace.sql.tables.programs import (
    FetchedRows,
    InsertRows,
    Program,
    SqliteStatement,
    StatementGuard,
    TimeSlice,
    fetch,
    result_of,
    rows_to_store,
    values_for,
)
from tailrace.sql.tables.rows import TableLog, TableRows
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_file import TableFile, check_sealed, judged
from tailrace.sql.tables.values import StoredValue, shown

_SAVEPOINT = "client"
_CHECKPOINT_PAGES = 4096


class _PreparedStatement(NamedTuple):
    """A statement of a transaction, ready to run."""

    statement: Write | Query
    program: Program
    given: Sequence[Parameters]
    """Parameters for each time that it is run."""

    @property
    def is_single(self) -> bool:
        """Whether it is one step for SQLite."""
        rows = len(self.program.rows) if isinstance(self.program, InsertRows) else 1
        return rows * len(self.given) == 1


class WriterConnection:
    def __init__(self, file: TableFile, catalog: TableCatalog, clock: Clock, limits: Limits) -> None:
        self._file = file
        self._catalog = catalog
        self._limits = limits
        connection = self._connection = open_writer(file, limits)
        self._rows = TableRows(connection)
        self._guard = StatementGuard(connection, clock, limits)
        register_functions(connection, catalog.columns, catalog.types, self._guard.now_ms)
        self.recorder = ChangeRecorder(catalog.events, limits)
        self._reached: dict[TableId, Offset] = {}
        self._durable: dict[TableId, Offset] | None = None
        self._wal_pages = 0
        connection.set_wal_hook(self._grown)
        self._is_ours = True
        """Whether the statement that is prepared is one of our own, which may do anything."""
        authorize = allow(catalog.events, writes=True)
        connection.authorizer = lambda *action: apsw.SQLITE_OK if self._is_ours else authorize(*action)
        connection.preupdate_hook(self.recorder.hook)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open. SQLite ends one by itself when a statement is interrupted or out of memory."""
        return self._connection.in_transaction

    def begin(self, ts: int, snapshots: Mapping[TableId, Sequence[RouteSnapshot]]) -> None:
        self._ours("BEGIN IMMEDIATE")
        self.recorder.begin(ts, snapshots)

    def commit(self, reached: Mapping[TableId, Offset]) -> None:
        self._rows.reached(reached)
        self._ours("COMMIT")
        self._reached.update(reached)

    @property
    def is_due_for_checkpoint(self) -> bool:
        return self._wal_pages >= _CHECKPOINT_PAGES

    def checkpoint(self) -> Mapping[TableId, Offset] | None:
        """Sync what was committed, and say which changes are durable in the tables from now on, if there are new ones."""
        if self._reached == self._durable:
            return None
        self._file.note_backfill()
        written, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._wal_pages = 0
        if written != copied:
            # A reader still needs the older pages; there will be another checkpoint.
            return None
        self._durable = dict(self._reached)
        return self._durable

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self._ours("ROLLBACK")

    def bring_up(self, log: TableLog) -> int:
        """Make the tables what the log says, in one transaction."""
        self._connection.preupdate_hook(None)
        try:
            self._ours("BEGIN IMMEDIATE")
            applied = self._rows.bring_up(self._catalog.events.values(), log)
            check_sealed(self._connection)
            self._ours("COMMIT")
            self._reached = self._rows.offsets()
        except BaseException:
            self.roll_back()
            raise
        finally:
            self._connection.preupdate_hook(self.recorder.hook)
        return applied

    def try_out(self, table: Table) -> None:
        """Make a table and take it back: what the log has once can't be refused any more."""
        TableEvents(table, self._limits)
        self._ours("BEGIN IMMEDIATE")
        self._rows.create(table)
        self._ours("ROLLBACK")

    def change_schema(self, table: Table, drops: tuple[TableId, str] | None) -> None:
        self._ours("BEGIN IMMEDIATE")
        if drops is not None:
            self._rows.drop(*drops)
        else:
            self._rows.create(table)
        self._ours("COMMIT")
        self._reached = self._rows.offsets()

    @property
    def was_preempted(self) -> bool:
        """Whether the last transaction was stopped only because its turn was over."""
        return self._guard.was_preempted

    def run(self, job: WriteJob, turn: TimeSlice) -> None:
        """One transaction of a client inside the group's. What it did is gone when it raises."""
        job.results, job.firsts = [], []
        steps = [
            _PreparedStatement(statement, self._catalog.program(statement), _given(statement, params))
            for statement, params in zip(job.statements, job.params, strict=True)
        ]
        mark = self.recorder.transaction(job.tx)
        # What SQLite does in one step it undoes by itself.
        alone = len(steps) == 1 and steps[0].is_single
        if not alone:
            self._ours(f"SAVEPOINT {_SAVEPOINT}")
        self._guard.start(turn=turn)
        try:
            for step in steps:
                before = len(self.recorder)
                job.results.append(self._run_step(step))
                job.firsts.append(before if len(self.recorder) > before else None)
                if self.recorder.refusal is not None:
                    raise self.recorder.refusal
            check_sealed(self._connection)
        except BaseException as error:
            self.recorder.back_to(mark)
            if self._connection.in_transaction:
                if not alone:
                    self._ours(f"ROLLBACK TO {_SAVEPOINT}")
                    self._ours(f"RELEASE {_SAVEPOINT}")
                elif self.recorder.refusal is not None:
                    # The statement went through before it could be stopped.
                    self.roll_back()
            refusal = self.recorder.refusal or self._guard.refusal
            if refusal is not None:
                raise refusal from error
            raise
        finally:
            self._guard.stop()
        if not alone:
            self._ours(f"RELEASE {_SAVEPOINT}")

    def judged(self, error: Exception) -> Exception:
        """See `table_file.judged`."""
        return judged(self._connection, error)

    def read_snapshot(self, snapshot: RouteSnapshot, tx: str) -> RouteSnapshot:
        """Record the next rows of a snapshot, and give how far it is with them. The transaction sees no other change."""
        of = next(of for of in self._catalog.events.values() if of.table.id == snapshot.table)
        limits = self._limits
        rows, is_done = self._rows.behind(of.table, snapshot.last_key, limits.snapshot_rows, limits.snapshot_bytes)
        check_sealed(self._connection)
        self.recorder.transaction(tx)
        self.recorder.read(of, rows, snapshot.route)
        last_key = tuple(of.key_of(rows[-1])) if rows else snapshot.last_key
        return msgspec.structs.replace(snapshot, rows=snapshot.rows + len(rows), last_key=last_key, is_done=is_done)

    def close(self) -> None:
        """Leave one file that has everything, if no reader is in the way."""
        self.recorder.close()
        self._file.note_backfill()
        self._connection.close()
        self._file.forget_backfill()

    def abandon(self) -> None:
        """Leave the files as they are: they are damaged."""
        self.recorder.close()
        abandon(self._connection)

    def _grown(self, connection: apsw.Connection, database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _ours(self, sql: str) -> None:
        self._is_ours = True
        self._connection.execute(sql)

    def _run_step(self, step: "_PreparedStatement") -> Result:
        statement, program, given = step
        self._is_ours = False
        try:
            if isinstance(program, InsertRows):
                return self._insert(program, given)
            if isinstance(statement, Query):
                fetched = self._fetch(program, given[0], self._limits.query_rows)
                return result_of(fetched, program.returning.types if program.returning else None, self._catalog.find)
            return self._change(statement, program, given)
        finally:
            self._is_ours = True

    def _change(self, statement: Write, program: SqliteStatement, given: Sequence[Parameters]) -> Result:
        connection = self._connection
        before = connection.total_changes()
        if program.returning is None:
            values = [values_for(program.parameters, params) for params in given]
            connection.executemany(program.sql, values)
            return _written(statement.kind, connection.total_changes() - before)
        fetched = [self._fetch(program, params, self._limits.query_rows) for params in given]
        return self._returned(statement.kind, fetched, program.returning.types, connection.total_changes() - before)

    def _insert(self, program: InsertRows, given: Sequence[Parameters]) -> Result:
        connection = self._connection
        rows = rows_to_store(program, given)  # type: ignore[arg-type]
        if program.is_plain:
            self._insert_plain(program, rows)
            return _written("insert", len(rows))
        before = connection.total_changes()
        clauses = [values_for(program.parameters, params) for params in given]
        bound = [(*row, *clauses[at // len(program.rows)]) for at, row in enumerate(rows)] if program.parameters else rows
        if program.returning is None:
            connection.executemany(program.sql, bound)
            return _written("insert", connection.total_changes() - before)
        fetched = [fetch(connection, self._guard, program.sql, row, self._limits, self._limits.query_rows) for row in bound]
        return self._returned("insert", fetched, program.returning.types, connection.total_changes() - before)

    def _insert_plain(self, program: InsertRows, rows: Sequence[tuple[StoredValue, ...]]) -> None:
        """Without a look at each row: they go in as they are, or the statement fails."""
        connection = self._connection
        of = self._catalog.events[program.table.name]
        self.recorder.inserted(of, rows)
        before = connection.total_changes()
        connection.preupdate_hook(None)
        try:
            connection.executemany(program.sql, rows)
        except apsw.ConstraintError:
            failed = rows[connection.total_changes() - before]
            key = zip(program.table.primary_key, of.key_of(failed), strict=True)
            told = ", ".join(f"{name} = {shown(value)}" for name, value in key)
            raise ConstraintError(
                f"table {program.table.name!r} has a row with {told} already; use ON CONFLICT to say what to do then"
            ) from None
        finally:
            connection.preupdate_hook(self.recorder.hook)

    def _fetch(self, program: SqliteStatement, params: Parameters, most: int) -> FetchedRows:
        return fetch(self._connection, self._guard, program.sql, values_for(program.parameters, params), self._limits, most)

    def _returned(self, kind: str, fetched: Sequence[FetchedRows], types: object, affected: int) -> Result:
        rows = [row for one in fetched for row in one.rows]
        columns = fetched[0].columns if fetched else ()
        result = result_of(FetchedRows(columns, rows, False), types, self._catalog.find)  # type: ignore[arg-type]
        return result._replace(status=f"{kind.upper()} {affected}", affected=affected)


def _is_many(statement: Write | Query, params: Parameters) -> bool:
    return isinstance(statement, Write) and (statement.rows is not None or is_many(params, statement))


def _given(statement: Write | Query, params: Parameters) -> Sequence[Parameters]:
    """The parameters for each time that the statement is run."""
    return params if _is_many(statement, params) else [params]  # type: ignore[return-value]


def _written(kind: str, affected: int) -> Result:
    return Result(status=f"{kind.upper()} {affected}", affected=affected)
