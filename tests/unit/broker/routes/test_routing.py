"""What is to be routed follows from routes, marks and the log, whenever it is asked for."""

import asyncio

import pytest

from tailrace.broker.pipelines.staged_chunks import Stage
from tailrace.model.errors import PipelineFencedError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.pipeline import ROUTER, MarkMove
from tailrace.wire.staged_chunks import StagedChunk, encode_staged_chunk
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore
from tests.support.sql import SqlClient, running_sql


async def chat(sql: SqlClient) -> int:
    """A table with a topic to route to; the epoch of the router."""
    await sql.run("CREATE TABLE chat (id BIGINT PRIMARY KEY, body TEXT)")
    await sql.run("CREATE TOPIC out")
    return (await sql.broker.pipelines.lease(ROUTER, "test")).epoch


async def insert(sql: SqlClient, *ids: int) -> None:
    for id in ids:
        await sql.run(f"INSERT INTO chat VALUES ({id}, 'x')")


async def add(sql: SqlClient, operations: str = "INSERT") -> None:
    await sql.run(f"ALTER TOPIC out ADD SOURCE chat ON {operations} WITH (payload = 'key')")


async def drop(sql: SqlClient) -> None:
    await sql.run("ALTER TOPIC out DROP SOURCE chat")


async def route_up_to(sql: SqlClient, epoch: int, before: int, after: int) -> None:
    (source,) = await sql.broker.routing.sources(epoch, {}, 0)
    body = encode_staged_chunk(StagedChunk([MarkMove(source.source, before, after)], []))
    await sql.broker.pipelines.stage(ROUTER, f"to-{after}", 0, body)
    await sql.broker.pipelines.publish(ROUTER, epoch, [Stage(f"to-{after}", 1)])


@on_loop
async def test_a_source_begins_at_the_first_change_behind_its_route() -> None:
    async with running_sql() as sql:
        epoch = await chat(sql)
        assert await sql.broker.routing.sources(epoch, {}, 0) == []
        await insert(sql, 1, 2, 3)
        await add(sql)
        await insert(sql, 4)
        (source,) = await sql.broker.routing.sources(epoch, {}, 0)
        assert (source.changes, source.mark, source.end, source.routes) == ("_changes.chat", 3, 4, 1)
        assert sql.broker.routing.lag() == 1
        assert sql.broker.pipelines.marks(ROUTER) == {source.source: 3}


@on_loop
async def test_a_dropped_route_is_pending_until_its_changes_are_routed() -> None:
    async with running_sql() as sql:
        epoch = await chat(sql)
        await add(sql)
        await insert(sql, 1, 2)
        await drop(sql)
        await insert(sql, 3, 4, 5)
        assert len(await sql.broker.routing.pending()) == 1
        assert sql.broker.routing.lag() == 2
        await route_up_to(sql, epoch, 0, 2)
        assert await sql.broker.routing.pending() == []
        assert await sql.broker.routing.sources(epoch, {}, 0) == []
        assert sql.broker.routing.lag() == 0


@on_loop
async def test_changes_between_two_routes_are_passed_over_even_if_they_are_gone() -> None:
    async with running_sql() as sql:
        epoch = await chat(sql)
        await add(sql)
        await insert(sql, 1)
        await drop(sql)
        await route_up_to(sql, epoch, 0, 1)
        await insert(sql, 2, 3)
        await add(sql)
        await insert(sql, 4)
        (source,) = await sql.broker.routing.sources(epoch, {}, 0)
        assert (source.mark, source.end) == (3, 4)


@on_loop
async def test_a_route_is_found_by_whoever_can_see_a_change_behind_it() -> None:
    """Its commit is readable before those who made it are answered; the answer is waited for."""
    store = GatedStore()
    async with running_sql(store=store) as sql:
        await chat(sql)
        await add(sql, "UPDATE")
        store.close_gate()
        adding = asyncio.ensure_future(add(sql))
        await turns(50)
        assert store.in_flight
        asking = asyncio.ensure_future(sql.broker.routing.pending())
        await turns(50)
        assert not asking.done()
        store.open_gate()
        assert len(await asking) == 2
        await adding


@on_loop
async def test_a_router_that_was_taken_over_gets_nothing() -> None:
    async with running_sql() as sql:
        epoch = await chat(sql)
        await add(sql)
        await sql.broker.routing.sources(epoch, {}, 0)
        await sql.broker.pipelines.lease(ROUTER, "second", take_over=True)
        with pytest.raises(PipelineFencedError):
            await sql.broker.routing.sources(epoch, {}, 0)


@on_loop
async def test_a_growing_source_ends_the_waiting() -> None:
    async with running_sql() as sql:
        epoch = await chat(sql)
        await add(sql)
        (source,) = await sql.broker.routing.sources(epoch, {}, 0)
        asking = asyncio.ensure_future(sql.broker.routing.sources(epoch, {source.source: source.end}, 20_000))
        await turns()
        assert not asking.done()
        await insert(sql, 1)
        (source,) = await asyncio.wait_for(asking, 15)
        assert source.end == 1


@on_loop
@pytest.mark.parametrize("name", ["", "x", "/0", "5/1", "-1/0", "99999/0", "1" * 5_000 + "/0", "\u0661/0"])
async def test_names_that_are_none_of_a_source_wait_for_nothing(name: str) -> None:
    async with running_sql() as sql:
        epoch = await chat(sql)
        assert await asyncio.wait_for(sql.broker.routing.sources(epoch, {name: 0}, 20_000), 15) == []


@on_loop
async def test_retention_leaves_changes_that_are_not_routed_yet() -> None:
    async with running_sql() as sql:
        epoch = await chat(sql)
        await insert(sql, 1, 2)
        changes = sql.broker.topics.get("_changes.chat").topic
        partition = PartitionId(changes.id, 0)
        assert sql.broker.routing.floor(partition) is None
        await add(sql)
        await insert(sql, 3, 4, 5)
        assert sql.broker.routing.floor(partition) == Offset(2)
        await route_up_to(sql, epoch, 2, 4)
        assert sql.broker.routing.floor(partition) == Offset(4)
        await drop(sql)
        await route_up_to(sql, epoch, 4, 5)
        assert sql.broker.routing.floor(partition) is None


@on_loop
async def test_marks_of_dropped_tables_are_forgotten_with_the_next_new_source() -> None:
    async with running_sql() as sql:
        epoch = await chat(sql)
        await add(sql)
        (old,) = await sql.broker.routing.sources(epoch, {}, 0)
        await sql.run("DROP TABLE chat CASCADE")
        assert await sql.broker.routing.sources(epoch, {}, 0) == []
        await sql.run("CREATE TABLE chat (id BIGINT PRIMARY KEY, body TEXT)")
        await add(sql)
        (new,) = await sql.broker.routing.sources(epoch, {}, 0)
        assert new.source != old.source
        assert sql.broker.pipelines.marks(ROUTER) == {new.source: 0}
