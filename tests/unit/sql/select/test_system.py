"""What the server knows of itself, as tables."""

from datetime import UTC, datetime

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.errors import SqlError
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset
from tailrace.model.record import Message
from tailrace.model.topic import TopicOptions
from tailrace.sql.select.system import SYSTEM_TABLES
from tests.support.aio import on_loop
from tests.support.clocks import ManualClock
from tests.support.queries import asking

NOW = datetime.fromtimestamp(ManualClock().now_ms() / 1000, UTC)

SEED_COLUMNS = {
    "topics": ["topic_id", "name", "alias", "partitions", "retention_seconds", "retention_max_bytes"],
    "topic_routes": ["topic_id", "table_id", "op", "payload_mode", "filter_expr", "partition_key_expr"],
    "topic_offsets": ["topic_id", "group_id", "partition_id", "last_acked_offset", "updated_at"],
}


async def filled(broker: Broker) -> None:
    await broker.topics.create("app.orders", 2, alias="orders", options=TopicOptions(retention_seconds=60, dedup="id"))
    await broker.topics.create("other")
    await broker.publisher.publish([Message("app.orders", b"v%d" % number, partition=0) for number in range(5)])
    await broker.offsets.commit("billing", [OffsetCommit("app.orders", 0, Offset(3)), OffsetCommit("orders", 1, Offset(0))])


@pytest.mark.parametrize(("table", "columns"), SEED_COLUMNS.items())
def test_the_columns_of_the_specification_come_first(table: str, columns: list[str]) -> None:
    assert list(SYSTEM_TABLES[table].columns)[: len(columns)] == columns


@on_loop
async def test_topics_are_listed_with_their_settings() -> None:
    async with asking() as sql:
        await filled(sql.broker)
        assert await sql.rows(
            "SELECT topic_id, name, alias, partitions, retention_seconds, retention_max_bytes, dedup, created_at"
            " FROM system.topics ORDER BY name"
        ) == [(1, "app.orders", "orders", 2, 60, None, "id", NOW), (2, "other", None, 1, None, None, None, NOW)]


@on_loop
async def test_offsets_say_what_was_acked_last() -> None:
    async with asking() as sql:
        await filled(sql.broker)
        found = await sql.rows("SELECT * FROM system.topic_offsets ORDER BY partition_id")
        assert found == [
            (1, "billing", 0, 2, NOW, "app.orders", 3, 2),
            (1, "billing", 1, None, NOW, "app.orders", 0, 0),
        ]


@on_loop
async def test_partitions_say_what_they_hold() -> None:
    async with asking() as sql:
        await filled(sql.broker)
        await sql.broker.retention.delete_before("app.orders", 0, Offset(1))
        found = await sql.rows(
            "SELECT topic, partition_id, start_offset, end_offset, records, size_bytes > 0 FROM system.partitions"
            " ORDER BY topic, partition_id"
        )
        assert found == [("app.orders", 0, 1, 5, 4, True), ("app.orders", 1, 0, 0, 0, False), ("other", 0, 0, 0, 0, False)]


@on_loop
async def test_groups_show_members_state_and_lag() -> None:
    async with asking() as sql:
        await filled(sql.broker)
        assert await sql.rows("SELECT group_id, state, members, clients, lag FROM system.groups") == [
            ("billing", "Empty", 0, [], 2)
        ]


@on_loop
async def test_stats_are_counters_with_labels() -> None:
    async with asking() as sql:
        await filled(sql.broker)
        assert (
            await sql.value(
                "SELECT value FROM system.stats WHERE name = 'tailrace_messages_in_total' AND labels ->> 'topic' = 'app.orders'"
            )
            == 5
        )


@on_loop
async def test_system_tables_join_with_topics_and_each_other() -> None:
    async with asking() as sql:
        await filled(sql.broker)
        assert await sql.rows(
            """SELECT t.alias, p.partition_id, count(o.offset) FROM system.topics t
            JOIN system.partitions p ON p.topic_id = t.topic_id
            LEFT JOIN orders o ON o.partition = p.partition_id
            WHERE t.name = 'app.orders' GROUP BY 1, 2 ORDER BY 2"""
        ) == [("orders", 0, 5), ("orders", 1, 0)]


@on_loop
async def test_empty_tables_have_their_columns() -> None:
    async with asking() as sql:
        for name, table in SYSTEM_TABLES.items():
            found = await sql.result(f"SELECT * FROM SYSTEM.{name}")
            assert [column.name for column in found.columns] == list(table.columns)
            assert not found.rows or name in ("stats", "roles")


@on_loop
async def test_a_name_that_is_not_there_says_which_are() -> None:
    async with asking() as sql:
        with pytest.raises(SqlError, match=r"there is no table 'system.topcis'; use system.topics, "):
            await sql.rows("SELECT * FROM system.topcis")
