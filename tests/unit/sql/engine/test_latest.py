"""LATEST(topic) in FROM: one row for each key."""

import pytest

from tailrace.model.errors import SqlError, UnknownTableError
from tests.support.aio import on_loop
from tests.support.sql import SqlClient, running_sql

WRITTEN = (
    "('a', '{\"n\": 1}', 0)",
    "('b', '{\"n\": 2}', 0)",
    "('a', '{\"n\": 3}', 1)",
    "('c', '{\"n\": 4}', 0)",
    "('c', NULL, 0)",
    "(NULL, '{}', 0)",
)
"""Keys, values and partitions, by cursor."""


async def filled(sql: SqlClient) -> None:
    await sql.run("CREATE TOPIC app.events PARTITIONS 2 WITH (alias = 'events')")
    for row in WRITTEN:
        await sql.run(f"INSERT INTO app.events (key, value, partition) VALUES {row}")


@on_loop
async def test_each_key_has_its_newest_record_and_tombstones_have_none() -> None:
    async with running_sql() as sql:
        await filled(sql)
        query = "SELECT key, value FROM LATEST(app.events) ORDER BY key"
        assert await sql.rows(query) == [("a", '{"n": 3}'), ("b", '{"n": 2}')]
        await sql.run("INSERT INTO app.events (key, value) VALUES ('c', 'again'), ('b', NULL)")
        assert await sql.rows(query) == [("a", '{"n": 3}'), ("c", "again")]


@on_loop
async def test_it_has_the_columns_of_the_topic() -> None:
    async with running_sql() as sql:
        await filled(sql)
        wanted = "SELECT * FROM app.events WHERE cursor IN (1, 2) ORDER BY cursor"
        assert await sql.dicts("SELECT * FROM LATEST(app.events) ORDER BY cursor") == await sql.dicts(wanted)


@on_loop
async def test_conditions_choose_from_the_newest_records() -> None:
    async with running_sql() as sql:
        await filled(sql)
        assert await sql.rows("SELECT key FROM LATEST(app.events) WHERE cursor < 2") == [("b",)]
        assert await sql.rows("SELECT key FROM LATEST(app.events) WHERE value::jsonb ->> 'n' = '1'") == []


@on_loop
async def test_it_stands_wherever_a_relation_may() -> None:
    async with running_sql() as sql:
        await filled(sql)
        for text, rows in (
            ("SELECT latest.key FROM LATEST(app.events) ORDER BY 1", [("a",), ("b",)]),
            ("SELECT l.key FROM LATEST('events') AS l ORDER BY 1", [("a",), ("b",)]),
            ("SELECT e.key FROM app.events e JOIN LATEST(events) l ON l.cursor = e.cursor ORDER BY 1", [("a",), ("b",)]),
            ("WITH l AS (SELECT * FROM LATEST(app.events)) SELECT count(*) FROM l", [(2,)]),
            ("SELECT (SELECT max(cursor) FROM LATEST(app.events))", [(2,)]),
        ):
            assert await sql.rows(text) == rows, text
        await sql.run("CREATE VIEW newest AS SELECT key, value FROM LATEST(app.events)")
        assert await sql.rows("SELECT key FROM newest ORDER BY key") == [("a",), ("b",)]


@on_loop
async def test_a_compacted_topic_gives_the_same() -> None:
    async with running_sql() as sql:
        await filled(sql)
        await sql.run("ALTER TOPIC app.events SET (cleanup_policy = 'compact')")
        before = await sql.dicts("SELECT * FROM LATEST(app.events) ORDER BY cursor")
        assert await sql.broker.compaction.run_once() > 0
        assert await sql.dicts("SELECT * FROM LATEST(app.events) ORDER BY cursor") == before


@on_loop
async def test_an_error_names_the_topic_and_its_place() -> None:
    async with running_sql() as sql:
        await filled(sql)
        with pytest.raises(UnknownTableError, match=r"app\.event.*did you mean 'app\.events'") as unknown:
            await sql.rows("SELECT *\nFROM LATEST(app.event)")
        assert (unknown.value.line, unknown.value.column) == (2, 13)
        with pytest.raises(SqlError):
            await sql.rows("SELECT * FROM LATEST(app.events, 1)")
        with pytest.raises(SqlError):
            await sql.rows("SELECT * FROM LATEST()")
