"""Defaults of columns: expressions that are evaluated for each row that leaves the column out.

The text of a default is kept as it was written and means what it means to PostgreSQL. Tables of the time when a default was a
constant and the column decided on its value keep theirs: such a text is read as a constant where PostgreSQL would refuse it
(`DEFAULT 1` of a boolean), and where the name of a type stands before a string. New defaults of that form are kept in brackets.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.model.table import Column, Table
from tailrace.sql.analysis.errors import DATATYPE_MISMATCH, AnalysisError, UnsupportedError
from tailrace.sql.analysis.expressions import ExpressionAnalyzer
from tailrace.sql.analysis.scope import Scope
from tailrace.sql.analysis.tree import Call, ColumnReference, CurrentTime, Expression
from tailrace.sql.analysis.types import of_column
from tailrace.sql.evaluation.evaluator import Evaluate, compile_expression
from tailrace.sql.grammar.expressions import parse_tree
from tailrace.sql.grammar.writes import kinds_in
from tailrace.sql.statements import ExpressionText
from tailrace.sql.tables.identities import IdentityNumbers
from tailrace.sql.tables.values import StoredValue, stored

_TYPED_STRING = re.compile(r"(?:DATE|TIMESTAMP|UUID|JSON)\s*('(?:[^']|'')*')", re.IGNORECASE)
_CONSTANT = re.compile(r"-?\s*(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|'(?:[^']|'')*'|TRUE|FALSE|NULL", re.IGNORECASE)
_WORDS = {"true": True, "false": False, "null": None}
_VOLATILE_FUNCTIONS = frozenset(("clock_timestamp", "gen_random_uuid", "nextval", "random", "timeofday", "uuidv4", "uuidv7"))
_LONG_NUMBER = 40
_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_REFUSED = {
    "ColumnRef": "cannot use column reference in DEFAULT expression",
    "SubLink": "cannot use subquery in DEFAULT expression",
    "ParamRef": "cannot use a parameter in DEFAULT expression",
}

Default = Callable[[datetime], StoredValue]
"""Returns the stored form of a default for a row of a statement of this time."""


class TableDefaults:
    """The defaults of a table's columns, compiled when they are first needed."""

    def __init__(self, table: Table, numbers: IdentityNumbers) -> None:
        self._table = table
        self._columns = table.columns
        self._numbers = numbers
        self._known: dict[int, Default] = {}

    def of(self, at: int, now: datetime) -> StoredValue:
        """Return the default of the column at this place, in its stored form; the next number of an identity column."""
        column = self._columns[at]
        if column.identity is not None:
            return self._numbers.next(self._table, column)
        known = self._known.get(at)
        if known is None:
            known = self._known[at] = default_of(self._columns[at])
        return known(now)


def checked_default(column: Column) -> Column:
    """Check the default of a new column, and return the column with the text that is kept. Raises `SqlError`."""
    if column.default is None:
        return column
    if _TYPED_STRING.fullmatch(column.default):
        column = msgspec.structs.replace(column, default=f"({column.default})")
    evaluate, is_constant = _compiled(column)
    if is_constant:
        _evaluated(evaluate, column, _ANY_TIME)
    return column


def default_of(column: Column) -> Default:
    """Return the default of a column; null if it has none."""
    if column.default is None:
        # Raised when a row needs it, not before: a column may have no default and no null.
        return lambda now: stored(None, column)
    typed = _TYPED_STRING.fullmatch(column.default)
    if typed is not None:
        kept = stored(_constant(typed[1]), column)
        return lambda now: kept
    try:
        evaluate, is_constant = _compiled(column)
    except SqlError:
        if not _CONSTANT.fullmatch(column.default):
            raise
        kept = stored(_constant(column.default), column)
        return lambda now: kept
    if not is_constant:
        return lambda now: _evaluated(evaluate, column, now)
    kept = _evaluated(evaluate, column, _ANY_TIME)
    return lambda now: kept


def is_volatile(column: Column) -> bool:
    """Return whether the default of a column may differ from row to row of one statement."""
    waiting: list[object] = [parse_tree(ExpressionText(column.default or "NULL"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            if "FuncCall" in node and node["FuncCall"]["funcname"][-1]["String"]["sval"] in _VOLATILE_FUNCTIONS:
                return True
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return False


def _compiled(column: Column) -> tuple[Evaluate, bool]:
    """Return a default as a function of a row that has the time alone, and whether it is the same for all rows."""
    node = parse_tree(ExpressionText(column.default or ""))
    for kind in kinds_in(node):
        if kind in _REFUSED:
            raise UnsupportedSqlError(f"the default of column {column.name!r}: {_REFUSED[kind]}")
    try:
        expression = _analyzed(node, column)
        return compile_expression(expression, _TimeOnly()), _is_constant(expression)
    except AnalysisError as error:
        raise _failure(error, column) from None


def _analyzed(node: Mapping[str, Any], column: Column) -> Expression:
    analyzer = ExpressionAnalyzer(())
    found = analyzer.analyze(node, Scope())
    wanted = of_column(column.type)
    try:
        return analyzer.coerce(found, wanted, "assignment")
    except AnalysisError as error:
        if error.sqlstate != DATATYPE_MISMATCH:
            raise
        raise AnalysisError(
            DATATYPE_MISMATCH,
            f'column "{column.name}" is of type {wanted} but default expression is of type {found.type}',
            found.location,
        ) from None


def _evaluated(evaluate: Evaluate, column: Column, now: datetime) -> StoredValue:
    try:
        return stored(evaluate((now,)), column)
    except AnalysisError as error:
        raise _failure(error, column) from None


def _failure(error: AnalysisError, column: Column) -> SqlError:
    kind = UnsupportedSqlError if isinstance(error, UnsupportedError) else SqlError
    return kind(f"the default of column {column.name!r}: {error.message}", sqlstate=error.sqlstate)


def _is_constant(expression: Expression) -> bool:
    return not any(isinstance(part, Call | CurrentTime) for part in expression.walk())


class _TimeOnly:
    """A row of nothing but the time of the statement."""

    def column(self, reference: ColumnReference) -> int:
        raise UnsupportedError(_REFUSED["ColumnRef"], reference.location)

    def parameter(self, number: int) -> int:
        raise UnsupportedError(_REFUSED["ParamRef"])

    def now(self) -> int:
        return 0


def _constant(written: str) -> object:
    """Return the value of a literal. Numbers stay exact, because the column decides on their type."""
    if written.startswith("'"):
        return written[1:-1].replace("''", "'")
    if written.lower() in _WORDS:
        return _WORDS[written.lower()]
    number = "".join(written.split())
    return int(number) if number.lstrip("-").isdigit() and len(number) < _LONG_NUMBER else Decimal(number)
