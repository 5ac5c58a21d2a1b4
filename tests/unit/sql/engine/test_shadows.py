"""Statements about shadows, and the system tables that show them."""

from collections.abc import Sequence

import pytest

from tailrace.model.connection_check import ConnectionCheck
from tailrace.model.errors import ShadowExistsError, ShadowPhaseError, SqlError, UnknownShadowError, UnsupportedSqlError
from tailrace.model.shadow import LostOffsets, Shadow, ShadowPartition, ShadowReport
from tests.support.aio import on_loop
from tests.support.shadows import OWNER
from tests.support.sql import SqlClient, running_sql

CREATE = "CREATE SHADOW prod TO KAFKA 'kafka-1:9092' WITH (topics = 'app.>', copied_by = 'command')"


class Kafkas:
    """Answers as a Kafka that was checked."""

    def __init__(self, *checks: ConnectionCheck) -> None:
        self.checks = checks
        self.asked: list[Shadow] = []

    async def check(self, shadow: Shadow) -> Sequence[ConnectionCheck]:
        self.asked.append(shadow)
        return self.checks


def report(sql: SqlClient, reported: ShadowReport) -> None:
    shadows = sql.broker.shadows
    shadow = shadows.get("prod")
    shadows.report(shadow, shadows.attach(shadow, "copier-1"), "copier-1", reported)


@on_loop
async def test_a_shadow_from_its_creation_to_its_end() -> None:
    async with running_sql() as sql:
        assert (await sql.run(CREATE)).status == "CREATE SHADOW 1"
        again = CREATE.replace("SHADOW prod", "SHADOW IF NOT EXISTS prod")
        assert (await sql.run(again)).status == "CREATE SHADOW, which already exists"
        with pytest.raises(ShadowExistsError, match="shadow 'prod' already exists"):
            await sql.run(CREATE)
        assert await sql.rows("SHOW SHADOWS") == [("prod", "to kafka-1:9092", "copying", "stopped", 0, None, None)]
        await sql.run("ALTER SHADOW prod SET (throttle = '5 KB', groups = 'a-*', client.id = 'me', password = ENV('P'))")
        await sql.run("ALTER SHADOW prod SET (socket.timeout.ms = 9, password = FILE('/p'))")
        shadow = sql.broker.shadows.get("prod")
        assert (shadow.throttle_bytes, shadow.groups, shadow.topics) == (5_000, ("a-*",), ("app.>",))
        assert shadow.settings == {"client.id": "me", "socket.timeout.ms": "9"}
        assert (shadow.password_env, shadow.password_file) == (None, "/p")
        await sql.run("ALTER SHADOW prod PAUSE")
        assert not sql.broker.shadows.get("prod").is_copied
        await sql.run("ALTER SHADOW prod RESUME")
        assert sql.broker.shadows.get("prod").is_copied
        assert (await sql.run("DROP SHADOW prod")).status == "DROP SHADOW 1"
        assert (await sql.run("DROP SHADOW IF EXISTS prod")).status == "DROP SHADOW, which does not exist"
        with pytest.raises(UnknownShadowError, match="there is no shadow 'prod'"):
            await sql.run("DROP SHADOW prod")


@on_loop
async def test_what_is_reported_is_shown() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TOPIC app.a PARTITIONS 2")
        await sql.run(CREATE)
        topic_id = sql.broker.topics.get("app.a").topic.kafka_id
        partitions = (
            ShadowPartition("app.a", 0, 5, 9, 105, topic_id, 1),
            ShadowPartition("app.a", 1, 7, 7, 3, "of an earlier topic"),
        )
        report(
            sql,
            ShadowReport(
                state="live",
                partitions=partitions,
                records=50,
                bytes=500,
                records_per_second=10,
                bytes_per_second=100,
                lag_seconds=0.5,
                groups=2,
                notes=("a note",),
            ),
        )
        (row,) = await sql.dicts("SELECT * FROM system.shadows")
        expected = {
            "shadow_id": 1, "name": "prod", "direction": "to", "kafka": "kafka-1:9092", "topic_patterns": ["app.>"],
            "group_patterns": ["*"], "phase": "copying", "producers": None, "state": "live", "error": None, "advice": None,
            "notes": ["a note"], "lag": 4, "lag_seconds": 0.5, "records": 50, "bytes": 500, "records_per_second": 10,
            "bytes_per_second": 100, "throttle_bytes": None, "topics": 1, "groups": 2, "copied_by": "command", "paused": False,
            "owner": "copier-1",
        }  # fmt: skip
        assert {name: row[name] for name in expected} == expected
        assert await sql.rows("SELECT * FROM system.shadow_partitions ORDER BY partition_id") == [
            ("prod", "app.a", 0, 1, 5, 9, 4, 105, 0),
            ("prod", "app.a", 1, 0, 7, 7, 0, 3, 0),
        ]


@on_loop
async def test_a_cut_over_is_shown() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        shown = "SELECT phase, producers, notes FROM system.shadows"
        shadow = await sql.broker.cut_overs.fence(sql.broker.shadows.get("prod"), OWNER, "forward")
        assert await sql.rows(shown) == [("fenced", None, [])]
        await sql.broker.cut_overs.finish(shadow, "forward", shadow.fences)
        assert await sql.rows(shown) == [("cut over", "forward", [])]
        await sql.broker.cut_overs.roll_back(shadow, "taken back by me")
        assert await sql.rows(shown) == [("copying", None, ["taken back by me"])]


@on_loop
async def test_topics_of_a_shadow_that_is_cut_over_are_not_altered() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        shadow = await sql.broker.cut_overs.fence(sql.broker.shadows.get("prod"), OWNER, "refuse")
        with pytest.raises(ShadowPhaseError, match="can't be altered while it is fenced"):
            await sql.run("ALTER SHADOW prod SET (topics = 'b')")
        await sql.broker.cut_overs.finish(shadow, "refuse", shadow.fences)
        with pytest.raises(ShadowPhaseError, match="can't be altered while it is cut over; roll it back first"):
            await sql.run("ALTER SHADOW prod SET (topics = 'b')")
        await sql.run("ALTER SHADOW prod SET (throttle = '1 MB')")


@on_loop
async def test_skip_lost_takes_what_is_known_to_be_lost_and_no_more() -> None:
    async with running_sql() as sql:
        await sql.run(CREATE)
        assert (await sql.run("ALTER SHADOW prod SKIP LOST")).status == "ALTER SHADOW 1; 0 ranges left out"
        lost = (LostOffsets("app.a", 0, 5, 9, "id"),)
        report(sql, ShadowReport(state="failed", lost=lost))
        assert (await sql.run("ALTER SHADOW prod SKIP LOST")).status == "ALTER SHADOW 1; 1 range left out"
        assert sql.broker.shadows.get("prod").skipped == lost


@on_loop
async def test_a_dry_run_answers_with_checks_and_changes_nothing() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        await sql.run("CREATE TOPIC app.a")
        await sql.run("ALTER TOPIC app.a ADD SOURCE t ON INSERT")
        kafkas = sql.broker.shadows.kafkas = Kafkas(ConnectionCheck("connection", "failed", "can't be reached", "Start it"))
        result = await sql.run(f"{CREATE} DRY RUN")
        assert result.status == "DRY RUN 1 failed"
        assert [tuple(row) for row in result.rows] == [
            ("topics", "ok", "1 topic will be copied: app.a", ""),
            (
                "routes",
                "warning",
                "routes lead to app.a",
                "Cut over with --producers forward, so that what they write is copied on, or drop them before",
            ),
            ("connection", "failed", "can't be reached", "Start it"),
        ]
        assert len(kafkas.asked) == 1
        assert len(sql.broker.shadows) == 0
        # One that is copied elsewhere is not checked from here.
        await sql.run(CREATE)
        assert len(kafkas.asked) == 1


@on_loop
async def test_a_shadow_whose_kafka_can_not_be_used_is_not_created() -> None:
    async with running_sql() as sql:
        by_server = CREATE.replace("'command'", "'server'")
        with pytest.raises(UnsupportedSqlError, match="this server can't reach a Kafka"):
            await sql.run(by_server)
        sql.broker.shadows.kafkas = Kafkas(ConnectionCheck("connection", "failed", "wrong password", "Mend it"))
        with pytest.raises(SqlError, match=r"wrong password\. Mend it\."):
            await sql.run(by_server)
        sql.broker.shadows.kafkas = Kafkas(ConnectionCheck("connection", "ok", "connected"))
        await sql.run(by_server)
