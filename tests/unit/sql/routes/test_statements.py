"""ADD SOURCE, DROP SOURCE and EXPLAIN, from the text of the statement on."""

from typing import Any

import msgspec
import pytest

from tailrace.model.errors import (
    ReservedTopicError,
    RoutedError,
    RouteExistsError,
    SqlError,
    UnknownTableError,
    UnknownTopicError,
)
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.sql.routes.check import analyzed_route
from tailrace.sql.routes.evaluation import RouteEvaluator
from tailrace.wire.partitioner import partition_for_key
from tests.support.aio import on_loop
from tests.support.sql import SqlClient, running_sql

MESSAGES = """
CREATE TABLE chat.messages (
    id bigint PRIMARY KEY, user_id bigint, channel_id bigint, is_visible boolean, body text, price decimal(10, 2)
);
CREATE TOPIC app.new_messages PARTITIONS 4 WITH (alias = 'app.news');
"""
ADD = "ALTER TOPIC app.new_messages ADD SOURCE chat.messages"


async def prepared(sql: SqlClient) -> None:
    await sql.run(MESSAGES)
    await sql.run(
        "INSERT INTO chat.messages VALUES"
        " (1, 7, 42, true, 'hi', 1.50), (2, 8, 42, false, 'x', NULL), (3, 7, 1, true, '12', 0), (4, 9, 42, true, NULL, 3)"
    )


async def explained(sql: SqlClient, clauses: str) -> tuple[list[dict[str, Any]], str]:
    result = await sql.run(f"EXPLAIN {ADD} {clauses}")
    names = [column.name for column in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows], result.status


@pytest.mark.parametrize(
    ("clauses", "operations", "where", "partition_by", "payload"),
    [
        ("ON INSERT WITH (payload = 'key')", ("insert",), None, (), "key"),
        ("ON INSERT WITH (payload = 'full')", ("insert",), None, (), "full"),
        (
            "ON INSERT WHERE (is_visible = true AND channel_id = 42) WITH (payload = 'key')",
            ("insert",),
            "is_visible = true AND channel_id = 42",
            (),
            "key",
        ),
        ("ON INSERT PARTITION BY (user_id) WITH (payload = 'key')", ("insert",), None, ("user_id",), "key"),
        ("ON DELETE, UPDATE WITH (payload = 'diff')", ("update", "delete"), None, (), "diff"),
    ],
)
@on_loop
async def test_add_source_makes_the_route_that_it_says(
    clauses: str, operations: tuple[str, ...], where: str | None, partition_by: tuple[str, ...], payload: str
) -> None:
    async with running_sql() as sql:
        await prepared(sql)
        result = await sql.run(f"{ADD} {clauses}")
        (route,) = sql.broker.routes
        assert (route.operations, route.where, route.partition_by, route.payload) == (operations, where, partition_by, payload)
        assert (route.topic_name, route.table_name) == ("app.new_messages", "chat.messages")
        assert result.cursor == route.since
        assert route.sql.row.startswith("STRUCT<`id`: BIGINT")


@on_loop
async def test_the_topic_may_be_named_by_its_alias_and_the_route_drops_by_either_name() -> None:
    async with running_sql() as sql:
        await prepared(sql)
        await sql.run("ALTER TOPIC app.news ADD SOURCE CHAT.Messages ON INSERT")
        (route,) = sql.broker.routes
        assert (route.topic_name, route.table_name) == ("app.new_messages", "chat.messages")
        await sql.run("ALTER TOPIC app.new_messages DROP SOURCE chat.messages")
        assert list(sql.broker.routes) == []


@on_loop
async def test_an_error_points_at_the_place_in_the_statement() -> None:
    async with running_sql() as sql:
        await prepared(sql)
        with pytest.raises(SqlError, match=r"line 3, column 10: table 'chat.messages' has no column 'chanel_id'; did you mean"):
            await sql.run(f"{ADD}\nON INSERT\n  WHERE (chanel_id = 42)")
        with pytest.raises(SqlError, match=r"line 2, column 37: table 'chat.messages' has no column 'nobody'"):
            await sql.run(f"{ADD}\nON INSERT PARTITION BY (is_visible, nobody)")
        assert list(sql.broker.routes) == []


@on_loop
async def test_what_is_not_there_is_told() -> None:
    async with running_sql() as sql:
        await prepared(sql)
        with pytest.raises(UnknownTableError):
            await sql.run("ALTER TOPIC app.new_messages ADD SOURCE chat.nothing ON INSERT")
        with pytest.raises(UnknownTopicError):
            await sql.run("ALTER TOPIC app.nothing ADD SOURCE chat.messages ON INSERT")
        with pytest.raises(ReservedTopicError):
            await sql.run("EXPLAIN ALTER TOPIC chat.messages ADD SOURCE chat.messages ON INSERT")


@on_loop
async def test_the_same_condition_written_otherwise_is_the_same_route() -> None:
    async with running_sql() as sql:
        await prepared(sql)
        await sql.run(f"{ADD} ON INSERT WHERE (channel_id = 42)")
        with pytest.raises(RouteExistsError):
            await sql.run(f"{ADD} ON INSERT where ((channel_id   =   42))")
        _, status = await explained(sql, "ON INSERT WHERE (channel_id = 42)")
        assert status == "3 of 4 changes match"


@on_loop
async def test_a_dry_run_shows_what_would_match_and_how_it_would_look() -> None:
    async with running_sql() as sql:
        await prepared(sql)
        await sql.run("DELETE FROM chat.messages WHERE id = 4")
        clauses = "ON INSERT WHERE (is_visible = true AND channel_id = 42) PARTITION BY (user_id) WITH (payload = 'full')"
        rows, status = await explained(sql, clauses)
        assert status == "2 of 5 changes match"
        assert [(row["op"], row["key"], row["matches"]) for row in rows] == [
            ("insert", {"id": 1}, "true"),
            ("insert", {"id": 2}, "false"),
            ("insert", {"id": 3}, "false"),
            ("insert", {"id": 4}, "true"),
            ("delete", {"id": 4}, "false"),
        ]
        first = {"id": 1, "user_id": 7, "channel_id": 42, "is_visible": True, "body": "hi", "price": "1.50"}
        assert [row["payload"] for row in rows] == [
            first,
            None,
            None,
            first | {"id": 4, "user_id": 9, "body": None, "price": "3.00"},
            None,
        ]
        assert rows[0]["partition"] == partition_for_key(b"[7]", 4)
        assert rows[3]["partition"] == partition_for_key(b"[9]", 4)
        cursors = [row["cursor"] for row in rows]
        assert cursors == sorted(cursors)
        assert list(sql.broker.routes) == []


@on_loop
async def test_a_dry_run_tells_null_from_false_and_both_from_failed() -> None:
    async with running_sql() as sql:
        await prepared(sql)
        rows, status = await explained(sql, "ON INSERT WHERE (CAST(body AS integer) > 5)")
        assert [row["matches"] for row in rows] == ["failed", "failed", "true", "null"]
        assert status == "1 of 4 changes matches, 2 fail"


@on_loop
async def test_a_dry_run_sees_both_images_of_an_update() -> None:
    async with running_sql() as sql:
        await prepared(sql)
        await sql.run("UPDATE chat.messages SET channel_id = 2 WHERE id = 1; UPDATE chat.messages SET body = 'y' WHERE id = 2")
        rows, status = await explained(sql, "ON UPDATE WHERE (OLD.channel_id <> NEW.channel_id) WITH (payload = 'diff')")
        assert status == "1 of 6 changes matches"
        assert rows[4]["payload"] == {"key": {"id": 1}, "changed": {"channel_id": {"old": 42, "new": 2}}}


async def counted(limits: Limits) -> tuple[list[dict[str, Any]], str]:
    async with running_sql(limits=limits) as sql:
        await prepared(sql)
        return await explained(sql, "ON INSERT")


@on_loop
async def test_a_dry_run_looks_at_the_newest_changes_only() -> None:
    rows, status = await counted(msgspec.structs.replace(DEFAULT_LIMITS, explained_changes=3))
    assert [row["key"] for row in rows] == [{"id": 2}, {"id": 3}, {"id": 4}]
    assert status == "3 of 3 changes match"
    rows, _ = await counted(msgspec.structs.replace(DEFAULT_LIMITS, explained_bytes=1))
    assert [row["key"] for row in rows] == [{"id": 4}]


@on_loop
async def test_a_dry_run_of_a_table_without_changes_is_empty() -> None:
    async with running_sql() as sql:
        await sql.run(MESSAGES)
        assert await explained(sql, "ON INSERT WHERE (channel_id = 1)") == ([], "0 of 0 changes match")


@on_loop
async def test_a_table_with_routes_goes_only_with_cascade() -> None:
    async with running_sql() as sql:
        await prepared(sql)
        await sql.run(f"{ADD} ON INSERT")
        with pytest.raises(RoutedError):
            await sql.run("DROP TABLE chat.messages")
        assert await sql.rows("SELECT count(*) FROM chat.messages") == [(4,)]
        with pytest.raises(RoutedError):
            await sql.run("DROP TOPIC app.new_messages")
        await sql.run("DROP TOPIC app.new_messages CASCADE")
        assert list(sql.broker.routes) == []
        await sql.run("CREATE TOPIC app.new_messages")
        await sql.run(f"{ADD} ON INSERT")
        await sql.run("DROP TABLE chat.messages CASCADE")
        assert list(sql.broker.routes) == []


@pytest.mark.parametrize(
    ("clauses", "in_python"),
    [
        ("ON INSERT WHERE (channel_id = 42)", ""),
        ("ON INSERT WHERE (initcap(body) = 'Hi')", "initcap(body) = 'Hi'"),
        ("ON INSERT WHERE (channel_id = 42 AND (initcap(body)) = 'Hi' AND is_visible)", "(initcap(body)) = 'Hi'"),
        ("ON INSERT WHERE ((initcap(body) = 'é(' OR is_visible) AND user_id = 7)", "initcap(body) = 'é(' OR is_visible"),
        (
            "ON INSERT WHERE (user_id = 7) PARTITION BY (initcap(body), user_id)",
            "PARTITION BY initcap(body), PARTITION BY user_id",
        ),
        (
            "ON INSERT WHERE (initcap(body) = 'Hi' AND user_id BETWEEN 1 AND 9 AND NOT initcap(body) = 'X')",
            "initcap(body) = 'Hi', NOT initcap(body) = 'X'",
        ),
    ],
)
@on_loop
async def test_explain_says_what_python_evaluates(clauses: str, in_python: str) -> None:
    async with running_sql() as sql:
        await prepared(sql)
        _, status = await explained(sql, f"{clauses} WITH (payload = 'key')")
        assert status.partition("; Python evaluates ")[2] == in_python


@pytest.mark.parametrize(
    ("condition", "matching"),
    [
        ("e = 'high'", [2]),
        ("e > 'low'", [2, 3]),
        ("r = 0.1::real", [1]),
        ("r > 0.1", [1, 2]),
        ("tm < '12:00'", [1]),
        ("c = 'ab'", [1]),
        ("c || 'x' = 'abx'", [1]),
        ("length(v) = 3", [2]),
        ("lower(c) = 'ab' AND initcap(v) = 'Xy'", [1]),
    ],
)
@on_loop
async def test_routes_see_columns_of_every_type_as_postgres_would(condition: str, matching: list[int]) -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TYPE level AS ENUM ('low', 'high', 'top')")
        await sql.run("CREATE TABLE t (id int PRIMARY KEY, e level, r real, tm time, c char(4), v varchar(5))")
        await sql.run("INSERT INTO t VALUES (1, 'low', 0.1, '10:30', 'ab', 'xy'), (2, 'high', 2.5, '12:00:00.5', 'b', 'xyz')")
        await sql.run("INSERT INTO t VALUES (3, 'top', NULL, NULL, NULL, NULL)")
        await sql.run("CREATE TOPIC typed")
        result = await sql.run(f"EXPLAIN ALTER TOPIC typed ADD SOURCE t ON INSERT WHERE ({condition}) WITH (payload = 'key')")
        keys = [str(row[2]) for row in result.rows if row[3] == "true"]
        assert keys == [f"{{'id': {id}}}" for id in matching]
        assert [row[3] for row in result.rows if row[3] == "failed"] == []


@pytest.mark.parametrize(("condition", "matches"), [("e > 'low'", True), ("e < 'high'", True), ("e = 'high'", False)])
@on_loop
async def test_a_route_knows_the_labels_that_an_enum_gets_later(condition: str, matches: bool) -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TYPE level AS ENUM ('low', 'high')")
        await sql.run("CREATE TABLE t (id int PRIMARY KEY, e level)")
        await sql.run("CREATE TOPIC typed")
        await sql.run(f"ALTER TOPIC typed ADD SOURCE t ON INSERT WHERE ({condition}) WITH (payload = 'key')")
        await sql.run("ALTER TYPE level ADD VALUE 'mid' BEFORE 'high'")
        (route,) = sql.broker.routes
        known = analyzed_route(sql.broker.tables.types.with_route_labels(route))
        assert known is not None
        outcome = RouteEvaluator(known).whole(None, b'{"id":1,"e":"mid"}')
        assert (outcome.matches, outcome.failed) == (matches, False)
