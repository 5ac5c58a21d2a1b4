"""Columns without a name are called as PostgreSQL calls them, whatever a query reads."""

import re

import pytest

from tailrace.model.errors import ReservedTopicError, SqlError, TailraceError, UnknownTableError
from tests.support.aio import on_loop
from tests.support.sql import SqlClient, running_sql

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
    "key || '!'": "?column?",
    "1 + 1": "?column?",
    "'text'": "?column?",
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
        assert [column.name for column in result.columns] == ["upper", "?column?", "key"]
        assert list(map(tuple, result.rows)) == [("A", "a!", "a")]


async def furnish(sql: SqlClient) -> None:
    await sql.run(
        "CREATE TABLE chat.messages (id bigint, body text, PRIMARY KEY (id)); CREATE TOPIC app.new WITH (alias = 'nm')"
    )
    await sql.run("INSERT INTO chat.messages VALUES (1, 'a')")


@on_loop
async def test_errors_have_their_place() -> None:
    async with running_sql() as sql:
        await furnish(sql)
        for text, column, message in (
            ("SELECT nope FROM chat.messages", 8, 'column "nope" does not exist'),
            ("SELECT m.nope FROM chat.messages m", 8, "column m.nope does not exist"),
            ("SELECT id FROM chat.messages ORDER BY nope", 39, 'column "nope" does not exist'),
            ("SELECT nope FROM app.new", 8, 'column "nope" does not exist'),
            ("UPDATE chat.messages SET body = nope", 33, 'column "nope" does not exist'),
            ("DELETE FROM chat.messages WHERE nope = 1", 33, 'column "nope" does not exist'),
            ("INSERT INTO chat.messages (id) SELECT nope FROM chat.messages", 39, 'column "nope" does not exist'),
            ("SELECT bdoy FROM chat.messages", 8, "column \"bdoy\" does not exist; did you mean 'body'?"),
            ("UPDATE chat.messages SET body = boddy", 33, "column \"boddy\" does not exist; did you mean 'body'?"),
            ("SELECT offst FROM app.new", 8, "column \"offst\" does not exist; did you mean 'offset'?"),
            ("SELECT n.offst FROM app.new n", 8, "column n.offst does not exist; did you mean 'offset'?"),
            (
                "INSERT INTO chat.messages (id, bdy) VALUES (1, 2)",
                32,
                'column "bdy" of relation "chat.messages" does not exist; did you mean \'body\'?',
            ),
            ("INSERT INTO chat.messages (id, Id) VALUES (1, 2)", 32, 'column "id" specified more than once'),
            (
                "INSERT INTO chat.messages (id) VALUES (1) ON CONFLICT (bdy) DO NOTHING",
                55,
                'column "bdy" of relation "chat.messages" does not exist; did you mean \'body\'?',
            ),
            ("SELECT * FROM messages", 15, "there is no table, topic or alias 'messages'; did you mean 'chat.messages'?"),
            ("SELECT * FROM app.nwe", 15, "there is no table, topic or alias 'app.nwe'; did you mean 'app.new'?"),
            ("SELECT * FROM zzz", 15, "there is no table, topic or alias 'zzz'"),
            ("INSERT INTO messages VALUES (1)", 13, "there is no table or topic 'messages'; did you mean 'chat.messages'?"),
            ("UPDATE chat.message SET id = 1", 8, "there is no table or topic 'chat.message'; did you mean 'chat.messages'?"),
            ("DELETE FROM new", 13, "there is no table or topic 'new'; did you mean 'app.new'?"),
            ("SELECT id FROM chat.messages LIMIT 'x'", 36, 'invalid input syntax for type bigint: "x"'),
        ):
            with pytest.raises(SqlError, match=f"{re.escape(message)}$") as refused:
                await sql.run(text)
            assert (text, refused.value.line, refused.value.column) == (text, 1, column)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT nofunc(id) FROM chat.messages", SqlError, "line 1, column 8: function nofunc(bigint) does not exist"),
        (
            "SELECT id FROM chat.messages UNION SELECT 1, 2",
            SqlError,
            "line 1, column 1: each UNION query must have the same number of columns",
        ),
        ("SELECT 1 / 0", SqlError, "division by zero"),
        ("SELECT id FROM chat.messages LIMIT -1", SqlError, "LIMIT must not be negative"),
        ("DROP TABLE app.new", UnknownTableError, "'app.new' is a topic, not a table; use DROP TOPIC"),
        ("DROP TOPIC chat.messages", ReservedTopicError, "'chat.messages' is a table, not a topic; use DROP TABLE"),
    ],
)
@on_loop
async def test_errors_speak_our_language(text: str, error: type[TailraceError], message: str) -> None:
    async with running_sql() as sql:
        await furnish(sql)
        with pytest.raises(error) as refused:
            await sql.run(text)
        assert str(refused.value).startswith(message)
        assert "SET " not in str(refused.value)


@on_loop
async def test_what_is_counted_of_sql_is_in_the_system_table() -> None:
    async with running_sql() as sql:
        await furnish(sql)
        text = (
            "SELECT value FROM system.stats WHERE name = 'tailrace_table_rows_total' AND labels ->> 'table' = 'chat.messages'"
        )
        assert await sql.rows(text) == [(1.0,)]


@on_loop
async def test_a_table_without_a_key_is_told_how_to_have_one() -> None:
    async with running_sql() as sql:
        with pytest.raises(SqlError, match=r"'t' has no PRIMARY KEY, .*; add one, such as PRIMARY KEY \(id\)$"):
            await sql.run("CREATE TABLE t (id bigint, body text)")
