"""Checks the condition and the partition expressions of a route when it is added, and gives each part its type.

What passes can be compiled and means the same in every engine. Anything else is rejected with its position: an unknown column,
types that can't be combined, a subquery, an aggregate, a function whose result could change. A column without OLD or NEW
belongs to the row that the operation leaves, and for a delete to the row that it removes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from tailrace.model.errors import LimitExceededError, SqlError
from tailrace.model.limits import Limits
from tailrace.model.route import Operation
from tailrace.model.suggestions import did_you_mean
from tailrace.model.table import Column, Table
from tailrace.sql.routes import constants
from tailrace.sql.routes.errors import sql_error, unsupported
from tailrace.sql.routes.expression import (
    BOOLEAN,
    COMPARED,
    MAX_DIGITS,
    ORDERED,
    PLAIN_SCALE,
    TEXT,
    TRY,
    Image,
    RouteCall,
    RouteColumn,
    RouteConstant,
    RouteExpression,
    cast_operator,
    columns_of,
    digits_of,
    written_type,
)
from tailrace.sql.routes.functions import computed, function_of, negated, of_one_type

_MAX_DEPTH = 60
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_IGNORED = frozenset({"_type", "safe", "typed", "ignore_nulls", "copy", "action"})
_UNFIT_KEYS = {
    "double": "has no exact text form; cast it to a decimal or an integer",
    "json": "has no unique text form",
    "list": "has no unique text form",
    "bytes": "has no text form",
}
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.NullSafeEQ: "same",
    exp.NullSafeNEQ: "differs",
}
_OF_ANY_ORDER = frozenset({"eq", "ne", "same", "differs"})


class CheckedRoute(NamedTuple):
    where: RouteExpression | None
    keys: tuple[RouteExpression, ...]


def check_route(
    where: exp.Expr | None,
    partition_by: Sequence[exp.Expr],
    operations: Sequence[Operation],
    table: Table,
    limits: Limits,
    *,
    has_snapshot: bool = False,
) -> CheckedRoute:
    written = [tree for tree in (where, *partition_by) if tree is not None]
    count = sum(1 for tree in written for _ in tree.walk())
    if count > limits.route_expressions:
        raise LimitExceededError(
            f"the route has {count} operators, columns and constants, more than route_expressions allows"
            f" ({limits.route_expressions}); simplify it"
        )
    for tree in written:
        _check_depth(tree)
    _check_names(table)
    checker = _Checker(table, operations, has_snapshot)
    condition = None if where is None else checker.condition(where)
    return CheckedRoute(condition, tuple(map(checker.key, partition_by)))


class _Checker:
    def __init__(self, table: Table, operations: Sequence[Operation], has_snapshot: bool) -> None:
        self._table = table
        self._has_snapshot = has_snapshot
        self._operations = frozenset(operations)
        self._columns = {column.name.lower(): column for column in table.columns}
        self._handlers: Mapping[type[exp.Expr], Callable[..., RouteExpression]] = {
            exp.Column: self._column,
            exp.Boolean: lambda tree: constants.TRUE if tree.this else constants.FALSE,
            exp.Null: lambda _: constants.null(TEXT),
            exp.Literal: _literal,
            exp.Paren: lambda tree: self.of(tree.this),
            exp.And: self._logical,
            exp.Or: self._logical,
            exp.Not: lambda tree: RouteCall("not", (self.condition(tree.this),), BOOLEAN),
            exp.Is: self._is,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: self._like,
            exp.Escape: self._escaped_like,
            exp.Neg: lambda tree: negated(tree, self.of(tree.this)),
            exp.Case: self._case,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            **dict.fromkeys(_COMPARISONS, self._comparison),
            **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), self._arithmetic),
        }

    def condition(self, tree: exp.Expr) -> RouteExpression:
        node = self.of(tree)
        if node.type.kind != "boolean":
            raise sql_error(tree, f"a condition must be true or false, but this is {_shown_type(node)}")
        return node

    def key(self, tree: exp.Expr) -> RouteExpression:
        node = self.of(tree)
        why = _UNFIT_KEYS.get(node.type.kind)
        if why is None and node.type.kind == "decimal" and (node.type.scale or 0) > PLAIN_SCALE:
            why = f"has more than {PLAIN_SCALE} digits after the decimal point; cast it to fewer"
        if why is not None:
            raise sql_error(tree, f"can't partition by {node.type}: it {why}")
        if next(columns_of(node), None) is None:
            raise sql_error(tree, "a constant would send everything to one partition; name a column")
        return node

    def of(self, tree: exp.Expr) -> RouteExpression:
        handler = self._handlers.get(type(tree))
        if handler is not None:
            return handler(tree)
        function = function_of(tree)
        if function is None:
            raise unsupported(tree)
        return function(self, tree)

    def _column(self, tree: exp.Column) -> RouteExpression:
        column = self._found(tree)
        return RouteColumn(column.name, self._image(tree), column.type)

    def _found(self, tree: exp.Column) -> Column:
        if not isinstance(tree.this, exp.Identifier):
            raise unsupported(tree.this)
        name = tree.this.name
        column = self._columns.get(name.lower())
        if column is None:
            hint = did_you_mean(name, (known.name for known in self._columns.values()))
            raise sql_error(tree, f"table {self._table.name!r} has no column {name!r}{hint}")
        if column.type.kind == "decimal" and digits_of(column.type) is None:
            raise sql_error(tree, f"column {name!r} is {column.type}; routes can use decimals of up to {MAX_DIGITS} digits")
        return column

    def _image(self, tree: exp.Column) -> Image:
        qualifier = tree.table.lower()
        if tree.args.get("db") is not None or qualifier not in ("", "old", "new"):
            raise sql_error(tree, f"{tree.sql()!r}: only OLD. and NEW. can qualify a column")
        if not qualifier:
            if "delete" not in self._operations:
                return "new"
            # A row that a snapshot reads exists, as one that an operation leaves.
            return "old" if self._operations == {"delete"} and not self._has_snapshot else "row"
        lacking, image = ("insert", "row before it") if qualifier == "old" else ("delete", "row after it")
        if lacking in self._operations:
            raise sql_error(
                tree, f"{qualifier.upper()}.{tree.name}: the route is also ON {lacking.upper()}, which has no {image}"
            )
        return "old" if qualifier == "old" else "new"

    def _logical(self, tree: exp.Connector) -> RouteExpression:
        word = "and" if isinstance(tree, exp.And) else "or"
        return RouteCall(word, tuple(self.condition(part) for part in tree.flatten(unnest=False)), BOOLEAN)

    def _comparison(self, tree: exp.Binary) -> RouteExpression:
        return self._compared(_COMPARISONS[type(tree)], tree.left, tree.right)

    def _compared(self, operator: str, left: exp.Expr, right: exp.Expr) -> RouteExpression:
        return RouteCall(operator, self._comparable([left, right], COMPARED if operator in _OF_ANY_ORDER else ORDERED), BOOLEAN)

    def _comparable(self, trees: Sequence[exp.Expr], kinds: frozenset[str]) -> tuple[RouteExpression, ...]:
        """Return the parts converted to the type in which they are compared."""
        if any(isinstance(tree, exp.Null) for tree in trees):
            known = next((tree for tree in trees if not isinstance(tree, exp.Null)), trees[0])
            raise sql_error(known, "a comparison with NULL is never true; use IS NULL")
        nodes = of_one_type(trees, [self.of(tree) for tree in trees], "compare", widened=False)
        kind = nodes[0].type.kind
        if kind not in kinds:
            raise sql_error(trees[0], f"{nodes[0].type} can't be compared{' by its order' if kind in COMPARED else ''}")
        return nodes

    def _between(self, tree: exp.Between) -> RouteExpression:
        self._only(tree, "this", "low", "high")
        node, low, high = self._comparable([tree.this, tree.args["low"], tree.args["high"]], ORDERED)
        return RouteCall("and", (RouteCall("ge", (node, low), BOOLEAN), RouteCall("le", (node, high), BOOLEAN)), BOOLEAN)

    def _in(self, tree: exp.In) -> RouteExpression:
        if tree.args.get("query") is not None:
            raise unsupported(tree.args["query"])
        self._only(tree, "this", "expressions")
        if not tree.expressions:
            raise sql_error(tree, "the list of IN must not be empty")
        nodes = self._comparable([tree.this, *tree.expressions], COMPARED)
        return RouteCall("in", nodes, BOOLEAN)

    def _is(self, tree: exp.Is) -> RouteExpression:
        self._only(tree, "this", "expression", "negate")
        right = tree.expression
        if isinstance(right, exp.Null):
            found = RouteCall("is_null", (self.of(tree.this),), BOOLEAN)
        elif isinstance(right, exp.Boolean):
            found = RouteCall("is_true" if right.this else "is_false", (self.condition(tree.this),), BOOLEAN)
        else:
            raise unsupported(tree)
        return RouteCall("not", (found,), BOOLEAN) if tree.args.get("negate") else found

    def _like(self, tree: exp.Like) -> RouteExpression:
        return self._matched(tree, "\\")

    def _escaped_like(self, tree: exp.Escape) -> RouteExpression:
        escape = tree.expression
        if not isinstance(tree.this, exp.Like) or not isinstance(escape, exp.Literal) or len(escape.name) > 1:
            raise unsupported(tree)
        return self._matched(tree.this, escape.name)

    def _matched(self, tree: exp.Like, escape: str) -> RouteExpression:
        self._only(tree, "this", "expression", "negate")
        node, pattern = self.of(tree.this), self.of(tree.expression)
        if node.type.kind != "text":
            raise sql_error(tree.this, f"LIKE compares text, but this is {_shown_type(node)}")
        if not isinstance(pattern, RouteConstant) or not isinstance(pattern.value, str):
            raise sql_error(tree.expression, "the pattern of LIKE must be a constant in a route")
        canonical = canonical_pattern(pattern.value, escape)
        if canonical is None:
            raise sql_error(tree.expression, f"in a pattern, {escape!r} can only come before %, _ or itself")
        found = RouteCall("like", (node, constants.text(canonical)), BOOLEAN)
        return RouteCall("not", (found,), BOOLEAN) if tree.args.get("negate") else found

    def _arithmetic(self, tree: exp.Binary) -> RouteExpression:
        return computed(tree, self.of(tree.left), self.of(tree.right))

    def _case(self, tree: exp.Case) -> RouteExpression:
        self._only(tree, "this", "ifs", "default")
        subject = tree.this
        branches = tree.args["ifs"]
        conditions = [
            self.condition(branch.this) if subject is None else self._compared("eq", subject, branch.this)
            for branch in branches
        ]
        default = tree.args.get("default") or exp.Null()
        trees = [*(branch.args["true"] for branch in branches), default]
        results = of_one_type(trees, [self.of(part) for part in trees], "give by one CASE")
        pairs = [part for pair in zip(conditions, results[:-1], strict=True) for part in pair]
        return RouteCall("case", (*pairs, results[-1]), results[-1].type)

    def _cast(self, tree: exp.Cast) -> RouteExpression:
        self._only(tree, "this", "to")
        node = self.of(tree.this)
        target = written_type(tree)
        if node.type == target:
            return node
        if isinstance(node, RouteConstant):
            constant = constants.adapted(node, target)
            if constant is not None and constant.type == target:
                return constant
            if constants.is_read(target) and isinstance(node.value, str) and not isinstance(tree, exp.TryCast):
                raise sql_error(tree, f"the text {node.value!r} is not a valid {target}")
        operator = cast_operator(node.type, target)
        if operator is None:
            raise sql_error(tree, f"a route can't cast {_shown_type(node)} to {target}")
        if isinstance(tree, exp.TryCast):
            operator = TRY + operator
        return RouteCall(operator, (node,), target)

    def _only(self, tree: exp.Expr, *known: str) -> None:
        """Reject parts of a tree that are not checked; they would be ignored silently."""
        for name, value in tree.args.items():
            if value and name not in known and name not in _IGNORED:
                raise unsupported(tree)


def _literal(tree: exp.Literal) -> RouteExpression:
    if tree.is_string:
        return constants.text(tree.name)
    if not _NUMBER.fullmatch(tree.name):
        raise sql_error(tree, f"{tree.name[:40]!r} is not a number")
    number = constants.number(tree.name)
    if number is None:
        raise sql_error(tree, f"the number {tree.name[:40]} has more digits than routes support; use at most {MAX_DIGITS}")
    return number


def _shown_type(node: RouteExpression) -> str:
    return "NULL" if isinstance(node, RouteConstant) and node.value is None else str(node.type)


def _check_names(table: Table) -> None:
    for column in table.columns:
        if "${" in column.name:
            raise SqlError(
                f"column {column.name!r} of table {table.name!r} has a name that Spark would substitute (${{...}}); rename it"
            )


def _check_depth(tree: exp.Expr) -> None:
    """Limit the depth of a tree, because engines parse SQL recursively. Chains of AND and OR become lists and do not count."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise sql_error(node, f"the expression is nested more than {_MAX_DEPTH} levels deep; simplify it")
        for child in node.iter_expressions():
            flat = isinstance(node, exp.Connector) and type(child) is type(node)
            waiting.append((child, depth if flat else depth + 1))


def canonical_pattern(pattern: str, escape: str) -> str | None:
    """Return a LIKE pattern with the backslash as its escape character, or `None` if an escape comes before an ordinary
    character.

    Engines agree on this form only: a backslash before an ordinary character, or at the end, is an error in one engine and a
    letter in another.
    """
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape) or not letter:
                return None
            parts.append(f"\\{letter}" if letter in "%_\\" else letter)
        else:
            parts.append("\\\\" if letter == "\\" else letter)
    return "".join(parts)
