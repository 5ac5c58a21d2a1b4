"""Programs, the compiled form of statements, and how they run on a connection within limits of time, rows and memory.

`compile` creates a program once for each text, and it runs many times. An INSERT of plain values is rows for one prepared
statement, checked and converted column by column here. Everything else is one statement of SQLite, in which each value that is
written passes through `tr_store`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import apsw
import msgspec

from tailrace.model.clock import Clock
from tailrace.model.errors import QueryLimitError, SqlError
from tailrace.model.limits import Limits
from tailrace.model.table import ColumnKind, ColumnType, Table
from tailrace.model.text import counted
from tailrace.sql.parameters import Parameters
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.tables.defaults import TableDefaults
from tailrace.sql.tables.inference import FindTable
from tailrace.sql.tables.planned_writes import PlannedWrite
from tailrace.sql.tables.values import StoredValue, bound, codec_of, stored_column

_CHECK_EVERY_STEPS = 20_000
_FETCH_ROWS = 1000
_STORED_UNCHANGED = frozenset(("smallint", "integer", "bigint", "double", "text", "char", "bytes"))
_WHOLE = frozenset(("smallint", "integer", "bigint"))
_BY_VALUE: dict[type, ColumnKind] = {int: "bigint", float: "double", str: "text", bytes: "bytes"}


class InsertCell(NamedTuple):
    """The source of a value of an INSERT: a parameter or a constant."""

    parameter: str | None = None
    value: object = None
    is_default: bool = False
    """Whether it is the default of its column instead."""


DEFAULT_CELL = InsertCell(is_default=True)


class InsertRows(NamedTuple):
    """An INSERT of plain values: rows for one prepared statement."""

    table: Table
    rows: Sequence[Sequence[InsertCell]]
    sql: str
    parameters: Sequence[str]
    """The parameters of the clauses after the rows, bound after the cells of a row."""
    is_plain: bool
    """Whether each row is inserted as it is or the statement fails, so that the changes are known without the hook of SQLite.
    """
    returning: "ReturnedColumns | None"


class SqliteStatement(NamedTuple):
    """One statement of SQLite."""

    sql: str
    parameters: Sequence[str]
    returning: "ReturnedColumns | None"


class ReturnedColumns(NamedTuple):
    """The types of the returned columns, as far as they are known."""

    types: Sequence[ColumnType | None] | None


Program = InsertRows | SqliteStatement | PlannedWrite


class CompiledStatement(NamedTuple):
    """A program that was compiled in the parser process, with what it depends on."""

    program: Program
    tables: Sequence[Table]
    """The tables at that time. If others have their names now, the program must not run."""
    types: Mapping[str, ColumnType]
    """The types that it casts to, by name."""


def rows_to_store(
    program: InsertRows,
    given: Sequence[Mapping[str, object]] | Sequence[Sequence[object]],
    defaults: TableDefaults,
    now: datetime,
) -> list[tuple[StoredValue, ...]]:
    """Return the rows in their stored form, once for each set of parameters."""
    columns = []
    by_position = not given or not isinstance(given[0], Mapping)
    for at, column in enumerate(program.table.columns):
        values: list[object] = []
        is_stored = True
        for row in program.rows:
            name, value, is_default = row[at]
            is_stored = is_stored and is_default
            if is_default:
                values += [defaults.of(at, now) for _ in given]
            elif name is None:
                values += [value] * len(given)
            elif by_position:
                index = int(name) - 1
                values += [parameters[index] for parameters in given]  # type: ignore[index]
            else:
                values += [parameters[name] for parameters in given]  # type: ignore[call-overload]
        columns.append(values if is_stored else stored_column(values, column))
    return list(zip(*columns, strict=True))


class SqliteColumn(NamedTuple):
    """A result column as SQLite describes it."""

    name: str
    table: str | None
    column: str | None


class TimeSlice(NamedTuple):
    """How long a statement may run while others wait."""

    seconds: float
    has_waiting: Callable[[], bool]
    """Returns whether others wait."""


def _never() -> bool:
    return False


_NO_TIME_SLICE = TimeSlice(0.0, _never)


class StatementGuard:
    """Stops a statement that takes too long or too much memory. There is one for each connection."""

    def __init__(self, connection: apsw.Connection, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._deadline: float | None = None
        self._memory = 0
        self._is_cancelled = _never
        self._time_slice = _NO_TIME_SLICE
        self._slice_ends_at = 0.0
        self._now_ms = 0
        self.rejection: QueryLimitError | None = None
        self.was_preempted = False
        """Whether the statement was stopped only because its time slice was over."""
        connection.set_progress_handler(self._must_stop, _CHECK_EVERY_STEPS)

    def start(self, is_cancelled: Callable[[], bool] = _never, time_slice: TimeSlice = _NO_TIME_SLICE) -> None:
        self.rejection = None
        self.was_preempted = False
        self._is_cancelled = is_cancelled
        self._now_ms = self._clock.now_ms()
        now = self._clock.monotonic()
        self._deadline = now + self._limits.query_seconds
        self._time_slice = time_slice
        self._slice_ends_at = now + time_slice.seconds
        self._memory = apsw.memory_used() + self._limits.query_bytes

    def now_ms(self) -> int:
        """Return the value of `now()`, which does not change during a transaction."""
        return self._now_ms

    def stop(self) -> None:
        self._deadline = None

    def check(self) -> None:
        """Raise if the statement must stop. Called between rows."""
        if self._must_stop() and self.rejection is not None:
            raise self.rejection

    def _must_stop(self) -> bool:
        if self._deadline is None:
            return False
        limits = self._limits
        now = self._clock.monotonic()
        if self._is_cancelled():
            self.rejection = QueryLimitError("the query was cancelled")
        elif now > self._slice_ends_at and self._time_slice.has_waiting():
            self.was_preempted = True
            self.rejection = QueryLimitError(
                f"the statement blocked other writers for longer than write_turn_ms allows ({limits.write_turn_ms} ms) each"
                " time it was tried, and nothing of it was written; change fewer rows at a time, and compute what takes long"
                " by a SELECT"
            )
        elif now > self._deadline:
            self.rejection = QueryLimitError(
                f"the statement ran longer than query_seconds allows ({limits.query_seconds} s); read or change fewer rows"
            )
        elif apsw.memory_used() > self._memory:
            self.rejection = QueryLimitError(
                f"the statement needs more memory than query_bytes allows ({limits.query_bytes}); read or change fewer rows"
            )
        return self.rejection is not None


class FetchedRows(NamedTuple):
    columns: Sequence[SqliteColumn]
    rows: list[tuple[StoredValue, ...]]
    truncated: bool


def fetch(
    connection: apsw.Connection, guard: StatementGuard, sql: str, values: Sequence[StoredValue], limits: Limits, most: int
) -> FetchedRows:
    """Return the rows of a query, at most `most` of them."""
    columns: list[SqliteColumn] = []

    def describe(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        columns[:] = [SqliteColumn(name, table, column) for name, _, _, table, column in cursor.description_full]
        return True

    cursor = connection.cursor()
    cursor.exec_trace = describe
    rows: list[tuple[StoredValue, ...]] = []
    size = 0
    try:
        for row in cursor.execute(sql, values):
            if len(rows) == most:
                return FetchedRows(columns, rows, True)
            rows.append(row)
            size += 64 + sum(len(cell) for cell in row if isinstance(cell, (str, bytes)))
            if size > limits.query_bytes:
                raise QueryLimitError(
                    f"the first {len(rows)} rows take more than query_bytes allows ({limits.query_bytes}); read fewer rows or"
                    " columns"
                )
            if len(rows) % _FETCH_ROWS == 0:
                guard.check()
    finally:
        cursor.close(force=True)
    return FetchedRows(columns, rows, False)


def result_of(fetched: FetchedRows, types: Sequence[ColumnType | None] | None, find: FindTable) -> Result:
    """Return the result with values of the column types."""
    columns = []
    cells: list[Sequence[object]] = []
    for at, (name, table_name, column_name) in enumerate(fetched.columns):
        kept = [row[at] for row in fetched.rows]
        table = find(table_name) if table_name is not None else None
        column = table.column(column_name) if table is not None and column_name is not None else None
        if column is not None:
            type_, values = column.type, _loaded(column.type, kept)
        else:
            inferred = types[at] if types is not None and at < len(types) else None
            type_, values = _as_inferred(inferred, kept)
        columns.append(ResultColumn(name, type_))
        cells.append(values)
    rows = list(zip(*cells, strict=True)) if cells else []
    return Result(columns, rows, status=f"SELECT {len(rows)}", truncated=fetched.truncated)


def _loaded(type_: ColumnType, kept: Sequence[StoredValue]) -> Sequence[object]:
    if type_.kind in _STORED_UNCHANGED:
        return kept
    load = codec_of(type_).load
    return [None if cell is None else load(cell) for cell in kept]


def _as_inferred(type_: ColumnType | None, kept: Sequence[StoredValue]) -> tuple[ColumnType, Sequence[object]]:
    """Return values in the inferred type, or in the type of the first value if they do not fit it."""
    first = next((cell for cell in kept if cell is not None), None)
    seen = ColumnType(_BY_VALUE.get(type(first), "text"))
    if type_ is None or (type_.kind in _STORED_UNCHANGED and first is not None and seen.kind != type_.kind):
        is_whole = type_ is not None and type_.kind in _WHOLE and seen.kind == "bigint"
        return (type_ if is_whole and type_ is not None else seen), kept
    try:
        return type_, _loaded(type_, kept)
    except (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError):
        return seen, kept


def values_for(names: Sequence[str], given: Parameters) -> tuple[StoredValue, ...]:
    """Return the parameters of a statement in the order of SQLite's numbers."""
    return tuple(bound(value_for(name, given)) for name in names)


def value_for(name: str, given: Parameters) -> object:
    if isinstance(given, Mapping):
        if name not in given:
            raise SqlError(f"the request has no value for :{name}; add it to the parameters")
        return given[name]
    if not name.isdigit():
        raise SqlError(f"the parameter :{name} has a name; send the values as an object")
    if int(name) > len(given):
        raise SqlError(f"the statement has a parameter number {name}, but the request has {counted(len(given), 'value')}")
    return given[int(name) - 1]
