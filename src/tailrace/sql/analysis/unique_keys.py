"""Which columns of a query have another value in every row, as far as that follows from the query alone."""

from collections.abc import Callable, Sequence

from tailrace.sql.analysis.grouping_rules import same_expression
from tailrace.sql.analysis.row_functions import row_calls
from tailrace.sql.analysis.tree import AnalyzedQuery, ColumnReference, NamedRelation, QueryRelation, Select, SetOperation

KeyColumns = Callable[[NamedRelation], Sequence[Sequence[str]]]
"""Returns the keys of a table or topic: each is a list of columns that together are different in every row."""


def unique_columns(query: AnalyzedQuery, keys_of: KeyColumns) -> list[int] | None:
    """Return the places of columns that together are different in every row, or `None` if that is not known.

    It is known for the primary key of the only table of FROM, for what is grouped by, and for all columns of a DISTINCT, UNION,
    INTERSECT or EXCEPT. Some of the columns may be null.
    """
    if isinstance(query, SetOperation):
        return None if query.is_all else list(range(len(query.names)))
    if not isinstance(query, Select) or any(next(row_calls(column.expression), None) for column in query.columns):
        return None
    if query.is_distinct:
        return list(range(len(query.names)))
    if query.groups:
        return _grouped(query)
    if query.is_grouped or len(query.sources) != 1:
        return None
    (source,) = query.sources
    if isinstance(source, NamedRelation):
        return next((found for key in keys_of(source) if (found := _places(query, source.number, key)) is not None), None)
    if isinstance(source, QueryRelation):
        inner = unique_columns(source.query, keys_of)
        return None if inner is None else _places(query, source.number, [f"c{at + 1}" for at in inner])
    return None


def _grouped(query: Select) -> list[int] | None:
    if any(group.kind != "simple" for group in query.groups):
        return None
    places = []
    for expression in (one for group in query.groups for one in group.expressions):
        at = next((at for at, column in enumerate(query.columns) if same_expression(column.expression, expression)), None)
        if at is None:
            return None
        places.append(at)
    return places or None


def _places(query: Select, relation: int, key: Sequence[str]) -> list[int] | None:
    shown = {
        (column.expression.relation, column.expression.column): at
        for at, column in enumerate(query.columns)
        if isinstance(column.expression, ColumnReference)
    }
    found = [shown.get((relation, name)) for name in key]
    return [at for at in found if at is not None] if key and None not in found else None
