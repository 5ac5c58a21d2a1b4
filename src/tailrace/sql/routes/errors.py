"""Why something can't stand in a route, in words, with its place in the text."""

from typing import cast

from sqlglot import exp

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.sql.syntax_trees import position_of

FUNCTIONS = (
    "abs",
    "array_contains",
    "cardinality",
    "coalesce",
    "contains",
    "ends_with",
    "extract",
    "greatest",
    "least",
    "length",
    "lower",
    "ltrim",
    "mod",
    "nullif",
    "rtrim",
    "starts_with",
    "substring",
    "trim",
    "upper",
)
_CHANGEABLE = frozenset(
    {
        "clock_timestamp",
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "gen_random_uuid",
        "localtime",
        "localtimestamp",
        "nextval",
        "now",
        "rand",
        "randn",
        "random",
        "session_user",
        "statement_timestamp",
        "timeofday",
        "transaction_timestamp",
        "uuid",
    }
)
"""Functions that answer otherwise each time."""


def sql_error(tree: exp.Expr, message: str) -> SqlError:
    return SqlError(message, *_place(tree))


def unsupported(tree: exp.Expr) -> SqlError:
    """For what no check knows."""
    return UnsupportedSqlError(_reason(tree), *_place(tree))


def _place(tree: exp.Expr) -> tuple[int | None, int | None]:
    """Where it stands, or else what it is a part of."""
    node: exp.Expr | None = tree
    while node is not None:
        place = position_of(cast("exp.Expression", node))
        if place is not None:
            return place
        node = node.parent
    return None, None


def _reason(tree: exp.Expr) -> str:
    if isinstance(tree, (exp.Query, exp.Exists, exp.Any, exp.All)):
        return "a route looks at one change alone; a subquery can't stand here"
    if isinstance(tree, exp.Window):
        return "a route looks at one change alone; a window function can't stand here"
    if isinstance(tree, exp.AggFunc):
        return f"a route looks at one change alone; the aggregate {_name(tree)}() can't stand here"
    if isinstance(tree, (exp.Placeholder, exp.Parameter)):
        return "a route outlives its statement; write the value here instead of a parameter"
    words = {
        exp.ILike: "ILIKE can't stand in a route; compare lower(...) by LIKE",
        exp.Concat: "concat() takes nulls for nothing in some engines; use ||",
        exp.JSONExtractScalar: "a route can't look into JSON; put what it needs into a column of its own",
        exp.JSONExtract: "a route can't look into JSON; put what it needs into a column of its own",
        exp.RegexpLike: "regular expressions differ between engines; use LIKE",
        exp.SimilarTo: "regular expressions differ between engines; use LIKE",
        exp.Interval: "intervals can't stand in a route; compare with a date or a timestamp",
        exp.Star: "* can't stand in a route; name a column",
    }
    for kind, reason in words.items():
        if isinstance(tree, kind):
            return reason
    if isinstance(tree, exp.Func):
        name = _name(tree)
        if name in _CHANGEABLE:
            return f"{name}() answers otherwise each time, and a change must be routed the same whenever it is looked at"
        return f"the function {name}() can't stand in a route; those that can are {', '.join(FUNCTIONS)}"
    return f"{tree.sql(dialect='postgres')[:60]!r} can't stand in a route; docs/reference/routes.md lists what can"


def _name(tree: exp.Func) -> str:
    if isinstance(tree, exp.Anonymous):
        return str(tree.this).lower()
    if isinstance(tree, exp.CurrentTimestamp):
        return "now"
    return tree.sql_name().lower()
