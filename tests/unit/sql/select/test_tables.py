"""Tables beside topics: joins, and the changes of a table as rows."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tailrace.model.errors import SqlError
from tailrace.model.record import Message
from tailrace.sql.tables.readers import TableSnapshot
from tailrace.sql.tables.values import StoredValue
from tests.support.aio import on_loop
from tests.support.clocks import ManualClock
from tests.support.queries import asking_with_tables
from tests.support.tables import TableSql

NOW = datetime.fromtimestamp(ManualClock().now_ms() / 1000, UTC)


async def with_users(sql: TableSql) -> None:
    await sql.run("CREATE TABLE app.users (id integer, name text, score integer, PRIMARY KEY (id))")
    await sql.run("INSERT INTO app.users (id, name, score) VALUES (1, 'Ann', 10), (2, 'Ben', 20), (3, 'Cem', NULL)")


@on_loop
async def test_records_are_joined_with_rows(tmp_path: Path) -> None:
    async with asking_with_tables(tmp_path) as (ask, sql):
        await with_users(sql)
        await ask.broker.topics.create("app.clicks")
        await ask.broker.publisher.publish([Message("app.clicks", b'{"user":%d}' % user) for user in (2, 1, 2, 9)])
        text = """SELECT u.name, count(*) FROM app.clicks c LEFT JOIN app.users u ON u.id = (c.value ->> 'user')::int
            GROUP BY u.name ORDER BY 2 DESC, 1"""
        assert await ask.rows(text) == [("Ben", 2), ("Ann", 1), (None, 1)]
        filtered = (
            """SELECT name FROM app.clicks, app.users WHERE id = (value ->> 'user')::int AND score >= 15 AND name <> ''"""
        )
        assert await ask.rows(filtered) == [("Ben",), ("Ben",)]


@on_loop
async def test_only_named_columns_and_matching_rows_of_a_table_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking_with_tables(tmp_path) as (ask, sql):
        await with_users(sql)
        await ask.broker.topics.create("app.clicks")
        asked: list[object] = []
        read = TableSnapshot.read

        def watched(snapshot: TableSnapshot, statement: str, values: Sequence[StoredValue], *more: Any) -> Any:
            asked.append((statement, values))
            return read(snapshot, statement, values, *more)

        monkeypatch.setattr(TableSnapshot, "read", watched)
        await ask.rows(
            """SELECT u.name FROM app.clicks c JOIN app.users u ON u.id = c.offset
            WHERE u.score BETWEEN 15 AND 25 AND u.name IN ('Ben', 'Cem') AND u.name || 'x' <> 'y' AND c.partition = 0"""
        )
        statement = 'SELECT "id", "name", "score" FROM "app.users" WHERE "score" >= ? AND "score" <= ? AND "name" IN (?, ?)'
        assert asked == [(statement, [15, 25, "Ben", "Cem"])]
        asked.clear()
        assert await ask.value("SELECT count(*) FROM app.users") == 3
        assert asked == [('SELECT count(*) FROM "app.users"', [])]


@on_loop
async def test_every_type_of_a_table_arrives(tmp_path: Path) -> None:
    values = (
        *(True, 1, 2, 1 << 40, 0.5, Decimal("12.34"), "text", b"\x00\xff", date(2026, 1, 31)),
        datetime(2026, 1, 31, 13, 45, 0, 123456, tzinfo=UTC),
        UUID("f81d4fae-7dec-41d0-a765-00a0c91e6bf6"),
        {"a": [1, None]},
        [1, 2, 3],
    )
    async with asking_with_tables(tmp_path) as (ask, sql):
        await sql.run(
            """CREATE TABLE v.all (b boolean, s smallint, i integer, l bigint, d double, n decimal(10, 2), t text, y bytes,
            dt date, ts timestamp, u uuid, j json, li integer[], PRIMARY KEY (i))"""
        )
        marks = ", ".join("?" * len(values))
        await sql.run(f"INSERT INTO v.all VALUES ({marks})", values)
        names = ", ".join(("b", "s", "i", "l", "d", "n", "t", "y", "dt", "ts", "u", "j", "li"))
        types = ["boolean", "smallint", "integer", "bigint", "double", "decimal(10, 2)", "text", "bytes", "date", "timestamp"]
        types += ["uuid", "json", "integer[]"]
        joined = await ask.result(f"SELECT {names} FROM v.all, system.topics LIMIT 1")
        changed = await ask.result(f"SELECT {names} FROM table_changes('v.all')")
        for found in (joined, changed):
            assert [tuple(row) for row in found.rows] == [values]
            assert [str(column.type) for column in found.columns] == types
        computed = await ask.result("SELECT stddev(i), sum(n) FROM v.all")
        assert [str(column.type) for column in computed.columns] == ["decimal", "decimal(38, 2)"]
        await sql.run("INSERT INTO v.all (i) VALUES (7)")
        assert await ask.rows(f"SELECT {names} FROM table_changes('v.all') WHERE i = 7") == [(None, None, 7, *[None] * 10)]


@on_loop
async def test_changes_are_rows_with_both_images(tmp_path: Path) -> None:
    async with asking_with_tables(tmp_path) as (ask, sql):
        await with_users(sql)
        await sql.run("UPDATE app.users SET score = 11 WHERE id = 1")
        await sql.run("DELETE FROM app.users WHERE id = 2")
        found = await ask.result("SELECT * FROM table_changes('app.users')")
        assert [column.name for column in found.columns] == [
            *("id", "name", "score", "_change_type", "_commit_version", "_commit_timestamp")
        ]
        first = int(str(found.rows[0][4]))
        assert [tuple(row) for row in found.rows] == [
            (1, "Ann", 10, "insert", first, NOW),
            (2, "Ben", 20, "insert", first + 1, NOW),
            (3, "Cem", None, "insert", first + 2, NOW),
            (1, "Ann", 10, "update_preimage", first + 3, NOW),
            (1, "Ann", 11, "update_postimage", first + 3, NOW),
            (2, "Ben", 20, "delete", first + 4, NOW),
        ]
        for text in (
            f"SELECT _change_type FROM table_changes('app.users', {first + 2}, {first + 3})",
            f"SELECT _change_type FROM table_changes('app.users') c WHERE _commit_version IN ({first + 2}, {first + 3})",
        ):
            assert await ask.column(text) == ["insert", "update_preimage", "update_postimage"]
        assert await ask.column("SELECT name FROM table_changes('app.users', ?) WHERE _change_type = 'delete'", [first]) == [
            "Ben"
        ]
        assert await ask.value("SELECT count(*) FROM _changes.app.users") == 5
        assert await ask.column("SELECT value ->> 'op' FROM _changes.app.users WHERE op <> 'insert' ORDER BY cursor") == [
            "update",
            "delete",
        ]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("table_changes('app.nobody')", "there is no table 'app.nobody'"),
        ("table_changes('app.clicks')", "there is no table 'app.clicks'"),
        ("table_changes()", "from_cursor"),
        ("table_changes('app.users', 1, 2, 3)", "from_cursor"),
        ("table_changes('app.users', random())", "must be constants"),
    ],
)
@on_loop
async def test_a_wrong_call_is_refused(tmp_path: Path, call: str, said: str) -> None:
    async with asking_with_tables(tmp_path) as (ask, sql):
        await with_users(sql)
        await ask.broker.topics.create("app.clicks")
        with pytest.raises(SqlError, match=said):
            await ask.rows(f"SELECT * FROM {call}")


@on_loop
async def test_tables_are_listed(tmp_path: Path) -> None:
    async with asking_with_tables(tmp_path) as (ask, sql):
        await with_users(sql)
        ((name, columns, key, topic),) = await ask.rows("SELECT name, columns, primary_key, changes_topic FROM system.tables")
        assert (name, key, topic) == ("app.users", ["id"], "_changes.app.users")
        assert isinstance(columns, list) and columns[0] == {"name": "id", "type": "integer", "nullable": False}
