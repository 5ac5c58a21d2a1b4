"""What may stand where in a query with groups and aggregates, and which expressions are the same."""

from collections.abc import Sequence

from tailrace.sql.analysis.errors import (
    GROUPING_ERROR,
    INVALID_COLUMN_REFERENCE,
    AnalysisError,
)
from tailrace.sql.analysis.row_functions import refuse_row_calls
from tailrace.sql.analysis.scope import Scope
from tailrace.sql.analysis.tree import (
    Aggregate,
    Call,
    ColumnReference,
    Constant,
    Expression,
    Grouping,
    GroupingOf,
    SortKey,
    WindowCall,
)


def has_aggregate(expression: Expression) -> bool:
    """Return whether an aggregate is computed over the rows of the query around the expression."""
    if isinstance(expression, Aggregate | GroupingOf):
        return True
    if isinstance(expression, WindowCall):
        inner = expression.call
        parts: list[Expression] = [*expression.partition, *(key.expression for key in expression.order)]
        if isinstance(inner, Aggregate):
            parts += inner.arguments
        return any(map(has_aggregate, parts))
    return any(map(has_aggregate, expression.children()))


def same_expression(one: Expression, other: Expression) -> bool:
    """Return whether two expressions are written alike."""
    if one is other:
        return True
    if type(one) is not type(other) or one.type != other.type:
        return False
    if isinstance(one, ColumnReference) and isinstance(other, ColumnReference):
        return (one.relation, one.column) == (other.relation, other.column)
    if isinstance(one, Constant) and isinstance(other, Constant):
        return type(one.value) is type(other.value) and one.value == other.value
    if isinstance(one, Call | Aggregate) and isinstance(other, Call | Aggregate) and one.signature != other.signature:
        return False
    mine, theirs = list(one.children()), list(other.children())
    skipped = ("arguments", "type", "location")
    scalars = [
        [
            getattr(each, name)
            for name in each.__dataclass_fields__
            if name not in skipped and isinstance(getattr(each, name), bool | str | int)
        ]
        for each in (one, other)
    ]
    if scalars[0] != scalars[1] or not mine:
        return False
    return len(mine) == len(theirs) and all(map(same_expression, mine, theirs))


def check_distinct_on(distinct_on: Sequence[Expression], order: Sequence[SortKey]) -> None:
    left = list(distinct_on)
    for key in order:
        same = next((one for one in left if same_expression(one, key.expression)), None)
        if same is not None:
            left.remove(same)
        elif left and not any(same_expression(one, key.expression) for one in distinct_on):
            raise AnalysisError(
                INVALID_COLUMN_REFERENCE,
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                key.expression.location,
            )


def mark_dependent(groups: Sequence[Grouping], expressions: Sequence[Expression], scope: Scope) -> None:
    """Mark columns that are not grouped by but follow from a primary key that is."""
    if not groups or any(group.kind != "simple" for group in groups):
        return
    grouped = {(one.relation, one.column) for group in groups for one in group.expressions if isinstance(one, ColumnReference)}
    numbers = set()
    for relation in scope.relations:
        keys = [column.expression for column in relation.columns if column.is_key]
        if keys and all(isinstance(one, ColumnReference) and (one.relation, one.column) in grouped for one in keys):
            numbers.add(keys[0].relation if isinstance(keys[0], ColumnReference) else 0)
    if numbers:
        for expression in expressions:
            _mark(expression, numbers, grouped)


def _mark(expression: Expression, numbers: set[int], grouped: set[tuple[int, str]]) -> None:
    if isinstance(expression, ColumnReference):
        if expression.relation in numbers and (expression.relation, expression.column) not in grouped:
            expression.is_dependent = True
    elif not isinstance(expression, Aggregate):
        for child in expression.children():
            _mark(child, numbers, grouped)


def refuse_aggregates(condition: Expression | None, clause: str) -> None:
    if condition is None:
        return
    refuse_row_calls(condition, clause)
    for part in condition.walk():
        if isinstance(part, WindowCall):
            raise AnalysisError("42P20", f"window functions are not allowed in {clause}", part.location)
        if isinstance(part, Aggregate):
            raise AnalysisError(GROUPING_ERROR, f"aggregate functions are not allowed in {clause}", part.location)
