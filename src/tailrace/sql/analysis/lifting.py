"""Takes out of the expressions of a write what only a query can compute, and replaces it by columns of that query."""

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from tailrace.sql.analysis.errors import UnsupportedError
from tailrace.sql.analysis.tree import ColumnReference, Expression, OutputColumn, Subquery, parts_of


class LiftedColumns:
    """The columns of a query that are made for parts of expressions: subqueries, and columns of other relations."""

    def __init__(self, number: int) -> None:
        self.number = number
        """The number under which expressions refer to the columns."""
        self.columns: list[OutputColumn] = []

    def add(self, expression: Expression) -> ColumnReference:
        """Return a reference to a new column."""
        name = f"c{len(self.columns) + 1}"
        self.columns.append(OutputColumn(name, expression))
        return ColumnReference(expression.type, self.number, name, location=expression.location)

    def lift(self, expression: Expression, others: Collection[int], hidden: Collection[tuple[int, str]] = ()) -> Expression:
        """Return the expression with references in the place of subqueries and of columns of the `others`.

        Raises `UnsupportedError` for a subquery that refers to a column of `hidden`, which the query can't see.
        """
        if isinstance(expression, Subquery):
            for part in parts_of(expression):
                if isinstance(part, ColumnReference) and (part.relation, part.column) in hidden:
                    raise UnsupportedError(
                        "a subquery here can't refer to the row that is written; compute it by a SELECT first", part.location
                    )
            return self.add(expression)
        if isinstance(expression, ColumnReference):
            return self.add(expression) if expression.relation in others else expression
        changes = {
            name: lifted
            for name, value in ((one.name, getattr(expression, one.name)) for one in fields(expression))
            if (lifted := self._lifted(value, others, hidden)) is not value
        }
        return replace(expression, **changes) if changes else expression

    def _lifted(self, value: Any, others: Collection[int], hidden: Collection[tuple[int, str]]) -> Any:
        if isinstance(value, Expression):
            return self.lift(value, others, hidden)
        if isinstance(value, list | tuple) and any(isinstance(item, Expression | tuple) for item in value):
            items = [self._lifted(item, others, hidden) for item in value]
            if any(new is not old for new, old in zip(items, value, strict=True)):
                return tuple(items) if isinstance(value, tuple) else items
        return value


def has_subquery(expression: Expression | None) -> bool:
    """Return whether a subquery is inside of the expression."""
    return expression is not None and any(isinstance(part, Subquery) for part in expression.walk())
