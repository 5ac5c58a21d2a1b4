"""ALTER TABLE and TRUNCATE: rows, change events over versions of the schema, and tables made again from them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.model.errors import (
    ConstraintError,
    LimitExceededError,
    RoutedError,
    SqlError,
    TableAlteredError,
    UnknownTableError,
    UnsupportedSqlError,
)
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.table import Table
from tailrace.sql.parse import parse
from tailrace.sql.routes.statements import RouteHandler
from tailrace.sql.statements import AddRouteStatement
from tailrace.sql.tables.collations import register_collations
from tailrace.sql.tables.table_file import checksum_vfs
from tailrace.sql.tables.tables import FILE_NAME, Tables
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock
from tests.support.tables import TableSql, running_tables

ALL = "SELECT * FROM t ORDER BY 1"
CHAIN = (
    "CREATE TABLE t (id integer PRIMARY KEY, a smallint, b text NOT NULL, c decimal(5, 2), d boolean)",
    "INSERT INTO t VALUES (1, 10, 'one', 1.5, TRUE), (2, NULL, 'two', NULL, FALSE), (3, 30, 'three', 3, NULL)",
    "ALTER TABLE t ADD COLUMN e bigint DEFAULT 7, ADD COLUMN f text",
    "INSERT INTO t VALUES (4, 40, 'four', 4.25, TRUE, 44, 'x')",
    "ALTER TABLE t ALTER COLUMN a TYPE decimal(12, 3), ALTER COLUMN c TYPE decimal(9, 4), ALTER COLUMN d TYPE text",
    "UPDATE t SET a = a + 0.125 WHERE id = 1",
    "DELETE FROM t WHERE id = 3",
    "ALTER TABLE t RENAME COLUMN b TO body",
    "ALTER TABLE t RENAME COLUMN id TO key",
    "INSERT INTO t (key, body) VALUES (5, 'five')",
    "ALTER TABLE t DROP COLUMN f, ALTER COLUMN body DROP NOT NULL, ADD COLUMN b integer NOT NULL DEFAULT -1",
    "INSERT INTO t (key) VALUES (6)",
    "ALTER TABLE t ALTER COLUMN c TYPE text, ALTER COLUMN key TYPE bigint",
    "UPDATE t SET body = 'changed' WHERE key = 2",
)
"""Every kind of change, with rows that were written in every version."""
ROWS = [
    (1, "10.125", "one", "1.5000", "true", 7, -1),
    (2, None, "changed", None, "false", 7, -1),
    (4, "40.000", "four", "4.2500", "true", 44, -1),
    (5, None, "five", None, None, 7, -1),
    (6, None, None, None, None, 7, -1),
]
SMALL = msgspec.structs.replace(DEFAULT_LIMITS, snapshot_rows=2)


def plain(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [tuple(value if isinstance(value, int | None) else str(value) for value in row) for row in rows]


async def run_all(sql: TableSql, texts: tuple[str, ...]) -> None:
    for text in texts:
        await sql.run(text)


async def open_tables(folder: Path, broker: Broker, clock: ManualClock, limits: Limits = SMALL) -> TableSql:
    return TableSql(broker, await Tables.open(folder, broker, clock, limits))


@on_loop
async def test_a_table_is_the_same_when_its_file_is_made_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        for text in CHAIN:
            await sql.run(text)
            result = await sql.run(ALL)
            await sql.tables.close()
            (tmp_path / FILE_NAME).unlink()
            sql.tables = await Tables.open(tmp_path, broker, clock, SMALL)
            assert await sql.run(ALL) == result, text
        assert plain(await sql.rows(ALL)) == ROWS
        await sql.tables.close()


@on_loop
async def test_an_old_file_is_brought_through_all_that_it_missed(tmp_path: Path) -> None:
    """As after a power cut, when SQLite has lost its newest commits and the log has not."""
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        old: list[bytes] = []
        for text in CHAIN:
            await sql.run(text)
            await sql.tables.close()
            old.append((tmp_path / FILE_NAME).read_bytes())
            sql.tables = await Tables.open(tmp_path, broker, clock, SMALL)
        for text, file in zip(CHAIN, old, strict=True):
            await sql.tables.close()
            (tmp_path / FILE_NAME).write_bytes(file)
            sql.tables = await Tables.open(tmp_path, broker, clock, SMALL)
            assert plain(await sql.rows(ALL)) == ROWS, text
        await sql.tables.close()


@on_loop
async def test_a_file_from_before_versions_is_opened_and_altered(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await run_all(sql, CHAIN[:2])
        await sql.tables.close()
        _as_before_versions(tmp_path / FILE_NAME)
        sql = await open_tables(tmp_path, broker, clock)
        await run_all(sql, CHAIN[2:])
        assert plain(await sql.rows(ALL)) == ROWS
        await sql.tables.close()


def _as_before_versions(path: Path) -> None:
    """Take out what older servers did not write: the versions; and declare NOT NULL, which they did."""
    connection = apsw.Connection(str(path), vfs=checksum_vfs())
    connection.execute('ALTER TABLE "_tailrace.tables" DROP COLUMN schema_version')
    connection.execute("ALTER TABLE t RENAME TO old")
    connection.execute(
        "CREATE TABLE t (id INTEGER NOT NULL, a INTEGER, b TEXT NOT NULL, c TEXT, d INTEGER, PRIMARY KEY (id))"
        " STRICT, WITHOUT ROWID"
    )
    register_collations(connection)
    connection.execute("INSERT INTO t SELECT * FROM old; DROP TABLE old")
    connection.close()


@on_loop
async def test_events_have_the_version_of_their_rows(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await run_all(sql, CHAIN)
        records = await sql.records("t")
        versions = [json.loads(record.value or b"").get("schema_version", 1) for record in records]
        headers = [int(dict(record.headers).get("schema_version", b"1") or b"0") for record in records]
        assert versions == headers == [1, 1, 1, 2, 3, 3, 5, 6, 7]
        last = json.loads(records[-1].value or b"")
        assert list(last) == ["op", "schema_version", "key", "old", "new", "ts", "tx"]
        assert last["new"] == {"key": 2, "a": None, "body": "changed", "c": None, "d": "false", "e": 7, "b": -1}


@on_loop
async def test_changes_of_all_versions_have_the_columns_of_now(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await run_all(sql, CHAIN)
        rows = await sql.rows(
            "SELECT key, a, body, c, d, e, b, _change_type FROM table_changes('t') ORDER BY _commit_version, 8 DESC"
        )
        assert plain(rows)[:4] == [
            (1, "10.000", "one", "1.5000", "true", None, None, "insert"),
            (2, None, "two", None, "false", None, None, "insert"),
            (3, "30.000", "three", "3.0000", None, None, None, "insert"),
            (4, "40.000", "four", "4.2500", "true", 44, None, "insert"),
        ]
        assert plain(rows)[-1] == (2, None, "changed", None, "false", 7, -1, "update_postimage")


@on_loop
async def test_a_column_that_is_dropped_and_added_again_is_another_one(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, x text)")
        await sql.run("INSERT INTO t VALUES (1, 'old')")
        await sql.run("ALTER TABLE t DROP COLUMN x, ADD COLUMN x integer")
        await sql.run("INSERT INTO t VALUES (2, 2)")
        assert await sql.rows(ALL) == [(1, None), (2, 2)]
        assert await sql.rows("SELECT x FROM table_changes('t') ORDER BY _commit_version") == [(None,), (2,)]
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, clock)
        assert await sql.rows(ALL) == [(1, None), (2, 2)]
        await sql.tables.close()


@on_loop
async def test_a_checkpoint_that_spans_versions_gives_the_present_rows(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, a smallint)")
        await sql.run("INSERT INTO t VALUES (?, ?)", [[id, id] for id in range(9)])
        checkpoints = sql.tables._checkpoints
        table = broker.tables.get("t")
        for text in (
            "ALTER TABLE t ADD COLUMN b text DEFAULT 'b'",
            "ALTER TABLE t RENAME COLUMN a TO c",
            "DELETE FROM t WHERE id = 0",
        ):
            before = broker.changes.checkpoints.unfinished(table)
            piece = checkpoints._read(table, before)
            assert piece is not None
            await broker.changes.checkpoints.append(table, before, piece.moved, piece.appends, is_done=piece.is_done)
            await sql.run(text)
        broker.changes.checkpoints.want(table)
        await until(lambda: broker.changes.stats.checkpoints == 1)
        truth = [(id, id, "b") for id in range(1, 9)]
        assert await sql.rows(ALL) == truth
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, clock)
        assert sql.tables.replayed < 9, "it was made again from the changes, not from the checkpoint"
        assert await sql.rows(ALL) == truth
        await sql.tables.close()


@pytest.mark.parametrize(
    ("text", "error", "sqlstate"),
    [
        ("ADD COLUMN a integer", SqlError, "42701"),
        ("ADD COLUMN n integer NOT NULL", ConstraintError, "23502"),
        ("ADD COLUMN n integer DEFAULT 'x'", SqlError, None),
        ("ADD COLUMN n integer PRIMARY KEY", SqlError, "42P16"),
        ("DROP COLUMN nope", SqlError, "42703"),
        ("DROP COLUMN id", UnsupportedSqlError, "0A000"),
        ("RENAME COLUMN nope TO x", SqlError, "42703"),
        ("RENAME COLUMN a TO b", SqlError, "42701"),
        ("RENAME COLUMN a TO _change_type", SqlError, None),
        ("ALTER COLUMN a TYPE boolean", UnsupportedSqlError, "0A000"),
        ("ALTER COLUMN b TYPE integer", UnsupportedSqlError, "0A000"),
        ("ALTER COLUMN c TYPE decimal(5, 3)", UnsupportedSqlError, "0A000"),
        ("ALTER COLUMN id TYPE text", UnsupportedSqlError, "0A000"),
        ("ALTER COLUMN a SET NOT NULL", ConstraintError, "23502"),
        ("ALTER COLUMN id DROP NOT NULL", SqlError, "42P16"),
        ("ALTER COLUMN a SET DEFAULT 'many'", SqlError, None),
        ("RENAME TO u", UnsupportedSqlError, "0A000"),
        ("ADD COLUMN n integer, DROP COLUMN nope", SqlError, "42703"),
    ],
)
@on_loop
async def test_what_can_not_be_altered_is_refused_and_changes_nothing(
    tmp_path: Path, text: str, error: type[SqlError], sqlstate: str | None
) -> None:
    async with running_tables(tmp_path) as sql:
        await run_all(sql, CHAIN[:2])
        before = await sql.run(ALL)
        with pytest.raises(error) as raised:
            await sql.run(f"ALTER TABLE t {text}")
        assert sqlstate is None or raised.value.sqlstate == sqlstate
        assert await sql.run(ALL) == before
        assert sql.broker.tables.get("t").schema_version == 1
        await sql.run("INSERT INTO t VALUES (9, 9, 'nine', 9, TRUE)")


@on_loop
async def test_what_changes_nothing_makes_no_version(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await run_all(sql, CHAIN[:2])
        for text in (
            "ADD COLUMN IF NOT EXISTS a text",
            "DROP COLUMN IF EXISTS nope",
            "ALTER b SET NOT NULL",
            "ALTER a TYPE int2",
        ):
            await sql.run(f"ALTER TABLE t {text}")
        assert sql.broker.tables.get("t").schema_version == 1


@on_loop
async def test_versions_have_a_limit(tmp_path: Path) -> None:
    async with running_tables(tmp_path, limits=msgspec.structs.replace(DEFAULT_LIMITS, table_versions=2)) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY)")
        await sql.run("ALTER TABLE t ADD COLUMN a text")
        with pytest.raises(LimitExceededError, match="table_versions"):
            await sql.run("ALTER TABLE t ADD COLUMN b text")


@on_loop
async def test_writers_and_readers_go_on_while_a_table_is_altered(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY, a integer)")
        await sql.run("INSERT INTO t VALUES (0, 0)")
        done = False
        written = 0

        async def write() -> None:
            nonlocal written
            while not done:
                written += 1
                await sql.run("INSERT INTO t (id) VALUES (?)", [written])

        async def read(text: str) -> None:
            while not done:
                (row,) = await sql.rows(text)
                assert row[0] == 0

        working = [asyncio.create_task(write())]
        working += [
            asyncio.create_task(read(text)) for text in ("SELECT * FROM t WHERE id = 0", "SELECT min(id), count(*) FROM t")
        ]
        for number in range(8):
            await sql.run(f"ALTER TABLE t ADD COLUMN c{number} integer DEFAULT {number}")
            await sql.run(
                "ALTER TABLE t ALTER COLUMN a TYPE text" if number == 4 else f"ALTER TABLE t RENAME c{number} TO d{number}"
            )
            await asyncio.sleep(0.02)
        done = True
        await asyncio.gather(*working)
        assert await sql.value("SELECT count(*) FROM t") == written + 1
        events = await sql.events("t")
        assert len(events) == written + 1
        assert set(events[0]["new"]) == {"id", "a"}
        assert {"d0", "c4", "d7"} < set(events[-1]["new"]) or written < 3


@on_loop
async def test_a_query_that_was_planned_before_is_planned_again(tmp_path: Path) -> None:
    """The log has the new definition, and SQLite not yet: nobody reads rows of one shape as those of another."""
    store = GatedStore()
    async with running_tables(tmp_path, store) as sql:
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY, a integer)")
        await sql.run("INSERT INTO t VALUES (1, 5)")
        old = sql.broker.tables.get("t")
        await sql.run("ALTER TABLE t ALTER COLUMN a TYPE decimal(12, 2)")
        with pytest.raises(TableAlteredError):
            await sql.tables.read_rows('SELECT "a" FROM "t"', (), old)
        assert plain(await sql.rows("SELECT a FROM t WHERE id = 1")) == [("5.00",)]


async def given_route(sql: TableSql, text: str) -> Any:
    (asked,) = parse(text)
    assert isinstance(asked, AddRouteStatement)
    handler = RouteHandler(sql.broker, sql.tables, DEFAULT_LIMITS)
    try:
        return await handler.add(asked)
    finally:
        handler.close()


@on_loop
async def test_columns_that_routes_use_are_kept_and_the_routes_named(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await run_all(sql, CHAIN[:2])
        await sql.broker.topics.create("u.out")
        route = await given_route(sql, "ALTER TOPIC u.out ADD SOURCE t ON INSERT WHERE a > 1 PARTITION BY (b)")
        for text in ("DROP COLUMN a", "RENAME a TO z", "ALTER b TYPE varchar, ALTER a TYPE integer", "RENAME id TO key"):
            with pytest.raises(RoutedError, match=rf"route {route.id} to topic 'u\.out'"):
                await sql.run(f"ALTER TABLE t {text}")
        await sql.run("ALTER TABLE t DROP COLUMN c, ADD COLUMN n text")
        await sql.run("ALTER TABLE t RENAME COLUMN d TO z")
        await sql.run("ALTER TABLE t ALTER COLUMN id TYPE bigint")
        await sql.broker.routes.drop("u.out", "t")
        await sql.run("ALTER TABLE t DROP COLUMN a")


@on_loop
async def test_a_route_that_was_checked_before_is_not_added_after(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await run_all(sql, CHAIN[:2])
        await sql.broker.topics.create("u.out")
        old = sql.broker.tables.get("t")
        route = await given_route(sql, "ALTER TOPIC u.out ADD SOURCE t ON INSERT WHERE a > 1")
        await sql.broker.routes.drop("u.out", "t")
        await sql.run("ALTER TABLE t DROP COLUMN a")
        for snapshot in (False, True):
            with pytest.raises(TableAlteredError):
                await sql.tables.add_route(msgspec.structs.replace(route, snapshot=snapshot), old)
        assert not sql.broker.routes.of_table(old)


@on_loop
async def test_truncate_is_one_event_and_removes_all_rows(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        for name in ("t", "u"):
            await sql.run(f"CREATE TABLE {name} (id integer PRIMARY KEY, a text)")
            await sql.run(f"INSERT INTO {name} VALUES (?, ?)", [[id, "x"] for id in range(5)])
        await sql.run("TRUNCATE TABLE t, u RESTART IDENTITY")
        for name in ("t", "u"):
            assert await sql.rows(f"SELECT * FROM {name}") == []
            record = (await sql.records(name))[-1]
            event = json.loads(record.value or b"")
            assert record.key is None
            assert (event["op"], event["key"], event["old"], event["new"]) == ("truncate", None, None, None)
            assert dict(record.headers)["op"] == b"truncate"
        await sql.run("INSERT INTO t VALUES (1, 'again')")
        changes = await sql.rows("SELECT id, a, _change_type FROM table_changes('t') ORDER BY _commit_version")
        assert changes[5:] == [(None, None, "truncate"), (1, "again", "insert")]
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, clock)
        assert await sql.rows("SELECT * FROM t") == [(1, "again")]
        assert await sql.rows("SELECT * FROM u") == []
        await sql.tables.close()


@on_loop
async def test_truncate_is_part_of_its_transaction(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY)")
        await sql.run("INSERT INTO t VALUES (1), (2)")
        with pytest.raises(SqlError):
            await sql.transact("TRUNCATE t; INSERT INTO t VALUES (3); INSERT INTO t VALUES (3)")
        assert await sql.rows(ALL) == [(1,), (2,)]
        assert len(await sql.events("t")) == 2
        await sql.transact("INSERT INTO t VALUES (4); TRUNCATE t; INSERT INTO t VALUES (1)")
        assert await sql.rows(ALL) == [(1,)]
        assert [event["op"] for event in await sql.events("t")][2:] == ["insert", "truncate", "insert"]
        with pytest.raises(UnknownTableError):
            await sql.run("TRUNCATE t, nope")
        assert await sql.rows(ALL) == [(1,)]


@on_loop
async def test_a_checkpoint_that_began_before_a_truncate_has_no_removed_rows(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY)")
        await sql.run("INSERT INTO t VALUES (?)", [[id] for id in range(5)])
        table = broker.tables.get("t")
        piece = sql.tables._checkpoints._read(table, None)
        assert piece is not None
        assert not piece.is_done
        await broker.changes.checkpoints.append(table, None, piece.moved, piece.appends, is_done=False)
        await sql.run("TRUNCATE t")
        await sql.run("INSERT INTO t VALUES (7)")
        broker.changes.checkpoints.want(table)
        await until(lambda: broker.changes.stats.checkpoints == 1)
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, clock)
        assert await sql.rows(ALL) == [(7,)]
        await sql.tables.close()


@on_loop
async def test_a_file_that_is_ahead_of_the_log_is_made_again(tmp_path: Path) -> None:
    """As after a power cut with relaxed durability, when the log has lost an ALTER TABLE and SQLite has not."""
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await run_all(sql, CHAIN[:4])
        wanted = await sql.run(ALL)
        await sql.tables.close()
        connection = apsw.Connection(str(tmp_path / FILE_NAME), vfs=checksum_vfs())
        register_collations(connection)
        connection.execute('UPDATE "_tailrace.tables" SET schema_version = 3')
        connection.execute("ALTER TABLE t DROP COLUMN f")
        connection.close()
        sql.tables = await Tables.open(tmp_path, broker, clock, SMALL)
        assert await sql.run(ALL) == wanted
        await sql.tables.close()


@on_loop
async def test_rows_that_broke_an_index_of_now_are_not_lost_when_a_file_catches_up(tmp_path: Path) -> None:
    """The file has a unique index, the log has rows from when there was none: they do not replace each other."""
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, a integer, b text)")
        await sql.run("CREATE UNIQUE INDEX t_a ON t (a)")
        await sql.run("INSERT INTO t VALUES (1, 1, 'x')")
        await sql.tables.close()
        old = (tmp_path / FILE_NAME).read_bytes()
        sql.tables = await Tables.open(tmp_path, broker, clock, SMALL)
        await sql.run("DROP INDEX t_a")
        await sql.run("INSERT INTO t VALUES (2, 1, 'y')")
        await sql.run("ALTER TABLE t DROP COLUMN b")
        await sql.run("UPDATE t SET a = 2 WHERE id = 2")
        await sql.run("CREATE UNIQUE INDEX t_a ON t (a)")
        await sql.tables.close()
        (tmp_path / FILE_NAME).write_bytes(old)
        sql.tables = await Tables.open(tmp_path, broker, clock, SMALL)
        assert await sql.rows(ALL) == [(1, 1), (2, 2)]
        with pytest.raises(ConstraintError):
            await sql.run("INSERT INTO t VALUES (3, 2)")
        await sql.tables.close()


@on_loop
async def test_explain_of_a_route_takes_changes_of_the_present_columns(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await run_all(sql, CHAIN[:2])
        await sql.run("ALTER TABLE t ADD COLUMN n integer")
        await sql.run("TRUNCATE t")
        await sql.run("INSERT INTO t (id, b, n) VALUES (7, 'x', 5), (8, 'x', 0)")
        await sql.broker.topics.create("u.out")
        (asked,) = parse("EXPLAIN ALTER TOPIC u.out ADD SOURCE t ON INSERT WHERE n > 1")
        assert isinstance(asked, AddRouteStatement)
        handler = RouteHandler(sql.broker, sql.tables, DEFAULT_LIMITS)
        result = await handler.explain(asked)
        handler.close()
        assert [(row[1], row[3]) for row in result.rows] == [("insert", "true"), ("insert", "false")]


@pytest.mark.parametrize("text", ["ALTER TABLE t RENAME a TO b", "TRUNCATE t"])
@on_loop
async def test_a_snapshot_that_runs_goes_on_with_what_is_there(tmp_path: Path, text: str) -> None:
    async with running_tables(tmp_path, limits=SMALL) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
        await sql.run("INSERT INTO t VALUES (?, ?)", [[id, id] for id in range(40)])
        await sql.broker.topics.create("u.out")
        route = await given_route(sql, "ALTER TOPIC u.out ADD SOURCE t ON INSERT, DELETE WITH (snapshot = true)")
        await sql.run(text)
        await sql.run("INSERT INTO t VALUES (99, 99)")
        await until(lambda: sql.broker.snapshots.progress(route)[0] == "done")
        events = await sql.events("t")
        reads = [event for event in events if event["op"] == "read"]
        ids = [event["key"]["id"] for event in reads]
        if text.startswith("TRUNCATE"):
            behind = events[[event["op"] for event in events].index("truncate") :]
            assert {event["key"]["id"] for event in behind if event["op"] == "read"} <= {99}
            assert ids == sorted(set(ids))
        else:
            assert ids == [*range(40), 99] or ids == [*range(40)]
            assert [list(event["new"]) for event in reads] == sorted([list(event["new"]) for event in reads])


@on_loop
async def test_forty_clients_alter_a_table_one_after_another(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY)")
        texts = [f"ALTER TABLE t ADD COLUMN c{number // 2} integer DEFAULT {number}" for number in range(40)]
        answers = await asyncio.gather(*map(sql.run, texts), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, SqlError)]
        assert [error.sqlstate for error in refused] == ["42701"] * 20
        assert sql.broker.tables.get("t").schema_version == 21
        await sql.run("INSERT INTO t (id) VALUES (1)")
        assert len((await sql.rows(ALL))[0]) == 21


@on_loop
async def test_rows_of_a_table_that_was_made_again_are_not_taken_for_those_of_the_dropped_one(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, a text)")
        old = sql.broker.tables.get("t")
        await sql.run("DROP TABLE t")
        await sql.run("CREATE TABLE t (id integer PRIMARY KEY, a text)")
        with pytest.raises(TableAlteredError):
            await sql.tables.read_rows('SELECT "a" FROM "t"', (), old)


def test_a_definition_of_an_older_log_has_version_1() -> None:
    column = {"name": "id", "type": {"kind": "integer"}, "nullable": False}
    older = {"id": 1, "name": "t", "columns": [column], "primary_key": ["id"], "changes": 2, "created_ms": 3}
    table = msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=Table)
    assert (table.schema_version, table.history) == (1, ())
