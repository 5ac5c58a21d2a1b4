"""What is dropped loses the grants that name it, so that one of the same name that is made again does not inherit."""

import asyncio

import pytest

from tailrace.broker import keys
from tailrace.broker.security.grants import Grants
from tailrace.model.errors import DependentViewsError, SqlError, SqlForbiddenError
from tailrace.model.security import Grant
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore
from tests.support.clocks import ManualClock
from tests.support.sources import define_source
from tests.support.sql import AUTHENTICATED, acting_as, running_sql

TABLE = "CREATE TABLE app.t (id int PRIMARY KEY)"
VIEW = "CREATE VIEW app.v AS SELECT * FROM app.t"


def granted(grants: Grants, kind: str = "table") -> set[tuple[str, str]]:
    return {(one.operation, one.name) for one in grants if one.kind == kind}


@on_loop
async def test_a_table_that_is_made_again_has_none_of_its_grants() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"CREATE USER alice; {TABLE}; GRANT SELECT, INSERT ON TABLE App.T TO alice, PUBLIC")
        with acting_as("alice"):
            assert await sql.rows("SELECT * FROM app.t") == []
        await sql.run(f"DROP TABLE app.t; {TABLE}")
        with acting_as("alice"), pytest.raises(SqlForbiddenError):
            await sql.rows("SELECT * FROM app.t")
        assert granted(sql.broker.grants) == set()


@on_loop
async def test_what_names_more_than_the_table_stays_and_so_does_the_right_to_make_it() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"CREATE USER alice; {TABLE}; CREATE TABLE app.t2 (id int PRIMARY KEY)")
        for on in ("TABLE app.t*", "ALL TABLES", "TABLE app.t2"):
            await sql.run(f"GRANT SELECT ON {on} TO alice")
        await sql.run("GRANT ALL, CREATE ON TABLE app.t TO alice")
        denial = Grant(principal="alice", operation="delete", kind="table", name="app.t", is_denied=True)
        await sql.broker.grants.add([denial])
        await sql.run("DROP TABLE app.t")
        stay = {("select", "app.t"), ("select", "*"), ("select", "app.t2"), ("create", "app.t"), ("delete", "app.t")}
        assert granted(sql.broker.grants) == stay


@on_loop
async def test_views_that_are_dropped_with_a_table_lose_their_grants_too() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"CREATE USER alice; {TABLE}; {VIEW}; GRANT SELECT ON TABLE app.t, app.v TO alice")
        with pytest.raises(DependentViewsError):
            await sql.run("DROP TABLE app.t")
        assert granted(sql.broker.grants) == {("select", "app.t"), ("select", "app.v")}
        await sql.run("DROP VIEW app.v")
        assert granted(sql.broker.grants) == {("select", "app.t")}
        await sql.run(f"{VIEW}; GRANT SELECT ON TABLE app.v TO alice; DROP TABLE app.t CASCADE")
        assert granted(sql.broker.grants) == set()


@on_loop
async def test_a_view_that_is_replaced_keeps_its_grants() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run(f"CREATE USER alice; {TABLE}; {VIEW}; GRANT SELECT ON TABLE app.v TO alice")
        await sql.run(VIEW.replace("CREATE", "CREATE OR REPLACE"))
        assert granted(sql.broker.grants) == {("select", "app.v")}


@on_loop
async def test_a_topic_keeps_its_grants_and_views_that_go_with_it_dont() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await sql.run("CREATE USER alice; CREATE TOPIC app.o; CREATE VIEW app.v AS SELECT key FROM app.o")
        await sql.run("GRANT CONSUME ON TOPIC app.o TO alice; GRANT SELECT ON TABLE app.v TO alice")
        await sql.run("DROP TOPIC app.o CASCADE")
        assert granted(sql.broker.grants) == set()
        assert granted(sql.broker.grants, "topic") == {("consume", "app.o")}


@on_loop
async def test_grants_go_in_the_commit_that_drops_the_table() -> None:
    store = GatedStore(ManualClock())
    async with running_sql(store=store, security=AUTHENTICATED) as sql:
        await sql.run(f"CREATE USER alice; {TABLE}; GRANT SELECT ON TABLE app.t TO alice")
        store.close_gate()
        dropping = asyncio.ensure_future(sql.run("DROP TABLE app.t"))
        await until(lambda: bool(store.in_flight))
        granting = asyncio.ensure_future(sql.run("GRANT INSERT ON TABLE app.t TO alice"))
        await turns()
        (commit,) = store.in_flight
        removed = {key for key, value in commit.changes.puts if value is None}
        assert any(key.startswith(keys.GRANTS) for key in removed)
        assert any(key.startswith(keys.TABLES) for key in removed)
        store.open_gate()
        await dropping
        with pytest.raises(SqlError, match=r"there is no table 'app\.t'"):
            await granting
        assert granted(sql.broker.grants) == set()


@on_loop
async def test_a_drop_whose_commit_fails_leaves_the_grants() -> None:
    store = GatedStore(ManualClock())
    async with running_sql(store=store, security=AUTHENTICATED) as sql:
        await sql.run(f"CREATE USER alice; {TABLE}; {VIEW}; GRANT SELECT ON TABLE app.v TO alice")
        store.close_gate()
        dropping = asyncio.ensure_future(sql.run("DROP VIEW app.v"))
        await until(lambda: bool(store.in_flight))
        store.fail()
        with pytest.raises(Exception, match=r"full|no space|room"):
            await dropping
        assert granted(sql.broker.grants) == {("select", "app.v")}


@on_loop
async def test_the_next_start_knows_no_grants_on_what_was_dropped() -> None:
    store = MemoryStore(ManualClock())
    async with running_sql(store=store, security=AUTHENTICATED) as sql:
        await sql.run(f"CREATE USER alice; {TABLE}; GRANT SELECT ON TABLE app.t TO alice; DROP TABLE app.t")
    assert list(store.range(keys.GRANTS)) == []


@on_loop
async def test_a_source_goes_with_the_grants_on_it_and_its_tables() -> None:
    async with running_sql(security=AUTHENTICATED) as sql:
        await define_source(sql.broker, "orders")
        await sql.run("CREATE USER alice; GRANT ALTER ON SOURCE shop TO alice; GRANT DROP ON SOURCE shop* TO alice")
        await sql.run("GRANT SELECT ON TABLE shop.public.orders TO alice")
        await sql.broker.sources.drop("shop")
        assert granted(sql.broker.grants) == set()
        assert granted(sql.broker.grants, "source") == {("drop", "shop")}
