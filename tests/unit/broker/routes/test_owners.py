"""A route runs with the rights of who made it, and its table waits while these are missing."""

from collections.abc import Awaitable, Callable

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.errors import ForbiddenError, RouteExistsError, TailraceError
from tailrace.model.pipeline import ROUTER
from tailrace.model.route import Route
from tailrace.model.security import ADMIN_ROLE, Grant, Operation, ResourceKind
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.clocks import ManualClock
from tests.support.sql import AUTHENTICATED, SqlClient, acting_as, running_sql

ADD = "ALTER TOPIC out ADD SOURCE chat ON INSERT"
NEEDED: tuple[tuple[Operation, ResourceKind, str], ...] = (
    ("select", "table", "chat"),
    ("alter", "topic", "out"),
    ("publish", "topic", "out"),
)


def grant(operation: Operation, kind: ResourceKind, name: str, to: str = "alice") -> Grant:
    return Grant(principal=to, operation=operation, kind=kind, name=name)


async def chat(sql: SqlClient) -> int:
    """A table with a topic to route to, and a user who may; the epoch of the router."""
    await sql.run("CREATE TABLE chat (id BIGINT PRIMARY KEY, body TEXT)")
    await sql.run("CREATE TOPIC out")
    await sql.broker.users.create("alice")
    await sql.broker.grants.add(grant(*each) for each in NEEDED)
    return (await sql.broker.pipelines.lease(ROUTER, "test")).epoch


async def add(sql: SqlClient, who: str = "alice", text: str = ADD) -> Route:
    with acting_as(who):
        await sql.run(text)
    return list(sql.broker.routes)[-1]


async def insert(sql: SqlClient, *ids: int) -> None:
    for id in ids:
        await sql.run(f"INSERT INTO chat VALUES ({id}, 'x')")


async def revoke(broker: Broker, operation: Operation) -> None:
    await broker.grants.remove(lambda one: one.operation == operation)


def is_stopped(broker: Broker) -> Callable[[], bool]:
    return lambda: [broker.routes.state_of(route) for route in broker.routes] == ["stopped"]


def is_active(broker: Broker) -> Callable[[], bool]:
    return lambda: all(broker.routes.state_of(route) == "active" for route in broker.routes)


@on_loop
async def test_a_route_belongs_to_who_made_it_and_to_nobody_without_authentication() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await chat(sql)
        assert (await add(sql)).owner == "alice"
        assert (await add(sql, text=f"{ADD} WHERE (id > 1) WITH (snapshot = true)")).owner == "alice"
    async with running_sql() as sql:
        await chat(sql)
        assert (await add(sql)).owner == ""


@on_loop
@pytest.mark.parametrize("missing", [operation for operation, _, _ in NEEDED])
async def test_a_route_is_made_only_by_who_may_do_what_it_does(missing: Operation) -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await chat(sql)
        await revoke(sql.broker, missing)
        for text in (ADD, f"EXPLAIN {ADD}"):
            with pytest.raises(ForbiddenError), acting_as("alice"):
                await sql.run(text)
        assert list(sql.broker.routes) == []


@on_loop
async def test_rights_of_a_token_alone_are_not_enough_for_a_route() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await chat(sql)
        with pytest.raises(ForbiddenError, match="granted to that name"), acting_as("visitor", ADMIN_ROLE):
            await sql.run(ADD)


@on_loop
async def test_a_route_is_dropped_by_who_may_alter_its_topic() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await chat(sql)
        await add(sql)
        with pytest.raises(ForbiddenError), acting_as("bob"):
            await sql.broker.routes.drop("out", "chat")
        with acting_as("alice"):
            await sql.broker.routes.drop("out", "chat")
        assert list(sql.broker.routes) == []


async def _revoke_select(broker: Broker) -> None:
    await revoke(broker, "select")


async def _revoke_publish(broker: Broker) -> None:
    await revoke(broker, "publish")


async def _deny(broker: Broker) -> None:
    await broker.grants.add([Grant(principal="*", operation="publish", kind="topic", name="out", is_denied=True)])


async def _drop_owner(broker: Broker) -> None:
    await broker.users.drop("alice")


@pytest.mark.parametrize("take", [_revoke_select, _revoke_publish, _deny, _drop_owner])
@on_loop
async def test_a_route_without_rights_stops_and_goes_on_with_them(take: Callable[[Broker], Awaitable[None]]) -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        epoch = await chat(sql)
        route = await add(sql)
        await insert(sql, 1, 2)
        before = list(sql.broker.grants)
        await take(sql.broker)
        await until(is_stopped(sql.broker))
        await insert(sql, 3)
        (source,) = await sql.broker.routing.sources(epoch, {}, 0)
        assert (source.mark, source.end) == (0, 2)
        why = sql.broker.routes.breakage(route)
        assert why is not None
        assert "'alice', who made it, may no longer read table 'chat'" in why
        shown = await sql.dicts("SELECT state, error FROM system.topic_routes")
        assert shown == [{"state": "stopped", "error": why}]

        await sql.broker.grants.remove(lambda one: one.is_denied)
        await sql.broker.grants.add(before)
        await until(is_active(sql.broker))
        (source,) = await sql.broker.routing.sources(epoch, {}, 0)
        assert (source.mark, source.end) == (0, 3)
        assert sql.broker.routes.breakage(route) is None


@on_loop
async def test_a_route_that_is_stopped_can_be_made_again_by_somebody_else_and_nothing_is_left_out() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        epoch = await chat(sql)
        await add(sql)
        await insert(sql, 1)
        await sql.broker.users.create("root", roles=[ADMIN_ROLE])
        with pytest.raises(RouteExistsError):
            await add(sql, "root")
        await revoke(sql.broker, "select")
        await until(is_stopped(sql.broker))
        await insert(sql, 2)
        second = await add(sql, "root")
        await sql.broker.routes.drop("out", "chat", next(iter(sql.broker.routes)).id)
        assert [route.id for route in sql.broker.routes] == [second.id]
        assert second.owner == "root"
        await insert(sql, 3)
        (source,) = await sql.broker.routing.sources(epoch, {}, 0)
        assert (source.mark, source.end, source.routes) == (0, 3, 2)
        assert [route.owner for route in await sql.broker.routing.pending()] == ["alice", "root"]


@on_loop
async def test_a_stopped_route_stays_so_over_a_restart_until_the_right_is_there_again() -> None:
    store = MemoryStore(ManualClock())
    async with running_sql(store=store, security=AUTHENTICATED) as sql:
        await chat(sql)
        await add(sql)
        await insert(sql, 1)
        await revoke(sql.broker, "select")
        await until(is_stopped(sql.broker))
        before = sql.broker.routes.block_of(next(iter(sql.broker.routes)).changes)
    async with running_sql(store=store, security=AUTHENTICATED) as sql:
        assert is_stopped(sql.broker)()
        assert sql.broker.routes.block_of(next(iter(sql.broker.routes)).changes) == before
        assert next(iter(sql.broker.routes)).owner == "alice"
    async with running_sql(store=store) as sql:
        assert is_active(sql.broker)(), "without authentication nobody lacks a right"
    async with running_sql(store=store, security=AUTHENTICATED) as sql:
        assert is_stopped(sql.broker)()
        await sql.broker.grants.add([grant("select", "table", "chat")])
        await until(is_active(sql.broker))


@on_loop
async def test_routes_without_an_owner_run_with_the_rights_of_the_server() -> None:
    store = MemoryStore(ManualClock())
    async with running_sql(store=store) as sql:
        await chat(sql)
        await add(sql)
    async with running_sql(store=store, security=AUTHENTICATED) as sql:
        await sql.broker.grants.remove(lambda _: True)
        await sql.broker.route_owners.review()
        assert is_active(sql.broker)()


@on_loop
async def test_only_who_may_act_for_the_cluster_routes() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        epoch = await chat(sql)
        await add(sql)
        with acting_as("alice"):
            for asked in (
                sql.broker.pipelines.lease(ROUTER, "me"),
                sql.broker.routing.pending(),
                sql.broker.routing.sources(epoch, {}, 0),
                sql.broker.intake.open(),
                sql.broker.intake.take_batch(b""),
                sql.broker.pipelines.stage(ROUTER, "s", 0, b""),
            ):
                with pytest.raises(TailraceError) as raised:
                    await asked
                assert type(raised.value) is ForbiddenError
