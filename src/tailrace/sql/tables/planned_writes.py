"""Writes that are planned when the types of their parameters are known, and the plans that are kept for the next run."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tailrace.model.errors import SqlError, UnknownTableError, UnsupportedSqlError
from tailrace.model.table import Table
from tailrace.sql.analysis.errors import UNDEFINED_TABLE, AnalysisError, UnsupportedError
from tailrace.sql.analysis.relations import RelationColumn
from tailrace.sql.analysis.types import SqlType, of_column
from tailrace.sql.analysis.writes import WriteAnalyzer
from tailrace.sql.statements import PostgresStatement, Write
from tailrace.sql.tables.assignments import parameter_type
from tailrace.sql.tables.plain_inserts import PlainInsert, plain_insert
from tailrace.sql.tables.write_plans import WritePlan, plan_write

FindTable = Callable[[str], Table | None]


class PlannedWrite(NamedTuple):
    """A statement that is not an INSERT of plain values."""

    table: Table
    write: Write
    """The statement without what belongs to one request."""


Program = PlainInsert | PlannedWrite


def program_of(write: Write, find: FindTable) -> Program:
    """Return how a statement runs. The table that it writes to must exist."""
    table = find(write.target)
    if table is None:
        raise SqlError(f"there is no table {write.target!r} to write to", *write.position_of(write.target_location))
    return plain_insert(write, table) or PlannedWrite(table, msgspec.structs.replace(write, queries=None, rows=None))


class PlanCache:
    """Keeps the plans of one statement by the types of its parameters."""

    def __init__(self, planned: PlannedWrite) -> None:
        self._planned = planned
        self._plans: dict[tuple[SqlType, ...], WritePlan] = {}

    def plan(self, values: Sequence[object], find: FindTable) -> WritePlan:
        kinds = tuple(map(parameter_type, values))
        plan = self._plans.get(kinds)
        if plan is None:
            plan = self._plans[kinds] = _plan(self._planned, kinds, find)
        return plan


def _plan(planned: PlannedWrite, kinds: Sequence[SqlType], find: FindTable) -> WritePlan:
    def columns(name: str) -> list[RelationColumn] | None:
        table = find(name)
        return None if table is None else written_columns(table)

    try:
        return plan_write(WriteAnalyzer(columns, kinds).analyze(planned.write.tree), planned.table)
    except AnalysisError as error:
        raise failure_at(error, planned.write) from None


def written_columns(table: Table) -> list[RelationColumn]:
    """Return the columns of a table as a write sees them."""
    return [
        RelationColumn(
            one.name,
            of_column(one.type),
            is_key=one.name in table.primary_key,
            unique_keys=[name for name, columns in table.unique_keys.items() if one.name in columns],
            is_identity=one.identity is not None and one.identity.kind != "serial",
            is_generated=one.identity is not None and one.identity.kind == "always",
        )
        for one in table.columns
    ]


def failure_at(error: AnalysisError, statement: PostgresStatement) -> SqlError:
    """Return the error of an expression as one of a statement, with its place if that is known."""
    place = statement.position_of(error.location) if error.location >= 0 else ()
    if error.sqlstate == UNDEFINED_TABLE and error.message.startswith("relation "):
        name = error.message.removeprefix('relation "').partition('" does not exist')[0]
        return UnknownTableError(f"there is no table, topic or alias {name!r}", *place)
    if isinstance(error, UnsupportedError):
        return UnsupportedSqlError(error.message, *place, sqlstate=error.sqlstate)
    return SqlError(error.message, *place, sqlstate=error.sqlstate)
