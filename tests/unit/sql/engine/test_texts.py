"""Texts of many statements, transactions, errors."""

import pytest

from tailrace.model.errors import (
    ConstraintError,
    SqlError,
    TailraceError,
    TopicExistsError,
    UnknownTableError,
    UnknownTopicError,
    UnsupportedSqlError,
)
from tests.support.aio import on_loop
from tests.support.sql import running_sql

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)"


@on_loop
async def test_each_statement_has_its_result() -> None:
    async with running_sql() as sql:
        results = await sql.engine.execute(f"{TABLE}; INSERT INTO t VALUES (1, 'a'), (2, 'b'); SELECT id FROM t ORDER BY id")
        assert [result.status for result in results] == ["CREATE TABLE", "INSERT 2", "SELECT 2"]
        assert results[1].affected == 2
        assert [tuple(row) for row in results[2].rows] == [(1,), (2,)]


@on_loop
async def test_after_an_error_the_rest_is_not_run() -> None:
    async with running_sql() as sql:
        with pytest.raises(TopicExistsError) as refused:
            await sql.engine.execute("CREATE TOPIC a;\nCREATE TOPIC a; CREATE TOPIC b")
        assert str(refused.value).startswith("statement 2 of 3, at line 2, column 1: 'a' is the name")
        assert str(refused.value).endswith("(the statement before it took effect; the rest was not run)")
        assert (refused.value.retriable, refused.value.outcome) == (False, "unknown")
        assert await sql.rows("SHOW TOPICS") == [("a", None, 1, 0, 0, None, None, None, "delete")]


@on_loop
async def test_a_text_with_a_mistake_runs_nothing() -> None:
    async with running_sql() as sql:
        for text in ("CREATE TOPIC a; CREATE TOPC b", "CREATE TOPIC a; BEGIN", "CREATE TOPIC a; SELECT ?"):
            with pytest.raises(SqlError):
                await sql.engine.execute(text)
        assert await sql.rows("SHOW TOPICS") == []


@on_loop
async def test_the_error_of_a_single_statement_stays_as_it_is() -> None:
    async with running_sql() as sql:
        with pytest.raises(UnknownTopicError) as refused:
            await sql.engine.execute("DROP TOPIC nothing")
        assert str(refused.value).startswith("there is no topic or alias 'nothing'; ")
        assert "CREATE TOPIC" in str(refused.value)
        assert refused.value.retriable


@on_loop
async def test_a_transaction_is_one_frame() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; CREATE TOPIC audit")
        before = sql.broker.store.end_cursor()
        results = await sql.engine.execute(
            "BEGIN; INSERT INTO t VALUES (1, 'a'); INSERT INTO audit (value) VALUES ('one'); UPDATE t SET body = 'b';"
            " SELECT body FROM t; COMMIT"
        )
        assert [result.status for result in results] == ["BEGIN", "INSERT 1", "INSERT 1", "UPDATE 1", "SELECT 1", "COMMIT"]
        assert [tuple(row) for row in results[4].rows] == [("b",)]
        changes = await sql.dicts("CONSUME FROM t")
        audit = await sql.dicts("CONSUME FROM audit")
        assert [record["op"] for record in changes] == ["insert", "update"]
        assert sorted(int(str(record["cursor"])) for record in changes + audit) == [before, before + 1, before + 2]


@on_loop
async def test_a_transaction_that_fails_takes_no_effect() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; CREATE TOPIC audit")
        with pytest.raises(ConstraintError, match="the transaction of statements 2 to 5 had no effect, at line 1, column 11"):
            await sql.engine.execute(
                "SELECT 1; BEGIN; INSERT INTO audit (value) VALUES ('one'); INSERT INTO t VALUES (1, 'a'), (1, 'b'); COMMIT"
            )
        assert await sql.rows("SELECT * FROM t") == []
        assert await sql.rows("CONSUME FROM audit") == []


@on_loop
async def test_what_is_rolled_back_is_not_run() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(TABLE)
        results = await sql.engine.execute("BEGIN; INSERT INTO t VALUES (1, 'a'); ROLLBACK")
        assert [result.status for result in results] == ["BEGIN", "not run, because of ROLLBACK", "ROLLBACK"]
        assert await sql.rows("SELECT * FROM t") == []


@on_loop
async def test_messages_for_many_topics_are_published_together() -> None:
    async with running_sql() as sql:
        await sql.engine.execute("CREATE TOPIC a; CREATE TOPIC b")
        with pytest.raises(TailraceError):
            await sql.engine.execute(
                "BEGIN; INSERT INTO a (value) VALUES (1); INSERT INTO b (value, partition) VALUES (2, 9); COMMIT"
            )
        assert await sql.rows("CONSUME FROM a") == []
        await sql.engine.execute("BEGIN; INSERT INTO a (value) VALUES (1); INSERT INTO b (value) VALUES (2); COMMIT")
        assert [record["cursor"] for topic in "ab" for record in await sql.dicts(f"CONSUME FROM {topic}")] == [0, 1]


@on_loop
async def test_a_transaction_does_not_read_topics() -> None:
    async with running_sql() as sql:
        await sql.engine.execute("CREATE TOPIC a")
        with pytest.raises(UnsupportedSqlError, match="a transaction can only read tables"):
            await sql.engine.execute("BEGIN; SELECT * FROM a; COMMIT")


@on_loop
async def test_rows_of_parameters_are_one_transaction() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(TABLE)
        assert (await sql.run("INSERT INTO t VALUES (?, ?)", [[1, "a"], [2, "b"], [3, None]])).affected == 3
        with pytest.raises(ConstraintError):
            await sql.run("INSERT INTO t VALUES (?, ?)", [[4, "d"], [1, "again"]])
        assert await sql.rows("SELECT * FROM t ORDER BY id") == [(1, "a"), (2, "b"), (3, None)]


@on_loop
async def test_parameters_in_order_go_to_their_places_whatever_the_order_of_clauses() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
        assert await sql.rows("SELECT id, ? FROM t WHERE id > ? ORDER BY id OFFSET ? LIMIT ?", ["x", 1, 1, 2]) == [
            (3, "x"),
            (4, "x"),
        ]


@on_loop
async def test_a_write_to_nothing_is_refused() -> None:
    async with running_sql() as sql:
        with pytest.raises(UnknownTableError, match="line 1, column 13: there is no table or topic 'nothing'"):
            await sql.run("INSERT INTO nothing (value) VALUES (1)")


@on_loop
async def test_a_table_is_there_once() -> None:
    async with running_sql() as sql:
        await sql.run(TABLE)
        assert (await sql.run("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY)")).status == "CREATE TABLE, which exists"
        with pytest.raises(SqlError, match="already"):
            await sql.run(TABLE)
        await sql.run("DROP TABLE t")
        assert (await sql.run("DROP TABLE IF EXISTS t")).status == "DROP TABLE, which does not exist"
        with pytest.raises(UnknownTableError):
            await sql.run("DROP TABLE t")


@on_loop
async def test_tables_and_topics_share_their_names() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; CREATE TOPIC a")
        for text in ("CREATE TOPIC t", "CREATE TOPIC IF NOT EXISTS t", "CREATE TABLE a (id INTEGER PRIMARY KEY)"):
            with pytest.raises(TailraceError) as refused:
                await sql.run(text)
            assert refused.value.http_status == 409


@on_loop
async def test_routes_hold_their_ends_until_cascade() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; CREATE TOPIC a; ALTER TOPIC a ADD SOURCE t ON INSERT WITH (payload = 'full')")
        routes = await sql.dicts("SHOW ROUTES")
        assert [(route["topic"], route["table"], route["operations"], route["payload"]) for route in routes] == [
            ("a", "t", ["insert"], "full")
        ]
        for text in ("DROP TOPIC a", "DROP TABLE t"):
            with pytest.raises(TailraceError, match="CASCADE"):
                await sql.run(text)
        await sql.run("DROP TABLE t CASCADE")
        assert await sql.rows("SHOW ROUTES") == []
        await sql.run("DROP TOPIC a")


@on_loop
async def test_a_source_is_dropped() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; CREATE TOPIC a; ALTER TOPIC a ADD SOURCE t ON INSERT")
        assert (await sql.run("ALTER TOPIC a DROP SOURCE t")).status == "DROP SOURCE"
        assert await sql.rows("SHOW ROUTES") == []
        with pytest.raises(TailraceError, match="there is no route"):
            await sql.run("ALTER TOPIC a DROP SOURCE t")


@on_loop
async def test_a_table_is_filled_from_a_topic() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; CREATE TOPIC a; INSERT INTO a (key, value) VALUES ('1', 'x'), ('2', 'y')")
        filled = await sql.run(
            "INSERT INTO t (id, body) SELECT CAST(key AS INTEGER), value || ? FROM a WHERE partition = ?", ["!", 0]
        )
        assert (filled.status, filled.affected) == ("INSERT 2", 2)
        assert await sql.rows("SELECT * FROM t ORDER BY id") == [(1, "x!"), (2, "y!")]
        again = await sql.run(
            "INSERT INTO t SELECT CAST(key AS INTEGER), value FROM a ON CONFLICT (id) DO UPDATE SET body = 'z'"
        )
        assert again.affected == 2
        assert await sql.rows("SELECT body FROM t") == [("z",), ("z",)]
        assert (await sql.run("INSERT INTO t SELECT 9, value FROM a WHERE key = 'none'")).affected == 0


@on_loop
async def test_a_table_is_filled_from_a_topic_by_way_of_a_cte() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; CREATE TOPIC a; INSERT INTO a (key, value) VALUES ('1', 'x')")
        await sql.run("WITH c AS (SELECT key, value FROM a) INSERT INTO t SELECT CAST(key AS INTEGER), value FROM c")
        assert await sql.rows("SELECT * FROM t") == [(1, "x")]


@on_loop
async def test_a_query_for_a_topic_is_no_part_of_a_transaction() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(f"{TABLE}; CREATE TOPIC a")
        with pytest.raises(UnsupportedSqlError, match="within a transaction only VALUES can be inserted into a topic"):
            await sql.engine.execute("BEGIN; INSERT INTO t VALUES (1, 'x'); INSERT INTO a (value) SELECT body FROM t; COMMIT")
        await sql.engine.execute("BEGIN; INSERT INTO a (value) VALUES ('x' || 'y'); COMMIT")
        assert [row["value"] for row in await sql.dicts("CONSUME FROM a")] == ["xy"]
        assert await sql.rows("SELECT * FROM t") == []


@on_loop
async def test_a_parameter_can_be_cast() -> None:
    async with running_sql() as sql:
        await sql.run(f"{TABLE}; INSERT INTO t VALUES (1, 'a')")
        assert await sql.rows("SELECT ?::integer + 1, ?::text", ["41", 7]) == [(42, "7")]
        assert await sql.rows("SELECT id FROM t WHERE id = ?::integer", ["1"]) == [(1,)]
