"""The functions and the arithmetic that a route can use: those that mean the same in Spark and in DuckDB.

Integers are computed as bigint, division always returns a double, and decimals stay exact or are rejected. Operands are
converted to a common type by casts that can't fail.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sqlglot import exp

from tailrace.model.table import ColumnKind, ColumnType
from tailrace.sql.routes import constants
from tailrace.sql.routes.constants import adapted, null, type_beside
from tailrace.sql.routes.errors import sql_error
from tailrace.sql.routes.expression import (
    BIGINT,
    BOOLEAN,
    CASTABLE,
    COMPARED,
    DOUBLE,
    INTEGERS,
    NUMBERS,
    ORDERED,
    TEXT,
    RouteCall,
    RouteConstant,
    RouteExpression,
    common_type,
    decimal,
    digits_of,
)

_PARTS = ("year", "month", "day", "hour", "minute")
_TIME_PARTS = ("hour", "minute")
_WORDS: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.Mod: "remainder",
}


class ExpressionChecker(Protocol):
    """Gives the parts of a tree their types; see `check`."""

    def of(self, tree: exp.Expr) -> RouteExpression: ...


FunctionCheck = Callable[[ExpressionChecker, exp.Expr], RouteExpression]


def function_of(tree: exp.Expr) -> FunctionCheck | None:
    """Return the check of a function, or `None` if routes can't use it."""
    if isinstance(tree, exp.Anonymous):
        return _ANONYMOUS.get(str(tree.this).lower())
    return HANDLERS.get(type(tree))


def _on_text(operator: str, type_: ColumnType = TEXT) -> FunctionCheck:
    def handle(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
        trees = [tree.this, *([tree.expression] if tree.args.get("expression") is not None else [])]
        return RouteCall(operator, tuple(_kind(expressions, part, ("text",), operator) for part in trees), type_)

    return handle


def _trim(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
    if tree.args.get("expression") is not None:
        raise sql_error(tree, "in a route trim() can only remove spaces; leave out the characters")
    operator = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or ""), "trim")
    return RouteCall(operator, (_kind(expressions, tree.this, ("text",), operator),), TEXT)


def _substring(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
    of = _kind(expressions, tree.this, ("text",), "substring")
    start, length = (tree.args.get(name) for name in ("start", "length"))
    if start is None or length is None:
        raise sql_error(tree, "in a route substring() needs both a start and a length")
    bounds = [expressions.of(start), expressions.of(length)]
    for bound, least, part in zip(bounds, (1, 0), (start, length), strict=True):
        if not isinstance(bound, RouteConstant) or not isinstance(bound.value, int) or not least <= bound.value <= 1 << 30:
            raise sql_error(part, f"in a route substring() needs a constant whole number of at least {least} here")
    return RouteCall("substring", (of, *bounds), TEXT)


def _extract(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
    part = tree.this.name.lower()
    if part not in _PARTS:
        raise sql_error(tree.expression, f"a route can extract {', '.join(_PARTS)}, not {part}")
    kinds: Sequence[ColumnKind] = ("timestamp",) if part in _TIME_PARTS else ("date", "timestamp")
    return RouteCall(part, (_kind(expressions, tree.expression, kinds, "extract"),), BIGINT)


def _absolute(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
    node = _kind(expressions, tree.this, NUMBERS, "abs")
    if node.type.kind in INTEGERS:
        return RouteCall("absolute", (converted(tree, node, BIGINT),), BIGINT)
    return RouteCall("absolute_exact", (node,), node.type)


def _extreme(operator: str) -> FunctionCheck:
    def handle(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
        return _alike(expressions, operator, [tree.this, *tree.expressions], ORDERED)

    return handle


def _coalesce(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
    return _alike(expressions, "coalesce", [tree.this, *tree.expressions], COMPARED)


def _nullif(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
    return _alike(expressions, "nullif", [tree.this, tree.expression], COMPARED)


def _array_contains(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
    of, wanted = _kind(expressions, tree.this, ("list",), "array_contains"), expressions.of(tree.expression)
    element = of.type.element
    if element is None or element.kind not in COMPARED:
        raise sql_error(tree, f"array_contains() can't search in {of.type}")
    (_, found) = of_one_type([tree.this, tree.expression], [null(element), wanted], "search for", widened=False)
    if wanted.type.kind != element.kind and not isinstance(wanted, RouteConstant):
        raise sql_error(tree.expression, f"array_contains() searches for {wanted.type} in {of.type}; cast it to {element}")
    return RouteCall("array_contains", (of, converted(tree.expression, found, element)), BOOLEAN)


def _cardinality(expressions: ExpressionChecker, tree: exp.Expr) -> RouteExpression:
    arguments = tree.expressions
    if len(arguments) != 1:
        raise sql_error(tree, f"cardinality() needs one list, but has {len(arguments)} arguments")
    return RouteCall("array_size", (_kind(expressions, arguments[0], ("list",), "cardinality"),), BIGINT)


def _alike(expressions: ExpressionChecker, operator: str, trees: Sequence[exp.Expr], kinds: frozenset[str]) -> RouteExpression:
    if len(trees) < 2:
        raise sql_error(trees[0], f"{operator}() needs at least two values")
    nodes = of_one_type(trees, [expressions.of(tree) for tree in trees], f"use in {operator}()")
    if nodes[0].type.kind not in kinds:
        raise sql_error(trees[0], f"{operator}() can't be used on {nodes[0].type}")
    return RouteCall(operator, nodes, nodes[0].type)


def _kind(
    expressions: ExpressionChecker, tree: exp.Expr, kinds: "Sequence[ColumnKind] | frozenset[str]", function: str
) -> RouteExpression:
    node = expressions.of(tree)
    if node.type.kind not in kinds or (isinstance(node, RouteConstant) and node.value is None):
        raise sql_error(tree, f"{function}() needs {' or '.join(sorted(kinds))}, but this is {node.type}")
    return node


HANDLERS: Mapping[type[exp.Expr], FunctionCheck] = {
    exp.Lower: _on_text("lower"),
    exp.Upper: _on_text("upper"),
    exp.Length: _on_text("length", BIGINT),
    exp.StartsWith: _on_text("starts_with", BOOLEAN),
    exp.EndsWith: _on_text("ends_with", BOOLEAN),
    exp.Contains: _on_text("contains", BOOLEAN),
    exp.DPipe: _on_text("concat"),
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Extract: _extract,
    exp.Abs: _absolute,
    exp.Greatest: _extreme("greatest"),
    exp.Least: _extreme("least"),
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.ArrayContains: _array_contains,
}
_ANONYMOUS: Mapping[str, FunctionCheck] = {"cardinality": _cardinality}


def computed(tree: exp.Binary, left: RouteExpression, right: RouteExpression) -> RouteExpression:
    word = _WORDS[type(tree)]
    for part, node in ((tree.left, left), (tree.right, right)):
        if node.type.kind not in NUMBERS:
            raise sql_error(part, f"can't compute with {node.type}")
    if word == "divide":
        return RouteCall(word, (converted(tree.left, left, DOUBLE), converted(tree.right, right, DOUBLE)), DOUBLE)
    kinds = {left.type.kind, right.type.kind}
    if kinds <= INTEGERS:
        return RouteCall(word, (converted(tree.left, left, BIGINT), converted(tree.right, right, BIGINT)), BIGINT)
    if word == "remainder":
        raise sql_error(tree, f"% needs whole numbers, but these are {left.type} and {right.type}")
    if "double" in kinds:
        both = converted(tree.left, left, DOUBLE), converted(tree.right, right, DOUBLE)
        return RouteCall(f"{word}_exact", both, DOUBLE)
    return _decimal(tree, word, left, right)


def negated(tree: exp.Neg, node: RouteExpression) -> RouteExpression:
    if isinstance(node, RouteConstant):
        constant = constants.negated(node)
        if constant is not None:
            return constant
    if node.type.kind not in NUMBERS:
        raise sql_error(tree, f"can't compute with {node.type}")
    if node.type.kind in INTEGERS:
        return RouteCall("negate", (converted(tree, node, BIGINT),), BIGINT)
    return RouteCall("negate_exact", (node,), node.type)


def _decimal(tree: exp.Binary, word: str, left: RouteExpression, right: RouteExpression) -> RouteExpression:
    """Compute decimals with as many digits as the result can have, so that nothing is rounded or overflows."""
    left_type, right_type = as_decimal(left), as_decimal(right)
    result = _result(word, left_type, right_type)
    common = common_type([left_type, right_type])
    if result is None or common is None:
        raise sql_error(
            tree,
            f"the result of {left.type} and {right.type} can have more than 38 digits; cast them to fewer digits, or to double",
        )
    if word != "multiply":
        left_type = right_type = common
    return RouteCall(f"{word}_exact", (converted(tree.left, left, left_type), converted(tree.right, right, right_type)), result)


def as_decimal(node: RouteExpression) -> ColumnType:
    """Return the decimal type that holds an integer or a decimal."""
    type_ = constants.narrowest(node) if isinstance(node, RouteConstant) else node.type
    digits = digits_of(type_)
    return type_ if digits is None else decimal(*digits) or type_


def _result(word: str, left: ColumnType, right: ColumnType) -> ColumnType | None:
    left_digits, right_digits = digits_of(left), digits_of(right)
    if left_digits is None or right_digits is None:
        return None
    (left_whole, left_scale), (right_whole, right_scale) = left_digits, right_digits
    if word == "multiply":
        # One digit more than the product can have, as in Spark.
        return decimal(left_whole + right_whole + 1, left_scale + right_scale)
    return decimal(max(left_whole, right_whole) + 1, max(left_scale, right_scale))


def of_one_type(
    trees: Sequence[exp.Expr], nodes: Sequence[RouteExpression], what: str, *, widened: bool = True
) -> tuple[RouteExpression, ...]:
    """Return all nodes converted to their common type. Without `widened`, integers keep their width."""
    target = type_beside(nodes)
    if target is None:
        types = " and ".join(dict.fromkeys(_described(node) for node in nodes))
        raise sql_error(trees[0], f"can't {what} {types}{_advice(nodes)}")
    return tuple(converted(tree, node, target, widened=widened) for tree, node in zip(trees, nodes, strict=True))


def converted(tree: exp.Expr, node: RouteExpression, target: ColumnType, *, widened: bool = True) -> RouteExpression:
    """Return the node converted to a type that can hold all of its values."""
    if isinstance(node, RouteConstant):
        constant = adapted(node, target)
        if constant is None:
            raise sql_error(tree, f"{_described(node)} is not a valid {target}")
        return RouteCall("widen", (constant,), target) if widened and target.kind in INTEGERS else constant
    if node.type == target or (not widened and node.type.kind in INTEGERS and target.kind in INTEGERS):
        return node
    operator = "decimal_as_double" if node.type.kind == "decimal" and target.kind == "double" else "widen"
    return RouteCall(operator, (node,), target)


def _described(node: RouteExpression) -> str:
    if isinstance(node, RouteConstant) and node.value is None:
        return "NULL"
    return f"the text {node.value!r}" if isinstance(node, RouteConstant) and isinstance(node.value, str) else str(node.type)


def _advice(nodes: Sequence[RouteExpression]) -> str:
    kinds = {node.type.kind for node in nodes}
    if kinds <= INTEGERS | {"decimal", "double"}:
        return "; together they have more than 38 digits, so cast one of them"
    return "; cast one of them" if "text" in kinds and kinds <= CASTABLE else ""
