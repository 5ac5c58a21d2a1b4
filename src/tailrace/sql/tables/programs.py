"""Statements as SQLite can run them, as values. `compile` makes them once for each text, and they are run many times.

An INSERT of plain values is rows for one prepared statement, checked and brought to their form column by column here.
Everything else is one statement of SQLite's, in which each value that is written passes through `tr_store`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.model.table import ColumnType, Table
from tailrace.sql.tables.column_values import stored_column
from tailrace.sql.tables.values import Stored


class Cell(NamedTuple):
    """Where a value of an INSERT comes from."""

    parameter: str | None = None
    value: object = None
    is_stored: bool = False
    """Whether the value is in its form already."""


class InsertRows(NamedTuple):
    """Rows for one prepared statement."""

    table: Table
    rows: Sequence[Sequence[Cell]]
    sql: str
    parameters: Sequence[str]
    """Of the clauses after the rows; they are bound after a row's cells."""
    is_plain: bool
    """Whether each row goes in as it is or the statement fails, so that the change is known without looking."""
    returning: "Returned | None"


class Run(NamedTuple):
    """One statement of SQLite's."""

    sql: str
    parameters: Sequence[str]
    returning: "Returned | None"


class Returned(NamedTuple):
    """What comes back: types by column, as far as they are known."""

    types: Sequence[ColumnType | None] | None


Program = InsertRows | Run


class Compiled(NamedTuple):
    """A program that was made in another process, and what it was made for."""

    program: Program
    tables: Sequence[Table]
    """As they were then. With others under the same names it must not be run."""
    types: Mapping[str, ColumnType]
    """The types that it casts to, by name."""


def rows_to_store(
    program: InsertRows, given: Sequence[Mapping[str, object]] | Sequence[Sequence[object]]
) -> list[tuple[Stored, ...]]:
    """The rows in the form in which they are kept, once for each set of parameters."""
    columns = []
    by_position = not given or not isinstance(given[0], Mapping)
    for at, column in enumerate(program.table.columns):
        values: list[object] = []
        is_stored = True
        for row in program.rows:
            name, value, cell_is_stored = row[at]
            is_stored = is_stored and cell_is_stored
            if name is None:
                values += [value] * len(given)
            elif by_position:
                place = int(name) - 1
                values += [parameters[place] for parameters in given]  # type: ignore[index]
            else:
                values += [parameters[name] for parameters in given]  # type: ignore[call-overload]
        columns.append(values if is_stored else stored_column(values, column))
    return list(zip(*columns, strict=True))
