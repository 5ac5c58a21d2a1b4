"""Routes: records of a topic, in force from one cursor to another."""

import asyncio
from typing import Any

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.model.commit import Append, Changes
from tailrace.model.errors import (
    CorruptionError,
    LimitExceededError,
    ReservedTopicError,
    RoutedError,
    RouteExistsError,
    StorageFullError,
    UnknownRouteError,
    UnknownTableError,
    UnknownTopicError,
)
from tailrace.model.ids import RouteId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.record import Message, Record
from tailrace.model.route import ROUTES_TOPIC, Route
from tailrace.model.table import Column, ColumnType, Table
from tailrace.store.memory import MemoryStore
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, options, running_broker, values_in
from tests.support.clocks import ManualClock


async def made(broker: Broker, name: str = "chat.messages") -> Table:
    return await broker.tables.create(name, [Column("id", ColumnType("bigint"), nullable=False)], ["id"])


def route(broker: Broker, table: Table, topic: str = "app.new", **fields: Any) -> Route:
    found = broker.topics.get(topic).topic
    given: dict[str, Any] = {"operations": ("insert",), "payload": "key"} | fields
    return Route(
        id=RouteId(0),
        topic=found.id,
        topic_name=found.name,
        table=table.id,
        table_name=table.name,
        changes=table.changes,
        **given,
    )


@on_loop
async def test_a_route_is_in_force_from_the_cursor_of_its_record_to_that_of_the_record_that_drops_it() -> None:
    async with running_broker() as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        added = await broker.routes.add(route(broker, table))
        (between,) = await broker.publisher.publish([Message("app.new", b"a change")])
        (dropped,) = await broker.routes.drop("app.new", "chat.messages")
        (after,) = await broker.publisher.publish([Message("app.new", b"a change")])
        assert added.until is None
        assert dropped.since == added.since
        assert between.cursor is not None and after.cursor is not None
        assert added.since < between.cursor < (dropped.until or 0) < after.cursor


@on_loop
async def test_the_topic_of_routes_comes_with_the_first_route_and_holds_every_addition_and_drop() -> None:
    async with running_broker() as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        assert broker.topics.find(ROUTES_TOPIC) is None
        await broker.routes.add(route(broker, table, where="id > 3"))
        await broker.routes.drop("app.new", "chat.messages")
        records = [msgspec.json.decode(value or b"") for value in await values_in(broker, ROUTES_TOPIC)]
        assert [record["action"] for record in records] == ["add", "drop"]
        assert records[0]["route"] == records[1]["route"]
        assert records[0]["route"]["where"] == "id > 3"
        assert records[0]["route"]["table_name"] == "chat.messages"
        assert "since" not in records[0]["route"]


@on_loop
async def test_routes_are_the_same_after_a_restart() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        await broker.topics.create("app.old")
        await broker.routes.add(route(broker, table))
        await broker.routes.add(route(broker, table, "app.old", operations=("delete",), payload="full"))
        await broker.routes.drop("app.new", "chat.messages")
        await broker.routes.add(route(broker, table, where="id = 1", partition_by=("id",)))
        before = list(broker.routes), broker.routes.history
    async with running_broker(store) as broker:
        assert (list(broker.routes), broker.routes.history) == before
        assert [one.id for one in broker.routes.history] == [1, 2, 3]
        assert (await broker.routes.add(route(broker, table, where="id = 2"))).id == 4


@on_loop
async def test_routes_are_found_by_table_and_by_topic() -> None:
    async with running_broker() as broker:
        messages, users = await made(broker), await made(broker, "chat.users")
        for name in ("app.new", "app.old"):
            await broker.topics.create(name)
        first = await broker.routes.add(route(broker, messages))
        second = await broker.routes.add(route(broker, messages, "app.old"))
        third = await broker.routes.add(route(broker, users))
        assert broker.routes.of_table(messages) == [first, second]
        assert broker.routes.of_topic(broker.topics.get("app.new").topic.id) == [first, third]
        assert len(broker.routes) == 3


@on_loop
async def test_the_same_route_twice_is_rejected_and_one_with_another_filter_is_not() -> None:
    async with running_broker() as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        await broker.routes.add(route(broker, table, operations=("insert", "update")))
        await broker.routes.add(route(broker, table, operations=("insert", "update"), where="id > 3"))
        with pytest.raises(RouteExistsError, match=r"route 1 from table 'chat.messages'"):
            await broker.routes.add(route(broker, table, operations=("update", "insert")))
        assert len(broker.routes) == 2


@on_loop
async def test_of_two_same_routes_that_come_at_once_one_is_rejected() -> None:
    async with running_broker(GatedStore()) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        both = (broker.routes.add(route(broker, table)) for _ in range(2))
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Route", "RouteExistsError"]


@on_loop
async def test_a_route_is_not_rejected_for_the_sake_of_one_that_comes_to_nothing() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        await broker.routes.add(route(broker, table, where="id = 1"))
        store.close_gate()
        first = asyncio.ensure_future(broker.routes.add(route(broker, table)))
        await until(lambda: bool(store.in_flight))
        second = asyncio.ensure_future(broker.routes.add(route(broker, table)))
        await turns()
        store.fail()
        store.open_gate()
        with pytest.raises(StorageFullError):
            await first
        assert list(broker.routes)[-1] == await second


@on_loop
async def test_the_end_of_a_route_is_announced_only_after_it_has_ended() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        there = await broker.routes.add(route(broker, table))
        store.close_gate()
        first = asyncio.ensure_future(broker.routes.drop("app.new", "chat.messages"))
        await until(lambda: bool(store.in_flight))
        second = asyncio.ensure_future(broker.routes.drop("app.new", "chat.messages"))
        await turns()
        assert not second.done()
        store.fail()
        assert list(broker.routes) == [there]
        store.open_gate()
        with pytest.raises(StorageFullError):
            await first
        assert [one.id for one in await second] == [there.id]
        assert list(broker.routes) == []


@on_loop
async def test_drop_source_ends_all_routes_of_the_table_to_the_topic_and_no_other() -> None:
    async with running_broker() as broker:
        messages, users = await made(broker), await made(broker, "chat.users")
        await broker.topics.create("app.new", alias="new")
        await broker.routes.add(route(broker, messages))
        await broker.routes.add(route(broker, messages, where="id > 3"))
        other = await broker.routes.add(route(broker, users))
        dropped = await broker.routes.drop("new", "CHAT.messages")
        assert [one.id for one in dropped] == [1, 2]
        assert [(one.until or 0) - (dropped[0].until or 0) for one in dropped] == [0, 1]
        assert list(broker.routes) == [other]


@on_loop
async def test_dropping_what_is_not_there_is_rejected() -> None:
    async with running_broker() as broker:
        await made(broker)
        await broker.topics.create("app.new")
        with pytest.raises(UnknownRouteError, match=r"there is no route from table 'chat.messages' to topic 'app.new'"):
            await broker.routes.drop("app.new", "chat.messages")
        with pytest.raises(UnknownTopicError):
            await broker.routes.drop("app.none", "chat.messages")


@on_loop
async def test_a_topic_or_table_with_routes_is_dropped_only_after_them() -> None:
    async with running_broker() as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        await broker.routes.add(route(broker, table))
        with pytest.raises(RoutedError, match=r"ALTER TOPIC app.new DROP SOURCE chat.messages"):
            await broker.topics.delete("app.new")
        with pytest.raises(RoutedError, match=r"ALTER TOPIC app.new DROP SOURCE chat.messages"):
            await broker.tables.drop("chat.messages")
        assert broker.topics.find("app.new") is not None
        assert broker.tables.find("chat.messages") is not None
        await broker.routes.drop("app.new", "chat.messages")
        await broker.topics.delete("app.new")
        await broker.tables.drop("chat.messages")


@pytest.mark.parametrize("what", ["table", "topic"])
@on_loop
async def test_what_routes_need_goes_with_them_in_one_commit(what: str) -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        table, other = await made(broker), await made(broker, "chat.users")
        topic = await broker.topics.create("app.new")
        await broker.topics.create("app.other")
        first = await broker.routes.add(route(broker, table))
        second = await broker.routes.add(route(broker, table, where="id > 3"))
        elsewhere = await broker.routes.add(route(broker, other, topic="app.other"))

        def cascade() -> "asyncio.Future[object]":
            if what == "table":
                return asyncio.ensure_future(broker.tables.drop(table.name, broker.routes.removal_of(table)))
            return asyncio.ensure_future(broker.topics.delete("app.new", broker.routes.removal_of(topic.id)))

        store.close_gate()
        failing = cascade()
        await until(lambda: bool(store.in_flight))
        store.fail()
        store.open_gate()
        with pytest.raises(StorageFullError):
            await failing
        assert list(broker.routes) == [first, second, elsewhere]
        assert broker.tables.find(table.name) is not None
        assert broker.topics.find("app.new") is not None
        commits = store.stats().commits
        await cascade()
        assert store.stats().commits == commits + 1
        assert list(broker.routes) == [elsewhere]
        gone = [one for one in broker.routes.history if one.until is not None]
        assert [one.id for one in gone] == [first.id, second.id]
        assert (gone[1].until or 0) - (gone[0].until or 0) == 1
        assert (broker.tables.find(table.name) is None) == (what == "table")
        assert (broker.topics.find("app.new") is None) == (what == "topic")


@on_loop
async def test_cascade_waits_for_a_route_that_is_on_its_way_and_ends_it_too() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        table = await made(broker)
        topic = await broker.topics.create("app.new")
        await broker.routes.add(route(broker, table, where="id = 1"))
        store.close_gate()
        adding = asyncio.ensure_future(broker.routes.add(route(broker, table)))
        await until(lambda: bool(store.in_flight))
        dropping = asyncio.ensure_future(broker.topics.delete("app.new", broker.routes.removal_of(topic.id)))
        await turns()
        assert not dropping.done()
        store.open_gate()
        await adding
        await dropping
        assert list(broker.routes) == []


@on_loop
async def test_a_topic_is_not_dropped_while_a_route_to_it_is_on_its_way() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        await broker.routes.add(route(broker, table, where="id = 1"))
        await broker.routes.drop("app.new", "chat.messages")
        store.close_gate()
        adding = asyncio.ensure_future(broker.routes.add(route(broker, table)))
        await until(lambda: bool(store.in_flight))
        with pytest.raises(RoutedError):
            await broker.topics.delete("app.new")
        store.open_gate()
        assert (await adding).topic_name == "app.new"


@on_loop
async def test_no_route_is_added_to_a_topic_that_is_being_dropped() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        late = route(broker, table)
        await broker.routes.add(route(broker, table, where="id = 1"))
        await broker.routes.drop("app.new", "chat.messages")
        store.close_gate()
        deleting = asyncio.ensure_future(broker.topics.delete("app.new"))
        await until(lambda: bool(store.in_flight))
        with pytest.raises(UnknownTopicError, match="was deleted"):
            await broker.routes.add(late)
        store.open_gate()
        await deleting


@on_loop
async def test_no_route_is_added_from_a_table_that_is_gone() -> None:
    async with running_broker() as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        late = route(broker, table)
        await broker.tables.drop("chat.messages")
        with pytest.raises(UnknownTableError, match="was dropped"):
            await broker.routes.add(late)


@on_loop
async def test_what_the_disk_did_not_take_has_not_happened() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        there = await broker.routes.add(route(broker, table))
        store.close_gate()
        adding = asyncio.ensure_future(broker.routes.add(route(broker, table, where="id = 1")))
        dropping = asyncio.ensure_future(broker.routes.drop("app.new", "chat.messages"))
        await until(lambda: len(store.in_flight) == 2)
        store.fail()
        for outcome in await asyncio.gather(adding, dropping, return_exceptions=True):
            assert isinstance(outcome, StorageFullError)
        store.open_gate()
        assert list(broker.routes) == [there]
        await broker.routes.add(route(broker, table, where="id = 1"))
        assert len(await broker.routes.drop("app.new", "chat.messages")) == 2


@on_loop
async def test_the_server_s_own_topics_are_no_target() -> None:
    async with running_broker() as broker:
        table = await made(broker)
        with pytest.raises(ReservedTopicError):
            await broker.routes.add(route(broker, table, "chat.messages"))


@pytest.mark.parametrize("limit", ["routes", "routes_per_table", "routes_per_topic"])
@on_loop
async def test_the_number_of_routes_is_limited(limit: str) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, **{limit: 2})
    async with running_broker(limits=limits) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        for number in range(2):
            await broker.routes.add(route(broker, table, where=f"id = {number}"))
        with pytest.raises(LimitExceededError, match=f"as many as {limit} allows"):
            await broker.routes.add(route(broker, table))
        await broker.routes.drop("app.new", "chat.messages")
        await broker.routes.add(route(broker, table))


@on_loop
async def test_only_the_newest_dropped_routes_are_remembered() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, dropped_routes=2)
    async with running_broker(limits=limits) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        for _ in range(4):
            await broker.routes.add(route(broker, table))
            await broker.routes.drop("app.new", "chat.messages")
        assert [one.id for one in broker.routes.history] == [3, 4]


@on_loop
async def test_a_record_that_is_no_route_is_reported_at_the_start() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        await broker.routes.add(route(broker, table))
        garbage = encode_batch([Record(None, b'{"action": "add"}', (), 0)])
        store.commit(Changes(appends=(Append(broker.topics.get(ROUTES_TOPIC).partition(0), garbage, 1, 0),)))
    with pytest.raises(CorruptionError, match="offset 1 of '_routes' is not a route"):
        async with running_broker(store):
            pass


@on_loop
async def test_no_retention_takes_routes_away() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        table = await made(broker)
        await broker.topics.create("app.new")
        await broker.routes.add(route(broker, table))
        await broker.topics.alter(ROUTES_TOPIC, options(retention_seconds=1))
        clock.advance(10_000)
        await broker.retention.run_once()
        with pytest.raises(ReservedTopicError, match="can't be deleted"):
            await broker.retention.delete_before(ROUTES_TOPIC, 0, None)
        assert len(await values_in(broker, ROUTES_TOPIC)) == 1
