"""The analyzed form of INSERT, UPDATE and DELETE.

Expressions refer to rows of the target by numbers, and to what only a query can compute as columns of `computed`: subqueries,
and columns of FROM and USING. The queries read the rows as they were before the statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.sql.analysis.tree import AnalyzedQuery, Expression, OutputColumn, Select
from tailrace.sql.analysis.types import SqlType


@dataclass(slots=True, eq=False)
class AnalyzedWrite:
    table: str
    target: int
    """The number under which expressions refer to the row: as it was, or in RETURNING as it is now."""
    returning: Sequence[OutputColumn] = field(default=(), kw_only=True)
    old: int = field(default=0, kw_only=True)
    new: int = field(default=0, kw_only=True)
    """The numbers under which RETURNING refers to the row before and after the change."""
    computed: Select | None = field(default=None, kw_only=True)
    """What is computed by a query. That of an INSERT has one row; that of an UPDATE or DELETE has a row for each row of the
    target that is changed, or several, of which one counts, and its first columns are those of the primary key."""
    computed_number: int = field(default=0, kw_only=True)
    """The number under which expressions refer to the columns of `computed`, which are `c1`, `c2` and so on."""

    @property
    def computed_types(self) -> Sequence[SqlType]:
        return () if self.computed is None else self.computed.types


@dataclass(slots=True, eq=False)
class Assignment:
    column: str
    value: Expression | None
    """`None` for the default."""


@dataclass(slots=True, eq=False)
class ConflictAction:
    """ON CONFLICT. Nothing is done if there are no assignments."""

    columns: Sequence[str]
    assignments: Sequence[Assignment]
    where: Expression | None
    excluded: int
    """The number under which expressions refer to the row that was to be inserted."""


@dataclass(slots=True, eq=False)
class AnalyzedInsert(AnalyzedWrite):
    columns: Sequence[str]
    rows: Sequence[Sequence[Expression | None]]
    query: AnalyzedQuery | None = None
    """What is inserted instead of rows, with the columns in order; they are cast by `casts`."""
    query_number: int = 0
    """The number under which the casts refer to the columns of the query, which are `c1`, `c2` and so on."""
    casts: Sequence[Expression] = ()
    conflict: ConflictAction | None = None


@dataclass(slots=True, eq=False)
class AnalyzedUpdate(AnalyzedWrite):
    assignments: Sequence[Assignment]
    where: Expression | None = None
    """Which rows are changed, unless `computed` says so."""


@dataclass(slots=True, eq=False)
class AnalyzedDelete(AnalyzedWrite):
    where: Expression | None = None
    """Which rows are deleted, unless `computed` says so."""
