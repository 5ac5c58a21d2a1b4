"""Brings operands to one type, with casts that can't fail."""

from collections.abc import Sequence

from sqlglot import exp

from tailrace.model.table import ColumnType
from tailrace.sql.routes.constants import adapted, type_beside
from tailrace.sql.routes.expression import Call, Constant, Expression
from tailrace.sql.routes.refusals import wrong
from tailrace.sql.routes.types import CASTABLE, INTEGERS


def of_one_type(
    trees: Sequence[exp.Expr], nodes: Sequence[Expression], what: str, *, widened: bool = True
) -> tuple[Expression, ...]:
    """All in the type that they have in common. Without `widened`, integers of any width are left as they are."""
    target = type_beside(nodes)
    if target is None:
        types = " and ".join(dict.fromkeys(_described(node) for node in nodes))
        raise wrong(trees[0], f"can't {what} {types}{_advice(nodes)}")
    return tuple(converted(tree, node, target, widened=widened) for tree, node in zip(trees, nodes, strict=True))


def converted(tree: exp.Expr, node: Expression, target: ColumnType, *, widened: bool = True) -> Expression:
    """The node in a type that can hold each of its values."""
    if isinstance(node, Constant):
        constant = adapted(node, target)
        if constant is None:
            raise wrong(tree, f"{_described(node)} is no {target}")
        return Call("widen", (constant,), target) if widened and target.kind in INTEGERS else constant
    if node.type == target or (not widened and node.type.kind in INTEGERS and target.kind in INTEGERS):
        return node
    operator = "decimal_as_double" if node.type.kind == "decimal" and target.kind == "double" else "widen"
    return Call(operator, (node,), target)


def _described(node: Expression) -> str:
    if isinstance(node, Constant) and node.value is None:
        return "NULL"
    return f"the text {node.value!r}" if isinstance(node, Constant) and isinstance(node.value, str) else str(node.type)


def _advice(nodes: Sequence[Expression]) -> str:
    kinds = {node.type.kind for node in nodes}
    if kinds <= INTEGERS | {"decimal", "double"}:
        return ": together they have more digits than 38; cast one of them"
    return "; cast one of them" if "text" in kinds and kinds <= CASTABLE else ""
