"""Analyzes calls of functions, aggregates and window functions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.sql.analysis.coercion import TYPES_WITH_DIGITS, as_json, is_json_text
from tailrace.sql.analysis.errors import (
    GROUPING_ERROR,
    UNDEFINED_FUNCTION,
    WINDOWING_ERROR,
    AnalysisError,
    UnsupportedError,
)
from tailrace.sql.analysis.numeric_digits import digits_of_aggregate
from tailrace.sql.analysis.parse_tree import SYSTEM_SCHEMAS, Node, location_of
from tailrace.sql.analysis.scope import Scope, ScopeRelation
from tailrace.sql.analysis.session_values import session_function
from tailrace.sql.analysis.tree import (
    Aggregate,
    Case,
    Constant,
    CurrentTime,
    Expression,
    NullTest,
    SortKey,
    WindowCall,
    WindowFrame,
)
from tailrace.sql.analysis.types import (
    BOOL,
    DATE,
    INT8,
    INTERVAL,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
)

if TYPE_CHECKING:
    from tailrace.sql.analysis.expressions import ExpressionAnalyzer

_ROW_FUNCTIONS = frozenset(("to_jsonb", "to_json", "row_to_json"))
_ROW_AGGREGATES = {"jsonb_agg": "to_jsonb", "json_agg": "row_to_json"}
"""The aggregates of whole rows, and what makes JSON of each row."""
_CURRENT_TIMES = frozenset(("now()", "transaction_timestamp()", "statement_timestamp()", "clock_timestamp()"))
_ARGUMENT_NAMES = {
    "make_date": ("year", "month", "day"),
    "make_time": ("hour", "min", "sec"),
    "make_timestamp": ("year", "month", "mday", "hour", "min", "sec"),
    "make_timestamptz": ("year", "month", "mday", "hour", "min", "sec", "timezone"),
    "make_interval": ("years", "months", "weeks", "days", "hours", "mins", "secs"),
}
"""The functions whose arguments can be given by name."""


_CLAUSES = {"agg_filter", "agg_distinct", "agg_order", "agg_star", "agg_within_group", "over"}


def function_call(analyzer: "ExpressionAnalyzer", fields: Node, scope: Scope) -> Expression:
    """Return the call of a function, aggregate or window function."""
    location = location_of(fields)
    names = [part["String"]["sval"] for part in fields["funcname"]]
    if len(names) > 2 or (len(names) == 2 and names[0] not in SYSTEM_SCHEMAS):
        raise AnalysisError(UNDEFINED_FUNCTION, f"function {'.'.join(names)}() does not exist", location)
    name = names[-1]
    if fields.get("func_variadic"):
        raise UnsupportedError("VARIADIC is not supported", location)
    nodes = fields.get("args", ())
    value = session_function(name, location) if not nodes and not fields.keys() & _CLAUSES else None
    if value is not None:
        return value
    if any("NamedArgExpr" in node for node in nodes):
        nodes = _in_order(name, nodes, location)
    row = _whole_row(nodes[0], scope) if len(nodes) == 1 else None
    if row is not None and name in _ROW_FUNCTIONS:
        return _row_as_json(analyzer, name, row, location)
    if row is not None and name in _ROW_AGGREGATES:
        arguments: list[Expression] = [_row_as_json(analyzer, _ROW_AGGREGATES[name], row, location)]
    else:
        arguments = analyzer.analyze_all(nodes, scope)
    if name in ("json_extract_path", "json_extract_path_text") and arguments and is_json_text(arguments[0]):
        arguments = [as_json(arguments[0]), *arguments[1:]]
    order = [analyzer.sort_key(node["SortBy"], scope) for node in fields.get("agg_order", ())]
    if fields.get("agg_within_group"):
        if "over" in fields:
            raise UnsupportedError(f"OVER is not supported for ordered-set aggregate {name}", location)
        return _ordered_set(analyzer, name, arguments, order, fields, scope, location)
    found = analyzer.find_function(name, arguments, fields, location)
    if found.signature.kind == "f":
        for clause, text in (
            ("agg_filter", "FILTER"),
            ("agg_distinct", "DISTINCT"),
            ("agg_order", "ORDER BY"),
            ("over", "OVER"),
        ):
            if fields.get(clause):
                raise AnalysisError("42809", f"{text} specified, but {name} is not an aggregate function", location)
        if found.signature.key in _CURRENT_TIMES:
            return CurrentTime(TIMESTAMPTZ, location=location)
        if found.signature.key in ("age(timestamp)", "age(timestamptz)"):
            # The age at midnight of today.
            today = analyzer.coerce(CurrentTime(DATE, location=location), SqlType(found.arguments[0]))
            return analyzer.called(
                analyzer.find_function(name, [today, *arguments], fields, location), [today, *arguments], location
            )
        return analyzer.called(found, arguments, location)
    if found.signature.kind == "w" and "over" not in fields:
        raise AnalysisError(WINDOWING_ERROR, f"window function {name} requires an OVER clause", location)
    coerced, result = analyzer.coerced_arguments(found, arguments)
    if row is not None and name == "json_agg":
        # Rows are on lines of their own.
        found = found._replace(signature=found.signature._replace(key="json_agg(record)"))
    condition = analyzer.condition(fields["agg_filter"], scope, "FILTER") if "agg_filter" in fields else None
    call = Aggregate(
        digits_of_aggregate(found.signature.key, result, coerced),
        found.signature,
        coerced,
        bool(fields.get("agg_star")),
        bool(fields.get("agg_distinct")),
        order,
        (),
        condition,
        location=location,
    )
    if "over" not in fields and any(isinstance(part, Aggregate) for one in coerced for part in one.walk()):
        raise AnalysisError(GROUPING_ERROR, "aggregate function calls cannot be nested", location)
    return _over(analyzer, call, fields, scope)


def _row_as_json(analyzer: "ExpressionAnalyzer", name: str, row: ScopeRelation, location: int) -> Expression:
    """Analyze `to_jsonb(table)` as an object of the table's columns."""
    pairs: list[Expression] = []
    for column in row.columns:
        if not column.is_hidden:
            pairs += (Constant(TEXT, column.name), column.expression)
    build = "jsonb_build_object" if name == "to_jsonb" else "json_build_object"
    found = analyzer.catalog.find_function(build, [one.type for one in pairs])
    if found is None:
        raise UnsupportedError(f"{name} of a row is not supported", location)
    if name != "to_jsonb":
        # The text of a row has no spaces, other than that of `json_build_object`.
        found = found._replace(signature=found.signature._replace(key="json_of_row(any)"))
    document = analyzer.called(found, pairs, location)
    if not row.is_nullable:
        return document
    key = next((column.expression for column in row.columns if column.is_key), None)
    if key is None:
        raise UnsupportedError(f"{name} of a row without a primary key is not supported in an outer join", location)
    is_missing = NullTest(BOOL, key, location=location)
    return Case(document.type, [(is_missing, Constant(document.type, None))], document, location=location)


def set_call(analyzer: "ExpressionAnalyzer", fields: Node, scope: Scope) -> Expression:
    """Return the call of a function in FROM, which may return rows."""
    location = location_of(fields)
    name = fields["funcname"][-1]["String"]["sval"]
    arguments = analyzer.analyze_all(fields.get("args", ()), scope)
    found = analyzer.find_function(name, arguments, fields, location)
    if found.signature.kind != "f":
        raise AnalysisError(GROUPING_ERROR, "aggregate functions are not allowed in functions in FROM", location)
    if found.signature.key in _CURRENT_TIMES:
        return CurrentTime(TIMESTAMPTZ, location=location)
    return analyzer.called(found, arguments, location)


def _ordered_set(
    analyzer: "ExpressionAnalyzer",
    name: str,
    arguments: Sequence[Expression],
    order: Sequence[SortKey],
    fields: Node,
    scope: Scope,
    location: int,
) -> Aggregate:
    """Analyze `percentile_cont(0.5) WITHIN GROUP (ORDER BY x)` and the like."""
    all_arguments = [*arguments, *(key.expression for key in order)]
    found = analyzer.find_function(name, all_arguments, fields, location)
    coerced, result = analyzer.coerced_arguments(found, all_arguments)
    direct, sorted_by = coerced[: len(arguments)], coerced[len(arguments) :]
    keys = [SortKey(one, key.is_descending, key.nulls_first) for one, key in zip(sorted_by, order, strict=True)]
    condition = analyzer.condition(fields["agg_filter"], scope, "FILTER") if "agg_filter" in fields else None
    return Aggregate(result, found.signature, direct, within_group=keys, condition=condition, location=location)


def _over(analyzer: "ExpressionAnalyzer", call: Aggregate, fields: Node, scope: Scope) -> Expression:
    if "over" not in fields:
        return call
    if analyzer.queries is None:
        raise UnsupportedError("window functions can't be used here", call.location)
    if call.is_distinct:
        raise UnsupportedError("DISTINCT is not implemented for window functions", call.location)
    if call.order:
        raise UnsupportedError("aggregate ORDER BY is not implemented for window functions", call.location)
    window = analyzer.queries.window(fields["over"])
    partition = [analyzer.settle(analyzer.analyze(node, scope)) for node in window.get("partitionClause", ())]
    order = [analyzer.sort_key(node["SortBy"], scope) for node in window.get("orderClause", ())]
    return WindowCall(call.type, call, partition, order, _frame(analyzer, window, order, scope), location=call.location)


def _frame(analyzer: "ExpressionAnalyzer", window: Node, order: Sequence[SortKey], scope: Scope) -> WindowFrame | None:
    options = window.get("frameOptions", 0)
    if not options & 0x00001:  # not written
        return None
    mode = "RANGE" if options & 0x2 else "ROWS" if options & 0x4 else "GROUPS"
    ends = {
        0x00020: "UNBOUNDED PRECEDING", 0x00080: "UNBOUNDED FOLLOWING", 0x00200: "CURRENT ROW",
        0x00800: "PRECEDING", 0x02000: "FOLLOWING",
    }  # fmt: skip
    start = next(text for bit, text in ends.items() if options & bit)
    end = next(text for bit, text in ends.items() if options & (bit << 1))
    exclude = {0x08000: "CURRENT ROW", 0x10000: "GROUP", 0x20000: "TIES"}
    excluded = next((text for bit, text in exclude.items() if options & bit), "")

    def offset(name: str) -> Expression | None:
        if name not in window:
            return None
        found = analyzer.analyze(window[name], scope)
        return analyzer.coerce(found, INT8) if mode != "RANGE" else _range_offset(analyzer, found, order)

    return WindowFrame(mode, start, end, offset("startOffset"), offset("endOffset"), excluded)  # type: ignore[arg-type]


def _range_offset(analyzer: "ExpressionAnalyzer", offset: Expression, order: Sequence[SortKey]) -> Expression:
    """Return the offset of a RANGE frame, in the type that can be added to what the window is ordered by."""
    if len(order) != 1:
        raise AnalysisError(
            WINDOWING_ERROR,
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            offset.location,
        )
    ordered = order[0].expression.type
    is_time = ordered.name in ("date", "interval", *TYPES_WITH_DIGITS)
    if offset.type == UNKNOWN:
        return analyzer.coerce(offset, INTERVAL if is_time else ordered.plain)
    if is_time != (offset.type == INTERVAL):
        types = f"column type {ordered} and offset type {offset.type}"
        raise UnsupportedError(f"RANGE with offset PRECEDING/FOLLOWING is not supported for {types}", offset.location)
    return offset


def _whole_row(node: Node, scope: Scope) -> ScopeRelation | None:
    """Return the FROM item whose rows a bare name means, unless it is the name of a column."""
    parts = node.get("ColumnRef", {}).get("fields", ())
    if len(parts) != 1 or "String" not in parts[0]:
        return None
    name = parts[0]["String"]["sval"]
    return None if scope.has_column(name) else scope.relation(name)


def _in_order(name: str, nodes: Sequence[Node], location: int) -> list[Node]:
    """Return arguments by name in their order, with zero for those before the last that are not given."""
    names = _ARGUMENT_NAMES.get(name)
    if names is None:
        raise UnsupportedError("arguments by name are not supported; write them in order", location)
    given: dict[int, Node] = {}
    for at, node in enumerate(nodes):
        named = node.get("NamedArgExpr")
        if named is not None and named["name"] not in names:
            raise AnalysisError(UNDEFINED_FUNCTION, f"function {name} has no argument {named['name']}", location)
        place = at if named is None else names.index(named["name"])
        if place in given:
            raise AnalysisError(UNDEFINED_FUNCTION, f"function {name} has an argument twice", location)
        given[place] = node if named is None else named["arg"]
    if name != "make_interval" and len(given) != max(given) + 1:
        raise AnalysisError(UNDEFINED_FUNCTION, f"function {name} lacks an argument", location)
    zero: Node = {"A_Const": {"ival": {"ival": 0}}}
    return [given.get(at, zero) for at in range(max(given) + 1)]
