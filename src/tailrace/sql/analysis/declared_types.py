"""The types that PostgreSQL declares for the columns of a query.

Our types carry the digits of every number that is computed, as far as they are known. PostgreSQL knows the digits and lengths
of columns and of casts alone; all others are plain types to it.
"""

from collections.abc import Mapping

from tailrace.sql.analysis.tree import (
    AnalyzedQuery,
    Cast,
    ColumnReference,
    Expression,
    FromItem,
    Join,
    QueryRelation,
    Select,
    SetOperation,
)
from tailrace.sql.analysis.types import SqlType


def declared_types(query: AnalyzedQuery) -> list[SqlType]:
    """Return the types of the columns of a query as PostgreSQL declares them."""
    if isinstance(query, SetOperation):
        pairs = zip(declared_types(query.left), declared_types(query.right), strict=True)
        return [one if one == other else one.plain for one, other in pairs]
    if not isinstance(query, Select):
        return [kind.plain for kind in query.types]
    inner = {number: declared_types(one) for item in query.sources for number, one in _subqueries(item)}
    return [_declared(column.expression, inner) for column in query.columns]


def _declared(expression: Expression, inner: Mapping[int, list[SqlType]]) -> SqlType:
    if isinstance(expression, ColumnReference):
        types = inner.get(expression.relation)
        at = expression.column.removeprefix("c")
        return types[int(at) - 1] if types is not None and at.isdigit() else expression.type
    return expression.type if isinstance(expression, Cast) and expression.is_explicit else expression.type.plain


def _subqueries(item: FromItem) -> list[tuple[int, AnalyzedQuery]]:
    if isinstance(item, Join):
        return [*_subqueries(item.left), *_subqueries(item.right)]
    return [(item.number, item.query)] if isinstance(item, QueryRelation) else []
