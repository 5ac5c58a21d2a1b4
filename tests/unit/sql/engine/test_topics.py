"""Statements about topics, and messages into them."""

from datetime import UTC, datetime

import pytest

from tailrace.model.errors import (
    InvalidPartitionsError,
    ReservedTopicError,
    SqlError,
    TailraceError,
    TopicExistsError,
    UnknownTableError,
    UnsupportedSqlError,
)
from tailrace.model.ids import Offset
from tailrace.wire.batch import read_header
from tailrace.wire.compression import Compression
from tests.support.aio import on_loop
from tests.support.sql import running_sql


@on_loop
async def test_a_topic_is_made_altered_and_dropped() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC app.x PARTITIONS 2 WITH (alias = 'y', retention_seconds = 60, dedup = 'id')")
        topic = sql.broker.topics.get("y").topic
        assert (topic.name, topic.partitions, topic.settings.retention_seconds, topic.settings.dedup) == ("app.x", 2, 60, "id")
        await sql.run("ALTER TOPIC y SET (retention_seconds = NULL, alias = 'z')")
        await sql.run("ALTER TOPIC z ADD PARTITIONS 3")
        topic = sql.broker.topics.get("app.x").topic
        assert (topic.alias, topic.partitions, topic.settings.retention_seconds, topic.settings.dedup) == ("z", 5, None, "id")
        await sql.run("DROP TOPIC z")
        assert sql.broker.topics.find("app.x") is None
        assert (await sql.run("DROP TOPIC IF EXISTS app.x")).status == "DROP TOPIC, which does not exist"


@on_loop
async def test_a_topic_has_one_partition_unless_told_otherwise() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        assert sql.broker.topics.get("a").topic.partitions == 1
        with pytest.raises(InvalidPartitionsError):
            await sql.run("CREATE TOPIC b PARTITIONS 0")


@on_loop
async def test_a_topic_that_exists_is_refused_unless_it_may_exist() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a PARTITIONS 2")
        with pytest.raises(TopicExistsError):
            await sql.run("CREATE TOPIC a PARTITIONS 2")
        assert (await sql.run("CREATE TOPIC IF NOT EXISTS a PARTITIONS 9")).status == "CREATE TOPIC, which exists"
        assert sql.broker.topics.get("a").topic.partitions == 2


@on_loop
async def test_a_cleared_topic_is_empty() -> None:
    async with running_sql() as sql:
        await sql.engine.execute("CREATE TOPIC a PARTITIONS 2; INSERT INTO a (value, partition) VALUES ('x', 0), ('y', 1)")
        assert (await sql.run("CLEAR TOPIC a")).affected == 2
        assert await sql.rows("CONSUME FROM a") == []
        await sql.run("INSERT INTO a (value, partition) VALUES ('z', 1)")
        assert [(row["partition"], row["offset"]) for row in await sql.dicts("CONSUME FROM a")] == [(1, 1)]


@on_loop
async def test_topics_of_the_servers_own_are_left_alone() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        for text in (
            "CREATE TOPIC _changes.x",
            "DROP TOPIC _changes.t",
            "DROP TOPIC t",
            "CLEAR TOPIC t",
            "ALTER TOPIC t ADD PARTITIONS 1",
            "ALTER TOPIC t SET (alias = 'u')",
            "INSERT INTO _changes.t (value) VALUES ('x')",
            "CREATE TOPIC system.x",
        ):
            with pytest.raises(ReservedTopicError):
                await sql.run(text)


@on_loop
async def test_rows_become_messages() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a PARTITIONS 3")
        result = await sql.run(
            "INSERT INTO a (key, value, headers, partition, timestamp, message_id) VALUES"
            """ ('k', '{"n": 1}', '{"h": "1", "i": null, "j": ["x", "y"]}', 2, '2023-11-14T10:00:00Z', 'm-1'),"""
            " (NULL, NULL, NULL, 0, 1699956000001, NULL)"
        )
        assert (result.status, result.affected, result.cursor) == ("INSERT 2", 2, 0)
        first, second = sorted(await sql.dicts("CONSUME FROM a"), key=lambda row: str(row["partition"]), reverse=True)
        assert first == {
            "topic": "a",
            "partition": 2,
            "offset": 0,
            "cursor": first["cursor"],
            "message_id": "m-1",
            "source_table": None,
            "op": None,
            "timestamp": datetime(2023, 11, 14, 10, tzinfo=UTC),
            "payload_mode": None,
            "key": "k",
            "value": '{"n": 1}',
            "headers": {"h": "1", "i": None, "j": ["x", "y"], "message_id": "m-1"},
        }
        assert (second["key"], second["value"], second["timestamp"]) == (
            None,
            None,
            datetime(2023, 11, 14, 10, 0, 0, 1000, tzinfo=UTC),
        )


@on_loop
async def test_values_that_are_no_text_are_published_as_json() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await sql.run(
            "INSERT INTO a (key, value) VALUES (?, ?)", [[1, {"a": [1, None]}], ["k", 2.5], ["k", True], ["k", b"\xff"]]
        )
        assert [(row["key"], row["value"]) for row in await sql.dicts("CONSUME FROM a")] == [
            ("1", '{"a":[1,null]}'),
            ("k", "2.5"),
            ("k", "true"),
            ("k", "\\xff"),
        ]


@on_loop
async def test_rows_of_a_query_become_messages() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b'); CREATE TOPIC a"
        )
        result = await sql.run("INSERT INTO a (key, value) SELECT CAST(id AS TEXT), body FROM t WHERE id > ? ORDER BY id", [0])
        assert result.affected == 2
        assert [(row["key"], row["value"]) for row in await sql.dicts("CONSUME FROM a")] == [("1", "a"), ("2", "b")]


@on_loop
async def test_values_are_computed() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        await sql.run("INSERT INTO a (value) VALUES ('x' || ?), (CAST(1 + 1 AS TEXT))", ["y"])
        assert [row["value"] for row in await sql.dicts("CONSUME FROM a")] == ["xy", "2"]


@on_loop
async def test_duplicates_are_told() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a WITH (dedup = 'content')")
        await sql.run("INSERT INTO a (value) VALUES ('x')")
        again = await sql.run("INSERT INTO a (value) VALUES ('x'), ('y'), ('y')")
        assert (again.status, again.affected) == ("INSERT 1, 2 duplicates left out", 1)
        assert [row["value"] for row in await sql.dicts("CONSUME FROM a")] == ["x", "y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO a VALUES ('x')", "the INSERT does not name columns of topic 'a'"),
        ("INSERT INTO a (key) VALUES ('x')", "the column value is missing"),
        ("INSERT INTO a (value, colour) VALUES ('x', 'red')", "line 1, column 23: a topic has no column 'colour'"),
        ("INSERT INTO a (value, value) VALUES ('x', 'y')", "column 'value' is named twice"),
        ("INSERT INTO a (value) VALUES ('x', 'y')", "row 1 has 2 values, but the INSERT names 1 column"),
        ("INSERT INTO a (value, headers) VALUES ('x', 'no json')", "row 1: headers are not JSON"),
        ("INSERT INTO a (value, headers) VALUES ('x', '[1]')", "row 1: headers must be a JSON object"),
        ("INSERT INTO a (value, partition) VALUES ('x', 'two')", "row 1: partition is 'two'"),
        ("INSERT INTO a (value, partition) VALUES ('x', 7)", "no partition 7"),
        ("INSERT INTO a (value, timestamp) VALUES ('x', 'soon')", "timestamp 'soon' is not a time"),
        ("INSERT INTO a (value, timestamp) VALUES ('x', -5)", "-5"),
        ("INSERT INTO a (value) VALUES ('x') ON CONFLICT DO NOTHING", "ON CONFLICT can't be used with a topic"),
        ("INSERT INTO a (value) VALUES ('x') RETURNING value", "RETURNING can't be used with a topic"),
    ],
)
@on_loop
async def test_rows_that_can_not_be_messages_publish_nothing(text: str, message: str) -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        with pytest.raises(TailraceError) as refused:
            await sql.run(text)
        assert message in str(refused.value)
        assert refused.value.http_status in (400, 404)
        assert await sql.rows("CONSUME FROM a") == []


@on_loop
async def test_records_of_a_topic_stay_as_they_are() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC a")
        for text in ("UPDATE a SET value = 'x'", "DELETE FROM a"):
            with pytest.raises(UnsupportedSqlError, match="'a' is a topic"):
                await sql.run(text)


@on_loop
async def test_topics_and_tables_are_described() -> None:
    async with running_sql() as sql:
        await sql.engine.execute(
            "CREATE TOPIC a.b PARTITIONS 2 WITH (alias = 'c'); INSERT INTO c (value) VALUES ('x');"
            "CREATE TABLE t (x TEXT[] NOT NULL, id INTEGER PRIMARY KEY, d DECIMAL(5, 2) DEFAULT 1.5)"
        )
        told: dict[object, object] = dict(await sql.rows("DESCRIBE TOPIC c"))  # type: ignore[arg-type]
        assert {what: told[what] for what in ("name", "alias", "partitions", "records", "dedup")} == {
            "name": "a.b",
            "alias": "c",
            "partitions": "2",
            "records": "1",
            "dedup": None,
        }
        assert await sql.rows("DESCRIBE TABLE t") == [
            ("x", "text[]", False, None, None),
            ("id", "integer", False, None, 1),
            ("d", "decimal(5, 2)", True, "1.5", None),
        ]
        assert await sql.rows("SHOW TABLES") == [("t", 3, ["id"], 0)]
        await sql.run("CREATE VIEW w AS SELECT id FROM t")
        for name, what in (("t", "TABLE"), ("w", "VIEW"), ("c", "TOPIC"), ("public.t", "TABLE"), ("public.w", "VIEW")):
            assert (await sql.run(f"DESCRIBE {name}")).status.startswith(f"DESCRIBE {what} ")
            assert await sql.rows(f"DESC {name}") == await sql.rows(f"DESCRIBE {what} {name}")
        with pytest.raises(UnknownTableError, match="there is no table, view or topic 'tt'"):
            await sql.run("DESCRIBE tt")


@on_loop
async def test_a_name_that_is_not_legal_is_refused() -> None:
    async with running_sql() as sql:
        for name in ('"a b"', '"a..b"', '"' + "x" * 300 + '"', ".".join("abcdefghijklmnopq")):
            with pytest.raises((TailraceError, SqlError)) as refused:
                await sql.run(f"CREATE TOPIC {name}")
            assert refused.value.http_status == 400


@on_loop
async def test_what_is_inserted_into_a_topic_with_a_codec_is_stored_with_it() -> None:
    large = "x" * 20_000
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC app.events WITH (compression = 'gzip'); CREATE TABLE t (id int PRIMARY KEY)")
        await sql.run("INSERT INTO app.events (value) VALUES ('small')")
        await sql.run("INSERT INTO app.events (value) VALUES (?)", [large])
        # A message in a transaction that also writes to a table goes into the frame of its changes.
        await sql.run("BEGIN; INSERT INTO t VALUES (1); INSERT INTO app.events (value) VALUES (?); COMMIT", [large])
        live = sql.broker.topics.get("app.events")
        batches = sql.broker.store.fetch(live.partition(0), Offset(0), 1 << 20).batches
        assert [read_header(batch).codec for batch in batches] == [Compression.GZIP] * 3
        assert sum(map(len, batches)) < len(large)
        assert await sql.rows('SELECT length(value) FROM app.events ORDER BY "offset"') == [(5,), (20_000,), (20_000,)]
        assert await sql.rows("SELECT compression FROM system.topics WHERE name = 'app.events'") == [("gzip",)]
        await sql.run("ALTER TOPIC app.events SET (compression = NULL)")
        assert live.topic.settings.compression is None
