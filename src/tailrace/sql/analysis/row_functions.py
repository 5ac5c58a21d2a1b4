"""Functions that return rows, in the list of SELECT.

Several of them advance together, and the shorter ones are filled with nulls. They run after grouping and window functions; one
that is grouped by moves to FROM, which means the same.
"""

from collections.abc import Callable, Iterator, Sequence

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import (
    Call,
    Cast,
    ColumnReference,
    Expression,
    FunctionRelation,
    Grouping,
    OutputColumn,
    SortKey,
)

SameExpression = Callable[[Expression, Expression], bool]


def row_calls(expression: Expression) -> Iterator[Call]:
    """Yield the calls of functions that return rows inside an expression."""
    return (part for part in expression.walk() if isinstance(part, Call) and part.signature.is_set)


def refuse_row_calls(expression: Expression | None, clause: str) -> None:
    """Raise `UnsupportedError` if an expression returns rows."""
    if expression is None:
        return
    for call in row_calls(expression):
        raise UnsupportedError(f"set-returning functions are not allowed in {clause}", call.location)


def check_columns(columns: Sequence[OutputColumn]) -> None:
    """Raise `UnsupportedError` unless functions that return rows stand alone, in casts, or as arguments of plain functions."""
    for column in columns:
        _check(column.expression)


def _check(expression: Expression) -> None:
    if isinstance(expression, Call | Cast):
        for child in expression.children():
            if isinstance(expression, Call) and expression.signature.is_set:
                refuse_row_calls(child, "the arguments of another one")
            _check(child)
        return
    for child in expression.children():
        refuse_row_calls(child, type(expression).__name__.upper())


class GroupedRowCalls:
    """Moves the functions that a query groups by to its FROM, under a number that is given."""

    def __init__(self, groups: Sequence[Grouping], number: int, same: SameExpression) -> None:
        self._number = number
        self._same = same
        self._calls: list[Call] = []
        for group in groups:
            self._collect(group)

    @property
    def source(self) -> FunctionRelation | None:
        return FunctionRelation(self._number, self._calls) if self._calls else None

    def _collect(self, group: Grouping) -> None:
        for expression in group.expressions:
            for call in row_calls(expression):
                if not any(self._same(call, one) for one in self._calls):
                    self._calls.append(call)
        for part in group.parts:
            self._collect(part)

    def rewrite(self, columns: Sequence[OutputColumn], groups: Sequence[Grouping], order: Sequence[SortKey]) -> None:
        """Replace the calls everywhere. A sort key that is a column of the result remains that column."""
        known: dict[int, Expression] = {}
        for column in columns:
            known[id(column.expression)] = column.expression = self._replaced(column.expression)
            refuse_row_calls(column.expression, "the list of SELECT beside those of GROUP BY")
        for key in order:
            key.expression = known.get(id(key.expression)) or self._replaced(key.expression)
        self._rewrite_groups(groups)

    def _rewrite_groups(self, groups: Sequence[Grouping]) -> None:
        for group in groups:
            group.expressions = [self._replaced(one) for one in group.expressions]
            self._rewrite_groups(group.parts)

    def _replaced(self, expression: Expression) -> Expression:
        for at, call in enumerate(self._calls, 1):
            if self._same(expression, call):
                return ColumnReference(call.type, self._number, f"c{at}", location=expression.location)
        if isinstance(expression, Call):
            return Call(
                expression.type,
                expression.signature,
                [self._replaced(one) for one in expression.arguments],
                location=expression.location,
            )
        if isinstance(expression, Cast):
            argument = self._replaced(expression.argument)
            return Cast(expression.type, argument, is_explicit=expression.is_explicit, location=expression.location)
        return expression
