"""Plans of INSERT, UPDATE and DELETE: what is computed in Python, and which rows SQLite gets, finds, puts and deletes.

A plan is made once for a statement and runs many times. SQLite only keeps rows: it finds them by the conditions that it decides
as PostgreSQL does (`pushdown`), and everything else is evaluated row by row. The images of each changed row go to the recorder
as they are written, so that no hook of SQLite is needed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import apsw
import msgspec

from tailrace.model.errors import LimitExceededError
from tailrace.model.table import ColumnType, Table
from tailrace.sql.analysis.errors import CARDINALITY_VIOLATION, UnsupportedError
from tailrace.sql.analysis.interval_texts import interval_text
from tailrace.sql.analysis.tree import ColumnReference, Expression
from tailrace.sql.analysis.types import SqlType, to_column
from tailrace.sql.analysis.writes import AnalyzedDelete, AnalyzedInsert, AnalyzedUpdate, AnalyzedWrite, Assignment
from tailrace.sql.evaluation.evaluator import Evaluate, compile_expression
from tailrace.sql.evaluation.functions import EvaluationError
from tailrace.sql.results import ResultColumn
from tailrace.sql.tables.change_events import TableEvents
from tailrace.sql.tables.change_recorder import ChangeRecorder
from tailrace.sql.tables.constraints import ConflictSearch, violation
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.defaults import TableDefaults
from tailrace.sql.tables.pushdown import UnorderedValueError, pushed_conditions
from tailrace.sql.tables.schema import delete_sql, insert_sql
from tailrace.sql.tables.values import StoredRow, StoredValue, codec_of, shortest_real, stored

_CHECK_EVERY_ROWS = 256
_ROW_BYTES = 64


class WriteOutcome(NamedTuple):
    affected: int
    rows: list[tuple[object, ...]]
    """What RETURNING returned."""


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


class WritePlan:
    """A statement that is ready to run."""

    def __init__(self, write: AnalyzedWrite, table: Table) -> None:
        self.kind = _KINDS[type(write)]
        self.table = table
        self._rows = _TableColumns(table)
        self._returning: Sequence[tuple[Evaluate, Callable[[Any], object]]] = ()
        self.columns: Sequence[ResultColumn] = ()
        self.types: Sequence[SqlType] = [one.expression.type for one in write.returning]
        if write.returning:
            width = len(table.columns)
            current = 0 if isinstance(write, AnalyzedDelete) else width
            layout = _Layout(table, {write.target: current, write.old: 0, write.new: width})
            self._returning = [
                (compile_expression(one.expression, layout), result_converter(one.expression.type)) for one in write.returning
            ]
            self._load = self._rows.loader(layout.used)
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
        if write.query is not None:
            raise UnsupportedError("INSERT ... SELECT is not planned here")
        places = [self._rows.places[name] for name in write.columns]
        layout = _Layout(table, {}, width=0)
        self._values = [
            [(at, None if value is None else compile_expression(value, layout)) for at, value in zip(places, row, strict=True)]
            for row in write.rows
        ]
        self._missing = [at for at in range(len(table.columns)) if at not in places]
        self._conflict = write.conflict
        self._insert_sql = insert_sql(table)
        if write.conflict is not None:
            width = len(table.columns)
            both = _Layout(table, {write.target: 0, write.conflict.excluded: width}, width=2 * width)
            self._change = _RowChange(write.conflict.assignments, table, self._rows, both)
            self._arbiters = ConflictSearch(table, write.conflict.columns)
            self._where = None if write.conflict.where is None else compile_expression(write.conflict.where, both)
            self._load_both = self._rows.loader(both.used)

    def run(self, context: WriteContext, parameters: Sequence[object], now: datetime) -> WriteOutcome:
        tail = (*parameters, now)
        rows = [self._row(context, values, tail) for values in self._values]
        returned: list[tuple[object, ...]] = []
        affected = 0
        seen: set[StoredRow] = set()
        for number, new in enumerate(rows, 1):
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            old = None
            if self._conflict is not None:
                # PostgreSQL checks a row before it looks for a conflict.
                context.check_rows([new])
                old = self._arbiters.find(context.connection, new)
                key = tuple(context.events.key_of(new if old is None else old))
                if old is not None:
                    if not self._conflict.assignments:
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
                self._insert(context, new)
            affected += 1
            self._returned(old, new, tail, returned)
        return WriteOutcome(affected, returned)

    def _row(
        self, context: WriteContext, values: Sequence[tuple[int, Evaluate | None]], tail: Sequence[Any]
    ) -> tuple[StoredValue, ...]:
        row: list[StoredValue] = [None] * len(self.table.columns)
        for at, evaluate in values:
            column = self.table.columns[at]
            row[at] = context.defaults.of(at, tail[-1]) if evaluate is None else stored(evaluate(tail), column)
        for at in self._missing:
            row[at] = context.defaults.of(at, tail[-1])
        return tuple(row)

    def _insert(self, context: WriteContext, new: tuple[StoredValue, ...]) -> None:
        context.check_rows([new])
        try:
            context.connection.execute(self._insert_sql, new)
        except apsw.ConstraintError as error:
            raise violation(error, self.table, new) from None
        context.recorder.changed(context.events, None, new)


class UpdatePlan(WritePlan):
    def __init__(self, write: AnalyzedUpdate, table: Table) -> None:
        super().__init__(write, table)
        self._search = _Search(write.where, table, write.target, self._rows)
        layout = _Layout(table, {write.target: 0})
        self._change = _RowChange(write.assignments, table, self._rows, layout)
        self._load_old = self._rows.loader(layout.used)

    def run(self, context: WriteContext, parameters: Sequence[object], now: datetime) -> WriteOutcome:
        tail = (*parameters, now)
        returned: list[tuple[object, ...]] = []
        found = self._search.find(context, tail)
        for number, old in enumerate(found, 1):
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            new = self._change.run(context, old, [*self._load_old(old), *tail])
            self._returned(old, new, tail, returned)
        return WriteOutcome(len(found), returned)


class DeletePlan(WritePlan):
    def __init__(self, write: AnalyzedDelete, table: Table) -> None:
        super().__init__(write, table)
        self._search = _Search(write.where, table, write.target, self._rows)
        self._delete_sql = delete_sql(table)

    def run(self, context: WriteContext, parameters: Sequence[object], now: datetime) -> WriteOutcome:
        tail = (*parameters, now)
        returned: list[tuple[object, ...]] = []
        found = self._search.find(context, tail)
        for number, old in enumerate(found, 1):
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            context.connection.execute(self._delete_sql, tuple(context.events.key_of(old)))
            context.recorder.changed(context.events, old, None)
            self._returned(old, None, tail, returned)
        return WriteOutcome(len(found), returned)


def plan_write(write: AnalyzedWrite, table: Table) -> WritePlan:
    """Return the plan of a statement. Raises `UnsupportedError` for what only a query engine can compute."""
    match write:
        case AnalyzedInsert():
            return InsertPlan(write, table)
        case AnalyzedUpdate():
            return UpdatePlan(write, table)
        case AnalyzedDelete():
            return DeletePlan(write, table)
    raise UnsupportedError("this statement can't write to a table")


class _Layout:
    """A row with columns of one or more relations, then the parameters and the time of the statement."""

    def __init__(self, table: Table, starts: Mapping[int, int], width: int | None = None) -> None:
        self._places = {column.name: at for at, column in enumerate(table.columns)}
        self._starts = starts
        self.used: set[str] = set()
        """The columns that expressions refer to."""
        self._width = max(starts.values(), default=0) + len(table.columns) if width is None else width

    def column(self, reference: ColumnReference) -> int:
        self.used.add(reference.column)
        return self._starts[reference.relation] + self._places[reference.column]

    def parameter(self, number: int) -> int:
        return self._width + number - 1

    def now(self) -> int:
        # The number of parameters is not known here, but the time is the last item.
        return -1


class _TableColumns:
    """Converts rows between their stored form and the values of expressions, and gets rows by their key."""

    def __init__(self, table: Table) -> None:
        self.places = {column.name: at for at, column in enumerate(table.columns)}
        self._loads = {column.name: (at, load) for at, column in enumerate(table.columns) if (load := _load(column.type))}
        self._nulls = [None] * len(table.columns)
        key = " AND ".join(f"{quoted(name)} = ?" for name in table.primary_key)
        self._get_sql = f"SELECT * FROM {quoted(table.name)} WHERE {key}"  # noqa: S608

    def loader(self, used: Collection[str]) -> Callable[[StoredRow | None], list[Any]]:
        """Return a function that returns the values of a row, or nulls for no row. Only the columns in use are converted."""
        loads = [one for name, one in self._loads.items() if name in used]

        def load(row: StoredRow | None) -> list[Any]:
            if row is None:
                return self._nulls
            values: list[Any] = list(row)
            for at, convert in loads:
                if values[at] is not None:
                    values[at] = convert(values[at])
            return values

        return load

    def get(self, connection: apsw.Connection, key: tuple[StoredValue, ...]) -> StoredRow | None:
        return next(iter(connection.execute(self._get_sql, key)), None)


def _load(column_type: ColumnType) -> Callable[[Any], Any] | None:
    # The text of JSON is its value in expressions.
    if column_type.kind in ("smallint", "integer", "bigint", "double", "real", "text", "char", "bytes", "json"):
        return None
    return codec_of(column_type).load


class _RowChange:
    """Computes the new values of a row, and replaces it."""

    def __init__(self, assignments: Sequence[Assignment], table: Table, rows: _TableColumns, layout: _Layout) -> None:
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


class _Search:
    """Finds the rows that a condition is true for."""

    def __init__(self, where: Expression | None, table: Table, target: int, rows: _TableColumns) -> None:
        pushed, is_whole = pushed_conditions(where, table, target)
        self._all_sql = f"SELECT * FROM {quoted(table.name)}"  # noqa: S608
        self._sql = f"{self._all_sql} WHERE {' AND '.join(one.sql for one in pushed)}" if pushed else self._all_sql
        constants = _Layout(table, {}, width=0)
        self._bound = [(compile_expression(value, constants), store) for one in pushed for value, store in one.values]
        layout = _Layout(table, {target: 0})
        self._where = None if where is None else compile_expression(where, layout)
        self._load = rows.loader(layout.used)
        self._is_whole = is_whole

    def find(self, context: WriteContext, tail: Sequence[object]) -> list[StoredRow]:
        """Return the rows. All are found before the first is changed, so that none is met twice."""
        sql, is_whole = self._sql, self._is_whole
        bound: tuple[StoredValue, ...] = ()
        try:
            values = [(evaluate(tail), store) for evaluate, store in self._bound]
            bound = tuple(None if value is None else store(value) for value, store in values)
        except UnorderedValueError:
            sql, is_whole = self._all_sql, False
        where = None if is_whole else self._where
        found: list[StoredRow] = []
        size = 0
        for number, row in enumerate(context.connection.execute(sql, bound), 1):
            if number % _CHECK_EVERY_ROWS == 0:
                context.check()
            if where is not None and not where([*self._load(row), *tail]):
                continue
            found.append(row)
            size += _ROW_BYTES + sum(len(cell) for cell in row if isinstance(cell, (str, bytes)))
            if size > context.max_bytes:
                raise LimitExceededError(
                    f"the rows that the statement changes take more than {context.max_bytes} bytes, the most that a commit can"
                    " hold (frame_bytes); change fewer rows at a time"
                )
        return found


def result_converter(sql_type: SqlType) -> Callable[[Any], object]:
    """Return a function that makes a value of `Result` of a value of an expression."""
    convert = _converter(sql_type)
    return _unchanged if convert is None else lambda value: None if value is None else convert(value)


def _converter(sql_type: SqlType) -> Callable[[Any], object] | None:
    if sql_type.is_array:
        inner = _converter(sql_type.element)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    match sql_type.name:
        case "json" | "jsonb":
            return msgspec.json.decode
        case "float4":
            return shortest_real
        case "interval":
            return interval_text
    return None


def _unchanged(value: Any) -> object:
    return value


_KINDS: dict[type[AnalyzedWrite], str] = {AnalyzedInsert: "insert", AnalyzedUpdate: "update", AnalyzedDelete: "delete"}
