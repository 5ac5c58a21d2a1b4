"""Plans of INSERT, UPDATE and DELETE: what is computed in Python, and which rows SQLite gets, finds, puts and deletes.

A plan is made once for a statement and runs many times. SQLite only keeps rows: it finds them by the conditions that it decides
as PostgreSQL does (`pushdown`), and everything else is evaluated row by row. What needs other rows, such as a subquery, is
computed by queries first, over the rows as they were before the statement. The images of each changed row go to the recorder as
they are written.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import apsw

from tailrace.model.errors import LimitExceededError, invariant
from tailrace.model.table import Table
from tailrace.sql.analysis.errors import CARDINALITY_VIOLATION, UnsupportedError
from tailrace.sql.analysis.tree import AnalyzedQuery
from tailrace.sql.analysis.types import SqlType, to_column
from tailrace.sql.analysis.write_tree import AnalyzedDelete, AnalyzedInsert, AnalyzedUpdate, AnalyzedWrite, Assignment
from tailrace.sql.evaluation.evaluator import Evaluate, compile_expression
from tailrace.sql.evaluation.functions import EvaluationError
from tailrace.sql.results import ResultColumn, RowConflict
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.change_recorder import ChangeRecorder
from tailrace.sql.tables.constraints import ConflictSearch, conflict_reason, violation
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.defaults import TableDefaults
from tailrace.sql.tables.plan_rows import RowPlaces, TableColumns, result_converter
from tailrace.sql.tables.pushdown import UnorderedValueError, pushed_conditions
from tailrace.sql.tables.schema import delete_sql, insert_sql
from tailrace.sql.tables.values import StoredRow, StoredValue, stored

QueryRole = Literal["query", "computed"]
"""The rows that an INSERT inserts, or what a statement needs of other rows; see `AnalyzedWrite`."""

_CHECK_EVERY_ROWS = 256
_ROW_BYTES = 64


class WriteOutcome(NamedTuple):
    affected: int
    rows: list[tuple[object, ...]]
    """What RETURNING returned."""
    conflict: RowConflict | None = None
    """The last row that was not inserted, if ON CONFLICT DO NOTHING passed one over."""


ReadQuery = Callable[[AnalyzedQuery, QueryRole], list[tuple[Any, ...]]]
"""Returns the rows of a query of the statement."""


class WriteContext(NamedTuple):
    """What a plan runs against: a connection of the writer's thread within a transaction."""

    connection: apsw.Connection
    events: TableEvents
    recorder: ChangeRecorder
    defaults: TableDefaults
    check_rows: Callable[[Sequence[StoredRow]], None]
    """Raises if a row breaks a check of its table."""
    check: Callable[[], None]
    """Raises if the statement must stop. Called every few rows."""
    max_bytes: int
    """The most bytes of rows that a statement may find."""
    read: ReadQuery


class WritePlan:
    """A statement that is ready to run."""

    def __init__(self, write: AnalyzedWrite, table: Table) -> None:
        self.kind = _KINDS[type(write)]
        self.table = table
        self._computed = write.computed
        self._rows = TableColumns(table)
        self._returning: Sequence[tuple[Evaluate, Callable[[Any], object]]] = ()
        self.columns: Sequence[ResultColumn] = ()
        self.types: Sequence[SqlType] = [one.expression.type for one in write.returning]
        if write.returning:
            width = len(table.columns)
            current = 0 if isinstance(write, AnalyzedDelete) else width
            places = RowPlaces(table, write, {write.target: current, write.old: 0, write.new: width})
            self._returning = [
                (compile_expression(one.expression, places), result_converter(one.expression.type)) for one in write.returning
            ]
            self._load = self._rows.loader(places.used)
            self.columns = [ResultColumn(one.name, to_column(one.expression.type)) for one in write.returning]

    def run(self, context: WriteContext, parameters: Sequence[object], now: datetime) -> WriteOutcome:
        """Change the rows, record the changes, and return what RETURNING asks for."""
        raise NotImplementedError

    def _returned(
        self, old: StoredRow | None, new: StoredRow | None, tail: Sequence[object], into: list[tuple[object, ...]]
    ) -> None:
        if self._returning:
            row = [*self._load(old), *self._load(new), *tail]
            into.append(tuple(convert(evaluate(row)) for evaluate, convert in self._returning))


class InsertPlan(WritePlan):
    def __init__(self, write: AnalyzedInsert, table: Table) -> None:
        super().__init__(write, table)
        columns = [self._rows.places[name] for name in write.columns]
        self._query = write.query
        query = (0, 0) if write.query is None else (write.query_number, len(write.query.types))
        places = RowPlaces(table, write, {}, query)
        self._values = [
            [(at, None if value is None else compile_expression(value, places)) for at, value in zip(columns, row, strict=True)]
            for row in ([write.casts] if write.query is not None else write.rows)
        ]
        self._missing = [at for at in range(len(table.columns)) if at not in columns]
        self._conflict = write.conflict
        if write.conflict is not None:
            both = RowPlaces(table, write, {write.target: 0, write.conflict.excluded: len(table.columns)})
            self._change = _RowChange(write.conflict.assignments, table, self._rows, both)
            self._arbiters = ConflictSearch(table, write.conflict.columns)
            self._where = None if write.conflict.where is None else compile_expression(write.conflict.where, both)
            self._load_both = self._rows.loader(both.used)

    def run(self, context: WriteContext, parameters: Sequence[object], now: datetime) -> WriteOutcome:
        computed = () if self._computed is None else context.read(self._computed, "computed")[0]
        tail = (*computed, *parameters, now)
        rows = list(self._new_rows(context, tail))
        if self._conflict is None and not self._returning:
            insert_rows(context, insert_sql(self.table), rows)
            return WriteOutcome(len(rows), [])
        returned: list[tuple[object, ...]] = []
        affected = 0
        conflict: RowConflict | None = None
        seen: set[StoredRow] = set()
        for number, new in enumerate(rows, 1):
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            old = None
            if self._conflict is not None:
                # PostgreSQL checks a row before it looks for a conflict.
                context.check_rows([new])
                found = self._arbiters.find(context.connection, new)
                old = None if found is None else found.row
                key = tuple(context.events.key_of(new if old is None else old))
                if found is not None and old is not None:
                    if not self._conflict.assignments:
                        conflict = RowConflict(0, found.columns, conflict_reason(self.table, found.columns, new))
                        continue
                    if key in seen:
                        raise EvaluationError(
                            CARDINALITY_VIOLATION, "ON CONFLICT DO UPDATE command cannot affect row a second time"
                        )
                    seen.add(key)
                    both = [*self._load_both(old), *self._load_both(new), *tail]
                    if self._where is not None and not self._where(both):
                        continue
                    new = self._change.run(context, old, both)
                else:
                    seen.add(key)
            if old is None:
                insert_rows(context, insert_sql(self.table), [new])
            affected += 1
            self._returned(old, new, tail, returned)
        return WriteOutcome(affected, returned, conflict)

    def _new_rows(self, context: WriteContext, tail: tuple[Any, ...]) -> Iterator[tuple[StoredValue, ...]]:
        if self._query is None:
            yield from (self._row(context, values, tail) for values in self._values)
            return
        (values,) = self._values
        for number, found in enumerate(context.read(self._query, "query"), 1):
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            yield self._row(context, values, (*found, *tail))

    def _row(
        self, context: WriteContext, values: Sequence[tuple[int, Evaluate | None]], given: Sequence[Any]
    ) -> tuple[StoredValue, ...]:
        row: list[StoredValue] = [None] * len(self.table.columns)
        for at, evaluate in values:
            column = self.table.columns[at]
            row[at] = context.defaults.of(at, given[-1]) if evaluate is None else stored(evaluate(given), column)
        for at in self._missing:
            row[at] = context.defaults.of(at, given[-1])
        return tuple(row)


class _FoundRow(NamedTuple):
    """A row that is to be changed, with what a query has computed for it."""

    row: StoredRow
    computed: tuple[Any, ...] = ()


class _ChangePlan(WritePlan):
    """Finds rows and changes them."""

    def __init__(self, write: AnalyzedUpdate | AnalyzedDelete, table: Table) -> None:
        super().__init__(write, table)
        self._search = _Search(write, table, self._rows)
        keys = [column for column in table.columns if column.name in table.primary_key]
        self._keys = sorted(enumerate(keys), key=lambda key: table.primary_key.index(key[1].name))

    def run(self, context: WriteContext, parameters: Sequence[object], now: datetime) -> WriteOutcome:
        tail = (*parameters, now)
        returned: list[tuple[object, ...]] = []
        found = self._search.find(context, tail) if self._computed is None else self._computed_rows(context)
        for number, (old, computed) in enumerate(found, 1):
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            whole = (*computed, *tail)
            self._returned(old, self._changed(context, old, whole), whole, returned)
        return WriteOutcome(len(found), returned)

    def _changed(self, context: WriteContext, old: StoredRow, tail: Sequence[Any]) -> StoredRow | None:
        """Change a row, and return its new image."""
        raise NotImplementedError

    def _computed_rows(self, context: WriteContext) -> list[_FoundRow]:
        """Return the rows that a query has found, each once: of several rows that it joins with, the first counts."""
        invariant(self._computed is not None, "a plan without a query has nothing to compute")
        found: dict[StoredRow, _FoundRow] = {}
        size = _RowsSize(context.max_bytes)
        for number, computed in enumerate(context.read(self._computed, "computed"), 1):  # type: ignore[arg-type]
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            key = tuple(stored(computed[at], column) for at, column in self._keys)
            if key in found:
                continue
            old = self._rows.get(context.connection, key)
            if old is not None:
                size.add(old)
                found[key] = _FoundRow(old, computed)
        return list(found.values())


class UpdatePlan(_ChangePlan):
    def __init__(self, write: AnalyzedUpdate, table: Table) -> None:
        super().__init__(write, table)
        places = RowPlaces(table, write, {write.target: 0})
        self._change = _RowChange(write.assignments, table, self._rows, places)
        self._load_old = self._rows.loader(places.used)

    def _changed(self, context: WriteContext, old: StoredRow, tail: Sequence[Any]) -> StoredRow:
        return self._change.run(context, old, [*self._load_old(old), *tail])


class DeletePlan(_ChangePlan):
    def __init__(self, write: AnalyzedDelete, table: Table) -> None:
        super().__init__(write, table)
        self._delete_sql = delete_sql(table)

    def _changed(self, context: WriteContext, old: StoredRow, tail: Sequence[Any]) -> None:
        context.connection.execute(self._delete_sql, tuple(context.events.key_of(old)))
        context.recorder.changed(context.events, old, None)


def plan_write(write: AnalyzedWrite, table: Table) -> WritePlan:
    """Return the plan of a statement. Raises `UnsupportedError` for what can't be evaluated row by row."""
    match write:
        case AnalyzedInsert():
            return InsertPlan(write, table)
        case AnalyzedUpdate():
            return UpdatePlan(write, table)
        case AnalyzedDelete():
            return DeletePlan(write, table)
    raise UnsupportedError("this statement can't write to a table")


def insert_rows(context: WriteContext, sql: str, rows: Sequence[StoredRow]) -> None:
    """Insert rows as they are, and record them. Raises `ConstraintError` with the number of the row that breaks a rule."""
    connection = context.connection
    context.check_rows(rows)
    context.recorder.inserted(context.events, rows)
    before = connection.total_changes()
    try:
        connection.executemany(sql, rows)
    except apsw.ConstraintError as why:
        number = connection.total_changes() - before
        error = violation(why, context.events.table, rows[number])
        error.row = number
        raise error from None


class _RowChange:
    """Computes the new values of a row, and replaces it."""

    def __init__(self, assignments: Sequence[Assignment], table: Table, rows: TableColumns, layout: RowPlaces) -> None:
        self._table = table
        self._assigned = [
            (rows.places[one.column], None if one.value is None else compile_expression(one.value, layout))
            for one in assignments
        ]
        keys = [rows.places[name] for name in table.primary_key]
        self._changes_key = any(at in keys for at, _ in self._assigned)
        self._places = [at for at, _ in self._assigned]
        names = ", ".join(f"{quoted(table.columns[at].name)} = ?" for at in self._places)
        key = " AND ".join(f"{quoted(name)} = ?" for name in table.primary_key)
        self._update_sql = f"UPDATE {quoted(table.name)} SET {names} WHERE {key}"  # noqa: S608
        self._delete_sql, self._insert_sql = delete_sql(table), insert_sql(table)

    def run(self, context: WriteContext, old: StoredRow, values: Sequence[Any]) -> tuple[StoredValue, ...]:
        """Return the new row, which is stored and recorded."""
        new = list(old)
        for at, evaluate in self._assigned:
            column = self._table.columns[at]
            new[at] = context.defaults.of(at, values[-1]) if evaluate is None else stored(evaluate(values), column)
        events, row = context.events, tuple(new)
        key = tuple(events.key_of(old))
        context.check_rows([row])
        try:
            if not self._changes_key or tuple(events.key_of(row)) == key:
                context.connection.execute(self._update_sql, (*(row[at] for at in self._places), *key))
            else:
                context.connection.execute(self._delete_sql, key)
                context.connection.execute(self._insert_sql, row)
        except apsw.ConstraintError as error:
            raise violation(error, self._table, row) from None
        context.recorder.changed(events, old, row)
        return row


class _RowsSize:
    """Limits the bytes of the rows that a statement finds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0

    def add(self, row: StoredRow) -> None:
        self._size += _ROW_BYTES + sum(len(cell) for cell in row if isinstance(cell, (str, bytes)))
        if self._size > self._most:
            raise LimitExceededError(
                f"the rows that the statement changes take more than {self._most} bytes, the most that a commit can hold"
                " (frame_bytes); change fewer rows at a time"
            )


class _Search:
    """Finds the rows that a condition is true for."""

    def __init__(self, write: AnalyzedUpdate | AnalyzedDelete, table: Table, rows: TableColumns) -> None:
        where = write.where
        pushed, is_whole = pushed_conditions(where, table, write.target)
        self._all_sql = f"SELECT * FROM {quoted(table.name)}"  # noqa: S608
        self._sql = f"{self._all_sql} WHERE {' AND '.join(one.sql for one in pushed)}" if pushed else self._all_sql
        constants = RowPlaces(table, write, {})
        self._bound = [(compile_expression(value, constants), store) for one in pushed for value, store in one.values]
        places = RowPlaces(table, write, {write.target: 0})
        self._where = None if where is None else compile_expression(where, places)
        self._load = rows.loader(places.used)
        self._is_whole = is_whole

    def find(self, context: WriteContext, tail: Sequence[object]) -> list[_FoundRow]:
        """Return the rows. All are found before the first is changed, so that none is met twice."""
        sql, is_whole = self._sql, self._is_whole
        bound: tuple[StoredValue, ...] = ()
        try:
            values = [(evaluate(tail), store) for evaluate, store in self._bound]
            bound = tuple(None if value is None else store(value) for value, store in values)
        except UnorderedValueError:
            sql, is_whole = self._all_sql, False
        where = None if is_whole else self._where
        found: list[_FoundRow] = []
        size = _RowsSize(context.max_bytes)
        for number, row in enumerate(context.connection.execute(sql, bound), 1):
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            if where is None or where([*self._load(row), *tail]):
                size.add(row)
                found.append(_FoundRow(row))
        return found


_KINDS: dict[type[AnalyzedWrite], str] = {AnalyzedInsert: "insert", AnalyzedUpdate: "update", AnalyzedDelete: "delete"}
