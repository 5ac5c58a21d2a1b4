"""Which columns a name can mean: those of the FROM items around an expression, the nearest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tailrace.model.suggestions import did_you_mean
from tailrace.sql.analysis.errors import AMBIGUOUS_COLUMN, UNDEFINED_COLUMN, UNDEFINED_TABLE, AnalysisError, UnsupportedError
from tailrace.sql.analysis.tree import ColumnReference, Expression, NamedRelation
from tailrace.sql.analysis.types import SqlType


@dataclass(slots=True, eq=False)
class ScopeColumn:
    name: str
    expression: Expression
    is_hidden: bool = False
    """Whether `*` leaves it out."""
    is_key: bool = False


def qualifiers_of(name: str) -> list[str]:
    """Return what may stand before the columns of a relation: its name, with and without its namespace."""
    schema, _, base = name.rpartition(".")
    return [name, base] if schema else [name, f"public.{name}"]


@dataclass(slots=True, eq=False)
class ScopeRelation:
    """The columns of a FROM item under the names by which a statement can call it."""

    qualifiers: Sequence[str]
    """The alias, or the name with and without its namespace. Empty for a join."""
    columns: Sequence[ScopeColumn]
    source: NamedRelation | None = None
    merged: frozenset[str] = frozenset()
    """Columns that a USING shows elsewhere: reached by a qualifier alone."""
    is_scalar: bool = False
    """Whether it is a function that returns plain values, for which its own name stands too."""
    is_nullable: bool = False
    """Whether an outer join may fill its row with nulls."""


@dataclass(slots=True, eq=False)
class Scope:
    parent: "Scope | None" = None
    relations: list[ScopeRelation] = field(default_factory=list)
    joined: list[ScopeColumn] = field(default_factory=list)
    """Columns that USING and NATURAL have merged."""

    def find(self, name: str, qualifier: str | None, location: int) -> Expression:
        """Return the column of a name. Raises `AnalysisError` if there is none, or more than one."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._here(name, qualifier)
            if len(found) > 1:
                raise AnalysisError(AMBIGUOUS_COLUMN, f'column reference "{name}" is ambiguous', location)
            if found:
                return _located(found[0].expression, location)
            if qualifier is not None and scope._has(qualifier):
                raise AnalysisError(
                    UNDEFINED_COLUMN, f"column {qualifier}.{name} does not exist{self._hint(name, qualifier)}", location
                )
            scope = scope.parent
        row = self.relation(name) if qualifier is None else None
        if row is not None and row.is_scalar:
            return _located(row.columns[0].expression, location)
        if row is not None:
            raise UnsupportedError(f'the row "{name}" as a value is not supported; name its columns', location)
        if qualifier is not None:
            raise AnalysisError(UNDEFINED_TABLE, f'missing FROM-clause entry for table "{qualifier}"', location)
        raise AnalysisError(UNDEFINED_COLUMN, f'column "{name}" does not exist{self._hint(name, None)}', location)

    def has_column(self, name: str) -> bool:
        """Return whether a bare name means a column, here or around."""
        scope: Scope | None = self
        while scope is not None:
            if scope._here(name, None):
                return True
            scope = scope.parent
        return False

    def relation(self, qualifier: str) -> ScopeRelation | None:
        """Return the FROM item of this name, here or around."""
        scope: Scope | None = self
        while scope is not None:
            for one in scope.relations:
                if qualifier in one.qualifiers:
                    return one
            scope = scope.parent
        return None

    def all_columns(self) -> Iterator[ScopeColumn]:
        """Yield what `*` stands for."""
        yield from self.joined
        for one in self.relations:
            for column in one.columns:
                if not column.is_hidden and column.name not in one.merged:
                    yield column

    def _here(self, name: str, qualifier: str | None) -> list[ScopeColumn]:
        if qualifier is None:
            merged = [column for column in self.joined if column.name == name]
            if merged:
                return merged
        columns = [
            column
            for one in self.relations
            if (qualifier in one.qualifiers if qualifier is not None else name not in one.merged)
            for column in one.columns
        ]
        # A table may have been created with names in capitals, which an unquoted name of a query does not keep.
        return [one for one in columns if one.name == name] or [one for one in columns if one.name.lower() == name]

    def _has(self, qualifier: str) -> bool:
        return any(qualifier in one.qualifiers for one in self.relations)

    def _hint(self, name: str, qualifier: str | None) -> str:
        names: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            for one in scope.relations:
                if qualifier is None or qualifier in one.qualifiers:
                    names += [column.name for column in one.columns]
            scope = scope.parent
        return did_you_mean(name, names)


def _located(expression: Expression, location: int) -> Expression:
    if isinstance(expression, ColumnReference):
        return ColumnReference(
            expression.type,
            expression.relation,
            expression.column,
            expression.is_json_text,
            expression.is_dependent,
            location=location,
        )
    return expression


def columns_of(number: int, names: Sequence[str], types: Sequence[SqlType]) -> list[ScopeColumn]:
    """Return the columns of a subquery, which the engine knows as `c1`, `c2` and so on."""
    return [
        ScopeColumn(name, ColumnReference(sql_type, number, f"c{at}"))
        for at, (name, sql_type) in enumerate(zip(names, types, strict=True), 1)
    ]
