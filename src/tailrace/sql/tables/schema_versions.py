"""The shapes that the rows of a table had, and how a row of an older shape becomes one of the present shape.

A table knows its present columns and what each ALTER TABLE did (`Table.history`). The shape of an older version follows by
undoing that, from the newest change to the oldest; a row of it becomes a row of the present one by doing it again.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tailrace.model.errors import CorruptionError
from tailrace.model.table import Column, ColumnChange, ColumnType, Table
from tailrace.sql.tables.type_changes import TypeChange, type_change
from tailrace.sql.tables.values import StoredRow, StoredValue

UpgradeRow = Callable[[StoredRow], StoredRow]


class RowShape(NamedTuple):
    """The columns of one version. Only their names and types are those of that time."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


class ShapeChange(NamedTuple):
    """A change of one column, with the shapes before and after it."""

    change: ColumnChange
    before: RowShape
    after: RowShape

    @property
    def conversion(self) -> TypeChange:
        """How the values of a retyped column change."""
        place = self.change.place
        found = type_change(self.before.columns[place].type, self.after.columns[place].type)
        if found is None:
            raise CorruptionError(f"column {self.before.columns[place].name!r} has a change of its type that is not known")
        return found


def changes_since(table: Table, version: int) -> list[ShapeChange]:
    """Return what was done to the columns since a version, in order."""
    if not 1 <= version <= table.schema_version:
        raise CorruptionError(
            f"table {table.name!r} has version {table.schema_version} of its schema, and a row of it has version {version}"
        )
    after = RowShape(table.columns, table.primary_key)
    found: list[ShapeChange] = []
    for changes in reversed(table.history[version - 1 :]):
        for change in reversed(changes):
            before = _undone(after, change)
            found.append(ShapeChange(change, before, after))
            after = before
    found.reverse()
    return found


def shape_at(table: Table, version: int) -> RowShape:
    """Return the shape of a version."""
    changes = changes_since(table, version)
    return changes[0].before if changes else RowShape(table.columns, table.primary_key)


def upgrade_from(table: Table, version: int) -> UpgradeRow:
    """Return a function that makes a row of the present shape of one of this version."""
    steps = [step for shaped in changes_since(table, version) if (step := _step(shaped)) is not None]

    def upgrade(row: StoredRow) -> StoredRow:
        cells = list(row)
        for step in steps:
            step(cells)
        return cells

    return upgrade if steps else lambda row: row


def _step(shaped: ShapeChange) -> Callable[[list[StoredValue]], None] | None:
    """Return what a change does to the cells of a row, if anything."""
    place, value = shaped.change.place, shaped.change.value
    match shaped.change.kind:
        case "add":
            return lambda cells: cells.insert(place, value)
        case "drop":
            return lambda cells: cells.__delitem__(place)
        case "retype":
            convert = shaped.conversion.convert
            return None if convert is None else lambda cells: _convert(cells, place, convert)
    return None


def _convert(cells: list[StoredValue], place: int, convert: Callable[[StoredValue], StoredValue]) -> None:
    if cells[place] is not None:
        cells[place] = convert(cells[place])


def _undone(shape: RowShape, change: ColumnChange) -> RowShape:
    columns, key = list(shape.columns), shape.primary_key
    place = change.place
    match change.kind:
        case "add":
            del columns[place]
        case "drop":
            columns.insert(place, Column(change.name, change.type or ColumnType("text")))
        case "rename":
            key = tuple(change.name if name == columns[place].name else name for name in key)
            columns[place] = msgspec.structs.replace(columns[place], name=change.name)
        case "retype":
            columns[place] = msgspec.structs.replace(columns[place], type=change.type)
    return RowShape(tuple(columns), key)
