"""Compiles checked expressions to SQL: for Spark, which routes changes, and for DuckDB, which runs dry runs.

Every expression becomes two: its value, and whether it failed. A value that failed is null, so a condition that failed is never
true; the failure is true or false, never null. An operand that does not affect the result can't fail: an operand of AND counts
only if no other is false, a branch of CASE only if it is taken.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.model.errors import LimitExceededError
from tailrace.model.limits import Limits
from tailrace.model.route import RouteSql
from tailrace.model.table import ColumnType, Table
from tailrace.sql.routes.check import CheckedRoute
from tailrace.sql.routes.engines import OPERATORS, SPARK, RouteDialect, key_text
from tailrace.sql.routes.expression import TRY, RouteCall, RouteColumn, RouteConstant, RouteExpression, digits_of


class CompiledExpression(NamedTuple):
    value: str
    failure: str | None
    """`None` if it can't fail."""


class CompiledRoute(NamedTuple):
    condition: str
    failure: str
    keys: Sequence[str]
    """The values of the partition expressions, valid where the condition is true."""


def compile_route(
    where: RouteExpression | None, keys: Sequence[RouteExpression], engine: RouteDialect, limits: Limits
) -> CompiledRoute:
    """Compile a route for one engine. The condition is never true where there is a failure."""
    compiler = _Compiler(engine, limits)
    condition = compiler.render(where) if where is not None else CompiledExpression("TRUE", None)
    values = [compiler.render(key) for key in keys]
    failed_keys = _any(value.failure for value in values)
    failures = [] if condition.failure is None else [condition.failure]
    matches = condition.value
    if failed_keys is not None:
        failed_match = f"coalesce({condition.value} AND {failed_keys}, FALSE)"
        failures.append(failed_match)
        matches = _null_if(failed_match, condition.value)
    failure = _any(failures) or "FALSE"
    if len(matches) + len(failure) + sum(len(value.value) for value in values) > limits.route_sql_bytes:
        raise _too_large(limits)
    return CompiledRoute(matches, failure, [value.value for value in values])


def compile_for_spark(checked: CheckedRoute, table: Table, limits: Limits) -> RouteSql:
    """Compile a route for Spark, as it is stored, with the record key as text."""
    where, keys = checked
    compiled = compile_route(where, keys, SPARK, limits)
    texts = [key_text(text, key.type) for text, key in zip(compiled.keys, keys, strict=True)]
    joined = ", ',', ".join(texts)
    key = f"concat('[', {joined}, ']')" if texts else None
    return RouteSql(row=SPARK.row_type(table), condition=compiled.condition, failure=compiled.failure, key=key)


class _Compiler:
    def __init__(self, engine: RouteDialect, limits: Limits) -> None:
        self._engine = engine
        self._limits = limits

    def render(self, expression: RouteExpression) -> CompiledExpression:
        if isinstance(expression, RouteColumn):
            return CompiledExpression(self._engine.column(expression), None)
        if isinstance(expression, RouteConstant):
            return CompiledExpression(self._engine.constant(expression.value, expression.type), None)
        operands = [self.render(operand) for operand in expression.operands]
        match expression.operator:
            case "and" | "or":
                rendered = _logical(expression.operator, operands)
            case "case":
                rendered = _case(operands)
            case "coalesce":
                rendered = _coalesce(operands)
            case _:
                rendered = self._call(expression, operands)
        if len(rendered.value) + len(rendered.failure or "") > self._limits.route_sql_bytes:
            raise _too_large(self._limits)
        return rendered

    def _call(self, call: RouteCall, operands: Sequence[CompiledExpression]) -> CompiledExpression:
        operator = OPERATORS[call.operator.removeprefix(TRY)]
        values = [operand.value for operand in operands]
        value = self._engine.form(operator).format(
            *values,
            all=", ".join(values),
            rest=", ".join(values[1:]),
            type=self._engine.type_name(call.type),
            **self._decimal_parts(call),
        )
        failures = [operand.failure for operand in operands]
        if operator.fails and not call.operator.startswith(TRY):
            present = [f"{text} IS NOT NULL" for text, of in zip(values, call.operands, strict=True) if not _is_never_null(of)]
            failures.append(f"({' AND '.join([*present, value])} IS NULL)")
        elif not operator.strict:
            value = _null_if(_any(failures), value)
        return CompiledExpression(value, _any(failures))

    def _decimal_parts(self, call: RouteCall) -> dict[str, object]:
        digits = digits_of(call.type)
        if digits is None or call.type.kind != "decimal":
            return {"roomy": self._engine.type_name(call.type)}
        whole, scale = digits
        left = digits_of(call.operands[0].type)
        roomy = ColumnType("decimal", precision=whole + scale, scale=left[1] if left is not None else 0)
        return {"whole": max(1, whole), "scale": max(1, scale), "roomy": self._engine.type_name(roomy)}


def _logical(operator: str, operands: Sequence[CompiledExpression]) -> CompiledExpression:
    """One false operand makes AND false, and one true operand makes OR true, whatever the others are."""
    word, settled = ("AND", "FALSE") if operator == "and" else ("OR", "TRUE")
    value = f"({f' {word} '.join(operand.value for operand in operands)})"
    failed = _any(operand.failure for operand in operands)
    if failed is None:
        return CompiledExpression(value, None)
    decided = " OR ".join(f"{operand.value} IS {settled}" for operand in operands)
    return CompiledExpression(value, f"({failed} AND NOT ({decided}))")


def _case(operands: Sequence[CompiledExpression]) -> CompiledExpression:
    """Only the conditions up to the first true one are evaluated, and the result that belongs to it."""
    pairs = list(zip(operands[:-1:2], operands[1::2], strict=True))
    last = operands[-1]
    branches = " ".join(f"WHEN {condition.value} THEN {result.value}" for condition, result in pairs)
    value = f"CASE {branches} ELSE {last.value} END"
    if all(operand.failure is None for operand in operands):
        return CompiledExpression(value, None)
    steps = [
        f"WHEN {condition.failure or 'FALSE'} THEN TRUE WHEN {condition.value} THEN {result.failure or 'FALSE'}"
        for condition, result in pairs
    ]
    failure = f"CASE {' '.join(steps)} ELSE {last.failure or 'FALSE'} END"
    # A condition that failed is null, and CASE would continue with the next branch.
    return CompiledExpression(_null_if(failure, value), failure)


def _coalesce(operands: Sequence[CompiledExpression]) -> CompiledExpression:
    """Only the operands up to the first that is not null are evaluated."""
    value = f"coalesce({', '.join(operand.value for operand in operands)})"
    if all(operand.failure is None for operand in operands):
        return CompiledExpression(value, None)
    steps = [f"WHEN {operand.failure or 'FALSE'} THEN TRUE WHEN {operand.value} IS NOT NULL THEN FALSE" for operand in operands]
    failure = f"CASE {' '.join(steps)} ELSE FALSE END"
    return CompiledExpression(_null_if(failure, value), failure)


def _is_never_null(expression: RouteExpression) -> bool:
    if isinstance(expression, RouteCall):
        return expression.operator == "widen" and _is_never_null(expression.operands[0])
    return isinstance(expression, RouteConstant) and expression.value is not None


def _null_if(failure: str | None, value: str) -> str:
    return value if failure is None else f"CASE WHEN NOT {failure} THEN {value} END"


def _any(failures: Iterable[str | None]) -> str | None:
    known = [failure for failure in failures if failure is not None]
    if len(known) < 2:
        return known[0] if known else None
    return f"({' OR '.join(known)})"


def _too_large(limits: Limits) -> LimitExceededError:
    return LimitExceededError(
        f"the expressions of the route compile to more SQL than route_sql_bytes allows ({limits.route_sql_bytes}); simplify"
        " them"
    )
