"""INSERT, UPDATE and DELETE with queries in them leave the rows that they leave in PostgreSQL, or fail with its code."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.model.errors import SqlError
from tests.differential.answers import Answer, AnswerColumn, Failure, comparable, judged, shown
from tests.differential.corpus import statements_of
from tests.differential.postgres import Postgres, running_postgres
from tests.support.aio import on_loop
from tests.support.sql import SqlClient, running_sql

CASES = Path(__file__).parent / "cases" / "changes"
QUERIES = (
    "CREATE TABLE t (id bigint PRIMARY KEY, a integer, b text, n decimal(8, 2))",
    "CREATE TABLE u (k integer PRIMARY KEY, v integer, w text, j jsonb)",
    "INSERT INTO t VALUES (1, 10, 'x', 1.5), (2, 20, 'y', 2.5), (3, NULL, 'z', NULL), (4, 40, NULL, 0)",
    """INSERT INTO u VALUES (1, 100, 'one', '{"b": 1.10, "a": [1]}'), (2, 200, 'two', NULL), (3, 300, NULL, '[]')""",
)
TYPES = (
    (
        "CREATE TABLE t (id bigint PRIMARY KEY, ts timestamptz, d date, u uuid, y bytea, l integer[], r real,"
        " f double precision, h time, c char(4), s varchar(5), n numeric(6, 2), b boolean, i smallint, j jsonb)"
    ),
    "CREATE TABLE u (k integer PRIMARY KEY, x text)",
    (
        "INSERT INTO t VALUES (1, '2026-01-31 10:00+02', '2026-01-31', 'f81d4fae-7dec-41d0-a765-00a0c91e6bf6', '\\x00ff',"
        """ '{1,NULL,3}', 0.1, 1e300, '13:45:00.5', 'ab', 'hello', 12.345, true, 7, '{"a": 1.50}')"""
    ),
    "INSERT INTO u VALUES (1, 'one'), (2, 'two')",
)
"""Two tables and their rows."""
LOOK = "SELECT * FROM t ORDER BY id"
JSON_NULLS = (
    "UPDATE u SET j = 'null'",
    """UPDATE u SET j = '{"a": null}'::jsonb -> 'a' WHERE k < 3""",
    "UPDATE u SET j = to_jsonb(w) WHERE k = 3",
    "UPDATE u SET j = (SELECT jsonb 'null')",
    "INSERT INTO u (k, j) VALUES (9, 'null'), (10, NULL), (11, '[null]')",
    "INSERT INTO u (k, j) SELECT k + 10, 'null'::jsonb FROM u",
    "INSERT INTO u (k, j) VALUES (1, 'true') ON CONFLICT (k) DO UPDATE SET j = 'null'",
)
LOOK_AT_JSON = "SELECT k, j IS NULL AS n, j::text AS t, jsonb_typeof(j) AS o, coalesce(j, '1')::text AS c FROM {} ORDER BY k"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        yield postgres


def given(postgres: Postgres, texts: Sequence[str]) -> None:
    for text in ("DROP TABLE IF EXISTS t, u CASCADE", *texts):
        assert not isinstance(postgres.run(text), Failure)


@asynccontextmanager
async def tailrace(texts: Sequence[str]) -> AsyncIterator[SqlClient]:
    async with running_sql() as sql:
        for text in texts:
            await sql.run(text)
        yield sql


@pytest.mark.parametrize(("cases", "tables"), [("queries", QUERIES), ("types", TYPES)], ids=["queries", "types"])
@on_loop
async def test_a_write_changes_the_rows_that_it_changes_in_postgresql(
    postgres: Postgres, cases: str, tables: Sequence[str]
) -> None:
    texts = list(statements_of(CASES / f"{cases}.sql"))
    assert len(texts) > 50
    differences = []
    reset = "; ".join(["BEGIN", "TRUNCATE t", "TRUNCATE u", *tables[2:], "COMMIT"])
    given(postgres, tables)
    async with tailrace(tables) as sql:
        for text in texts:
            expected, expected_rows = postgres.run_and_look(text, LOOK)
            found = await answer(sql, text)
            found_rows = await answer(sql, LOOK) if isinstance(found, Answer) else found
            states = {one.sqlstate for one in (expected, found) if isinstance(one, Failure)}
            outcomes = [
                judged(expected, found, ordered=False, names=True),
                judged(expected_rows, found_rows, ordered=True, names=True),
            ]
            if len(states) > 1 or any(one.outcome not in ("equal", "both fail") for one in outcomes):
                differences.append(
                    f"{text}\n    P {shown(expected)} {shown(expected_rows)}\n    T {shown(found)} {shown(found_rows)}"
                )
            if isinstance(found, Answer):
                await sql.run(reset)
    assert not differences, "\n".join(["", *differences])


@on_loop
async def test_the_null_of_json_in_a_column_is_the_null_of_sql(postgres: Postgres) -> None:
    """This is meant to differ, so the judge is a PostgreSQL that reads the column through `nullif`."""
    given(postgres, QUERIES)
    as_stored = LOOK_AT_JSON.format("(SELECT k, nullif(j, 'null') AS j FROM u) AS u")
    async with tailrace(QUERIES) as sql:
        for text in JSON_NULLS:
            _, plain = postgres.run_and_look(text, LOOK_AT_JSON.format("u"))
            _, expected = postgres.run_and_look(text, as_stored)
            await sql.run(text)
            found = await answer(sql, LOOK_AT_JSON.format("u"))
            assert str(judged(expected, found, ordered=True, names=True)) == "equal", text
            has_null = isinstance(plain, Answer) and any(row[3] == "null" for row in plain.rows)
            assert str(judged(plain, found, ordered=True, names=True)) == ("DIFFERENT (value)" if has_null else "equal"), text
            await sql.run("; ".join(["BEGIN", "TRUNCATE u", QUERIES[3], "COMMIT"]))


@on_loop
async def test_what_would_differ_is_refused_with_its_place(postgres: Postgres) -> None:
    given(postgres, QUERIES)
    async with tailrace(QUERIES) as sql:
        for text in statements_of(CASES / "refused.sql"):
            assert isinstance(postgres.run_and_undo(text), Answer), text
            with pytest.raises(SqlError) as refused:
                await sql.run(text)
            assert refused.value.sqlstate == "0A000"
            assert refused.value.line == 1


async def answer(sql: SqlClient, text: str) -> Answer | Failure:
    try:
        result = await sql.run(text)
    except SqlError as error:
        return Failure(error.sqlstate, str(error))
    columns = [AnswerColumn(column.name, str(column.type).partition("(")[0]) for column in result.columns]
    return Answer(columns, [[comparable(value) for value in row] for row in result.rows])
