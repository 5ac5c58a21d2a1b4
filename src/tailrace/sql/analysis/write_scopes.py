"""What the names in a write mean: the table that is written to, and the rows that RETURNING can refer to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailrace.model.names import without_public
from tailrace.model.suggestions import did_you_mean
from tailrace.sql.analysis.errors import UNDEFINED_COLUMN, UNDEFINED_TABLE, AnalysisError, UnsupportedError
from tailrace.sql.analysis.parse_tree import Node
from tailrace.sql.analysis.relations import FindRelation, KeyedRelation, RelationColumn, ViewQuery
from tailrace.sql.analysis.scope import Scope, ScopeColumn, ScopeRelation, qualifiers_of
from tailrace.sql.analysis.tree import ColumnReference
from tailrace.sql.analysis.write_tree import ConflictAction


class WriteTarget:
    """The table that is written to."""

    def __init__(self, find: FindRelation, fields: Node, number: int) -> None:
        parts = [fields[part] for part in ("catalogname", "schemaname", "relname") if part in fields]
        self.number = number
        self.name = ".".join(parts)
        found = find(self.name)
        if found is None and without_public(self.name) != self.name:
            self.name = without_public(self.name)
            found = find(self.name)
        if found is None:
            raise AnalysisError(UNDEFINED_TABLE, f'relation "{self.name}" does not exist', fields.get("location", 0))
        if isinstance(found, ViewQuery | KeyedRelation):
            raise UnsupportedError(f'"{self.name}" is a view, which can\'t be written to', fields.get("location", 0))
        self.columns = [column for column in found if not column.is_hidden]
        alias = fields.get("alias", {}).get("aliasname")
        self._qualifiers = [alias] if alias else qualifiers_of(self.name)

    def relation(self, qualifiers: Sequence[str] | None = None, number: int | None = None) -> ScopeRelation:
        """Return the columns of the table under a number."""
        number = self.number if number is None else number
        columns = [
            ScopeColumn(one.name, ColumnReference(one.type, number, one.name), is_key=one.is_key) for one in self.columns
        ]
        return ScopeRelation(qualifiers or self._qualifiers, columns)

    def images(
        self, returned: Mapping[str, Any], conflict: ConflictAction | None, *, with_target: bool = True
    ) -> set[tuple[int, str]]:
        """Return the columns of the rows that are there only while the statement runs."""
        numbers = [self.number] if with_target else []
        numbers += [returned[name] for name in ("old", "new") if name in returned]
        numbers += [] if conflict is None else [conflict.excluded]
        return {(number, column.name) for number in numbers for column in self.columns}

    def column(self, fields: Node) -> RelationColumn:
        """Return the column that a `ResTarget` or `IndexElem` names."""
        name, location = fields["name"], fields.get("location", -1)
        if fields.get("indirection"):
            raise UnsupportedError("parts of a column can't be assigned; assign the whole value", location)
        found = [one for one in self.columns if one.name == name] or [one for one in self.columns if one.name.lower() == name]
        if not found:
            hint = did_you_mean(name, [one.name for one in self.columns])
            raise AnalysisError(UNDEFINED_COLUMN, f'column "{name}" of relation "{self.name}" does not exist{hint}', location)
        return found[0]


class ReturningScope(Scope):
    """The scope of RETURNING: the target, `old`, `new`, and the other relations. Only a qualifier means `old` and `new`."""

    def _here(self, name: str, qualifier: str | None) -> list[ScopeColumn]:
        return super()._here(name, qualifier) if qualifier is not None else self._shown()._here(name, None)

    def all_columns(self) -> Iterator[ScopeColumn]:
        yield from self.relations[0].columns
        yield from Scope(None, self.relations[3:], self.joined).all_columns()

    def _shown(self) -> Scope:
        return Scope(None, [self.relations[0], *self.relations[3:]], self.joined)
