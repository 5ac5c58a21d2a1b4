"""Which statements of a text stand for themselves, and which are one transaction.

All of it is decided before anything is run, so a BEGIN without its COMMIT changes nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model.errors import SqlError, UnsupportedSqlError
from tailrace.sql.parameters import Parameters
from tailrace.sql.statements import Begin, Commit, Query, Rollback, Statement, Write


class Step(NamedTuple):
    """A statement, its parameters, and its number in the text, from 1."""

    number: int
    statement: Statement
    parameters: Parameters


class Transaction(NamedTuple):
    """What stands between BEGIN and its end."""

    begin: Step
    steps: Sequence[Step]
    end: Step

    @property
    def is_kept(self) -> bool:
        return isinstance(self.end.statement, Commit)


def plan(statements: Sequence[Statement], parameters: Sequence[Parameters]) -> list[Step | Transaction]:
    units: list[Step | Transaction] = []
    begin: Step | None = None
    inside: list[Step] = []
    for number, (statement, values) in enumerate(zip(statements, parameters, strict=True), 1):
        step = Step(number, statement, values)
        if isinstance(statement, Begin):
            if begin is not None:
                raise _misplaced(step, "a transaction has begun already; COMMIT or ROLLBACK it first")
            begin, inside = step, []
        elif isinstance(statement, Commit | Rollback):
            if begin is None:
                raise _misplaced(step, "there is no transaction; begin one with BEGIN")
            units.append(Transaction(begin, inside, step))
            begin = None
        elif begin is None:
            units.append(step)
        elif isinstance(statement, Write | Query):
            inside.append(step)
        else:
            raise UnsupportedSqlError(
                "only SELECT, INSERT, UPDATE and DELETE can be part of a transaction", statement.line, statement.column
            )
    if begin is not None:
        raise _misplaced(begin, "the transaction has no COMMIT or ROLLBACK; a transaction is one request")
    return units


def _misplaced(step: Step, message: str) -> SqlError:
    return SqlError(message, step.statement.line, step.statement.column)
