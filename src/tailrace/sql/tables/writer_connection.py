"""The writer's connection to SQLite: runs transactions of clients with savepoints, and records the changes of rows.

Everything here runs in the writer's thread.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import apsw
import msgspec

from tailrace.model.clock import Clock
from tailrace.model.errors import ConstraintError, UnknownTableError
from tailrace.model.ids import Offset, TableId
from tailrace.model.limits import Limits
from tailrace.model.route import RouteSnapshot
from tailrace.model.table import Table
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.tree import AnalyzedQuery
from tailrace.sql.parameters import Parameters, in_order, is_many
from tailrace.sql.results import Result, RowConflict
from tailrace.sql.statements import TruncateStatement, Write
from tailrace.sql.tables.alter import AlteredTable
from tailrace.sql.tables.assignments import parameter_value
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.change_recorder import ChangeRecorder
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.columnar_copies import ColumnarCopies
from tailrace.sql.tables.constraints import RowChecks, violation
from tailrace.sql.tables.database import abandon, open_writer
from tailrace.sql.tables.indexes import drop_other_indexes, ensure_indexes
from tailrace.sql.tables.jobs import TableStatement, WriteJob
from tailrace.sql.tables.plain_inserts import PlainInsert
from tailrace.sql.tables.planned_writes import PlannedWrite, Program, failure_at
from tailrace.sql.tables.readers import StoredRows, check_versions, read_parts
from tailrace.sql.tables.rows import TableLog, TableRows
from tailrace.sql.tables.schema import delete_all_sql, rows_sql
from tailrace.sql.tables.statement_guard import StatementGuard, TimeSlice
from tailrace.sql.tables.table_catalog import TableCatalog
from tailrace.sql.tables.table_file import TableFile, check_sealed, judged
from tailrace.sql.tables.values import StoredValue
from tailrace.sql.tables.write_plans import QueryRole, WriteContext, WritePlan, insert_rows, plan_write

_SAVEPOINT = "client"
_CHECKPOINT_PAGES = 4096


class _PreparedStatement(NamedTuple):
    """A statement of a transaction with its program and parameters."""

    statement: TableStatement
    program: Program | None
    """`None` for a query or TRUNCATE."""
    given: Sequence[Parameters]
    """The parameters of each run."""

    @property
    def is_single(self) -> bool:
        """Whether SQLite runs it in one step."""
        return isinstance(self.program, PlainInsert) and len(self.program.rows) * len(self.given) == 1


class WriterConnection:
    def __init__(self, file: TableFile, catalog: TableCatalog, clock: Clock, limits: Limits, copies: ColumnarCopies) -> None:
        self._file = file
        self._catalog = catalog
        self._copies = copies
        self._limits = limits
        connection = self._connection = open_writer(file, limits)
        register_collations(connection)
        self._rows = TableRows(connection)
        self._guard = StatementGuard(connection, clock, limits)
        self.recorder = ChangeRecorder(limits)
        self._reached: dict[TableId, Offset] = {}
        self._durable: dict[TableId, Offset] | None = None
        self._wal_pages = 0
        connection.set_wal_hook(self._grown)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open. SQLite rolls one back by itself when a statement is interrupted or out of memory."""
        return self._connection.in_transaction

    def begin(self, ts: int, snapshots: Mapping[TableId, Sequence[RouteSnapshot]]) -> None:
        self._execute("BEGIN IMMEDIATE")
        # What is left is of a group that was rolled back.
        self._catalog.numbers.undo_restarts(0)
        self.recorder.begin(ts, snapshots)

    def commit(self, reached: Mapping[TableId, Offset]) -> None:
        self._rows.reached(reached)
        with self._copies.committing(self.recorder.changed_keys):
            self._execute("COMMIT")
        self._reached.update(reached)

    @property
    def is_due_for_checkpoint(self) -> bool:
        return self._wal_pages >= _CHECKPOINT_PAGES

    def checkpoint(self) -> Mapping[TableId, Offset] | None:
        """Sync what was committed, and return the offsets up to which changes are durable now, or `None` if nothing is new."""
        if self._reached == self._durable:
            return None
        self._file.note_backfill()
        written, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._wal_pages = 0
        if written != copied:
            # A reader still needs older pages; the next checkpoint copies the rest.
            return None
        self._durable = dict(self._reached)
        return self._durable

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            # Copies may be made again: the rows are as they were.
            with self._copies.committing(lambda _: ()):
                self._execute("ROLLBACK")

    def bring_up(self, log: TableLog) -> int:
        """Apply what the log has beyond the tables, in one transaction, and return the number of changes."""
        try:
            self._execute("BEGIN IMMEDIATE")
            applied = self._rows.bring_up(self._catalog.events.values(), log)
            check_sealed(self._connection)
            with self._copies.committing(lambda _: None):
                self._execute("COMMIT")
            self._reached = self._rows.offsets()
        except BaseException:
            self.roll_back()
            raise
        return applied

    def try_out(self, table: Table) -> None:
        """Create a table and roll that back, because a table that is in the log can't be rejected any more."""
        TableEvents(table, self._limits)
        self._execute("BEGIN IMMEDIATE")
        self._rows.create(table)
        ensure_indexes(self._connection, table)
        self._execute("ROLLBACK")

    def change_schema(self, table: Table, drops: tuple[TableId, str] | None) -> None:
        self._execute("BEGIN IMMEDIATE")
        if drops is not None:
            self._copies.forget(drops[0])
            self._rows.drop(*drops)
        else:
            self._rows.create(table)
            ensure_indexes(self._connection, table)
        with self._copies.committing(lambda _: ()):
            self._execute("COMMIT")
        self._reached = self._rows.offsets()

    def alter(self, table: Table, altered: AlteredTable) -> None:
        """Bring the rows of a table to their new shape, in a new transaction. Raises if they can't have it."""
        self._execute("BEGIN IMMEDIATE")
        self.recorder.begin(0, {})
        self._copies.forget(table.id)
        self._guard.start()
        try:
            drop_other_indexes(self._connection, altered.table)
            self._rows.alter(altered.table, table.schema_version)
            ensure_indexes(self._connection, altered.table)
            for name in altered.not_null:
                if self._rows.has_null(altered.table, name):
                    raise ConstraintError(
                        f"column {name!r} of table {table.name!r} contains null values; update these rows first",
                        sqlstate="23502",
                    )
            if altered.checks:
                RowChecks(altered.table, altered.checks).check_present(
                    self._connection.execute(rows_sql(altered.table)), self._now(), self._guard.check
                )
            check_sealed(self._connection)
        except apsw.ConstraintError as error:
            raise violation(error, altered.table) from None
        except apsw.InterruptError as error:
            if self._guard.rejection is not None:
                raise self._guard.rejection from error
            raise
        finally:
            self._guard.stop()

    def change_indexes(self, table: Table) -> None:
        """Make the indexes of a table what its definition says, in a new transaction. Raises if rows break a unique one."""
        self._execute("BEGIN IMMEDIATE")
        self.recorder.begin(0, {})
        self._guard.start()
        try:
            ensure_indexes(self._connection, table)
            check_sealed(self._connection)
        except apsw.ConstraintError as error:
            raise violation(error, table) from None
        except apsw.InterruptError as error:
            if self._guard.rejection is not None:
                raise self._guard.rejection from error
            raise
        finally:
            self._guard.stop()

    @property
    def was_preempted(self) -> bool:
        """Whether the last transaction was stopped only because its time slice was over."""
        return self._guard.was_preempted

    def run(self, job: WriteJob, time_slice: TimeSlice) -> None:
        """Run one transaction of a client within the group's transaction. It is rolled back if it raises."""
        job.results, job.firsts = [], []
        if job.filling is not None:
            found = self._catalog.find(job.filling.name)
            if found is None or found.id != job.filling.id:
                raise UnknownTableError(f"table {job.filling.name!r} is not filled any more")
        steps = [
            _PreparedStatement(
                statement,
                self._catalog.program(statement) if isinstance(statement, Write) else None,
                _given(statement, params),
            )
            for statement, params in zip(job.statements, job.params, strict=True)
        ]
        mark = self.recorder.transaction(job.tx)
        restarts = self._catalog.numbers.restarts
        # SQLite rolls back a single step by itself.
        alone = len(steps) == 1 and steps[0].is_single
        if not alone:
            self._execute(f"SAVEPOINT {_SAVEPOINT}")
        self._guard.start(time_slice=time_slice)
        try:
            for step in steps:
                before = len(self.recorder)
                job.results.append(self._run_step(step))
                job.firsts.append(before if len(self.recorder) > before else None)
            check_sealed(self._connection)
        except BaseException as error:
            self.recorder.back_to(mark)
            self._catalog.numbers.undo_restarts(restarts)
            if self._connection.in_transaction and not alone:
                self._execute(f"ROLLBACK TO {_SAVEPOINT}")
                self._execute(f"RELEASE {_SAVEPOINT}")
            if self._guard.rejection is not None:
                raise self._guard.rejection from error
            raise
        finally:
            self._guard.stop()
        if not alone:
            self._execute(f"RELEASE {_SAVEPOINT}")

    def judged(self, error: Exception) -> Exception:
        """Call `table_file.judged` for this connection."""
        return judged(self._connection, error)

    def read_snapshot(self, snapshot: RouteSnapshot, tx: str) -> RouteSnapshot:
        """Record the next rows of a snapshot, and return its progress. The transaction makes no other change."""
        of = next(of for of in self._catalog.events.values() if of.table.id == snapshot.table)
        limits = self._limits
        rows, is_done = self._rows.behind(of.table, snapshot.last_key, limits.snapshot_rows, limits.snapshot_bytes)
        check_sealed(self._connection)
        self.recorder.transaction(tx)
        self.recorder.read(of, rows, snapshot.route)
        last_key = tuple(of.key_of(rows[-1])) if rows else snapshot.last_key
        return msgspec.structs.replace(snapshot, rows=snapshot.rows + len(rows), last_key=last_key, is_done=is_done)

    def close(self) -> None:
        """Close the connection, which copies everything into one file if no reader prevents it."""
        self.recorder.close()
        self._file.note_backfill()
        self._connection.close()
        self._file.forget_backfill()

    def abandon(self) -> None:
        """Close the connection and leave the files, which are damaged, as they are."""
        self.recorder.close()
        abandon(self._connection)

    def _grown(self, connection: apsw.Connection, database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def _run_step(self, step: "_PreparedStatement") -> Result:
        statement, program, given = step
        if isinstance(statement, TruncateStatement):
            return self._truncate(statement)
        if not isinstance(statement, Write) or program is None:
            return statement.run(self)  # type: ignore[union-attr]
        name, now = program.table.name, self._now()
        context = WriteContext(
            self._connection,
            self._catalog.events[name],
            self.recorder,
            self._catalog.defaults[name],
            partial(self._catalog.checks[name].check_all, now=now),
            self._guard.check,
            self._limits.frame_bytes,
            partial(self._read_query, statement),
        )
        if isinstance(program, PlainInsert):
            rows = program.stored_rows(given, context.defaults, now)
            insert_rows(context, program.sql, rows)
            return Result(status=f"INSERT {len(rows)}", affected=len(rows))
        return self._run_plans(statement, program, context, given, now)

    def _truncate(self, statement: TruncateStatement) -> Result:
        """Remove all rows of the tables, of which each gets one event."""
        for name in dict.fromkeys(map(str.lower, statement.names)):
            table = self._catalog.find(name)
            if table is None:
                raise UnknownTableError(f"there is no table {name!r}", statement.line, statement.column)
            if statement.restart_identity:
                self._catalog.numbers.restart(table)
            self._execute(delete_all_sql(table))
            self.recorder.truncated(self._catalog.events[table.name])
        return Result(status="TRUNCATE TABLE")

    def _run_plans(
        self, write: Write, program: PlannedWrite, context: WriteContext, given: Sequence[Parameters], now: datetime
    ) -> Result:
        """Run a planned statement once for each set of parameters."""
        cache = self._catalog.plans(program)
        affected = 0
        rows: list[tuple[object, ...]] = []
        conflicts: list[RowConflict] = []
        plan: WritePlan | None = None
        number = 0
        try:
            for number, params in enumerate(given):
                values = in_order(write, params)
                if write.queries is None:
                    plan = cache.plan(values, self._catalog.find)
                else:
                    plan = plan_write(write.queries.analyze(values, self._catalog.find), program.table)
                outcome = plan.run(context, [parameter_value(value) for value in values], now)
                affected += outcome.affected
                rows += outcome.rows
                if outcome.conflict is not None:
                    conflicts.append(outcome.conflict._replace(row=number))
        except AnalysisError as error:
            raise failure_at(error, write) from None
        except ConstraintError as error:
            if len(given) > 1:
                # The plan knows the rows of one run alone.
                error.row, error.rows = number, ()
            raise
        columns, kind = (plan.columns, plan.kind) if plan is not None else ((), write.kind)
        most = self._limits.query_rows
        status = f"{kind.upper()} {affected}"
        return Result(columns, rows[:most], status, affected, truncated=len(rows) > most, conflicts=conflicts)

    def _read_query(self, write: Write, query: AnalyzedQuery, role: QueryRole) -> list[tuple[Any, ...]]:
        """Return the rows of a query of a write."""
        if write.queries is None:
            raise UnsupportedError("a write with queries can't run here")
        return write.queries.read(query, role, self)

    def read(self, sql: str, values: Sequence[StoredValue], sized: Sequence[int] = ()) -> Iterator[StoredRows]:
        """Yield rows as the transaction sees them, in parts of bounded size."""
        return read_parts(self._connection, sql, (values,), sized)

    def _now(self) -> datetime:
        """Return the time of the transaction."""
        return datetime.fromtimestamp(self._guard.now_ms() / 1000, UTC)

    def check(self) -> None:
        """Raise if the transaction must stop."""
        self._guard.check()

    def check_tables(self, tables: Iterable[Table]) -> None:
        """Raise `TableAlteredError` if a table was altered or dropped since these definitions were read."""
        check_versions(self._connection, tables)


def _is_many(statement: TableStatement, params: Parameters) -> bool:
    return isinstance(statement, Write) and (statement.rows is not None or is_many(params, statement))


def _given(statement: TableStatement, params: Parameters) -> Sequence[Parameters]:
    """Return the parameters of each run of the statement."""
    return params if _is_many(statement, params) else [params]  # type: ignore[return-value]
