"""Writes analyzed expressions in Spark's SQL.

Every expression becomes two: its value, and whether it failed. A value that failed is null, so a condition that failed is never
true; the failure is true or false, never null. An operand that does not affect the result can't fail: an operand of AND counts
only if no other is false, a branch of CASE only if it is taken.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from tailrace.model.errors import LimitExceededError
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.interval_texts import Interval
from tailrace.sql.analysis.tree import (
    AnyOrAll,
    ArrayItem,
    ArrayOf,
    BooleanTest,
    Call,
    Case,
    Cast,
    Coalesce,
    ColumnReference,
    Constant,
    CurrentTime,
    DistinctTest,
    Element,
    Expression,
    Extreme,
    InList,
    Logical,
    NullIf,
    NullTest,
    Slice,
)
from tailrace.sql.analysis.types import SqlType, is_enum
from tailrace.sql.spark.casts import cast
from tailrace.sql.spark.comparisons import PLAIN
from tailrace.sql.spark.functions import FUNCTIONS
from tailrace.sql.spark.json import check_null_test, compared_text, is_other_text, is_text_of_json
from tailrace.sql.spark.patterns import PATTERNS
from tailrace.sql.spark.templates import (
    Rendered,
    SparkTemplate,
    Template,
    check_readable,
    fixed_type,
    spark_string,
    spark_type,
    type_of,
)
from tailrace.sql.spark.times import microseconds_of

_ONE_FORM = frozenset((*PLAIN, "int2", "int4", "int8", "date", "timestamp", "timestamptz"))
"""Types whose values Spark can compare in IN and IS DISTINCT FROM."""

_LONG_OPERAND = 200
"""Characters from which on an operand is named instead of being repeated."""


class CompiledExpression(NamedTuple):
    value: str
    failure: str | None = None
    """`None` if it can't fail."""


class SparkRenderer:
    """Writes expressions. `column` returns the text of a column; `most_bytes` bounds what one expression may become."""

    def __init__(self, column: Callable[[ColumnReference], str], most_bytes: int) -> None:
        self._column = column
        self._most_bytes = most_bytes
        self._items = 0

    def render(self, node: Expression) -> CompiledExpression:
        """Return the two texts of an expression. Raises `UnsupportedError` for what routes can't use."""
        found = self._rendered(node)
        if len(found.value) + len(found.failure or "") > self._most_bytes:
            raise LimitExceededError(
                f"the expressions of the route compile to more SQL than route_sql_bytes allows ({self._most_bytes}); simplify"
                " them"
            )
        return found

    def _rendered(self, node: Expression) -> CompiledExpression:
        match node:
            case ColumnReference():
                check_readable(node.type, node.location)
                type_of(node)
                return CompiledExpression(self._column(node))
            case Constant():
                return CompiledExpression(constant(node.value, node.type, node.location))
            case Call():
                return self._call(node)
            case Cast():
                return self._cast(node)
            case Logical(operator="not"):
                return self._strict("(NOT {0})", node.arguments)
            case Logical():
                return connected(node.operator, list(map(self.render, node.arguments)))
            case InList():
                return self._in_list(node)
            case NullTest():
                check_null_test(node)
                template = "({0} IS NOT NULL)" if node.is_negated else "({0} IS NULL)"
                if is_text_of_json(node.argument):
                    found = self._compared_json(node.argument)
                    return CompiledExpression(null_if(found.failure, template.format(found.value)), found.failure)
                return self._with_nulls(template, _given(node.argument))
            case BooleanTest():
                wanted = {True: "TRUE", False: "FALSE", None: "NULL"}[node.wanted]
                return self._with_nulls(f"({{0}} IS {'NOT ' if node.is_negated else ''}{wanted})", _given(node.argument))
            case DistinctTest():
                for one in _given(node.left, node.right):
                    _check_one_form(one)
                template = "({0} <=> {1})" if node.is_negated else "(NOT ({0} <=> {1}))"
                return self._with_nulls(template, _given(node.left, node.right))
            case Case():
                branches = [(self.render(when), self._branch(then, node)) for when, then in node.branches]
                return _case(branches, self._branch(node.otherwise, node))
            case Coalesce():
                return _coalesce([self._branch(one, node) for one in node.arguments])
            case NullIf():
                (equal,), (left,) = map(self.render, _given(node.equal)), map(self.render, _given(node.left))
                return _case([(equal, CompiledExpression(f"CAST(NULL AS {type_of(node)})"))], left)
            case Extreme():
                return self._extreme(node)
            case ArrayOf():
                return self._array(node)
            case Element():
                return self._strict("get({0}, try_subtract({1}, 1))", _given(node.array, node.index))
            case Slice():
                return self._slice(node)
            case AnyOrAll():
                return self._any_or_all(node)
            case ArrayItem():
                return CompiledExpression(f"item_{self._items}")
            case CurrentTime():
                raise UnsupportedError(
                    "the current time can change from call to call, but a route must always give the same result", node.location
                )
        raise UnsupportedError(f"{type(node).__name__} can't be used in a route", node.location)

    def _call(self, node: Call) -> CompiledExpression:
        template = FUNCTIONS.get(node.signature.key)
        if template is None:
            raise UnsupportedError(f"a route can't use {_shown(node)}", node.location)
        # A pattern is a constant, which its template translates.
        nodes = node.arguments[:1] if node.signature.key in PATTERNS else node.arguments
        operands = [self.render(one) for one in nodes]
        if node.signature.key in ("text = text", "text <> text"):
            operands = self._compared(nodes)
        names = _LongOperands([operand.value for operand in operands])
        return _applied(names.put_in(_filled(template, names.texts, node)), nodes, operands)

    def _compared(self, nodes: Sequence[Expression]) -> list[CompiledExpression]:
        """Render operands that are tested for equality."""
        if any(map(is_other_text, nodes)):
            return [self._compared_json(one) if is_text_of_json(one) else self.render(one) for one in nodes]
        return [self.render(one) for one in nodes]

    def _compared_json(self, node: Call) -> CompiledExpression:
        operand = self.render(node.arguments[0])
        return _applied(compared_text([operand.value], node), node.arguments[:1], [operand])

    def _cast(self, node: Cast) -> CompiledExpression:
        if isinstance(node.argument, Constant) and isinstance(node.argument.value, Decimal) and node.type.name == "float8":
            return CompiledExpression(constant(_as_double(node.argument), node.type))
        operand = self.render(node.argument)
        if node.argument.type.is_array and node.type.is_array:
            raise UnsupportedError(f"a route can't cast {node.argument.type} to {node.type}", node.location)
        names = _LongOperands([operand.value])
        return _applied(names.put_in(cast(names.texts[0], node.argument, node.type)), [node.argument], [operand])

    def _strict(self, template: str, nodes: Sequence[Expression]) -> CompiledExpression:
        operands = [self.render(node) for node in nodes]
        return CompiledExpression(template.format(*(one.value for one in operands)), any_of(one.failure for one in operands))

    def _with_nulls(self, template: str, nodes: Sequence[Expression]) -> CompiledExpression:
        """Render what is not null where its operands are."""
        found = self._strict(template, nodes)
        return CompiledExpression(null_if(found.failure, found.value), found.failure)

    def _branch(self, node: Expression | None, whole: Expression) -> CompiledExpression:
        kind = type_of(whole)
        if whole.type.name == "jsonb":
            raise UnsupportedError("in a route JSON can only be looked into by -> and ->>", whole.location)
        if node is None:
            return CompiledExpression(f"CAST(NULL AS {kind})")
        found = self.render(node)
        return found if type_of(node) == kind else CompiledExpression(f"CAST({found.value} AS {kind})", found.failure)

    def _extreme(self, node: Extreme) -> CompiledExpression:
        _check_one_form(node)
        if is_enum(node.type.name):
            raise UnsupportedError("a route can't order the labels of an enum", node.location)
        operands = [self._branch(one, node) for one in node.arguments]
        if len(operands) == 1:
            return operands[0]
        failure = any_of(one.failure for one in operands)
        name = "greatest" if node.is_greatest else "least"
        return CompiledExpression(null_if(failure, f"{name}({', '.join(one.value for one in operands)})"), failure)

    def _array(self, node: ArrayOf) -> CompiledExpression:
        kind = type_of(node)
        operands = [self.render(one) for one in node.items]
        failure = any_of(one.failure for one in operands)
        text = f"CAST(array({', '.join(one.value for one in operands)}) AS {kind})"
        return CompiledExpression(null_if(failure, text), failure)

    def _in_list(self, node: InList) -> CompiledExpression:
        calls = [one for one in node.comparisons if isinstance(one, Call) and _has_one_form(one.arguments[0].type.name)]
        if len(calls) == len(node.comparisons) and len({one.signature.key for one in calls}) == 1:
            lefts, rights = zip(*(self._compared(one.arguments) for one in calls), strict=True)
            left = lefts[0]
            if len(set(lefts)) == 1 and all(one.failure is None for one in rights):
                word = "NOT IN" if node.is_negated else "IN"
                return CompiledExpression(f"({left.value} {word} ({', '.join(one.value for one in rights)}))", left.failure)
        found = connected("or", [self.render(one) for one in node.comparisons])
        return CompiledExpression(f"(NOT {found.value})", found.failure) if node.is_negated else found

    def _slice(self, node: Slice) -> CompiledExpression:
        array, *bounds = [self.render(one) for one in _given(node.array, node.lower, node.upper)]
        lower = bounds.pop(0).value if node.lower is not None else "1"
        upper = bounds.pop(0).value if node.upper is not None else f"array_size({array.value})"
        first = f"CASE WHEN {lower} < 1 THEN 1 ELSE {lower} END"
        last = f"CASE WHEN {upper} > array_size({array.value}) THEN array_size({array.value}) ELSE {upper} END"
        part = f"slice({array.value}, {first}, {last} - {first} + 1)"
        empty = f"WHEN {array.value} IS NOT NULL AND {last} < {first} THEN CAST(array() AS {type_of(node)})"
        text = f"CASE {empty} WHEN {last} >= {first} THEN {part} END"
        found = self._strict("", _given(node.array, node.lower, node.upper))
        return CompiledExpression(text, found.failure)

    def _any_or_all(self, node: AnyOrAll) -> CompiledExpression:
        listed = _each_item(node)
        if listed is not None:
            return connected("and" if node.is_all else "or", [self.render(one) for one in listed])
        (array,) = map(self.render, _given(node.array))
        self._items += 1
        try:
            (comparison,) = map(self.render, _given(node.comparison))
        finally:
            self._items -= 1
        item = f"item_{self._items + 1}"
        if item in (comparison.failure or ""):
            raise UnsupportedError(
                "in a route a comparison with the items of an array must not be one that can fail", node.location
            )
        failure = any_of((array.failure, comparison.failure))
        test = f"{'forall' if node.is_all else 'exists'}({array.value}, {item} -> {comparison.value})"
        return CompiledExpression(null_if(comparison.failure, test), failure)


class _LongOperands:
    """Gives long operands a name while a template is filled, so that one which occurs in it twice is written and computed once.

    Without that, the text of nested calls would grow with each level by as much as their templates repeat their operands.
    """

    def __init__(self, operands: Sequence[str]) -> None:
        self.texts = list(operands)
        """What templates are filled with: operands, or their names."""
        self._named: list[tuple[str, str]] = []
        number = 0
        for at, operand in enumerate(operands):
            if len(operand) > _LONG_OPERAND:
                while any(_name(number) in one for one in operands):
                    number += 1
                self.texts[at] = _name(number)
                self._named.append((_name(number), operand))
                number += 1

    def put_in(self, template: Rendered) -> SparkTemplate:
        """Return a filled template with the operands in the places of their names."""
        filled = SparkTemplate(template) if isinstance(template, str) else template
        return filled._replace(value=self._text(filled.value), failure=self._text(filled.failure))

    def _text(self, text: str) -> str:
        for name, operand in self._named:
            count = text.count(name)
            text = f"get(transform(array({operand}), {name} -> {text}), 0)" if count > 1 else text.replace(name, operand)
        return text


def _name(number: int) -> str:
    return f"value_{number}_"


def _filled(template: Template, texts: Sequence[str], node: Call) -> Rendered:
    if callable(template):
        return template(texts, node)
    kind = "" if node.type.name in ("bool", "numeric") else type_of(node)
    if isinstance(template, str):
        return template.format(*texts, type=kind)
    return template._replace(value=template.value.format(*texts, type=kind), failure=template.failure.format(*texts))


def _applied(filled: SparkTemplate, nodes: Sequence[Expression], operands: Sequence[CompiledExpression]) -> CompiledExpression:
    """Return a filled template with the failures of its operands and its own."""
    failures = [operand.failure for operand in operands]
    value = filled.value
    if filled.null_fails:
        present = [f"{one.value} IS NOT NULL" for one, node in zip(operands, nodes, strict=True) if not _is_never_null(node)]
        failures.append(f"({' AND '.join([*present, value])} IS NULL)")
    elif filled.failure:
        failures.append(filled.failure)
        value = null_if(filled.failure, value)
    elif not filled.is_strict:
        value = null_if(any_of(failures), value)
    return CompiledExpression(value, any_of(failures))


def connected(operator: str, operands: Sequence[CompiledExpression]) -> CompiledExpression:
    """One false operand makes AND false, and one true operand makes OR true, whatever the others are."""
    word, settled = ("AND", "FALSE") if operator == "and" else ("OR", "TRUE")
    value = f"({f' {word} '.join(operand.value for operand in operands)})"
    failed = any_of(operand.failure for operand in operands)
    if failed is None:
        return CompiledExpression(value)
    decided = " OR ".join(f"{operand.value} IS {settled}" for operand in operands)
    return CompiledExpression(value, f"({failed} AND NOT ({decided}))")


def _case(branches: Sequence[tuple[CompiledExpression, CompiledExpression]], last: CompiledExpression) -> CompiledExpression:
    """Only the conditions up to the first true one are evaluated, and the result that belongs to it."""
    texts = " ".join(f"WHEN {condition.value} THEN {result.value}" for condition, result in branches)
    value = f"CASE {texts} ELSE {last.value} END"
    if last.failure is None and all(part.failure is None for pair in branches for part in pair):
        return CompiledExpression(value)
    steps = [
        f"WHEN {condition.failure or 'FALSE'} THEN TRUE WHEN {condition.value} THEN {result.failure or 'FALSE'}"
        for condition, result in branches
    ]
    failure = f"CASE {' '.join(steps)} ELSE {last.failure or 'FALSE'} END"
    # A condition that failed is null, and CASE would continue with the next branch.
    return CompiledExpression(null_if(failure, value), failure)


def _coalesce(operands: Sequence[CompiledExpression]) -> CompiledExpression:
    """Only the operands up to the first that is not null are evaluated."""
    value = f"coalesce({', '.join(operand.value for operand in operands)})"
    if all(operand.failure is None for operand in operands):
        return CompiledExpression(value)
    steps = [f"WHEN {operand.failure or 'FALSE'} THEN TRUE WHEN {operand.value} IS NOT NULL THEN FALSE" for operand in operands]
    failure = f"CASE {' '.join(steps)} ELSE FALSE END"
    return CompiledExpression(null_if(failure, value), failure)


def null_if(failure: str | None, value: str) -> str:
    return value if failure is None else f"CASE WHEN NOT {failure} THEN {value} END"


def any_of(failures: Iterable[str | None]) -> str | None:
    known = list(dict.fromkeys(failure for failure in failures if failure is not None))
    if len(known) < 2:
        return known[0] if known else None
    return f"({' OR '.join(known)})"


def _is_never_null(node: Expression) -> bool:
    return isinstance(node, Constant) and node.value is not None


def _has_one_form(name: str) -> bool:
    return name in _ONE_FORM or is_enum(name)


def _check_one_form(node: Expression) -> None:
    """Refuse types of which equal values may look different in Spark."""
    name = node.type.name
    if name == "numeric":
        spark_type(fixed_type(node), node.location)
    elif not _has_one_form(name.removesuffix("[]")):
        raise UnsupportedError(f"a route can't compare values of the type {node.type}", node.location)


def _each_item(node: AnyOrAll) -> list[Expression] | None:
    """Return the comparison with each item of an array that is written out, of which patterns must be constants."""
    call, array = node.comparison, node.array
    if not isinstance(call, Call) or call.signature.key not in PATTERNS:
        return None
    items: Sequence[Expression] = ()
    if isinstance(array, ArrayOf):
        items = array.items
    elif isinstance(array, Constant) and isinstance(array.value, list):
        items = [Constant(array.type.element, item, location=array.location) for item in array.value]
    replaced = [
        Call(
            call.type,
            call.signature,
            [item if isinstance(one, ArrayItem) else one for one in call.arguments],
            location=call.location,
        )
        for item in items
    ]
    return [*replaced] or None


def _given(*nodes: Expression | None) -> list[Expression]:
    return [node for node in nodes if node is not None]


def _shown(node: Call) -> str:
    name = node.signature.name
    types = [str(one.type) for one in node.arguments]
    if name.isidentifier():
        return f"the function {name}({', '.join(types)})"
    return f"the operator {types[0]} {name} {types[1]}" if len(types) == 2 else f"the operator {name} {types[0]}"


def constant(value: object, sql_type: SqlType, location: int = -1) -> str:
    """Return a constant with its type."""
    kind = spark_type(sql_type, location)
    match value:
        case None:
            return f"CAST(NULL AS {kind})"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            suffix = {"BIGINT": "L", "SMALLINT": "S"}.get(kind, "")
            return f"{value}{suffix}" if abs(value) < 1 << 63 else f"CAST('{value}' AS BIGINT)"
        case float():
            return f"CAST('{_float_text(value)}' AS DOUBLE)"
        case Decimal():
            return f"CAST('{value:f}' AS {kind})"
        case datetime():
            at = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"TIMESTAMP '{at.isoformat(' ', 'microseconds')}Z'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case bytes():
            return f"X'{value.hex()}'"
        case Interval():
            return f"{microseconds_of(value)}L"
        case UUID():
            return f"'{value}'"
        case list() | tuple():
            return f"CAST(array({', '.join(constant(item, sql_type.element, location) for item in value)}) AS {kind})"
        case str() if kind == "STRING":
            return spark_string(value)
    raise UnsupportedError(f"a route can't use a constant of the type {sql_type}", location)


def _as_double(node: Constant) -> float:
    """Return a constant such as `1e300`, which has more digits than Spark's decimals, as a double."""
    value = float(str(node.value))
    if isinstance(node.value, Decimal) and not node.value.is_finite():
        return value
    if value in (float("inf"), float("-inf")) or (value == 0 and node.value):
        raise AnalysisError("22003", f'"{node.value}" is out of range for type double precision', node.location)
    return value


def _float_text(value: float) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
