"""What rows of a table must satisfy: CHECK is evaluated here, UNIQUE is decided by SQLite's indexes.

A check means what it means to PostgreSQL: it is analyzed once for each table and evaluated for each new image of a row. It is
broken if it is false; null is no violation.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import apsw
import msgspec

from tailrace.model.errors import ConstraintError, SqlError, UnsupportedSqlError
from tailrace.model.table import Check, Column, Table
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.expressions import ExpressionAnalyzer
from tailrace.sql.analysis.scope import Scope, ScopeColumn, ScopeRelation
from tailrace.sql.analysis.tree import Aggregate, ColumnReference, Expression, GroupingOf, Subquery, WindowCall
from tailrace.sql.analysis.types import of_column
from tailrace.sql.evaluation.evaluator import Evaluate, compile_expression
from tailrace.sql.grammar.expressions import EXPRESSION_START, located_error, parse_tree
from tailrace.sql.grammar.lexer import read_tokens
from tailrace.sql.statements import ExpressionText
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.values import NOT_NULL, UNIQUE_VIOLATION, StoredValue, codec_of, shown

CHECK_VIOLATION = "23514"
_UNIQUE = re.compile(r"UNIQUE constraint failed: (.*)")
_NOT_NULL = re.compile(r"NOT NULL constraint failed: (.*)")
_RELATION = 1
_CHECK_EVERY_ROWS = 256
_STORED_UNCHANGED = ("smallint", "integer", "bigint", "double", "real", "text", "char", "bytes", "json")


class _CompiledCheck(NamedTuple):
    name: str
    evaluate: Evaluate
    loads: Sequence[tuple[int, Callable[[StoredValue], object]]]
    """Which cells it uses in another form than the stored one."""


class RowChecks:
    """The checks of one table, compiled when the first row is written."""

    def __init__(self, table: Table, names: Collection[str] | None = None) -> None:
        """`names` are those of the checks; all of the table's if it is `None`."""
        self._table = table
        self._names = names
        self._compiled: list[_CompiledCheck] | None = None

    def __bool__(self) -> bool:
        return bool(self._table.checks)

    def check(self, row: Sequence[StoredValue], now: datetime) -> None:
        """Raise `ConstraintError` if a stored row breaks a check."""
        if self._table.checks:
            self._check(row, now)

    def check_all(self, rows: Iterable[Sequence[StoredValue]], now: datetime) -> None:
        """Check many rows. The error says which of them break a check."""
        if not self._table.checks:
            return
        first: ConstraintError | None = None
        broken = []
        for number, row in enumerate(rows):
            try:
                self._check(row, now)
            except ConstraintError as error:
                broken.append(number)
                if first is None:
                    first = error
                    first.row = number
        if first is not None:
            first.rows = broken
            raise first

    def check_present(self, rows: Iterable[Sequence[StoredValue]], now: datetime, check: Callable[[], None]) -> None:
        """Check rows that are there already. `check` is called every few rows, and raises if the statement must stop."""
        for number, row in enumerate(rows, 1):
            if number % _CHECK_EVERY_ROWS == 0:
                check()
            try:
                self._check(row, now)
            except ConstraintError as error:
                raise ConstraintError(
                    f"a row of table {self._table.name!r} breaks the new check; change these rows first: {error}",
                    sqlstate=CHECK_VIOLATION,
                ) from None

    def _check(self, row: Sequence[StoredValue], now: datetime) -> None:
        if self._compiled is None:
            wanted = [check for check in self._table.checks if self._names is None or check.name in self._names]
            self._compiled = [_compiled(check, self._table) for check in wanted]
        for name, evaluate, loads in self._compiled:
            values: list[Any] = [*row, now]
            for at, load in loads:
                if values[at] is not None:
                    values[at] = load(values[at])
            try:
                is_broken = evaluate(values) is False
            except AnalysisError as error:
                kind = UnsupportedSqlError if isinstance(error, UnsupportedError) else SqlError
                message = f"the check {name!r} of table {self._table.name!r}: {error.message}"
                raise kind(message, sqlstate=error.sqlstate) from None
            if is_broken:
                raise ConstraintError(
                    f"new row for relation {self._table.name!r} violates check constraint {name!r}", sqlstate=CHECK_VIOLATION
                )


def _compiled(check: Check, table: Table) -> _CompiledCheck:
    expression = analyze_check(ExpressionText(check.expression), table.columns, table.name)
    places = {column.name: at for at, column in enumerate(table.columns)}
    layout = _Layout(places)
    evaluate = compile_expression(expression, layout)
    loads = [
        (places[name], codec_of(table.columns[places[name]].type).load)
        for name in layout.used
        if table.columns[places[name]].type.kind not in _STORED_UNCHANGED
    ]
    return _CompiledCheck(check.name, evaluate, loads)


def analyze_check(text: ExpressionText, columns: Sequence[Column], table: str) -> Expression:
    """Return the analyzed condition of a check. Raises `SqlError` at the place of what is wrong."""
    found = [ScopeColumn(one.name, ColumnReference(of_column(one.type), _RELATION, one.name)) for one in columns]
    scope = Scope(None, [ScopeRelation([table, table.rpartition(".")[2]], found)])
    try:
        expression = ExpressionAnalyzer(()).condition(parse_tree(text), scope, "CHECK")
        for part in expression.walk():
            if isinstance(part, Aggregate | GroupingOf):
                raise AnalysisError("42803", "aggregate functions are not allowed in check constraints", part.location)
            if isinstance(part, WindowCall):
                raise AnalysisError("42P20", "window functions are not allowed in check constraints", part.location)
            if isinstance(part, Subquery):
                raise UnsupportedError("cannot use subquery in check constraint", part.location)
        compile_expression(expression, _Layout({column.name: at for at, column in enumerate(columns)}))
    except AnalysisError as error:
        kind = UnsupportedSqlError if isinstance(error, UnsupportedError) else SqlError
        raise located_error(text, error.location, error.message, kind, error.sqlstate) from None
    return expression


class _Layout:
    """A row of the table, and then the time of the statement."""

    def __init__(self, places: dict[str, int]) -> None:
        self._places = places
        self.used: set[str] = set()

    def column(self, reference: ColumnReference) -> int:
        self.used.add(reference.column)
        return self._places[reference.column]

    def parameter(self, number: int) -> int:
        raise UnsupportedError("a check can't have parameters")

    def now(self) -> int:
        return -1


def violation(error: apsw.ConstraintError, table: Table, row: Sequence[StoredValue] | None = None) -> ConstraintError:
    """Return the error for a row that SQLite has refused."""
    text = str(error)
    null = _NOT_NULL.fullmatch(text)
    if null is not None:
        return ConstraintError(f"column {null[1].rpartition('.')[2]!r} can't be null", sqlstate=NOT_NULL)
    unique = _UNIQUE.fullmatch(text)
    if unique is None:
        return ConstraintError(text)
    prefix = f"{table.name}."
    columns = tuple(part.removeprefix(prefix) for part in unique[1].split(f", {prefix}"))
    return ConstraintError(
        f"{conflict_reason(table, columns, row)}; use ON CONFLICT to say what to do then", sqlstate=UNIQUE_VIOLATION
    )


def conflict_reason(table: Table, columns: Sequence[str], row: Sequence[StoredValue] | None) -> str:
    """Return why a row is not inserted that has the same values in these columns as another one."""
    name = next((name for name, named in table.unique_keys.items() if tuple(named) == tuple(columns)), None)
    places = {column.name: at for at, column in enumerate(table.columns)}
    values = (
        ", ".join(f"{column} = {shown(row[places[column]])}" for column in columns)
        if row is not None and all(column in places for column in columns)
        else f"this {', '.join(columns)}"
    )
    constraint = "" if name is None else f" (unique constraint {name!r})"
    return f"table {table.name!r} already has a row with {values}{constraint}"


def without_column(table: Table, name: str) -> Table:
    """Return a table without the checks and indexes that use a column, as it is when the column is dropped."""
    checks = [check for check in table.checks if name not in _columns_of(check, table)]
    return msgspec.structs.replace(
        table, checks=tuple(checks), indexes=tuple(index for index in table.indexes if name not in index.columns)
    )


def with_renamed_column(table: Table, old: str, new: str) -> Table:
    """Return a table whose checks and indexes know a column by its new name."""

    def renamed(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    checks = tuple(Check(check.name, _with_renamed_column(check.expression, old, new)) for check in table.checks)
    indexes = [
        msgspec.structs.replace(index, columns=renamed(index.columns), descending=renamed(index.descending))
        for index in table.indexes
    ]
    return msgspec.structs.replace(table, checks=checks, indexes=tuple(indexes))


def _columns_of(check: Check, table: Table) -> set[str]:
    expression = analyze_check(ExpressionText(check.expression), table.columns, table.name)
    return {part.column for part in expression.walk() if isinstance(part, ColumnReference)}


def _with_renamed_column(text: str, old: str, new: str) -> str:
    """Return an expression in which a column has another name."""
    ends = {_end_of_name(text, node) for node in _column_nodes(parse_tree(ExpressionText(text)), old)}
    for token in reversed(read_tokens(text)):
        if token.end in ends:
            text = text[: token.start] + quoted(new) + text[token.end :]
    return text


def _column_nodes(tree: object, name: str) -> Iterator[Mapping[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            fields = node.get("ColumnRef", {}).get("fields", ())
            if fields and fields[-1].get("String", {}).get("sval") == name:
                yield node["ColumnRef"]
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _end_of_name(text: str, node: Mapping[str, Any]) -> int:
    """Return where the last part of a name ends in the text of an expression."""
    start = len(text.encode()[: node["location"] - EXPRESSION_START].decode(errors="ignore"))
    tokens = [token for token in read_tokens(text) if token.start >= start]
    return tokens[2 * (len(node["fields"]) - 1)].end


class FoundConflict(NamedTuple):
    """The row that a new one conflicts with, and the columns in which they are equal."""

    row: Sequence[StoredValue]
    columns: Sequence[str]


class ConflictSearch:
    """Finds the row that an INSERT conflicts with: by the unique key that ON CONFLICT names, or by any of them."""

    def __init__(self, table: Table, named: Sequence[str]) -> None:
        places = {column.name: at for at, column in enumerate(table.columns)}
        keys = [columns for columns in table.unique_keys.values() if not named or set(columns) == set(named)]
        self._searches = [
            (
                columns,
                [places[name] for name in columns],
                f"SELECT * FROM {quoted(table.name)} WHERE {' AND '.join(f'{quoted(name)} = ?' for name in columns)}",  # noqa: S608
            )
            for columns in keys
        ]

    def find(self, connection: apsw.Connection, new: Sequence[StoredValue]) -> FoundConflict | None:
        for columns, places, sql in self._searches:
            # Nulls are distinct, and SQLite finds none that is equal to null.
            found: Sequence[StoredValue] | None = next(iter(connection.execute(sql, [new[at] for at in places])), None)
            if found is not None:
                return FoundConflict(found, columns)
        return None
