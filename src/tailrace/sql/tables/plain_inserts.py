"""INSERTs of plain values: rows of constants, parameters and defaults, which are stored column by column without a plan."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tailrace.model.table import Column, Table
from tailrace.sql.grammar.writes import constant_of, plain_rows
from tailrace.sql.parameters import Parameters
from tailrace.sql.statements import Write
from tailrace.sql.tables.assignments import assigned_column
from tailrace.sql.tables.defaults import TableDefaults
from tailrace.sql.tables.schema import insert_sql
from tailrace.sql.tables.values import StoredValue

_OTHER_CLAUSES = ("onConflictClause", "returningList", "withClause")


class InsertCell(NamedTuple):
    """The source of a value of an INSERT: a parameter, a constant, or the default of the column."""

    parameter: int | None = None
    """The index of the parameter."""
    value: object = None
    is_default: bool = False


_DEFAULT = InsertCell(is_default=True)


class PlainInsert(NamedTuple):
    """An INSERT of plain values: rows for one prepared statement, which are inserted as they are or the statement fails."""

    table: Table
    rows: Sequence[Sequence[InsertCell]]
    """With a cell for each column of the table."""
    parameters: Sequence[str]
    sql: str

    def stored_rows(self, given: Sequence[Parameters], defaults: TableDefaults, now: datetime) -> list[tuple[StoredValue, ...]]:
        """Return the rows in their stored form, once for each set of parameters."""
        if given and isinstance(given[0], Mapping):
            given = [[values[name] for name in self.parameters] for values in given]  # type: ignore[call-overload]
        columns = [self._column(at, column, given, defaults, now) for at, column in enumerate(self.table.columns)]
        return list(zip(*columns, strict=True))

    def _column(
        self, at: int, column: Column, given: Sequence[Any], defaults: TableDefaults, now: datetime
    ) -> Sequence[StoredValue]:
        cells = [row[at] for row in self.rows]
        if all(cell.is_default for cell in cells):
            return [defaults.of(at, now) for _ in range(len(cells) * len(given))]
        values: list[object] = []
        for index, value, _ in cells:
            if index is None:
                values += [value] * len(given)
            else:
                values += [parameters[index] for parameters in given]
        if not any(cell.is_default for cell in cells):
            return assigned_column(values, column)
        return self._mixed(at, column, cells, values, defaults, now)

    def _mixed(
        self,
        at: int,
        column: Column,
        cells: Sequence[InsertCell],
        values: Sequence[object],
        defaults: TableDefaults,
        now: datetime,
    ) -> Sequence[StoredValue]:
        """Return the values of a column that has its default in some of the rows."""
        runs = len(values) // len(cells)
        are_default = [cell.is_default for cell in cells for _ in range(runs)]
        written = iter(
            assigned_column([value for value, is_default in zip(values, are_default, strict=True) if not is_default], column)
        )
        return [defaults.of(at, now) if is_default else next(written) for is_default in are_default]


def plain_insert(write: Write, table: Table) -> PlainInsert | None:
    """Return an INSERT of plain values, or `None` for any other statement."""
    fields = write.tree.get("InsertStmt")
    if fields is None or any(fields.get(clause) for clause in _OTHER_CLAUSES):
        return None
    override = fields.get("override", "OVERRIDING_NOT_SET")
    if override not in ("OVERRIDING_NOT_SET", "OVERRIDING_SYSTEM_VALUE"):
        return None
    rows = [[]] if "selectStmt" not in fields else plain_rows(fields)
    if rows is None:
        return None
    named = fields.get("cols", ())
    if any("indirection" in one["ResTarget"] for one in named):
        return None
    columns = [_named(one["ResTarget"]["name"], table) for one in named] if named else list(table.columns)
    # The analysis of other statements has the errors for names and numbers of columns.
    if None in columns or len(set(columns)) < len(columns):
        return None
    if rows != [[]]:
        width = len(rows[0])
        if any(len(row) != width for row in rows) or width > len(columns) or (named and width < len(columns)):
            return None
    for column in columns:
        is_generated = column is not None and column.identity is not None and column.identity.kind == "always"
        if is_generated and rows != [[]] and override == "OVERRIDING_NOT_SET":
            # Such a column takes nothing but DEFAULT.
            return None
    places = {column.name: place for place, column in enumerate(columns) if column is not None}
    return PlainInsert(table, [_cells(row, places, table) for row in rows], write.parameters, insert_sql(table))


def _cells(row: Sequence[Mapping[str, Any]], places: Mapping[str, int], table: Table) -> list[InsertCell]:
    cells = []
    for column in table.columns:
        place = places.get(column.name, len(row))
        cells.append(_cell(row[place]) if place < len(row) else _DEFAULT)
    return cells


def _cell(node: Mapping[str, Any]) -> InsertCell:
    if "SetToDefault" in node:
        return _DEFAULT
    if "ParamRef" in node:
        return InsertCell(parameter=node["ParamRef"]["number"] - 1)
    return InsertCell(value=constant_of(node))


def _named(name: str, table: Table) -> Column | None:
    exact = table.column(name)
    return exact or next((one for one in table.columns if one.name.lower() == name), None)
