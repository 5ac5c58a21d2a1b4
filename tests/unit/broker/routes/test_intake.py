"""Decisions of the real-time query become records exactly once, in order, or are refused."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tailrace.model.errors import InvalidRecordsError, PipelineConflictError, PipelineFencedError, StorageFullError
from tailrace.model.fetch import PartitionFetch
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.pipeline import ROUTER
from tailrace.model.record import Record
from tailrace.wire.compression import Compression
from tailrace.wire.records import decode_batch, encode_batch
from tailrace.wire.route_decisions import QueryDecisions, RouteDecision, query_key, read_decisions
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore
from tests.support.sql import SqlClient, running_sql


async def given_chat(sql: SqlClient, *, partitions: int = 1) -> int:
    """Make a table with a topic, and return the epoch of the router."""
    await sql.run("CREATE TABLE chat (id BIGINT PRIMARY KEY, body TEXT)")
    await sql.run(f"CREATE TOPIC out PARTITIONS {partitions}")
    return (await sql.broker.pipelines.lease(ROUTER, "test")).epoch


async def add_route(sql: SqlClient, topic: str = "out", payload: str = "full", where: str = "") -> int:
    await sql.run(f"ALTER TOPIC {topic} ADD SOURCE chat ON INSERT, UPDATE, DELETE {where} WITH (payload = '{payload}')")
    return max(route.id for route in sql.broker.routes)


async def changes(sql: SqlClient) -> list[Record]:
    return await records(sql, "_changes.chat")


async def records(sql: SqlClient, topic: str, partition: int = 0) -> list[Record]:
    (found,) = await sql.broker.fetcher.fetch([PartitionFetch(topic, partition, Offset(0), 1 << 20)])
    return [
        record
        for batch, cursor in zip(found.batches, found.cursors, strict=True)
        for record in decode_batch(batch, DEFAULT_LIMITS, cursor=cursor)
    ]


async def begin(sql: SqlClient, epoch: int) -> int:
    """Do what a query does at its start, and return the version of the routes that it knows."""
    await sql.broker.intake.open()
    await sql.broker.routing.first_unrouted(epoch)
    return sql.broker.intake.version


async def take(
    sql: SqlClient,
    epoch: int,
    version: int,
    routes: Mapping[Cursor, Sequence[int]],
    keys: Mapping[Cursor, dict[str, str]] | None = None,
) -> None:
    """Send decisions, by the cursor of their changes."""
    decisions = [RouteDecision(cursor, tuple(found), (keys or {}).get(cursor, {})) for cursor, found in routes.items()]
    await sql.broker.intake.take(QueryDecisions(epoch, version, decisions))


def marks(sql: SqlClient) -> list[int]:
    return list(sql.broker.pipelines.marks(ROUTER).values())


def values(found: Sequence[Record]) -> list[Any]:
    return [json.loads(record.value or b"") for record in found]


@on_loop
async def test_records_and_marks_are_those_of_the_decisions() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        full, diff = await add_route(sql), await add_route(sql, payload="diff")
        await sql.run("INSERT INTO chat VALUES (1, 'a'), (2, 'b')")
        await sql.run("UPDATE chat SET body = 'c' WHERE id = 1")
        first, second, third = (record.cursor for record in await changes(sql))
        version = await begin(sql, epoch)
        await take(sql, epoch, version, {first: [full], second: [], third: [full, diff]})
        found = await records(sql, "out")
        assert values(found) == [
            {"id": 1, "body": "a"},
            {"id": 1, "body": "c"},
            {"key": {"id": 1}, "changed": {"body": {"old": "a", "new": "c"}}},
        ]
        assert [dict(record.headers)["message_id"] for record in found] == [
            f"{first}-{full}".encode(),
            f"{third}-{full}".encode(),
            f"{third}-{diff}".encode(),
        ]
        assert marks(sql) == [3]
        assert sql.broker.routing.lag() == 0
        totals = sql.broker.intake.totals
        assert (totals.changes, totals.records, totals.dead_letters) == (3, 3, 0)
        (status,) = sql.broker.pipelines
        assert status.idle_seconds is not None


@on_loop
async def test_a_repetition_is_dropped_wherever_it_begins() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        route = await add_route(sql)
        for id in range(6):
            await sql.run("INSERT INTO chat VALUES (?, 'x')", [id])
        cursors = [record.cursor for record in await changes(sql)]
        version = await begin(sql, epoch)
        for first, last in ((0, 3), (0, 3), (1, 5), (4, 6), (0, 6)):
            await take(sql, epoch, version, {cursor: [route] for cursor in cursors[first:last]})
        assert [row["id"] for row in values(await records(sql, "out"))] == list(range(6))
        assert marks(sql) == [6]


@on_loop
async def test_a_decision_that_could_not_be_stored_is_taken_when_it_comes_again_alone() -> None:
    store = GatedStore()
    async with running_sql(store=store) as sql:
        epoch = await given_chat(sql)
        route = await add_route(sql)
        await sql.run("INSERT INTO chat VALUES (1, 'a')")
        (change,) = await changes(sql)
        version = await begin(sql, epoch)
        store.close_gate()
        taking = asyncio.ensure_future(take(sql, epoch, version, {change.cursor: [route]}))
        await until(lambda: bool(store.in_flight))
        store.fail()
        with pytest.raises(StorageFullError):
            await taking
        store.open_gate()
        await take(sql, epoch, version, {change.cursor: [route]})
        assert [row["id"] for row in values(await records(sql, "out"))] == [1]
        assert marks(sql) == [1]


@on_loop
async def test_changes_are_followed_only_while_decisions_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.routes.intake._IDLE_SECONDS", 0.01)
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        route = await add_route(sql)
        version = await begin(sql, epoch)
        for id in range(3):
            await sql.run("INSERT INTO chat VALUES (?, 'x')", [id])
            cursor = (await changes(sql))[-1].cursor
            await take(sql, epoch, version, {cursor: [route]})
            await until(lambda: sql.broker.subscriptions.subscribers == 0)
        assert [row["id"] for row in values(await records(sql, "out"))] == [0, 1, 2]


@on_loop
async def test_a_gap_is_refused_and_what_comes_before_it_takes_effect_once() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        route = await add_route(sql)
        await sql.run("INSERT INTO chat VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        first, second, third = (record.cursor for record in await changes(sql))
        version = await begin(sql, epoch)
        with pytest.raises(PipelineConflictError, match="routed up to offset 0, and the decision is on offset 1"):
            await take(sql, epoch, version, {second: [route]})
        assert marks(sql) == [0]
        with pytest.raises(PipelineConflictError, match="routed up to offset 1"):
            await take(sql, epoch, version, {first: [route], third: [route]})
        await take(sql, epoch, version, {first: [route], second: [route], third: [route]})
        assert [row["id"] for row in values(await records(sql, "out"))] == [1, 2, 3]


@on_loop
async def test_a_route_that_the_query_does_not_know_ends_it_at_the_place_of_the_route() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        await sql.run("CREATE TOPIC other")
        route = await add_route(sql)
        await sql.run("INSERT INTO chat VALUES (1, 'a')")
        version = await begin(sql, epoch)
        added = await add_route(sql, "other")
        await sql.run("INSERT INTO chat VALUES (2, 'b')")
        first, second = (record.cursor for record in await changes(sql))
        with pytest.raises(PipelineConflictError, match="routes were changed at cursor"):
            await take(sql, epoch, version, {first: [route], second: [route]})
        assert marks(sql) == [1]
        await take(sql, epoch, await begin(sql, epoch), {second: [route, added]})
        assert values(await records(sql, "out")) == [{"id": 1, "body": "a"}, {"id": 2, "body": "b"}]
        assert values(await records(sql, "other")) == [{"id": 2, "body": "b"}]
        version = await begin(sql, epoch)
        await sql.run("ALTER TOPIC other DROP SOURCE chat")
        await sql.run("INSERT INTO chat VALUES (3, 'c')")
        third = (await changes(sql))[2].cursor
        with pytest.raises(PipelineConflictError, match="routes were changed at cursor"):
            await take(sql, epoch, version, {third: [route, added]})


@on_loop
async def test_a_query_whose_lease_was_taken_over_changes_nothing() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        route = await add_route(sql)
        await sql.run("INSERT INTO chat VALUES (1, 'a')")
        (first,) = (record.cursor for record in await changes(sql))
        version = await begin(sql, epoch)
        await sql.broker.pipelines.lease(ROUTER, "another", take_over=True)
        with pytest.raises(PipelineFencedError):
            await take(sql, epoch, version, {first: [route]})
        assert marks(sql) == [0]


@on_loop
async def test_by_cursor_the_messages_about_a_row_are_in_the_order_of_its_changes() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql, partitions=4)
        await sql.run("CREATE TOPIC other PARTITIONS 3")
        first, second = await add_route(sql), await add_route(sql, "other", "key")
        for turn in range(6):
            for id in (1, 2, 3):
                text = "INSERT INTO chat VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
                await sql.run(text, [id, f"{turn}"])
        cursors = [record.cursor for record in await changes(sql)]
        # Keys of the route's own send the messages about a row to different partitions.
        decided = {cursor: ([first] if number % 3 else [second, first]) for number, cursor in enumerate(cursors)}
        keys = {cursor: {str(first): f"[{number}]"} for number, cursor in enumerate(cursors)}
        await take(sql, epoch, await begin(sql, epoch), decided, keys)
        found = [record for number in range(4) for record in await records(sql, "out", number)]
        found += [record for number in range(3) for record in await records(sql, "other", number)]
        found.sort(key=lambda record: record.cursor)
        changed = {record.cursor: record.key for record in await changes(sql)}
        assert len(found) == sum(map(len, decided.values()))
        for key in set(changed.values()):
            sources = [int(dict(record.headers)["cursor"] or b"") for record in found]
            of_row = [source for source in sources if changed[Cursor(source)] == key]
            assert of_row == sorted(of_row)


@on_loop
async def test_what_can_not_be_evaluated_or_stored_is_a_dead_letter() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        await sql.run("CREATE TOPIC small WITH (max_message_bytes = 4096)")
        route, small = await add_route(sql), await add_route(sql, "small")
        await sql.run("INSERT INTO chat VALUES (1, ?)", ["x" * 5_000])
        (cursor,) = (record.cursor for record in await changes(sql))
        await take(sql, epoch, await begin(sql, epoch), {cursor: [-route, small]})
        assert await records(sql, "out") == await records(sql, "small") == []
        (failed,), (large,) = values(await records(sql, "out.dead_letters")), values(await records(sql, "small.dead_letters"))
        assert failed["cause"].startswith("the route can't be evaluated") and failed["event"]["cursor"] == cursor
        assert large["cause"] == "the message would be larger than its topic allows"
        assert (large["topic"], large["source_table"], large["route"]) == ("small", "chat", small)
        assert sql.broker.intake.totals.dead_letters == 2


@on_loop
async def test_what_spark_can_not_compute_is_decided_here() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        route = await add_route(sql, where="WHERE (initcap(body) = 'Aa')")
        (stored,) = sql.broker.routes
        assert stored.sql.python is not None
        await sql.run("INSERT INTO chat VALUES (1, 'aa'), (2, 'b'), (3, 'AA')")
        cursors = [record.cursor for record in await changes(sql)]
        await take(sql, epoch, await begin(sql, epoch), {cursor: [route] for cursor in cursors})
        assert [row["id"] for row in values(await records(sql, "out"))] == [1, 3]


@on_loop
async def test_nothing_is_made_for_a_topic_or_from_a_table_that_was_dropped() -> None:
    async with running_sql() as sql:
        epoch = await given_chat(sql)
        route = await add_route(sql)
        await sql.run("INSERT INTO chat VALUES (1, 'a')")
        (cursor,) = (record.cursor for record in await changes(sql))
        version = await begin(sql, epoch)
        await sql.run("DROP TABLE chat CASCADE")
        await sql.run("CREATE TABLE chat (id BIGINT PRIMARY KEY, body TEXT)")
        await take(sql, epoch, version, {cursor: [route]})
        assert await records(sql, "out") == []


@pytest.mark.parametrize(("records", "codec"), [(1, Compression.GZIP), (30_000, Compression.NONE)])
@on_loop
async def test_batches_that_take_long_to_decode_are_refused(records: int, codec: Compression) -> None:
    decision = Record(query_key(1, -1).encode(), b'{"c":5,"r":[1,-2],"k":{"1":"[7]"}}', (), 0)
    async with running_sql() as sql:
        with pytest.raises(InvalidRecordsError, match="must not be compressed nor have more than 1048576 bytes"):
            await sql.broker.intake.take_batch(encode_batch([decision] * records, codec=codec))


def test_decisions_are_read_from_the_records_of_one_query() -> None:
    key = query_key(3, -1).encode()
    batch = encode_batch([Record(key, b'{"c":5,"r":[1,-2],"k":{"1":"[7]"}}', (), 0), Record(key, b'{"c":6}', (), 0)])
    found = read_decisions(decode_batch(batch, DEFAULT_LIMITS))
    assert (found.epoch, found.version) == (3, -1)
    assert found.decisions == [RouteDecision(5, (1, -2), {"1": "[7]"}), RouteDecision(6)]


@pytest.mark.parametrize(
    "sent", [[], [(b"", b"{}")], [(b"1:2", b"{}")], [(b"1:2", b'{"c":1}'), (b"1:3", b'{"c":2}')], [(None, b'{"c":1}')]]
)
def test_other_records_are_refused(sent: list[tuple[bytes | None, bytes]]) -> None:
    with pytest.raises(InvalidRecordsError):
        read_decisions([Record(key, value, (), 0) for key, value in sent])
