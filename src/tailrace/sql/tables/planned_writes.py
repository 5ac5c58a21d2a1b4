"""Writes that are planned when the types of their parameters are known, and the plans that are kept for the next run."""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pgparse
from sqlglot.tokenizer_core import TokenType

from tailrace.model.errors import SqlError, SqlSyntaxError, UnsupportedSqlError
from tailrace.model.table import Table
from tailrace.sql.analysis import types
from tailrace.sql.analysis.errors import AnalysisError, UnsupportedError
from tailrace.sql.analysis.queries import RelationColumn
from tailrace.sql.analysis.types import SqlType
from tailrace.sql.analysis.writes import WriteAnalyzer
from tailrace.sql.dialect import tokenize
from tailrace.sql.syntax_trees import position_at
from tailrace.sql.tables.write_plans import WritePlan, plan_write

FindTable = Callable[[str], Table | None]


class PlannedWrite(NamedTuple):
    """A statement in PostgreSQL's grammar, before it is analyzed."""

    table: Table
    text: str
    """The statement with its parameters as `$1`, `$2` and so on."""
    parameters: Sequence[str]
    line: int
    column: int
    """Where the statement starts in the text of the request."""


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
        if table is None:
            return None
        return written_columns(table)

    try:
        (statement,) = pgparse.parse(planned.text)
        write = WriteAnalyzer(columns, kinds).analyze(statement["stmt"])
        return plan_write(write, planned.table)
    except pgparse.PGQueryError as error:
        raise SqlSyntaxError(error.message, *_place(planned, (error.position or 1) - 1)) from None
    except AnalysisError as error:
        raise failure_at(error, planned) from None


def written_columns(table: Table) -> list[RelationColumn]:
    """Return the columns of a table as a write sees them."""
    return [
        RelationColumn(
            one.name,
            types.of_column(one.type),
            is_key=one.name in table.primary_key,
            unique_keys=[name for name, columns in table.unique_keys.items() if one.name in columns],
            is_generated=one.identity is not None and one.identity.kind == "always",
        )
        for one in table.columns
    ]


def failure_at(error: AnalysisError, planned: PlannedWrite) -> SqlError:
    """Return the error of an expression as one of a statement, with its place if that is known."""
    kind = UnsupportedSqlError if isinstance(error, UnsupportedError) else SqlError
    if error.location < 0:
        return kind(error.message, sqlstate=error.sqlstate)
    index = len(planned.text.encode()[: error.location].decode(errors="ignore"))
    return kind(error.message, *_place(planned, index), sqlstate=error.sqlstate)


def _place(planned: PlannedWrite, index: int) -> tuple[int, int]:
    line, column = position_at(planned.text, index)
    return (planned.line + line - 1, column) if line > 1 else (planned.line, planned.column + column - 1)


def postgres_text(text: str, names: Sequence[str]) -> str:
    """Return a statement with `?` and `:name` replaced by `$1`, `$2` and so on."""
    if not names:
        return text
    pieces: list[str] = []
    done = positional = 0
    tokens = tokenize(text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        name, end = None, token.end
        if token.token_type is TokenType.PLACEHOLDER:
            positional += 1
            name = str(positional)
        elif token.token_type is TokenType.COLON and following is not None and following.start == token.end + 1:
            name, end = following.text, following.end
        if name in names:
            pieces += (text[done : token.start], f"${names.index(name) + 1}")
            done = end + 1
    return "".join((*pieces, text[done:]))


def parameter_type(value: object) -> SqlType:
    """Return the type of a parameter. That of a string, a list or a null is decided by what stands around it."""
    match value:
        case None | str() | list() | tuple():
            return types.UNKNOWN
        case bool():
            return types.BOOL
        case int():
            return (
                types.INT4 if -(1 << 31) <= value < 1 << 31 else types.INT8 if -(1 << 63) <= value < 1 << 63 else types.NUMERIC
            )
        case float():
            return types.FLOAT8
        case Decimal():
            return types.NUMERIC
        case bytes():
            return types.BYTEA
        case datetime():
            return types.TIMESTAMPTZ if value.tzinfo is not None else types.TIMESTAMP
        case date():
            return types.DATE
        case UUID():
            return types.UUID
        case dict():
            return types.JSONB
    raise SqlError(
        f"a parameter can't be a {type(value).__name__}; use a type that JSON has, or bytes, a date, a time, a UUID or a"
        " Decimal"
    )


def parameter_value(value: object) -> Any:
    """Return a parameter as a value of its type."""
    match value:
        case dict():
            return msgspec.json.encode(value).decode()
        case int() if not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
            return Decimal(value)
    return value
