"""Fast path of `select/execution.py`: a SELECT of a few rows of one table is computed in the server, without a worker process.

    SELECT expression, ... FROM table [WHERE condition] [ORDER BY expression, ...] [LIMIT n] [OFFSET n]

SQLite finds the rows by the conditions that it decides as PostgreSQL does (`sql/tables/pushdown.py`), and the expressions are
evaluated row by row (`sql/evaluation/`), which PostgreSQL judges like the general way. Triggered by short texts with cheap
functions only. A query that turns out to read many rows, or whose evaluation fails, is given to the general way, which also
finds the words for an error. `tests/unit/sql/select/test_row_select.py` holds both equal.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from tailrace.model.errors import QueryLimitError, TailraceError
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.model.table import Column, Table
from tailrace.sql.analysis.errors import AnalysisError
from tailrace.sql.analysis.interval_texts import interval_text
from tailrace.sql.analysis.queries import QueryAnalyzer
from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.tree import (
    Aggregate,
    AnyOrAll,
    Call,
    Cast,
    ColumnReference,
    Expression,
    GroupingOf,
    NamedRelation,
    Select,
    SortKey,
    Subquery,
    WindowCall,
)
from tailrace.sql.analysis.types import SqlType, of_column, to_column
from tailrace.sql.evaluation.comparisons import sort_key
from tailrace.sql.evaluation.evaluator import Evaluate, compile_expression
from tailrace.sql.parameters import Parameters, in_order
from tailrace.sql.results import Result, ResultColumn
from tailrace.sql.select.parameter_types import as_parameter, parameter_type
from tailrace.sql.statements import Query
from tailrace.sql.tables.database import quoted
from tailrace.sql.tables.pushdown import UnorderedValueError, pushed_conditions
from tailrace.sql.tables.readers import TableSnapshot
from tailrace.sql.tables.values import LoadValue, StoredValue, codec_of

_TEXT_BYTES = KIB
_KNOWN_PLANS = 1_000
_MAX_ROWS = 1_000
_MAX_SEEN_ROWS = 5_000
_MAX_BYTES = MIB
_MAX_STEPS = 200_000
_MAX_SKIPS = 256
_MAX_CONCATENATIONS = 8
_SIZED = ("text", "char", "bytes", "json", "list", "decimal")
_UNCHANGED = frozenset(("smallint", "integer", "bigint", "double", "real", "text", "char", "bytes", "json"))
"""Kinds whose stored values are those of expressions."""
_CHEAP_OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "->", "->>", "~~", "!~~")
_CHEAP_FUNCTIONS = (
    *("abs", "btrim", "ceil", "ceiling", "date_part", "date_trunc", "extract", "floor", "left", "length", "lower", "now"),
    *("right", "round", "substring", "upper"),
)
_CHEAP = frozenset((*_CHEAP_OPERATORS, *_CHEAP_FUNCTIONS))
"""Functions and operators that take little time and memory, whatever their arguments are."""
_NEVER = (Aggregate, WindowCall, Subquery, GroupingOf, AnyOrAll)
"""The last one keeps the item that it is at in its plan, which several threads use."""


class RowSelect:
    """A query of this form for parameters of some types, ready to run in any thread."""

    def __init__(self, query: Select, relation: NamedRelation, table: Table, parameters: int, limits: Limits) -> None:
        """Raises `AnalysisError` if the query can't be computed like this."""
        self.table = table
        self._max_rows = min(_MAX_ROWS, limits.query_rows)
        self._max_bytes = min(_MAX_BYTES, limits.query_bytes, limits.query_answer_bytes)
        self.skips = 0
        """How many times the general way is taken before this is tried again."""
        self._last_skips = 0
        layout = _Layout(table, relation.number, parameters)
        pushed, is_whole = pushed_conditions(query.where, table, relation.number)
        self._bound = [(compile_expression(value, layout), store) for one in pushed for value, store in one.values]
        self._where = None if query.where is None or is_whole else compile_expression(query.where, layout)
        outputs = [one.expression for one in query.columns]
        self._outputs = [(compile_expression(one, layout), _converter(one.type)) for one in outputs]
        self._order = [_Order(compile_expression(one.expression, layout), one) for one in query.order]
        self._limit = None if query.limit is None else compile_expression(query.limit, layout)
        self._offset = None if query.offset is None else compile_expression(query.offset, layout)
        self._columns = [ResultColumn(name, to_column(kind)) for name, kind in zip(query.names, query.types, strict=True)]
        self._loads = [(at, load) for at, column in enumerate(layout.columns) if (load := _load(column)) is not None]
        self._sized = [at for at, column in enumerate(layout.columns) if column.type.kind in _SIZED]
        shown = ", ".join(quoted(column.name) for column in layout.columns) or "NULL"
        where = f" WHERE {' AND '.join(one.sql for one in pushed)}" if pushed else ""
        self.sql = f"SELECT {shown} FROM {quoted(table.name)}{where}"  # noqa: S608
        self.bound_values = len(self._bound)
        self.has_filter = self._where is not None
        firsts = tuple(f"{quoted(name)} " for name in (table.primary_key[0], *(index.columns[0] for index in table.indexes)))
        self.is_by_key = any(one.sql.startswith(firsts) for one in pushed)
        """Whether SQLite finds the rows by the primary key or an index."""

    def run(self, snapshot: TableSnapshot, parameters: Sequence[object], now: datetime) -> Result | None:
        """Return the result, or `None` if the general way must be taken."""
        first = snapshot.steps
        snapshot.stop_if(lambda: snapshot.steps - first > _MAX_STEPS)
        try:
            found = self._run(snapshot, (*parameters, now))
        except (AnalysisError, UnorderedValueError, QueryLimitError, ArithmeticError, ValueError, TypeError, RecursionError):
            found = None
        if found is None:
            self._last_skips = self.skips = min(_MAX_SKIPS, 2 * self._last_skips + 1)
            return None
        self._last_skips = 0
        return Result(self._columns, found, status=f"SELECT {len(found)}")

    def _run(self, snapshot: TableSnapshot, head: Sequence[object]) -> list[tuple[object, ...]] | None:
        limit, offset = self._number(self._limit, head), self._number(self._offset, head) or 0
        if (limit is not None and limit < 0) or offset < 0:
            return None
        wanted = None if limit is None or self._order else limit + offset
        values = [(evaluate(head), store) for evaluate, store in self._bound]
        bound = tuple(None if value is None else store(value) for value, store in values)
        rows = self._rows(snapshot, bound, head, wanted)
        if rows is None:
            return None
        for order in reversed(self._order):
            rows = order.sorted(rows)
        chosen = rows[offset : None if limit is None else offset + limit]
        return [
            tuple(
                value if (value := evaluate(row)) is None or convert is None else convert(value)
                for evaluate, convert in self._outputs
            )
            for row in chosen
        ]

    def _rows(
        self, snapshot: TableSnapshot, bound: Sequence[StoredValue], head: Sequence[object], wanted: int | None
    ) -> list[list[Any]] | None:
        """Return the rows that the condition is true for, with what expressions need; `None` if they are too many."""
        rows: list[list[Any]] = []
        seen = size = 0
        if wanted == 0:
            return rows
        for part in snapshot.read(self.sql, bound, self._sized):
            for stored in part:
                seen += 1
                size += sum(len(cell) for at in self._sized if (cell := stored[at]))  # type: ignore[arg-type,misc]
                if seen > _MAX_SEEN_ROWS or size > self._max_bytes:
                    return None
                row = [*head, *stored]
                for at, load in self._loads:
                    if stored[at] is not None:
                        row[len(head) + at] = load(stored[at])
                if self._where is not None and not self._where(row):
                    continue
                rows.append(row)
                if len(rows) > self._max_rows:
                    return None
                if wanted is not None and len(rows) >= wanted:
                    return rows
        return rows

    def _number(self, evaluate: Evaluate | None, head: Sequence[object]) -> int | None:
        return None if evaluate is None else evaluate(head)


class RowSelects:
    """Recognizes queries of this form, and keeps their plans by the types of their parameters. Used on the event loop."""

    def __init__(self, find: Callable[[str], Table | None], limits: Limits) -> None:
        self._find = find
        self._limits = limits
        self._plans: OrderedDict[tuple[int, tuple[SqlType, ...]], tuple[Query, Table, RowSelect | None]] = OrderedDict()

    def bind(self, query: Query, params: Parameters) -> tuple[RowSelect, Sequence[object]] | None:
        """Return the plan and the parameters for a query, or `None` if the general way is to be taken."""
        if len(query.text) > _TEXT_BYTES:
            return None
        name = _relation_name(query.tree["SelectStmt"])
        table = None if name is None else self._find(name)
        if name is None or table is None:
            return None
        values = in_order(query, params)
        try:
            kinds = tuple(map(parameter_type, values))
            given = [as_parameter(value, kind) for value, kind in zip(values, kinds, strict=True)]
        except TailraceError:
            return None
        key = id(query), kinds
        known = self._plans.get(key)
        if known is None or known[0] is not query or known[1] is not table:
            known = query, table, _planned(query, name, table, kinds, self._limits)
            self._plans[key] = known
            while len(self._plans) > _KNOWN_PLANS:
                self._plans.popitem(last=False)
        plan = known[2]
        if plan is None:
            return None
        if plan.skips:
            plan.skips -= 1
            return None
        return plan, given


def _relation_name(fields: Mapping[str, Any]) -> str | None:
    """Return the name of the only relation of a query, or `None` if it has another form."""
    sources = fields.get("fromClause", ())
    if len(sources) != 1 or "RangeVar" not in sources[0] or "withClause" in fields or "groupClause" in fields:
        return None
    relation = sources[0]["RangeVar"]
    return ".".join(relation[part] for part in ("catalogname", "schemaname", "relname") if part in relation)


def _planned(query: Query, name: str, table: Table, kinds: Sequence[SqlType], limits: Limits) -> RowSelect | None:
    columns = [
        RelationColumn(column.name, of_column(column.type), is_key=column.name in table.primary_key) for column in table.columns
    ]
    analyzer = QueryAnalyzer(lambda asked: columns if asked == name else None, kinds, lambda *_: None)
    try:
        found = analyzer.analyze(query.tree)
        if not isinstance(found, Select) or not _is_plain(found):
            return None
        (relation,) = found.sources
        if not isinstance(relation, NamedRelation):
            return None
        return RowSelect(found, relation, table, len(kinds), limits)
    except (AnalysisError, RecursionError):
        return None


def _is_plain(query: Select) -> bool:
    if query.ctes or query.groups or query.is_grouped or query.having is not None or query.is_distinct or query.distinct_on:
        return False
    if len(query.sources) != 1:
        return False
    expressions: list[Expression] = [one.expression for one in query.columns]
    expressions += [one.expression for one in query.order]
    expressions += [one for one in (query.where, query.limit, query.offset) if one is not None]
    parts = [part for one in expressions for part in one.walk()]
    concatenations = sum(isinstance(part, Call) and part.signature.name == "||" for part in parts)
    return concatenations <= _MAX_CONCATENATIONS and all(map(_is_cheap, parts))


def _is_cheap(part: Expression) -> bool:
    if isinstance(part, _NEVER):
        return False
    if isinstance(part, Call):
        return part.signature.name in _CHEAP
    return not isinstance(part, Cast) or not {part.type.name, part.argument.type.name} & {"json", "jsonb", "interval"}


class _Order:
    """One item of ORDER BY."""

    def __init__(self, evaluate: Evaluate, item: SortKey) -> None:
        self._evaluate = evaluate
        self._key = sort_key(item.expression.type)
        self._is_descending = item.is_descending
        self._nulls_first = item.nulls_first

    def sorted(self, rows: list[list[Any]]) -> list[list[Any]]:
        """Return the rows in this order; those that are equal in it stay in theirs."""
        keyed = [(self._evaluate(row), row) for row in rows]
        nulls = [row for value, row in keyed if value is None]
        others = [(self._key(value), row) for value, row in keyed if value is not None]
        others.sort(key=lambda pair: pair[0], reverse=self._is_descending)
        ordered = [row for _, row in others]
        return nulls + ordered if self._nulls_first else ordered + nulls


class _Layout:
    """A row that begins with the parameters and the time of the statement, followed by the columns that are used."""

    def __init__(self, table: Table, relation: int, parameters: int) -> None:
        self._table = table
        self._relation = relation
        self._parameters = parameters
        self.columns: list[Column] = []

    def column(self, reference: ColumnReference) -> int:
        column = self._table.column(reference.column)
        if column is None or reference.relation != self._relation or _has_json_items(column):
            raise AnalysisError("0A000", "this column is not read here", reference.location)
        if column not in self.columns:
            self.columns.append(column)
        return self._parameters + 1 + self.columns.index(column)

    def parameter(self, number: int) -> int:
        return number - 1

    def now(self) -> int:
        return self._parameters


def _has_json_items(column: Column) -> bool:
    return column.type.element is not None and column.type.element.kind in ("json", "list")


def _load(column: Column) -> LoadValue | None:
    return None if column.type.kind in _UNCHANGED else codec_of(column.type).load


def _converter(sql_type: SqlType) -> Callable[[Any], object] | None:
    """Return what makes a value of `Result` of a value of an expression; `None` if it is one."""
    if sql_type.is_array:
        inner = _converter(sql_type.element)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    if sql_type.name not in _CONVERTERS:
        raise AnalysisError("0A000", f"a {sql_type} is not returned here")
    return _CONVERTERS[sql_type.name]


_CONVERTERS: Mapping[str, Callable[[Any], object] | None] = {
    **dict.fromkeys(("bool", "int2", "int4", "int8", "float8", "numeric", "text", "varchar", "bytea", "date", "uuid")),
    "timestamptz": None,
    "timestamp": lambda value: value.replace(tzinfo=UTC),
    "json": msgspec.json.decode,
    "jsonb": msgspec.json.decode,
    "interval": interval_text,
}
