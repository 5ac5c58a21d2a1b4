"""Computing with numbers. Integers are bigint, division always gives a double, decimals stay exact or are refused."""

from sqlglot import exp

from tailrace.model.table import ColumnType
from tailrace.sql.routes import constants
from tailrace.sql.routes.coercion import converted
from tailrace.sql.routes.expression import BIGINT, DOUBLE, Call, Constant, Expression
from tailrace.sql.routes.refusals import wrong
from tailrace.sql.routes.types import INTEGERS, NUMBERS, common_type, decimal, digits_of

_WORDS: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.Mod: "remainder",
}


def computed(tree: exp.Binary, left: Expression, right: Expression) -> Expression:
    word = _WORDS[type(tree)]
    for part, node in ((tree.left, left), (tree.right, right)):
        if node.type.kind not in NUMBERS:
            raise wrong(part, f"can't compute with {node.type}")
    if word == "divide":
        return Call(word, (converted(tree.left, left, DOUBLE), converted(tree.right, right, DOUBLE)), DOUBLE)
    kinds = {left.type.kind, right.type.kind}
    if kinds <= INTEGERS:
        return Call(word, (converted(tree.left, left, BIGINT), converted(tree.right, right, BIGINT)), BIGINT)
    if word == "remainder":
        raise wrong(tree, f"% is for whole numbers, not for {left.type} and {right.type}")
    if "double" in kinds:
        both = converted(tree.left, left, DOUBLE), converted(tree.right, right, DOUBLE)
        return Call(f"{word}_exact", both, DOUBLE)
    return _decimal(tree, word, left, right)


def negated(tree: exp.Neg, node: Expression) -> Expression:
    if isinstance(node, Constant):
        constant = constants.negated(node)
        if constant is not None:
            return constant
    if node.type.kind not in NUMBERS:
        raise wrong(tree, f"can't compute with {node.type}")
    if node.type.kind in INTEGERS:
        return Call("negate", (converted(tree, node, BIGINT),), BIGINT)
    return Call("negate_exact", (node,), node.type)


def _decimal(tree: exp.Binary, word: str, left: Expression, right: Expression) -> Expression:
    """In as many digits as the result can have, so that nothing is rounded and nothing is too large."""
    left_type, right_type = as_decimal(left), as_decimal(right)
    result = _result(word, left_type, right_type)
    common = common_type([left_type, right_type])
    if result is None or common is None:
        raise wrong(tree, f"{left.type} and {right.type} can give more than 38 digits; cast them to fewer, or to double")
    if word != "multiply":
        left_type = right_type = common
    return Call(f"{word}_exact", (converted(tree.left, left, left_type), converted(tree.right, right, right_type)), result)


def as_decimal(node: Expression) -> ColumnType:
    """The decimal that holds an integer or a decimal."""
    type_ = constants.narrowest(node) if isinstance(node, Constant) else node.type
    digits = digits_of(type_)
    return type_ if digits is None else decimal(*digits) or type_


def _result(word: str, left: ColumnType, right: ColumnType) -> ColumnType | None:
    left_digits, right_digits = digits_of(left), digits_of(right)
    if left_digits is None or right_digits is None:
        return None
    (left_whole, left_scale), (right_whole, right_scale) = left_digits, right_digits
    if word == "multiply":
        # One digit more than there can be, as Spark counts.
        return decimal(left_whole + right_whole + 1, left_scale + right_scale)
    return decimal(max(left_whole, right_whole) + 1, max(left_scale, right_scale))
