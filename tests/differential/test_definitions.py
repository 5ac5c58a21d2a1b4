"""Definitions of tables mean what they mean in PostgreSQL: the same scripts for both, with the same answers and SQLSTATEs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.model.errors import SqlError
from tests.differential.answers import Answer, AnswerColumn, Failure, comparable, judged, shown
from tests.differential.corpus import statements_of
from tests.differential.postgres import Postgres, running_postgres
from tests.support.aio import on_loop
from tests.support.sql import SqlClient, running_sql

SCRIPTS = Path(__file__).parent / "cases" / "definitions"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        yield postgres


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sql")), ids=lambda path: path.stem)
@on_loop
async def test_definitions_mean_what_they_mean_in_postgresql(postgres: Postgres, script: Path) -> None:
    texts = list(statements_of(script))
    assert texts
    differences = []
    async with running_sql() as sql:
        for text in texts:
            expected, found = postgres.run(text), await _answer(sql, text)
            verdict = judged(expected, found, ordered="ORDER BY" in text, names=True)
            states = {one.sqlstate for one in (expected, found) if isinstance(one, Failure)}
            if verdict.outcome not in ("equal", "both fail") or len(states) > 1:
                differences.append(f"{text}\n    P {shown(expected)}\n    T {shown(found)}")
    assert not differences, "\n".join(["", *differences])


async def _answer(sql: SqlClient, text: str) -> Answer | Failure:
    try:
        result = await sql.run(text)
    except SqlError as error:
        return Failure(error.sqlstate, str(error))
    if not result.columns:
        return Answer([], [])
    columns = [AnswerColumn(column.name, str(column.type).partition("(")[0]) for column in result.columns]
    return Answer(columns, [[comparable(value) for value in row] for row in result.rows])
