"""Routes that begin with the rows that are there: each row is told once, then its changes, and nothing else is disturbed."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.model.clock import SystemClock
from tailrace.model.errors import StorageFullError
from tailrace.model.ids import TableId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.record import Record
from tailrace.model.route import Route
from tailrace.model.table import Column, ColumnType, Table
from tailrace.sql.engine import StatementEngine
from tailrace.sql.tables.change_recorder import KeyOrder
from tailrace.sql.tables.tables import FILE_NAME
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.snapshots import events_for, rows_told, take_turns_by_hand, turn
from tests.support.sql import SqlClient, running_sql
from tests.support.tables import records_of, replayed

LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, snapshot_rows=3)
ADD = "ALTER TOPIC app.rows ADD SOURCE a.t ON INSERT, UPDATE, DELETE WITH (payload = 'full', snapshot = true)"


class Server:
    """SQL whose snapshots move when the test says so."""

    def __init__(self, folder: Path, broker: Broker, limits: Limits = LIMITS) -> None:
        self._folder = folder
        self.broker = broker
        self._limits = limits

    async def __aenter__(self) -> "Server":
        self._sql = await StatementEngine.open(self._folder, self.broker, SystemClock(), self._limits)
        await take_turns_by_hand(self._sql.tables)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sql.close()

    async def run(self, text: str) -> Any:
        return (await self._sql.execute(text))[-1]

    async def turn(self) -> None:
        await turn(self._sql.tables, self.broker)

    async def records(self) -> list[Record]:
        return await records_of(self.broker, "a.t")

    async def told(self, route: Route | None = None) -> list[tuple[str, int]]:
        """Operation and id of each event for the route."""
        (only,) = [route] if route is not None else self.broker.routes
        return [(event["op"], event["key"]["id"]) for event in events_for(only, await self.records())]


def reads(first: int, stop: int) -> list[tuple[str, int]]:
    return [("read", id) for id in range(first, stop)]


async def given_rows(server: Server, count: int = 7) -> None:
    await server.run("CREATE TABLE a.t (id bigint PRIMARY KEY, n bigint); CREATE TOPIC app.rows")
    values = ", ".join(f"({id}, 0)" for id in range(count))
    if count:
        await server.run(f"INSERT INTO a.t VALUES {values}")


@on_loop
async def test_rows_are_told_in_the_order_of_their_keys_and_to_their_route_alone(tmp_path: Path) -> None:
    async with running_broker(limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run("ALTER TOPIC app.rows ADD SOURCE a.t ON DELETE")
        await server.run(ADD)
        plain, route = broker.routes
        states = [broker.snapshots.progress(route)]
        while broker.snapshots.running:
            await server.turn()
            states.append(broker.snapshots.progress(route))
        assert states == [("running", 0), ("running", 3), ("running", 6), ("done", 7)]
        assert await server.told(route) == reads(0, 7)
        assert await server.told(plain) == []
        read = [record for record in await server.records() if ("op", b"read") in record.headers]
        assert {dict(record.headers)["only_route"] for record in read} == {b"2"}
        event = json.loads(read[0].value or b"")
        assert (event["old"], event["new"], event["key"]) == (None, {"id": 0, "n": 0}, {"id": 0})
        assert {dict(record.headers)["tx"].decode() for record in read[:3]} == {event["tx"]}  # type: ignore[union-attr]
        assert broker.snapshots.progress(plain) == ("none", 0)
        assert broker.snapshots.rows == 7


@pytest.mark.parametrize("rows", [0, 3, 4])
@on_loop
async def test_a_snapshot_ends_after_the_last_row(rows: int, tmp_path: Path) -> None:
    async with running_broker(limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server, rows)
        await server.run(ADD)
        for _ in range(2):
            await server.turn()
        (route,) = broker.routes
        assert broker.snapshots.progress(route) == ("done", rows)
        await server.run("INSERT INTO a.t VALUES (100, 1)")
        assert await server.told() == [*reads(0, rows), ("insert", 100)]


@on_loop
async def test_changes_of_rows_that_are_still_to_come_are_left_out(tmp_path: Path) -> None:
    async with running_broker(limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run(ADD)
        await server.run("UPDATE a.t SET n = 1 WHERE id IN (0, 6)")
        await server.turn()
        await server.run("UPDATE a.t SET n = 2 WHERE id IN (1, 2, 3)")
        await server.run("INSERT INTO a.t VALUES (-1, 3), (9, 3); DELETE FROM a.t WHERE id IN (2, 5)")
        # From before the frontier to behind it, and back.
        await server.run("UPDATE a.t SET id = 8 WHERE id = 1; UPDATE a.t SET id = 2 WHERE id = 4")
        for _ in range(2):
            await server.turn()
        assert await server.told() == [
            *[("read", 0), ("read", 1), ("read", 2)],
            *[("update", 1), ("update", 2), ("insert", -1), ("delete", 2), ("delete", 1), ("insert", 2)],
            *[("read", 3), ("read", 6), ("read", 8), ("read", 9)],
        ]
        (route,) = broker.routes
        records = await server.records()
        left = rows_told(events_for(route, records))
        assert left == replayed([json.loads(record.value or b"") for record in records])
        assert left[json.dumps({"id": 6})]["n"] == 1


@on_loop
async def test_two_snapshots_of_a_table_are_told_apart(tmp_path: Path) -> None:
    async with running_broker(limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run(ADD)
        await server.turn()
        await server.run(ADD.replace("'full'", "'key'"))
        await server.run("UPDATE a.t SET n = 1 WHERE id IN (0, 5)")
        skipped = [dict(record.headers).get("skip_routes") for record in (await server.records())[-2:]]
        assert skipped == [b",2,", b",1,2,"]
        for _ in range(3):
            await server.turn()
        first, second = broker.routes
        assert await server.told(first) == [*reads(0, 3), ("update", 0), *reads(3, 7)]
        assert await server.told(second) == reads(0, 7)


@on_loop
async def test_a_snapshot_goes_on_where_the_last_run_of_the_server_left_it(tmp_path: Path) -> None:
    """With its file, and with one that is made again from the log."""
    store = MemoryStore(limits=LIMITS)
    async with running_broker(store, limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run(ADD)
        await server.turn()
    (tmp_path / FILE_NAME).unlink()
    async with running_broker(store, limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await server.run("UPDATE a.t SET n = 1 WHERE id IN (1, 4)")
        await server.turn()
    async with running_broker(store, limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await server.turn()
        (route,) = broker.routes
        assert broker.snapshots.progress(route) == ("done", 7)
        assert await server.told() == [*reads(0, 3), ("update", 1), *reads(3, 7)]
    async with running_broker(store, limits=LIMITS) as broker:
        assert broker.snapshots.progress(route) == ("done", 7)


@on_loop
async def test_unfinished_snapshots_go_on_by_themselves_when_the_server_starts(tmp_path: Path) -> None:
    store = MemoryStore(limits=LIMITS)
    async with running_broker(store, limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run(ADD)
    async with running_broker(store, limits=LIMITS) as broker:
        sql = await StatementEngine.open(tmp_path, broker, SystemClock(), LIMITS)
        await until(lambda: not broker.snapshots.running)
        await sql.close()
        (route,) = broker.routes
        assert broker.snapshots.progress(route) == ("done", 7)


@on_loop
async def test_a_dropped_route_ends_its_snapshot(tmp_path: Path) -> None:
    store = MemoryStore(limits=LIMITS)
    async with running_broker(store, limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run(ADD)
        await server.turn()
        await server.run("ALTER TOPIC app.rows DROP SOURCE a.t")
        assert not broker.snapshots.running
        ended = len(await server.records())
        await server.turn()
        assert len(await server.records()) == ended
        assert list(store.range(b"snapshot/")) == []
        await server.run(ADD)
        (route,) = broker.routes
        assert broker.snapshots.progress(route) == ("running", 0)
        await server.run("ALTER TOPIC app.rows DROP SOURCE a.t; DROP TABLE a.t")


@pytest.mark.parametrize("fails", [False, True])
@on_loop
async def test_a_turn_that_meets_a_drop_on_its_way_waits_for_its_end(fails: bool, tmp_path: Path) -> None:
    store = GatedStore(limits=LIMITS)
    async with running_broker(store, limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run(ADD)
        (route,) = broker.routes
        store.close_gate()
        drop = asyncio.create_task(broker.routes.drop("app.rows", "a.t"))
        await until(lambda: len(store.in_flight) == 1)
        turned = asyncio.create_task(server.turn())
        await until(lambda: broker.committer._following == 1)
        if fails:
            store.fail()
        store.open_gate()
        await asyncio.gather(drop, turned, return_exceptions=True)
        assert turned.exception() is None
        assert (drop.exception() is not None) == fails
        assert broker.snapshots.progress(route) == (("running", 3) if fails else ("none", 0))


@on_loop
async def test_what_the_log_refuses_is_read_again(tmp_path: Path) -> None:
    store = GatedStore(limits=LIMITS)
    async with running_broker(store, limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run(ADD)
        store.close_gate()
        turned = asyncio.create_task(server.turn())
        await until(lambda: len(store.in_flight) == 1)
        store.fail()
        store.open_gate()
        with pytest.raises(StorageFullError):
            await turned
        await server.run("UPDATE a.t SET n = 1 WHERE id = 0")
        for _ in range(3):
            await server.turn()
        assert await server.told() == reads(0, 7)


@on_loop
async def test_a_turn_that_failed_comes_again_by_itself() -> None:
    store = GatedStore(limits=LIMITS)
    async with running_sql(store=store, limits=LIMITS) as sql:
        await sql.run("CREATE TABLE a.t (id bigint PRIMARY KEY, n bigint); CREATE TOPIC app.rows")
        await sql.run("INSERT INTO a.t VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
        await sql.run("ALTER TOPIC app.rows ADD SOURCE a.t ON DELETE")
        store.close_gate()
        added = asyncio.create_task(sql.run(ADD))
        await until(lambda: len(store.in_flight) == 1)
        store.settle()
        await added
        await until(lambda: len(store.in_flight) == 1)
        store.fail()
        store.open_gate()
        await until(lambda: not sql.broker.snapshots.running)
        _, route = sql.broker.routes
        assert [event["key"]["id"] for event in events_for(route, await records_of(sql.broker, "a.t"))] == [1, 2, 3, 4]


@on_loop
async def test_a_snapshot_runs_also_when_its_client_waits_no_more() -> None:
    store = GatedStore(limits=LIMITS)
    async with running_sql(store=store, limits=LIMITS) as sql:
        await sql.run("CREATE TABLE a.t (id bigint PRIMARY KEY, n bigint); CREATE TOPIC app.rows")
        await sql.run("INSERT INTO a.t VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
        await sql.run("ALTER TOPIC app.rows ADD SOURCE a.t ON DELETE")
        store.close_gate()
        added = asyncio.create_task(sql.run(ADD))
        await until(lambda: len(store.in_flight) == 1)
        added.cancel()
        store.open_gate()
        await until(lambda: len(sql.broker.routes) == 2 and not sql.broker.snapshots.running)
        _, route = sql.broker.routes
        assert sql.broker.snapshots.progress(route) == ("done", 4)


@on_loop
async def test_a_route_is_put_in_force_between_two_groups_of_writers(tmp_path: Path) -> None:
    """A change that is on its way when the route comes knows nothing of it, so it must be before it in the log."""
    store = GatedStore(limits=LIMITS)
    async with running_broker(store, limits=LIMITS) as broker, Server(tmp_path, broker) as server:
        await given_rows(server)
        await server.run("ALTER TOPIC app.rows ADD SOURCE a.t ON DELETE")
        store.close_gate()
        write = asyncio.create_task(server.run("UPDATE a.t SET n = 1 WHERE id = 6"))
        await until(lambda: len(store.in_flight) == 1)
        added = asyncio.create_task(server.run(ADD))
        await until(lambda: len(server._sql.tables._writer.queue) == 1)
        assert len(store.in_flight) == 1
        store.open_gate()
        await asyncio.gather(write, added)
        for _ in range(3):
            await server.turn()
        _, route = broker.routes
        assert await server.told(route) == reads(0, 7)


@on_loop
async def test_large_rows_make_small_chunks(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, snapshot_bytes=1000)
    async with running_broker(limits=limits) as broker, Server(tmp_path, broker, limits) as server:
        await server.run("CREATE TABLE a.t (id bigint PRIMARY KEY, b text); CREATE TOPIC app.rows")
        await server.run("INSERT INTO a.t VALUES " + ", ".join(f"({id}, '{'x' * 600}')" for id in range(3)))
        await server.run(ADD)
        (route,) = broker.routes
        await server.turn()
        assert broker.snapshots.progress(route) == ("running", 2)
        await server.turn()
        assert broker.snapshots.progress(route) == ("done", 3)


@on_loop
async def test_the_rows_that_a_snapshot_reads_are_no_changes() -> None:
    """Neither for `table_changes` nor for a dry run, which looks further back for changes."""
    limits = msgspec.structs.replace(DEFAULT_LIMITS, explained_changes=4, snapshot_rows=3)
    async with running_sql(limits=limits) as sql:
        await sql.run("CREATE TABLE a.t (id bigint PRIMARY KEY, n bigint); CREATE TOPIC app.rows")
        await sql.run("INSERT INTO a.t VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)")
        await sql.run(ADD)
        await until(lambda: not sql.broker.snapshots.running)
        await sql.run("DELETE FROM a.t WHERE id = 1")
        assert await sql.rows("SELECT _change_type, id FROM table_changes('a.t') ORDER BY _commit_version") == [
            *(("insert", id) for id in range(1, 7)),
            ("delete", 1),
        ]
        explained = await sql.rows("EXPLAIN ALTER TOPIC app.rows ADD SOURCE a.t ON INSERT WHERE (id > 4)")
        assert [(op, key, matches) for _, op, key, matches, *_ in explained] == [
            ("insert", {"id": 4}, "false"),
            ("insert", {"id": 5}, "true"),
            ("insert", {"id": 6}, "true"),
            ("delete", {"id": 1}, "false"),
        ]


@on_loop
async def test_progress_is_seen_in_system_tables_and_by_show_routes() -> None:
    async with running_sql(limits=LIMITS) as sql:
        await sql.run("CREATE TABLE a.t (id bigint PRIMARY KEY, n bigint); CREATE TOPIC app.rows")
        await sql.run("INSERT INTO a.t VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
        await sql.run("ALTER TOPIC app.rows ADD SOURCE a.t ON INSERT")
        await sql.run(ADD.replace("INSERT, UPDATE, DELETE", "DELETE"))
        await until(lambda: not sql.broker.snapshots.running)
        wanted = [(1, "none", 0), (2, "done", 4)]
        assert await sql.rows("SELECT route_id, snapshot, snapshot_rows FROM system.topic_routes ORDER BY route_id") == wanted
        shown = await sql.dicts("SHOW ROUTES")
        assert [(row["route_id"], row["snapshot"], row["snapshot_rows"]) for row in shown] == wanted
        ((counted,),) = await sql.rows("SELECT value FROM system.stats WHERE name = 'tailrace_snapshot_rows_total'")
        assert counted == 4


async def _condition(sql: SqlClient, clauses: str) -> str:
    await sql.run(f"ALTER TOPIC app.rows ADD SOURCE a.t {clauses}")
    *_, route = sql.broker.routes
    return route.sql.condition


@on_loop
async def test_a_column_by_itself_is_that_of_the_row_that_was_read_also_on_delete() -> None:
    async with running_sql() as sql:
        await sql.run("CREATE TABLE a.t (id bigint PRIMARY KEY, n bigint); CREATE TOPIC app.rows")
        assert "new" not in await _condition(sql, "ON DELETE WHERE (n = 1)")
        assert "new" in await _condition(sql, "ON DELETE WHERE (n = 2) WITH (snapshot = true)")


def test_keys_are_in_the_order_of_the_table() -> None:
    kinds = {"d": ColumnType("decimal", 6, 2), "t": ColumnType("text"), "b": ColumnType("bytes"), "f": ColumnType("double")}
    table = Table(
        id=TableId(1),
        name="a.t",
        columns=tuple(Column(name, kind, nullable=False) for name, kind in kinds.items()),
        primary_key=tuple(kinds),
        changes=TopicId(1),
        created_ms=0,
    )
    rising = [
        ("-10.00", "", b"", 0.0),
        ("-9.00", "", b"", 0.0),
        ("9.00", "b", b"\xff", 7.5),
        ("10.00", "Z", b"", 0.0),
        ("10.00", "a", b"", -1.0),
        ("10.00", "a", b"", 2.0),
        ("10.00", "a", b"\0", -5.0),
        ("10.00", "\uffff", b"", 0.0),
        ("10.00", "\U0001f600", b"", 0.0),
    ]
    assert [Decimal(key[0]) for key in rising] == sorted(Decimal(key[0]) for key in rising)
    order = KeyOrder()
    for at, key in enumerate(rising):
        assert [order.is_behind(table, key, other) for other in rising] == [at > place for place in range(len(rising))]
    order.close()
