"""Routes that come and go, with restarts and full disks between: what is in force is what the answers said."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.model.errors import RouteExistsError, StorageFullError, UnknownRouteError
from tailrace.model.ids import RouteId
from tailrace.model.route import Route
from tailrace.model.table import Column, ColumnType, Table
from tests.support.aio import until
from tests.support.brokers import GatedStore, running_broker

TOPICS = ("a", "b")

steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(TOPICS), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("drop"), st.sampled_from(TOPICS), st.just(0), st.booleans()),
    st.tuples(st.just("restart"), st.just(""), st.just(0), st.just(False)),
)

Step = tuple[str, str, int, bool]


@given(st.lists(steps, max_size=12))
@settings(max_examples=100, deadline=None)
def test_routes_are_what_was_answered(plan: list[Step]) -> None:
    asyncio.run(play(plan))


async def play(plan: Sequence[Step]) -> None:
    store = GatedStore()
    in_force: list[Route] = []
    ended: list[Route] = []
    async with running_broker(store) as broker:
        for topic in TOPICS:
            await broker.topics.create(topic)
        table = await broker.tables.create("t", [Column("id", ColumnType("bigint"), nullable=False)], ["id"])
        # The topic of routes is made by the first one, which is not what fails here.
        await broker.routes.add(route(broker, table, "a", -1))
        ended += await broker.routes.drop("a", "t")
    parts: list[list[Step]] = [[]]
    for step in plan:
        if step[0] == "restart":
            parts.append([])
        else:
            parts[-1].append(step)
    for part in parts:
        async with running_broker(store) as broker:
            assert list(broker.routes) == in_force
            for step in part:
                await take(broker, store, table, step, in_force, ended)
                assert list(broker.routes) == in_force
            assert broker.routes.history == sorted([*ended, *in_force], key=lambda one: one.since)


async def take(broker: Broker, store: GatedStore, table: Table, step: Step, in_force: list[Route], ended: list[Route]) -> None:
    action, topic, number, fails = step
    there = [one for one in in_force if one.topic_name == topic]
    if action == "add":
        if any(one.where == f"id = {number}" for one in there):
            with pytest.raises(RouteExistsError):
                await broker.routes.add(route(broker, table, topic, number))
            return
        changing = asyncio.ensure_future(broker.routes.add(route(broker, table, topic, number)))
        if await came_to_nothing(store, changing, fails):
            return
        in_force.append(await changing)
    elif not there:
        with pytest.raises(UnknownRouteError):
            await broker.routes.drop(topic, "t")
    else:
        dropping = asyncio.ensure_future(broker.routes.drop(topic, "t"))
        if await came_to_nothing(store, dropping, fails):
            return
        dropped = await dropping
        assert [one.id for one in dropped] == [one.id for one in there]
        ended += dropped
        in_force[:] = [one for one in in_force if one not in there]


async def came_to_nothing(
    store: GatedStore, changing: "asyncio.Future[Route] | asyncio.Future[list[Route]]", fails: bool
) -> bool:
    if not fails:
        return False
    store.close_gate()
    await until(lambda: bool(store.in_flight))
    store.fail()
    store.open_gate()
    with pytest.raises(StorageFullError):
        await changing
    return True


def route(broker: Broker, table: Table, topic: str, number: int) -> Route:
    found = broker.topics.get(topic).topic
    return Route(
        id=RouteId(0),
        topic=found.id,
        topic_name=found.name,
        table=table.id,
        table_name=table.name,
        changes=table.changes,
        operations=("insert",),
        where=f"id = {number}",
        payload="key",
    )
