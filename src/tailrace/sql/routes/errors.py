"""Errors for expressions that a route can't use, with their position in the text."""

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
_VOLATILE_FUNCTIONS = frozenset(
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
"""Functions whose result can change from call to call."""


def sql_error(tree: exp.Expr, message: str) -> SqlError:
    return SqlError(message, *_position(tree))


def unsupported(tree: exp.Expr) -> SqlError:
    """Return the error for an expression that no check accepts."""
    return UnsupportedSqlError(_reason(tree), *_position(tree))


def _position(tree: exp.Expr) -> tuple[int | None, int | None]:
    """Return the position of a tree, or of the closest tree around it that has one."""
    node: exp.Expr | None = tree
    while node is not None:
        position = position_of(cast("exp.Expression", node))
        if position is not None:
            return position
        node = node.parent
    return None, None


def _reason(tree: exp.Expr) -> str:
    if isinstance(tree, (exp.Query, exp.Exists, exp.Any, exp.All)):
        return "a route sees one change at a time; it can't use a subquery"
    if isinstance(tree, exp.Window):
        return "a route sees one change at a time; it can't use a window function"
    if isinstance(tree, exp.AggFunc):
        return f"a route sees one change at a time; it can't use the aggregate {_name(tree)}()"
    if isinstance(tree, (exp.Placeholder, exp.Parameter)):
        return "a route outlives its statement; write the value instead of a parameter"
    reasons = {
        exp.ILike: "a route can't use ILIKE; compare lower(...) by LIKE",
        exp.Concat: "concat() ignores nulls in some engines; use ||",
        exp.JSONExtractScalar: "a route can't read JSON; put what it needs into a column of its own",
        exp.JSONExtract: "a route can't read JSON; put what it needs into a column of its own",
        exp.RegexpLike: "regular expressions differ between engines; use LIKE",
        exp.SimilarTo: "regular expressions differ between engines; use LIKE",
        exp.Interval: "a route can't use intervals; compare with a date or a timestamp",
        exp.Star: "a route can't use *; name a column",
    }
    for kind, reason in reasons.items():
        if isinstance(tree, kind):
            return reason
    if isinstance(tree, exp.Func):
        name = _name(tree)
        if name in _VOLATILE_FUNCTIONS:
            return f"the result of {name}() can change from call to call, but a route must always give the same result"
        return f"a route can't use the function {name}(); use {', '.join(FUNCTIONS)}"
    return f"{tree.sql(dialect='postgres')[:60]!r} can't be used in a route; docs/reference/routes.md lists what can"


def _name(tree: exp.Func) -> str:
    if isinstance(tree, exp.Anonymous):
        return str(tree.this).lower()
    if isinstance(tree, exp.CurrentTimestamp):
        return "now"
    return tree.sql_name().lower()
