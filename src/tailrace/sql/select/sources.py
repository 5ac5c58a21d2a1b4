"""Which rows and columns of its sources a query can need.

They come from conditions of its WHERE and of its joins such as `column = constant`, joined by AND. DuckDB still checks every
row, so what is read may be too much but never too little.

For a topic, conditions on `partition`, `offset`, `cursor` and `timestamp` become bounds, so that other records are not read.
Their constants may be computed, as in `now() - interval '1 hour'`; then DuckDB evaluates them first. For a table, conditions on
columns of plain types become conditions of the statement that reads it from SQLite.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Literal, NamedTuple

from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.input_texts import read_text
from tailrace.sql.analysis.tree import (
    AnalyzedQuery,
    AnyOrAll,
    ArrayItem,
    ArrayOf,
    Call,
    Cast,
    ColumnReference,
    Constant,
    CurrentTime,
    Expression,
    FromItem,
    InList,
    Join,
    Logical,
    NamedRelation,
    Parameter,
    QueryRelation,
    Select,
    WindowCall,
    parts_of,
    without_relabeling,
)
from tailrace.sql.analysis.types import INTEGERS, TEXTS
from tailrace.sql.duckdb.render import DuckDbRenderer

ScanColumn = Literal["partition", "offset", "cursor", "timestamp"]
Comparison = Literal["=", "<", "<=", ">", ">=", "in"]

_FLIPPED: dict[str, Comparison] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TIMES = ("timestamptz", "timestamp", "date")
_PURE = frozenset(
    ("+", "-", "*", "/", "now", "transaction_timestamp", "statement_timestamp", "date_trunc", "to_timestamp", "make_interval")
)
"""Operators and functions whose value depends on their arguments and the time of the query alone."""

SCAN_COLUMNS: Mapping[str, ScanColumn] = {
    "partition": "partition",
    "offset": "offset",
    "cursor": "cursor",
    "timestamp": "timestamp",
}
"""The columns of a topic for which there are bounds."""
CHANGE_SCAN_COLUMNS: Mapping[str, ScanColumn] = {"_commit_version": "cursor", "_commit_timestamp": "timestamp"}
"""The columns of the changes of a table for which there are bounds."""


class ValueRange(NamedTuple):
    """The values from `low` to `high`, both included; `None` means no bound."""

    low: int | None = None
    high: int | None = None


class ScanBounds(NamedTuple):
    """The records that a query can need. Timestamps are in milliseconds."""

    partitions: frozenset[int] | None = None
    offsets: ValueRange = ValueRange()
    cursors: ValueRange = ValueRange()
    timestamps: ValueRange = ValueRange()


class ColumnCondition(NamedTuple):
    """A comparison of a column with constants: with one, or for `in` with any number."""

    column: str
    comparison: Comparison
    constants: Sequence[Expression]


class SourceUse(NamedTuple):
    """What a query uses of one of its sources."""

    columns: set[str]
    conditions: list[ColumnCondition]


def uses_of(query: AnalyzedQuery, relations: Sequence[NamedRelation]) -> dict[int, SourceUse]:
    """Return what the query uses of each of its relations, by their numbers."""
    uses = {relation.number: SourceUse(set(), []) for relation in relations}
    origins = _origins(query)
    for node in parts_of(query):
        if isinstance(node, ColumnReference):
            if node.relation in uses:
                uses[node.relation].columns.add(node.column)
        elif isinstance(node, Select):
            for numbers, term in _terms(node):
                _note(term, numbers, uses, origins)
    return uses


def _origins(query: AnalyzedQuery) -> dict[tuple[int, str], tuple[int, str]]:
    """Return which column a column of a view or subquery is, where its rows are those that are read.

    A condition on such a column holds for the rows that are read, too: there is no LIMIT and no group between them.
    """
    found = {}
    for node in parts_of(query):
        if isinstance(node, QueryRelation) and isinstance(node.query, Select) and _passes_rows(node.query):
            for at, column in enumerate(node.query.columns, 1):
                if isinstance(column.expression, ColumnReference):
                    found[node.number, f"c{at}"] = column.expression.relation, column.expression.column
    return found


def _passes_rows(query: Select) -> bool:
    is_whole = query.limit is None and query.offset is None and not query.is_grouped and not query.distinct_on
    return is_whole and not any(isinstance(part, WindowCall) for column in query.columns for part in column.expression.walk())


def _terms(query: Select) -> Iterator[tuple[frozenset[int], Expression]]:
    """Yield conditions with the relations whose rows are not needed unless they meet them."""
    everything = frozenset(number for item in query.sources for number in _numbers(item))
    for term in _flattened(query.where):
        yield everything, term
    for item in query.sources:
        yield from _join_terms(item)


def _join_terms(item: FromItem) -> Iterator[tuple[frozenset[int], Expression]]:
    if not isinstance(item, Join):
        return
    yield from _join_terms(item.left)
    yield from _join_terms(item.right)
    numbers = [
        number
        for side, kinds in ((item.left, ("inner", "right")), (item.right, ("inner", "left")))
        if item.kind in kinds
        for number in _numbers(side)
    ]
    for term in _flattened(item.condition):
        yield frozenset(numbers), term


def _numbers(item: FromItem) -> Iterator[int]:
    if isinstance(item, Join):
        yield from _numbers(item.left)
        yield from _numbers(item.right)
    elif isinstance(item, NamedRelation | QueryRelation):
        yield item.number


def _flattened(condition: Expression | None) -> Iterator[Expression]:
    if isinstance(condition, Logical) and condition.operator == "and":
        for part in condition.arguments:
            yield from _flattened(part)
    elif condition is not None:
        yield condition


def _note(
    term: Expression,
    numbers: frozenset[int],
    uses: Mapping[int, SourceUse],
    origins: Mapping[tuple[int, str], tuple[int, str]],
) -> None:
    found = _compared(term)
    if found is None or found[0].relation not in numbers:
        return
    column, comparison, constants = found
    origin = column.relation, column.column
    while origin in origins:
        origin = origins[origin]
    if origin[0] in uses:
        uses[origin[0]].conditions.append(ColumnCondition(origin[1], comparison, constants))


def _compared(term: Expression) -> tuple[ColumnReference, Comparison, Sequence[Expression]] | None:
    if isinstance(term, Call) and term.signature.name in _FLIPPED and len(term.arguments) == 2:
        left, right = map(without_relabeling, term.arguments)
        name = term.signature.name
        if isinstance(left, ColumnReference) and is_constant(right):
            return left, _FLIPPED[_FLIPPED[name]], [right]
        if isinstance(right, ColumnReference) and is_constant(left):
            return right, _FLIPPED[name], [left]
    if isinstance(term, InList) and not term.is_negated:
        parts = [_compared(one) for one in term.comparisons]
        found = [part for part in parts if part is not None and part[1] == "="]
        if found and len(found) == len(term.comparisons) and len({(one.relation, one.column) for one, *_ in found}) == 1:
            return found[0][0], "in", [constants[0] for *_, constants in found]
    if isinstance(term, AnyOrAll) and not term.is_all and isinstance(term.left, ColumnReference):
        comparison = term.comparison
        if (
            isinstance(comparison, Call)
            and comparison.signature.name == "="
            and comparison.arguments[0] is term.left
            and isinstance(comparison.arguments[1], ArrayItem)
        ):
            if isinstance(term.array, ArrayOf) and all(map(is_constant, term.array.items)):
                return term.left, "in", term.array.items
            if isinstance(term.array, Parameter):
                return term.left, "in", [term.array]
    return None


def is_constant(expression: Expression) -> bool:
    """Return whether the expression has the same value for all rows, whenever it is evaluated."""
    return all(
        isinstance(part, Constant | Parameter | CurrentTime | Cast) or (isinstance(part, Call) and part.signature.name in _PURE)
        for part in expression.walk()
    )


class UnknownValueError(Exception):
    """The value of a constant expression is not known before it is computed."""


def value_of(expression: Expression, parameters: Sequence[object]) -> object:
    """Return the value of a constant or parameter, in Python's type. Raises `UnknownValueError` if it has to be computed."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Parameter):
        value = parameters[expression.number - 1]
        if isinstance(value, str) and expression.type.name not in TEXTS:
            try:
                return read_text(value, expression.type)
            except AnalysisError:
                raise UnknownValueError from None
        return value
    if (
        isinstance(expression, Cast)
        and expression.type.name in INTEGERS
        and expression.argument.type.name in INTEGERS
        and not expression.is_explicit
    ):
        return value_of(expression.argument, parameters)
    raise UnknownValueError


class ScanCondition(NamedTuple):
    """A condition on a scan column."""

    column: ScanColumn
    comparison: Comparison
    constants: Sequence[Expression]


def scan_conditions(found: Sequence[ColumnCondition], columns: Mapping[str, ScanColumn]) -> list[ScanCondition]:
    """Return the conditions on scan columns whose constants are of the right type."""
    return [
        ScanCondition(columns[condition.column], condition.comparison, condition.constants)
        for condition in found
        if condition.column in columns
        and all(
            one.type.name in (_TIMES if columns[condition.column] == "timestamp" else INTEGERS) for one in condition.constants
        )
    ]


class BoundValues:
    """The values of the constants of scan conditions: those that are known, and a question for the others."""

    def __init__(self, conditions: Sequence[ScanCondition], parameters: Sequence[object], renderer: DuckDbRenderer) -> None:
        self._conditions = conditions
        self._known: list[int | None] = []
        self._asked: list[int] = []
        texts = []
        for condition in conditions:
            for constant in condition.constants:
                try:
                    value = _number(value_of(constant, parameters))
                except UnknownValueError:
                    value = None
                    self._asked.append(len(self._known))
                    texts.append(_question(condition.column, renderer.expression(constant)))
                self._known.append(value)
        self.question = f"SELECT {', '.join(texts)}" if texts else None
        """The query for the values that are not known, in one row; null for those without a value."""
        self.asked = len(self._asked)

    def answered(self, values: Sequence[int | None]) -> Iterator[tuple[ScanCondition, list[int | None]]]:
        """Yield the conditions with the values of their constants, given the answer to the question."""
        for at, value in zip(self._asked, values, strict=True):
            self._known[at] = value
        left = iter(self._known)
        for condition in self._conditions:
            yield condition, [next(left) for _ in condition.constants]


def scan_bounds(found: Sequence[tuple[ScanCondition, Sequence[int | None]]]) -> ScanBounds:
    """Return the bounds that all conditions imply together."""
    spans: dict[str, ValueRange] = {}
    partitions: frozenset[int] | None = None
    for (column, comparison, _), values in found:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            continue
        low, high = min(known), max(known)
        if comparison == "in" and column == "partition":
            partitions = frozenset(known) if partitions is None else partitions & frozenset(known)
        spans[column] = _narrowed(
            spans.get(column, ValueRange()),
            low if comparison in ("=", "in", ">", ">=") else None,
            high if comparison in ("=", "in", "<", "<=") else None,
        )
    return ScanBounds(
        _within(partitions, spans.get("partition", ValueRange())),
        spans.get("offset", ValueRange()),
        spans.get("cursor", ValueRange()),
        _milliseconds(spans.get("timestamp", ValueRange())),
    )


def _number(value: object) -> int | None:
    """Return an integer, or the microseconds of a time, which is in UTC if it says nothing else."""
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return value if isinstance(value, int) else None


def _question(column: ScanColumn, text: str) -> str:
    return f"epoch_us(CAST({text} AS TIMESTAMP))" if column == "timestamp" else f"CAST({text} AS BIGINT)"


def _narrowed(span: ValueRange, low: int | None, high: int | None) -> ValueRange:
    lows = [bound for bound in (span.low, low) if bound is not None]
    highs = [bound for bound in (span.high, high) if bound is not None]
    return ValueRange(max(lows, default=None), min(highs, default=None))


def _within(partitions: frozenset[int] | None, span: ValueRange) -> frozenset[int] | None:
    """Return the one partition that a range leaves, if it leaves one."""
    if partitions is None and span.low is not None and span.low == span.high:
        return frozenset((span.low,))
    return partitions


def _milliseconds(micros: ValueRange) -> ValueRange:
    return ValueRange(
        None if micros.low is None else micros.low // 1000, None if micros.high is None else -(-micros.high // 1000)
    )
