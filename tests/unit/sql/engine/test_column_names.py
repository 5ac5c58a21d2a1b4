"""Columns without a name are called alike, whichever engine answers."""

import pytest

from tests.support.aio import on_loop
from tests.support.sql import running_sql

NAMES = {
    "count(*)": "count",
    "COUNT(*)": "count",
    "count(DISTINCT key)": "count",
    "count(*) FILTER (WHERE key = 'a')": "count",
    "row_number() OVER (ORDER BY key)": "row_number",
    "max(length(key))": "max",
    "coalesce(key, 'none')": "coalesce",
    "key::text": "key",
    "upper(key)::text": "upper",
    "(key)": "key",
    "CASE WHEN key = 'a' THEN 1 ELSE 2 END": "case",
    "CASE key WHEN 'a' THEN 1 END": "case",
    "key || '!'": "key || '!'",
    "1 + 1": "1 + 1",
    "'text'": "'text'",
    'count(*) AS "How Many"': "How Many",
    'key AS "COUNT(*)"': "COUNT(*)",
    "EXISTS (SELECT 1)": "exists",
}


@on_loop
async def test_tables_and_topics_name_columns_alike() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE a.rows (key text, PRIMARY KEY (key)); INSERT INTO a.rows VALUES ('a')")
        await sql.run("CREATE TOPIC a.records; INSERT INTO a.records (key, value) VALUES ('a', 'b')")
        for written, name in NAMES.items():
            for source in ("a.rows", "a.records"):
                (column,) = (await sql.run(f"SELECT {written} FROM {source}")).columns
                assert (source, written, column.name) == (source, written, name)


@pytest.mark.parametrize("source", ["a.rows", "a.records"])
@on_loop
async def test_a_name_may_come_twice(source: str) -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE a.rows (key text, PRIMARY KEY (key)); CREATE TOPIC a.records")
        result = await sql.run(f"SELECT count(*), count(key), max(key) FROM {source} UNION ALL SELECT 1, 2, '3' ORDER BY 1")
        assert [column.name for column in result.columns] == ["count", "count", "max"]
        assert list(map(tuple, result.rows)) == [(0, 0, None), (1, 2, "3")]


@on_loop
async def test_what_a_write_returns_is_named_the_same_way() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE a.rows (key text, PRIMARY KEY (key))")
        result = await sql.run("INSERT INTO a.rows VALUES ('a') RETURNING upper(key), key || '!', key")
        assert [column.name for column in result.columns] == ["upper", "key || '!'", "key"]
        assert list(map(tuple, result.rows)) == [("A", "a!", "a")]
