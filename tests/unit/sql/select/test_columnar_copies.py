"""Columnar copies of tables: queries over one answer as they do over SQLite's rows, whatever has changed since it was made."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.table import Table
from tailrace.sql.select.columnar_builder import build, open_snapshot
from tailrace.sql.select.columnar_relation import ColumnarRelation
from tailrace.sql.select.tables import ChangedRowsRelation, TableRelation
from tailrace.sql.tables import columnar_copies
from tailrace.sql.tables import tables as tables_module
from tailrace.sql.tables.columnar_copies import FOLDER_NAME, ColumnarCopies
from tailrace.sql.tables.columnar_process import BuildFailedError, BuildRequest
from tailrace.sql.tables.database import abandon
from tailrace.sql.tables.readers import TableSnapshot
from tailrace.sql.tables.tables import Tables
from tests.support.aio import on_loop, until
from tests.support.tables import TableSql, running_tables

COLUMNS = (
    "part text, id bigint, flag boolean, small smallint, ratio double precision, price decimal(8, 2), body json,"
    " seen timestamp, born date, raw bytes, owner uuid, tags text[], free numeric, span interval"
)
ROWS = 3_000
QUERIES = (
    "SELECT * FROM t ORDER BY part, id",
    "SELECT count(*) FROM t",
    "SELECT part, count(*), sum(id), round(avg(ratio)::numeric, 6), max(seen), sum(price) FROM t GROUP BY part ORDER BY part",
    "SELECT id FROM t WHERE flag AND ratio > 100 ORDER BY id DESC LIMIT 20",
    "SELECT a.id, b.owner FROM t a JOIN t b ON b.id = a.id + 1 AND b.part = 'p0' WHERE a.raw = '\\x07' ORDER BY 1, 2",
    "SELECT body ->> 'n', tags[1] FROM t WHERE born >= '2026-01-15' ORDER BY 1, 2",
    "SELECT free, count(*) FROM t WHERE id < 40 GROUP BY free ORDER BY free",
    "SELECT part, sum(free), max(free) FROM t WHERE free < 'Infinity' GROUP BY part ORDER BY part",
    "SELECT span, count(*) FROM t GROUP BY span ORDER BY span DESC LIMIT 3",
    "SELECT count(*) FROM t WHERE part > 'p2' AND id IN (1, 2, 3, 4, 5, 100000)",
)
CHANGES = (
    "UPDATE t SET ratio = ratio + 1000, tags = NULL WHERE id % 97 = 5",
    "DELETE FROM t WHERE part = 'p1' AND id % 13 = 0",
    "UPDATE t SET id = id + 100000 WHERE id % 101 = 3",
    "UPDATE t SET part = 'p9' WHERE id = 77",
    "DELETE FROM t WHERE id = 78",
    "INSERT INTO t (part, id, flag) VALUES ('p0', 500000, TRUE), ('', -1, NULL), ('p1', 26, FALSE)",
    "INSERT INTO t (part, id, small) VALUES ('p1', 40, 7) ON CONFLICT (part, id) DO UPDATE SET small = -1",
)


def row(number: int) -> list[object]:
    return [
        f"p{number % 4}",
        number,
        None if number % 11 == 0 else number % 2 == 0,
        number % 1_000,
        number / 7,
        f"{number % 500}.25",
        f'{{"n": {number}}}',
        f"2026-01-{1 + number % 28:02}T00:00:00.{number:06}Z",
        f"2026-01-{1 + number % 28:02}",
        bytes([number % 256]),
        f"00000000-0000-4000-8000-{number:012}",
        [f"tag {number}", None],
        ("NaN", "Infinity", None, f"{number}.50", f"0.{number:030}", f"{10**40 + number}")[number % 6],
        f"{number % 5} mons {number % 31} days 00:00:{number % 60}",
    ]


async def given_rows(sql: TableSql, key: str = "part, id") -> Table:
    await sql.run(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY ({key}))")
    await sql.run(f"INSERT INTO t VALUES ({', '.join('?' * 14)})", [row(number) for number in range(ROWS)])
    return sql.broker.tables.get("t")


async def copied(sql: TableSql) -> None:
    """Wait until there is a copy of the table."""
    sql.tables.copies.want(sql.broker.tables.get("t"))
    await copy_made(sql)


async def copy_made(sql: TableSql) -> None:
    while len(sql.tables.copies) == 0:  # noqa: ASYNC110  it is made by a thread and a process
        await asyncio.sleep(0.01)


async def answers(sql: TableSql) -> list[str]:
    """Return the rows as texts, in which a NaN is equal to another and numbers have their scale."""
    return [repr(await sql.rows(text)) for text in QUERIES]


def no_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make queries fail that read rows of a table from SQLite otherwise than by a key."""
    original = TableSnapshot.read

    def read(snapshot: TableSnapshot, sql: str, *more: Any) -> Iterator[Any]:
        assert " = ?" in sql or " IN (?" in sql, "the query read SQLite's rows although there is a copy"
        return original(snapshot, sql, *more)

    monkeypatch.setattr(TableSnapshot, "read", read)


@pytest.mark.parametrize("key", ["part, id", "id", "owner", "seen, part"])
@on_loop
async def test_queries_over_a_copy_answer_as_those_over_rows(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_processes(monkeypatch)
    async with running_tables(tmp_path) as sql:
        table = await given_rows(sql, key)
        before = await answers(sql)
        await copied(sql)
        with monkeypatch.context() as patched:
            no_scans(patched)
            assert await answers(sql) == before
        changed = [text for text in CHANGES if key == "part, id" or not text.startswith("INSERT")]
        for text in changed:
            await sql.run(text)
        with monkeypatch.context() as patched:
            no_scans(patched)
            over_copy = await answers(sql)
        sql.tables.copies.forget(table.id)
        assert over_copy == await answers(sql) != before


@on_loop
async def test_a_copy_is_made_by_a_process_after_a_long_scan_and_removed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / FOLDER_NAME / "1-1.arrow"
    left.parent.mkdir()
    left.write_bytes(b"of a server that was killed")
    async with running_tables(tmp_path) as sql:
        assert not left.exists()
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY, x integer)")
        await sql.run("INSERT INTO t VALUES (?, ?)", [[number, number % 3] for number in range(25_000)])
        text = "SELECT x, count(*), sum(id) FROM t GROUP BY x ORDER BY x"
        before = await sql.rows(text)
        await copy_made(sql)
        (file,) = (tmp_path / FOLDER_NAME).iterdir()
        assert file.stat().st_mode & 0o077 == 0
        with monkeypatch.context() as patched:
            no_scans(patched)
            assert await sql.rows(text) == before
            assert await sql.rows("SELECT id FROM t WHERE x = 1 AND id < 9 ORDER BY id") == [(1,), (4,), (7,)]
        await sql.run("DROP TABLE t")
        assert list((tmp_path / FOLDER_NAME).iterdir()) == []
    assert not (tmp_path / FOLDER_NAME).exists()


@on_loop
async def test_a_table_of_the_same_name_has_no_copy_of_the_former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_processes(monkeypatch)
    async with running_tables(tmp_path) as sql:
        await given_rows(sql)
        await copied(sql)
        await sql.run("DROP TABLE t")
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY)")
        assert await sql.rows("SELECT count(*) FROM t") == [(0,)]


@on_loop
async def test_a_copy_that_lacks_too_many_rows_or_has_no_room_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_processes(monkeypatch)
    async with running_tables(tmp_path) as sql:
        table = await given_rows(sql)
        await copied(sql)
        await sql.run("UPDATE t SET small = 1 WHERE id < 2000")
        assert len(sql.tables.copies) == 0
        assert await sql.value("SELECT sum(small) FROM t WHERE id < 2000") == 2000
    limits = msgspec.structs.replace(DEFAULT_LIMITS, columnar_keys=100)
    async with running_tables(tmp_path / "keys", limits=limits) as sql:
        await given_rows(sql)
        await copied(sql)
        await sql.run("UPDATE t SET small = 1 WHERE id < 90")
        assert len(sql.tables.copies) == 1
        await sql.run("UPDATE t SET small = 2 WHERE id < 101")
        assert len(sql.tables.copies) == 0
        assert await sql.value("SELECT sum(small) FROM t WHERE id < 101") == 202
    limits = msgspec.structs.replace(DEFAULT_LIMITS, columnar_bytes=10_000)
    async with running_tables(tmp_path / "small", limits=limits) as sql:
        table = await given_rows(sql)
        sql.tables.copies.want(table)
        await until((tmp_path / "small" / FOLDER_NAME).exists)
        # There is one thread for all copies, so this waits for it.
        await asyncio.to_thread(sql.tables.copies.close)
        assert len(sql.tables.copies) == 0


@on_loop
async def test_every_query_sees_one_state_while_copies_are_made_and_rows_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_processes(monkeypatch)
    async with running_tables(tmp_path) as sql:
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY, x bigint, note text)")
        await sql.run("INSERT INTO t VALUES (?, ?, ?)", [[number, 0, "first"] for number in range(400)])
        table = sql.broker.tables.get("t")
        stop = threading.Event()
        compared: list[int] = []
        reading = [asyncio.create_task(asyncio.to_thread(compare, sql.tables, table, stop, compared)) for _ in range(2)]
        chances = random.Random(17)
        try:
            for turn in range(150):
                await asyncio.gather(*(sql.run(change(chances, turn)) for _ in range(4)))
                if turn % 10 == 0:
                    sql.tables.copies.forget(table.id)
        finally:
            stop.set()
            await asyncio.gather(*reading)
        assert sum(keys > 0 for keys in compared) > 20, "too few queries read a copy with changes"


def change(chances: random.Random, turn: int) -> str:
    low = chances.randrange(400)
    match chances.randrange(5):
        case 0:
            return f"INSERT INTO t VALUES ({low}, {turn}, 'again') ON CONFLICT (id) DO UPDATE SET x = {turn}"
        case 1:
            return f"DELETE FROM t WHERE id BETWEEN {low} AND {low + 2}"
        case 2:
            return f"UPDATE t SET id = id + 1000 + {turn} WHERE id = {low} AND NOT EXISTS (SELECT 1 FROM t WHERE id > 1000)"
        case _:
            return f"UPDATE t SET x = x + 1 WHERE id >= {low} AND id < {low + 20}"


def compare(tables: Tables, table: Table, stop: threading.Event, compared: list[int]) -> None:
    """Compare the rows by a copy with those of SQLite in one snapshot, again and again."""
    names = [column.name for column in table.columns]
    while not stop.is_set():
        tables.copies.want(table)
        with tables.copies.leased([table]) as leases, tables.snapshot(lambda: False) as snapshot:
            view = leases.views(snapshot).get(table.id)
            if view is None:
                continue
            relation = ChangedRowsRelation(snapshot, table, names, view)
            by_copy = rows_of(ColumnarRelation(relation.copy, relation))
            assert by_copy == rows_of(TableRelation(snapshot, table, names, ()))
            compared.append(len(view.keys))


def rows_of(relation: Any) -> list[tuple[object, ...]]:
    return sorted(tuple(one.values()) for batch in relation.batches() for one in batch.to_pylist())


def made_in_thread(
    request: BuildRequest,
    opening: Callable[[], AbstractContextManager[None]],
    is_wanted: Callable[[], bool],
) -> int:
    """Make a copy without a process, which takes longer to start than all the rest."""
    with opening():
        connection = open_snapshot(request)
    try:
        return build(connection, request)
    except OSError as error:
        raise BuildFailedError(str(error)) from error
    finally:
        abandon(connection)


def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make copies in the thread, and again without a pause."""
    monkeypatch.setattr(tables_module, "ColumnarCopies", partial(ColumnarCopies, make_file=made_in_thread))
    monkeypatch.setattr(columnar_copies, "_PAUSES", 0)
