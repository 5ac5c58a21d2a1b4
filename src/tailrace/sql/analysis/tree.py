"""The analyzed form of statements: every expression has a type, every name is resolved, every cast is written out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Literal

from tailrace.sql.analysis.catalog import Signature
from tailrace.sql.analysis.types import SqlType

_NO_SIGNATURE = Signature("", (), "")


@dataclass(slots=True, eq=False)
class Expression:
    type: SqlType
    location: int = field(default=-1, kw_only=True)

    def children(self) -> Iterator["Expression"]:
        """Yield the expressions directly inside this one. Subqueries are not entered."""
        for name in (one.name for one in fields(self)):
            value = getattr(self, name)
            if isinstance(value, Expression):
                yield value
            elif isinstance(value, list | tuple):
                for item in value:
                    if isinstance(item, Expression):
                        yield item
                    elif isinstance(item, SortKey):
                        yield item.expression
                    elif isinstance(item, tuple):
                        yield from (part for part in item if isinstance(part, Expression))

    def walk(self) -> Iterator["Expression"]:
        """Yield this expression and all inside it."""
        yield self
        for child in self.children():
            yield from child.walk()


@dataclass(slots=True, eq=False)
class Constant(Expression):
    """A value of Python, `None` for null. An `unknown` constant is the text that was written."""

    value: object = None


@dataclass(slots=True, eq=False)
class Parameter(Expression):
    number: int = 0


@dataclass(slots=True, eq=False)
class ColumnReference(Expression):
    relation: int = 0
    """The number of the FROM item within the statement."""
    column: str = ""
    """The name of the column in that item, as the engine knows it."""
    is_json_text: bool = False
    """Whether the text of the column may be read as JSON: the key and value of a record."""
    is_dependent: bool = False
    """Whether the column has one value in each group, because the primary key of its table is grouped by."""


@dataclass(slots=True, eq=False)
class Call(Expression):
    """A function or an operator of PostgreSQL's catalog. The arguments have the types that it takes."""

    signature: Signature = _NO_SIGNATURE
    arguments: Sequence[Expression] = ()


@dataclass(slots=True, eq=False)
class Cast(Expression):
    argument: Expression
    is_explicit: bool = False

    def __init__(self, type: SqlType, argument: Expression, *, is_explicit: bool = False, location: int = -1) -> None:
        self.type = type
        self.argument = argument
        self.is_explicit = is_explicit
        self.location = location


@dataclass(slots=True, eq=False)
class Logical(Expression):
    operator: Literal["and", "or", "not"] = "and"
    arguments: Sequence[Expression] = ()


@dataclass(slots=True, eq=False)
class NullTest(Expression):
    argument: Expression | None = None
    is_negated: bool = False


@dataclass(slots=True, eq=False)
class BooleanTest(Expression):
    """`IS [NOT] TRUE`, `FALSE` or `UNKNOWN`."""

    argument: Expression | None = None
    wanted: bool | None = None
    is_negated: bool = False


@dataclass(slots=True, eq=False)
class DistinctTest(Expression):
    """`IS [NOT] DISTINCT FROM`. `equality` compares the two."""

    left: Expression | None = None
    right: Expression | None = None
    is_negated: bool = False


@dataclass(slots=True, eq=False)
class Case(Expression):
    branches: Sequence[tuple[Expression, Expression]] = ()
    otherwise: Expression | None = None


@dataclass(slots=True, eq=False)
class Coalesce(Expression):
    arguments: Sequence[Expression] = ()


@dataclass(slots=True, eq=False)
class Extreme(Expression):
    """`GREATEST` and `LEAST`."""

    arguments: Sequence[Expression] = ()
    is_greatest: bool = True


@dataclass(slots=True, eq=False)
class NullIf(Expression):
    left: Expression | None = None
    right: Expression | None = None
    equal: Expression | None = None
    """The comparison that decides."""


@dataclass(slots=True, eq=False)
class ArrayOf(Expression):
    items: Sequence[Expression] = ()


@dataclass(slots=True, eq=False)
class Element(Expression):
    """`array[index]`; null outside of its bounds."""

    array: Expression | None = None
    index: Expression | None = None


@dataclass(slots=True, eq=False)
class Slice(Expression):
    """`array[lower:upper]`."""

    array: Expression | None = None
    lower: Expression | None = None
    upper: Expression | None = None


@dataclass(slots=True, eq=False)
class AnyOrAll(Expression):
    """`left operator ANY (array)`: `comparison` has `ArrayItem` in the place of the items."""

    left: Expression | None = None
    array: Expression | None = None
    comparison: Expression | None = None
    is_all: bool = False


@dataclass(slots=True, eq=False)
class ArrayItem(Expression):
    """One item of the array of the `AnyOrAll` around it."""


@dataclass(slots=True, eq=False)
class InList(Expression):
    """`left IN (...)`: true if one of the comparisons is."""

    comparisons: Sequence[Expression] = ()
    is_negated: bool = False


@dataclass(slots=True, eq=False)
class CurrentTime(Expression):
    """The time of the statement, as a value of this type."""


@dataclass(slots=True, eq=False)
class SortKey:
    expression: Expression
    is_descending: bool = False
    nulls_first: bool = False


@dataclass(slots=True, eq=False)
class Aggregate(Expression):
    signature: Signature = _NO_SIGNATURE
    arguments: Sequence[Expression] = ()
    is_star: bool = False
    is_distinct: bool = False
    order: Sequence[SortKey] = ()
    within_group: Sequence[SortKey] = ()
    condition: Expression | None = None


@dataclass(slots=True, eq=False)
class WindowFrame:
    mode: Literal["ROWS", "RANGE", "GROUPS"]
    start: str
    end: str
    start_offset: Expression | None = None
    end_offset: Expression | None = None
    exclude: str = ""


@dataclass(slots=True, eq=False)
class WindowCall(Expression):
    """A window function, or an aggregate over a window."""

    call: Expression | None = None
    partition: Sequence[Expression] = ()
    order: Sequence[SortKey] = ()
    frame: WindowFrame | None = None


@dataclass(slots=True, eq=False)
class GroupingOf(Expression):
    arguments: Sequence[Expression] = ()


@dataclass(slots=True, eq=False)
class Subquery(Expression):
    """A subquery in an expression. `comparison` of `any` and `all` compares with the columns of the subquery's row."""

    kind: Literal["scalar", "exists", "any", "all", "array"] = "scalar"
    query: "AnalyzedQuery | None" = None
    comparison: Expression | None = None
    relation: int = 0
    """The number under which the comparison refers to the subquery's columns."""


@dataclass(slots=True, eq=False)
class OutputColumn:
    name: str
    expression: Expression
    unknown: Constant | None = None
    """The constant as it was written, if nothing inside the query decides its type."""


@dataclass(slots=True, eq=False)
class FromItem:
    number: int


@dataclass(slots=True, eq=False)
class NamedRelation(FromItem):
    """A table, topic or system table. `columns` are those that the statement uses."""

    name: str
    location: int = -1
    columns: set[str] = field(default_factory=set)
    is_in_view: bool = False
    """Whether a view names it, not the statement itself."""


@dataclass(slots=True, eq=False)
class CteRelation(FromItem):
    cte: int


@dataclass(slots=True, eq=False)
class QueryRelation(FromItem):
    query: "AnalyzedQuery"
    is_lateral: bool = False


@dataclass(slots=True, eq=False)
class FunctionRelation(FromItem):
    """Functions that return rows, such as `generate_series`; the columns of all are `c1`, `c2` and so on.

    Several advance together, and the shorter ones are filled with nulls.
    """

    calls: Sequence[Expression]
    with_ordinality: bool = False


@dataclass(slots=True, eq=False)
class Join(FromItem):
    left: FromItem
    right: FromItem
    kind: Literal["inner", "left", "right", "full", "cross"]
    condition: Expression | None = None


@dataclass(slots=True, eq=False)
class CommonTable:
    number: int
    query: "AnalyzedQuery"
    is_recursive: bool = False
    materialized: bool | None = None


@dataclass(slots=True, eq=False)
class AnalyzedQuery:
    """What all queries have. Their columns are `c1`, `c2` and so on to whatever is around them."""

    names: Sequence[str]
    types: Sequence[SqlType]
    ctes: Sequence[CommonTable] = field(default=(), kw_only=True)
    order: Sequence[SortKey] = field(default=(), kw_only=True)
    limit: Expression | None = field(default=None, kw_only=True)
    offset: Expression | None = field(default=None, kw_only=True)


@dataclass(slots=True, eq=False)
class Select(AnalyzedQuery):
    columns: Sequence[OutputColumn]
    sources: Sequence[FromItem] = ()
    where: Expression | None = None
    groups: Sequence["Grouping"] = ()
    is_grouped: bool = False
    having: Expression | None = None
    is_distinct: bool = False
    distinct_on: Sequence[Expression] = ()
    hidden: Sequence[Expression] = ()
    """What ORDER BY needs besides the columns."""


@dataclass(slots=True, eq=False)
class Grouping:
    """An item of GROUP BY: one set of expressions, or several."""

    kind: Literal["simple", "rollup", "cube", "sets"]
    expressions: Sequence[Expression] = ()
    parts: Sequence["Grouping"] = ()


@dataclass(slots=True, eq=False)
class SetOperation(AnalyzedQuery):
    operator: Literal["UNION", "INTERSECT", "EXCEPT"]
    is_all: bool
    left: AnalyzedQuery
    right: AnalyzedQuery


@dataclass(slots=True, eq=False)
class Values(AnalyzedQuery):
    rows: Sequence[Sequence[Expression]]


def parts_of(root: object) -> Iterator[object]:
    """Yield all parts of a query or expression, with its subqueries."""
    waiting = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(node)
        elif is_dataclass(node) and id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(getattr(node, one.name) for one in fields(node))


def without_relabeling(value: Expression) -> Expression:
    """Return what a cast from varchar to text is applied to: it changes the name of the type and nothing else."""
    if isinstance(value, Cast) and value.type.name == "text" and value.argument.type.name == "varchar":
        return value.argument
    return value
