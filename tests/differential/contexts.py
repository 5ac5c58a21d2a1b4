"""The places in which Tailrace evaluates SQL, except routes: queries over tables, queries that touch a topic, and UPDATE.

Each context asks PostgreSQL and Tailrace for the same case and returns the verdict. An expression that PostgreSQL can't
evaluate on some rows is asked twice: on all rows, where both must fail, and on the rows that PostgreSQL has an answer for.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import pgparse

from tailrace.model.clock import SystemClock
from tailrace.model.errors import TailraceError
from tailrace.model.table import ColumnType
from tests.differential.answers import Answer, AnswerColumn, Failure, Verdict, comparable, judged, worst
from tests.differential.corpus import Case
from tests.differential.postgres import Postgres
from tests.differential.schema import RESULT_TYPES, ROW_COUNT, TOPIC, result_column, tailrace_statements
from tests.support.sql import SqlClient, running_sql

_WITH = re.compile(r"\s*WITH\s+(RECURSIVE\s+)?", re.IGNORECASE)
_TOUCHED = f"touched AS (SELECT 1 FROM {TOPIC})"
_CRASH = "unexpected internal error"
_RUNTIME_CLASSES = ("21", "22", "23")
"""Classes of SQLSTATE of errors that depend on the row."""


class ExpectedExpression(NamedTuple):
    """PostgreSQL's answer to an expression over the rows of `v`."""

    whole: Answer | Failure
    rows: Sequence[Answer | Failure]
    """The answer for each row; empty where the expression is wrong whatever the row is."""

    @property
    def type_name(self) -> str | None:
        answers = [self.whole, *self.rows]
        return next((answer.columns[0].type for answer in answers if isinstance(answer, Answer)), None)

    @property
    def answered_ids(self) -> list[int]:
        return [at for at, answer in enumerate(self.rows, 1) if isinstance(answer, Answer)]


def expected_expression(postgres: Postgres, expression: str) -> ExpectedExpression:
    whole = postgres.run(f"SELECT {expression} AS value FROM v ORDER BY id")
    if isinstance(whole, Answer):
        return ExpectedExpression(whole, [Answer(whole.columns, [row]) for row in whole.rows])
    if not (whole.sqlstate or "").startswith(_RUNTIME_CLASSES):
        return ExpectedExpression(whole, ())
    rows = [postgres.run(f"SELECT {expression} AS value FROM v WHERE id = {at}") for at in range(1, ROW_COUNT + 1)]
    return ExpectedExpression(whole, rows)


class TailraceContexts:
    """Judges cases in the contexts that need no Spark."""

    def __init__(self, postgres: Postgres, client: SqlClient) -> None:
        self.client = client
        self._postgres = postgres

    async def query(self, case: Case, *, touches_topic: bool) -> Verdict:
        expected = self._postgres.run(case.text)
        found = await self.run(touching_topic(case.text) if touches_topic else case.text)
        verdict = judged(expected, found, ordered=is_ordered(case.text), names=True)
        if isinstance(expected, Failure) or all(column.type != "json" for column in expected.columns):
            return verdict
        text = with_json_as_text(case.text, expected.columns)
        found = await self.run(touching_topic(text) if touches_topic else text)
        return worst(verdict, judged(self._postgres.run(text), found, ordered=False, names=True))

    async def selected(self, expression: str, expected: ExpectedExpression, *, touches_topic: bool) -> Verdict:
        def asked(where: str) -> str:
            text = f"SELECT {expression} AS value FROM v {where}ORDER BY id"
            return touching_topic(text) if touches_topic else text

        verdict = judged(expected.whole, await self.run(asked("")), ordered=True, names=False)
        ids = expected.answered_ids
        if isinstance(expected.whole, Answer) or not ids:
            return verdict
        answers = [answer for answer in expected.rows if isinstance(answer, Answer)]
        part = Answer(answers[0].columns, [row for answer in answers for row in answer.rows])
        found = await self.run(asked(f"WHERE id IN ({', '.join(map(str, ids))}) "))
        return worst(verdict, judged(part, found, ordered=True, names=False))

    async def updated(self, expression: str, expected: ExpectedExpression) -> Verdict:
        verdict = await self._updated(expression, expected.type_name, "")
        ids = expected.answered_ids
        if isinstance(expected.whole, Answer) or not ids:
            return verdict
        where = f" WHERE id IN ({', '.join(map(str, ids))})"
        return worst(verdict, await self._updated(expression, expected.type_name, where))

    async def _updated(self, expression: str, type_name: str | None, where: str) -> Verdict:
        column = result_column(type_name) if type_name in RESULT_TYPES else None
        assigned = f"{column} = {expression}" if column else "r_text = NULL"
        text = f"UPDATE v SET {assigned}{where} RETURNING id, {column or 'r_text'}, {expression} AS value"
        expected, found = self._postgres.run_and_undo(text), await self.run(text)
        verdict = judged(expected, found, ordered=False, names=False)
        if verdict.outcome == "DIFFERENT":
            alone = judged(_returned(expected), _returned(found), ordered=True, names=False)
            return alone if alone.aspects == verdict.aspects else verdict
        return verdict

    async def run(self, text: str) -> Answer | Failure:
        try:
            result = await self.client.run(text)
        except TailraceError as error:
            is_crash = str(error).startswith(_CRASH)
            return Failure(getattr(error, "sqlstate", None), f"{type(error).__name__}: {error}", is_crash)
        except Exception as error:  # noqa: BLE001  an exception that is no refusal is a difference
            return Failure(None, f"{type(error).__name__}: {error}", is_crash=True)
        columns = [AnswerColumn(column.name, type_name(column.type)) for column in result.columns]
        return Answer(columns, [[comparable(value) for value in row] for row in result.rows])


def _returned(answer: Answer | Failure) -> Answer | Failure:
    """Return what RETURNING said of the expression alone, in the order of the rows."""
    if isinstance(answer, Failure) or len(answer.columns) != 3:
        return answer
    return Answer(answer.columns[2:], [row[2:] for row in sorted(answer.rows, key=lambda row: row[0])])


def type_name(type_: ColumnType) -> str:
    return type_name(type_.element) + "[]" if type_.element is not None else type_.kind


def touching_topic(query: str) -> str:
    """Return the query with a topic among its sources. The topic has no effect on the answer."""
    found = _WITH.match(query)
    if found is None:
        return f"WITH {_TOUCHED} {query}"
    return f"{found.group()}{_TOUCHED}, {query[found.end() :]}"


def with_json_as_text(query: str, columns: Sequence[AnswerColumn]) -> str:
    """Return the query with its JSON as text, because an answer has one null for those of SQL and of JSON."""
    names = [f"c{at}" for at in range(len(columns))]
    values = [f"{name}::text" if column.type == "json" else name for name, column in zip(names, columns, strict=True)]
    return f"SELECT {', '.join(values)} FROM ({query}) AS q ({', '.join(names)})"


def is_ordered(query: str) -> bool:
    try:
        (statement,) = pgparse.parse(query)
    except (pgparse.PGQueryError, ValueError):
        return bool(re.search(r"ORDER BY[^()]*$", query, re.IGNORECASE))
    return "sortClause" in statement["stmt"].get("SelectStmt", {})


@asynccontextmanager
async def running_contexts(postgres: Postgres) -> AsyncIterator[TailraceContexts]:
    async with running_sql(clock=SystemClock()) as client:
        for statement in tailrace_statements():
            await client.run(statement)
        yield TailraceContexts(postgres, client)
