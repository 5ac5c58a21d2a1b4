"""Analyzes the condition and the partition expressions of a route when it is added, as PostgreSQL would.

What is wrong is rejected with its position: an unknown column, types that can't be combined, a subquery, an aggregate. What
engines compute is decided by `compile` and `dry_run`. A column without OLD or NEW belongs to the row that the operation leaves,
and for a delete to the row that it removes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from tailrace.model.errors import LimitExceededError, SqlError, UnsupportedSqlError
from tailrace.model.limits import Limits
from tailrace.model.route import Operation, Route
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import ColumnType, Table
from tailrace.sql.analysis.errors import SYNTAX_ERROR, UNDEFINED_FUNCTION, AnalysisError, UnsupportedError
from tailrace.sql.analysis.expressions import ExpressionAnalyzer
from tailrace.sql.analysis.scope import Scope
from tailrace.sql.analysis.tree import Aggregate, ColumnReference, CurrentTime, Expression, Logical
from tailrace.sql.analysis.types import of_column
from tailrace.sql.grammar.expressions import located_error, parse_tree
from tailrace.sql.routes.evaluation import NEW, OLD, ROW, AnalyzedRoute, RouteEvaluator, check_evaluable
from tailrace.sql.statements import ExpressionText

_MAX_DEPTH = 60
_TOKENS_PER_EXPRESSION = 4
_VOLATILE_FUNCTIONS = frozenset(
    (
        "clock_timestamp",
        "gen_random_uuid",
        "nextval",
        "now",
        "random",
        "random_normal",
        "statement_timestamp",
        "timeofday",
        "transaction_timestamp",
        "uuidv4",
        "uuidv7",
    )
)
"""Functions whose result can change from call to call."""
_INSTEAD = {
    "array_contains": "write 'x' = ANY (tags)",
    "contains": "write strpos(name, 'x') > 0",
    "ends_with": "write right(name, 1) = 'x' or name LIKE '%x'",
}
"""What to write for functions that PostgreSQL does not have."""
Found = TypeVar("Found")


class CheckedRoute(NamedTuple):
    where: Expression | None
    keys: tuple[Expression, ...]
    texts: tuple[ExpressionText, ...]
    """What was written: the keys, then the condition."""


def check_route(
    where: ExpressionText | None,
    partition_by: Sequence[ExpressionText],
    operations: Sequence[Operation],
    table: Table,
    limits: Limits,
    *,
    has_snapshot: bool = False,
) -> CheckedRoute:
    """Analyze the expressions of a route. Raises `SqlError` with the position of what is wrong."""
    _check_names(table)
    _check_size(sum(text.tokens for text in (*partition_by, *_given(where))) // _TOKENS_PER_EXPRESSION, limits)
    columns = {column.name: column.type for column in table.columns}
    checked = analyze_route(where, partition_by, operations, table.name, columns, has_snapshot=has_snapshot)
    _check_size(sum(1 for one in (*checked.keys, *_given(checked.where)) for _ in one.walk()), limits)
    for text, key in zip(partition_by, checked.keys, strict=True):
        if not columns_of(key):
            raise located_error(text, key.location, "a constant would send everything to one partition; name a column")
    return checked


def analyze_route(
    where: ExpressionText | None,
    partition_by: Sequence[ExpressionText],
    operations: Sequence[Operation],
    table_name: str,
    columns: Mapping[str, ColumnType],
    *,
    has_snapshot: bool = False,
) -> CheckedRoute:
    """Analyze the expressions of a route, which may be stored, over the columns that its table had when it was added."""
    scope = _RouteScope(table_name, columns, operations, has_snapshot)
    analyzer = ExpressionAnalyzer(())
    texts = (*partition_by, *_given(where))

    def analyzed(text: ExpressionText) -> Expression:
        node = parse_tree(text)
        _check_parse_tree(node)
        found = analyzer.analyze(node, scope)
        found = analyzer.as_boolean(found, "WHERE") if text is where else analyzer.settle(found)
        _check_parts(found)
        return found

    found = [located(text, partial(analyzed, text)) for text in texts]
    return CheckedRoute(found[-1] if where is not None else None, tuple(found[: len(partition_by)]), texts)


def analyzed_route(route: Route) -> AnalyzedRoute | None:
    """Return what Python evaluates of a stored route; `None` if Spark alone does."""
    texts = route.sql.python
    if texts is None:
        return None
    where = None if texts.where is None else ExpressionText(texts.where)
    keys = [ExpressionText(text) for text in texts.partition_by]
    checked = analyze_route(where, keys, route.operations, route.table_name, texts.columns, has_snapshot=route.snapshot)
    return AnalyzedRoute(texts.columns, conjuncts_of(checked.where), texts.conjuncts, checked.keys, texts.has_own_keys)


def route_evaluation(route: Route) -> RouteEvaluator | None:
    """Return what evaluates a stored route in Python; `None` if Spark alone does."""
    analyzed = analyzed_route(route)
    return None if analyzed is None else RouteEvaluator(analyzed)


def check_supported(checked: CheckedRoute) -> None:
    """Raise an error with its position if Python can't evaluate a part of the route."""
    nodes = [*checked.keys, *_given(checked.where)]
    for node, text in zip(nodes, checked.texts, strict=True):
        located(text, partial(check_evaluable, node))


def _given(found: Found | None) -> list[Found]:
    return [] if found is None else [found]


def conjuncts_of(node: Expression | None) -> tuple[Expression, ...]:
    """Return the parts of a condition that must all be true; none if there is no condition."""
    if node is None:
        return ()
    if isinstance(node, Logical) and node.operator == "and":
        return tuple(part for argument in node.arguments for part in conjuncts_of(argument))
    return (node,)


def _check_size(count: int, limits: Limits) -> None:
    if count > limits.route_expressions:
        raise LimitExceededError(
            f"the route has {count} operators, columns and constants, more than route_expressions allows"
            f" ({limits.route_expressions}); simplify it"
        )


class _RouteScope(Scope):
    """The columns of the table, bare and behind OLD and NEW. Their names are found in any case."""

    def __init__(
        self, table_name: str, columns: Mapping[str, ColumnType], operations: Sequence[Operation], has_snapshot: bool
    ) -> None:
        super().__init__()
        self._table_name = table_name
        self._operations = frozenset(operations)
        self._has_snapshot = has_snapshot
        self._columns = {name.lower(): (name, type_) for name, type_ in columns.items()}

    def find(self, name: str, qualifier: str | None, location: int) -> Expression:
        relation = self._relation(name, qualifier, location)
        column = self._columns.get(name.lower())
        if column is None:
            hint = did_you_mean(name, (known for known, _ in self._columns.values()))
            raise AnalysisError("42703", f"table {self._table_name!r} has no column {name!r}{hint}", location)
        return ColumnReference(of_column(column[1]), relation, column[0], location=location)

    def _relation(self, name: str, qualifier: str | None, location: int) -> int:
        if qualifier is None:
            if "delete" not in self._operations:
                return NEW
            # A row that a snapshot reads exists, as one that an operation leaves.
            return OLD if self._operations == {"delete"} and not self._has_snapshot else ROW
        image = qualifier.lower()
        if image not in ("old", "new"):
            raise AnalysisError("42P01", f"'{qualifier}.{name}': only OLD. and NEW. can qualify a column", location)
        lacking, which = ("insert", "row before it") if image == "old" else ("delete", "row after it")
        if lacking in self._operations:
            raise AnalysisError(
                "42P01", f"{image.upper()}.{name}: the route is also ON {lacking.upper()}, which has no {which}", location
            )
        return OLD if image == "old" else NEW


def located(text: ExpressionText, analyzed: Callable[[], Found]) -> Found:
    """Return what a function returns. An error of the analysis becomes one with its position in the statement."""
    try:
        return analyzed()
    except AnalysisError as error:
        _raise_located(text, error)


def _raise_located(text: ExpressionText, error: AnalysisError) -> NoReturn:
    message = error.message
    if error.sqlstate == "42P02":
        message = "a route outlives its statement; write the value instead of a parameter"
    for name, instead in _INSTEAD.items():
        if error.sqlstate == UNDEFINED_FUNCTION and message.startswith(f"function {name}("):
            message = f"PostgreSQL has no function {name}(); {instead}"
    kind = UnsupportedSqlError if isinstance(error, UnsupportedError) or error.sqlstate == "42P02" else SqlError
    raise located_error(text, error.location, message, kind, error.sqlstate) from error


def _check_parse_tree(node: Mapping[str, Any]) -> None:
    """Limit the depth, because engines parse SQL recursively, and refuse what looks at more than one change."""
    waiting: list[tuple[Any, int, int]] = [(node, 0, -1)]
    while waiting:
        part, depth, location = waiting.pop()
        if isinstance(part, list):
            waiting += [(item, depth, location) for item in part]
        elif isinstance(part, dict):
            location = part["location"] if isinstance(part.get("location"), int) else location
            for kind, value in part.items():
                is_node = kind[:1].isupper()
                if is_node and depth >= _MAX_DEPTH:
                    raise AnalysisError(
                        SYNTAX_ERROR, f"the expression is nested more than {_MAX_DEPTH} levels deep; simplify it", location
                    )
                if is_node and kind in ("SubLink", "FuncCall"):
                    _check_single_change(kind, value)
                waiting.append((value, depth + (is_node and kind not in ("String", "List")), location))


def _check_single_change(kind: str, fields: Mapping[str, Any]) -> None:
    location = fields.get("location", -1)
    if kind == "SubLink":
        raise UnsupportedError("a route sees one change at a time; it can't use a subquery", location)
    name = fields["funcname"][-1]["String"]["sval"]
    if "over" in fields:
        raise UnsupportedError("a route sees one change at a time; it can't use a window function", location)
    if name in _VOLATILE_FUNCTIONS:
        raise UnsupportedError(
            f"the result of {name}() can change from call to call, but a route must always give the same result", location
        )


def _check_parts(node: Expression) -> None:
    """Refuse aggregates, which look at many rows, and the current time."""
    for part in node.walk():
        if isinstance(part, CurrentTime):
            raise UnsupportedError(
                "the current time can change from call to call, but a route must always give the same result", part.location
            )
        if isinstance(part, Aggregate):
            raise UnsupportedError(
                f"a route sees one change at a time; it can't use the aggregate {part.signature.name}()", part.location
            )


def old_columns(checked: CheckedRoute, operations: Sequence[Operation]) -> set[str]:
    """Return the columns whose values before a change a route uses. For a delete, those of the row are of that kind."""
    parts = [part for node in (*checked.keys, *_given(checked.where)) for part in node.walk()]
    before = (OLD, ROW) if "delete" in operations else (OLD,)
    return {part.column for part in parts if isinstance(part, ColumnReference) and part.relation in before}


def columns_of(node: Expression) -> set[str]:
    """Return the names of the columns that an expression uses."""
    return {part.column for part in node.walk() if isinstance(part, ColumnReference)}


def _check_names(table: Table) -> None:
    for column in table.columns:
        if "${" in column.name:
            raise SqlError(
                f"column {column.name!r} of table {table.name!r} has a name that Spark would substitute (${{...}}); rename it"
            )
