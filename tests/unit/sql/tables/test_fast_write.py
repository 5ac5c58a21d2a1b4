"""A write that comes alone has the same effect on the event loop as in the writer's thread, and does not hold up the loop."""

import asyncio
import threading
from pathlib import Path

import pytest

from tailrace.model.clock import SystemClock
from tailrace.model.errors import TailraceError
from tailrace.sql.tables.statement_guard import EventLoopTime
from tailrace.sql.tables.writer_connection import WriterConnection
from tests.support.aio import on_loop
from tests.support.brokers import GatedStore
from tests.support.clocks import ManualClock
from tests.support.tables import TableSql, running_tables

STATEMENTS: tuple[tuple[str, list[object]], ...] = (
    ("INSERT INTO t (id, body) VALUES (?, ?)", [1, "one"]),
    ("INSERT INTO t (id, body) VALUES (?, ?)", [1, "again"]),
    ("INSERT INTO t (id, body) VALUES (2, 'two') RETURNING id, body, number", []),
    ("INSERT INTO t (id, body) VALUES (2, 'other') ON CONFLICT (id) DO UPDATE SET body = excluded.body || '!'", []),
    ("INSERT INTO t (id, body) VALUES (?, ?)", [3, None]),
    ("UPDATE t SET body = upper(body) WHERE id = ? RETURNING *", [2]),
    ("UPDATE t SET id = id + 10", []),
    ("UPDATE t SET body = body WHERE id = 99", []),
    ("INSERT INTO t (id, body) VALUES (?, ?)", [[21, "a"], [22, "b"]]),
    ("INSERT INTO t (id, body) VALUES (?, ?)", [[23, "a"], [21, "b"]]),
    ("DELETE FROM t WHERE body = ?", ["one"]),
    ("DELETE FROM t WHERE body = (SELECT max(body) FROM t)", []),
)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each transaction of a client ran in the thread of the event loop, which is the one of the test."""
    found: list[bool] = []
    run, here = WriterConnection.run, threading.get_ident()

    def noted(*args: object) -> None:
        found.append(threading.get_ident() == here)
        run(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(WriterConnection, "run", noted)
    return found


async def until_thread_waits(sql: TableSql, threads: list[bool]) -> None:
    """Run writes without an effect until one runs on the event loop: then the writer's thread waits for work."""
    while not any(threads):
        await sql.run("DELETE FROM t WHERE id = -1")
    threads.clear()


async def effects(folder: Path, threads: list[bool], *, on_the_loop: bool) -> list[object]:
    """What the statements return or raise, what is in the table afterwards, and the events of all changes."""
    outcomes: list[object] = []
    async with running_tables(folder) as sql:
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY, body text CHECK (body <> ''), number serial)")
        if on_the_loop:
            await until_thread_waits(sql, threads)
        for text, params in STATEMENTS:
            try:
                outcomes.append(await sql.run(text, params))
            except TailraceError as error:
                outcomes.append((type(error), str(error)))
        rows = (await sql.run("SELECT * FROM t ORDER BY id")).rows
        events = [{**event, "tx": None} for event in await sql.events("t")]
    return [outcomes, rows, events]


@on_loop
async def test_both_ways_have_the_same_effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: list[bool]) -> None:
    # No time passes for the manual clock, so no statement is too slow for the event loop.
    on_the_loop = await effects(tmp_path / "loop", threads, on_the_loop=True)
    assert threads == [True] * (len(STATEMENTS) - 1) + [False]
    threads.clear()
    monkeypatch.setattr(EventLoopTime, "begin", lambda _: None)
    assert await effects(tmp_path / "thread", threads, on_the_loop=False) == on_the_loop
    assert threads == [False] * len(STATEMENTS)


@on_loop
async def test_writes_that_come_meanwhile_are_queued_and_none_is_lost(tmp_path: Path, threads: list[bool]) -> None:
    store = GatedStore()
    async with running_tables(tmp_path, store) as sql:
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY)")
        await until_thread_waits(sql, threads)
        store.close_gate()
        writes = [asyncio.create_task(sql.run("INSERT INTO t VALUES (?)", [id])) for id in range(10)]
        await asyncio.sleep(0)
        store.open_gate()
        assert [result.affected for result in await asyncio.gather(*writes)] == [1] * 10
        assert [event["new"]["id"] for event in await sql.events("t")] == list(range(10))
        assert threads == [True] + [False] * 9
        await sql.run("DELETE FROM t WHERE id = 1")
        assert await sql.value("SELECT count(*) FROM t") == 9


@on_loop
async def test_a_statement_that_takes_long_is_given_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: list[bool]
) -> None:
    clock = SystemClock()
    # The machine may be busy, and those before it slow too.
    monkeypatch.setattr(EventLoopTime, "end", lambda *_: None)
    async with running_tables(tmp_path, GatedStore(clock), clock) as sql:
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY, n bigint)")
        await sql.run("INSERT INTO t VALUES (?, 0)", [[id] for id in range(20_000)])
        await until_thread_waits(sql, threads)
        assert (await sql.run("UPDATE t SET n = n + 1")).affected == 20_000
        assert threads == [True, False]
        assert await sql.value("SELECT sum(n) FROM t") == 20_000


def test_slow_statements_take_a_tenth_of_the_loop_at_most() -> None:
    clock = ManualClock()
    time = EventLoopTime(clock)
    began = time.begin()
    assert began is not None
    clock.advance(1)
    time.end(began)
    assert time.begin() is not None
    clock.advance(19)
    time.end(began)
    assert time.begin() is None
    clock.advance(199)
    assert time.begin() is None
    clock.advance(1)
    assert time.begin() is not None
