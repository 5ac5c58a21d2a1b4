"""Queries that PostgreSQL has and Tailrace refuses, by name and place, and queries that are wrong."""

import pytest

from tailrace.model.errors import SqlError, TailraceError, UnsupportedSqlError
from tests.support.aio import on_loop
from tests.support.queries import asking

REFUSED = [
    ("SELECT 1 INTO x", "SELECT INTO"),
    ("SELECT * FROM t FOR UPDATE", "FOR UPDATE"),
    ("SELECT * FROM t TABLESAMPLE system (10)", "TABLESAMPLE"),
    ("WITH x AS (INSERT INTO t VALUES (1) RETURNING 1) SELECT * FROM x", "INSERT, UPDATE and DELETE in WITH"),
    ("WITH x AS (DELETE FROM t RETURNING 1) SELECT * FROM x", "INSERT, UPDATE and DELETE in WITH"),
    ("SELECT FROM t", "SELECT without columns"),
    ("SELECT " + "ARRAY[" * 40 + "1" + "]" * 40, "arrays of more than one dimension"),
]


@pytest.mark.parametrize(("text", "named"), REFUSED)
@on_loop
async def test_a_clause_that_is_not_supported_is_refused_by_name(text: str, named: str) -> None:
    async with asking() as sql:
        await sql.broker.topics.create("t")
        with pytest.raises(UnsupportedSqlError, match="line 1, column") as refused:
            await sql.rows(text)
    assert named in str(refused.value)
    assert refused.value.sqlstate == "0A000"


WRONG = [
    ("SELECT nope FROM t", "42703", (1, 8)),
    ("SELECT key\n  FROM t\n WHERE nope(1) > 1", "42883", (3, 8)),
    ("SELECT * FROM nope", "42P01", (1, 15)),
    ("SELECT partition = 'x' FROM t", "22P02", (1, 20)),
    ("SELECT key FROM t GROUP BY partition", "42803", None),
    ("SELECT 1 / 0", "22012", None),
    ("SELECT 2147483647 + 1", "22003", None),
    ("SELECT (SELECT x FROM generate_series(1, 2) AS x)", "21000", None),
    ("SELECT $1", "42P02", (1, 8)),
]


@pytest.mark.parametrize(("text", "sqlstate", "place"), WRONG)
@on_loop
async def test_an_error_has_the_code_of_postgresql(text: str, sqlstate: str, place: tuple[int, int] | None) -> None:
    async with asking() as sql:
        await sql.broker.topics.create("t")
        with pytest.raises(SqlError) as refused:
            await sql.rows(text)
    assert refused.value.sqlstate == sqlstate
    assert place is None or (refused.value.line, refused.value.column) == place


@on_loop
async def test_deep_trees_are_refused() -> None:
    async with asking() as sql:
        await sql.broker.topics.create("t")
        for text in ("SELECT a" + "[1]" * 2_000 + " FROM (SELECT ARRAY[1] AS a) AS x", "SELECT " + "1 + " * 900 + "1"):
            with pytest.raises(TailraceError):
                await sql.rows(text)
