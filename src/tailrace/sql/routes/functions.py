"""The functions that a route can use: those that mean the same in Spark and in DuckDB."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sqlglot import exp

from tailrace.model.table import ColumnKind, ColumnType
from tailrace.sql.routes.coercion import converted, of_one_type
from tailrace.sql.routes.constants import null
from tailrace.sql.routes.expression import BIGINT, BOOLEAN, TEXT, Call, Constant, Expression
from tailrace.sql.routes.refusals import wrong
from tailrace.sql.routes.types import COMPARED, INTEGERS, NUMBERS, ORDERED


class Expressions(Protocol):
    """Whoever gives the parts of a tree their types."""

    def of(self, tree: exp.Expr) -> Expression: ...


Handler = Callable[[Expressions, exp.Expr], Expression]

_PARTS = ("year", "month", "day", "hour", "minute")
_TIME_PARTS = ("hour", "minute")


def function_of(tree: exp.Expr) -> Handler | None:
    """What checks this function, if it is one of those."""
    if isinstance(tree, exp.Anonymous):
        return _ANONYMOUS.get(str(tree.this).lower())
    return HANDLERS.get(type(tree))


def _on_text(operator: str, type_: ColumnType = TEXT) -> Handler:
    def handle(expressions: Expressions, tree: exp.Expr) -> Expression:
        trees = [tree.this, *([tree.expression] if tree.args.get("expression") is not None else [])]
        return Call(operator, tuple(_kind(expressions, part, ("text",), operator) for part in trees), type_)

    return handle


def _trim(expressions: Expressions, tree: exp.Expr) -> Expression:
    if tree.args.get("expression") is not None:
        raise wrong(tree, "in a route, trim() takes away spaces only")
    operator = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or ""), "trim")
    return Call(operator, (_kind(expressions, tree.this, ("text",), operator),), TEXT)


def _substring(expressions: Expressions, tree: exp.Expr) -> Expression:
    of = _kind(expressions, tree.this, ("text",), "substring")
    start, length = (tree.args.get(name) for name in ("start", "length"))
    if start is None or length is None:
        raise wrong(tree, "substring() needs a start and a length here")
    places = [expressions.of(start), expressions.of(length)]
    for place, least, part in zip(places, (1, 0), (start, length), strict=True):
        if not isinstance(place, Constant) or not isinstance(place.value, int) or not least <= place.value <= 1 << 30:
            raise wrong(part, f"substring() takes a whole number from {least} on here, written out")
    return Call("substring", (of, *places), TEXT)


def _extract(expressions: Expressions, tree: exp.Expr) -> Expression:
    part = tree.this.name.lower()
    if part not in _PARTS:
        raise wrong(tree.expression, f"a route can extract {', '.join(_PARTS)}, not {part}")
    kinds: Sequence[ColumnKind] = ("timestamp",) if part in _TIME_PARTS else ("date", "timestamp")
    return Call(part, (_kind(expressions, tree.expression, kinds, "extract"),), BIGINT)


def _absolute(expressions: Expressions, tree: exp.Expr) -> Expression:
    node = _kind(expressions, tree.this, NUMBERS, "abs")
    if node.type.kind in INTEGERS:
        return Call("absolute", (converted(tree, node, BIGINT),), BIGINT)
    return Call("absolute_exact", (node,), node.type)


def _extreme(operator: str) -> Handler:
    def handle(expressions: Expressions, tree: exp.Expr) -> Expression:
        return _alike(expressions, operator, [tree.this, *tree.expressions], ORDERED)

    return handle


def _coalesce(expressions: Expressions, tree: exp.Expr) -> Expression:
    return _alike(expressions, "coalesce", [tree.this, *tree.expressions], COMPARED)


def _nullif(expressions: Expressions, tree: exp.Expr) -> Expression:
    return _alike(expressions, "nullif", [tree.this, tree.expression], COMPARED)


def _array_contains(expressions: Expressions, tree: exp.Expr) -> Expression:
    of, wanted = _kind(expressions, tree.this, ("list",), "array_contains"), expressions.of(tree.expression)
    element = of.type.element
    if element is None or element.kind not in COMPARED:
        raise wrong(tree, f"array_contains() can't look for a value in {of.type}")
    (_, found) = of_one_type([tree.this, tree.expression], [null(element), wanted], "look for", widened=False)
    if wanted.type.kind != element.kind and not isinstance(wanted, Constant):
        raise wrong(tree.expression, f"array_contains() looks for {wanted.type} in {of.type}; cast it to {element}")
    return Call("array_contains", (of, converted(tree.expression, found, element)), BOOLEAN)


def _cardinality(expressions: Expressions, tree: exp.Expr) -> Expression:
    arguments = tree.expressions
    if len(arguments) != 1:
        raise wrong(tree, f"cardinality() takes one list, not {len(arguments)} values")
    return Call("array_size", (_kind(expressions, arguments[0], ("list",), "cardinality"),), BIGINT)


def _alike(expressions: Expressions, operator: str, trees: Sequence[exp.Expr], kinds: frozenset[str]) -> Expression:
    if len(trees) < 2:
        raise wrong(trees[0], f"{operator}() takes two values or more")
    nodes = of_one_type(trees, [expressions.of(tree) for tree in trees], f"use in {operator}()")
    if nodes[0].type.kind not in kinds:
        raise wrong(trees[0], f"{operator}() can't be used on {nodes[0].type}")
    return Call(operator, nodes, nodes[0].type)


def _kind(
    expressions: Expressions, tree: exp.Expr, kinds: "Sequence[ColumnKind] | frozenset[str]", function: str
) -> Expression:
    node = expressions.of(tree)
    if node.type.kind not in kinds or (isinstance(node, Constant) and node.value is None):
        raise wrong(tree, f"{function}() takes {' or '.join(sorted(kinds))}, and this is {node.type}")
    return node


HANDLERS: Mapping[type[exp.Expr], Handler] = {
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
_ANONYMOUS: Mapping[str, Handler] = {"cardinality": _cardinality}
