"""Groups of writers, and what they are told when the log, SQLite or one of them fails."""

import asyncio
import threading
from pathlib import Path

import apsw
import msgspec
import pytest

from tailrace.model.clock import SystemClock
from tailrace.model.commit import Changes
from tailrace.model.errors import (
    CorruptionError,
    OverloadedError,
    QueryLimitError,
    StorageFailedError,
    StorageFullError,
    StoreClosedError,
    TablesBehindError,
    TailraceError,
)
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.sql.results import Result
from tailrace.sql.tables.statement_guard import EventLoopTime
from tailrace.sql.tables.tables import FILE_NAME, Tables
from tailrace.sql.tables.writer_connection import WriterConnection
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock
from tests.support.tables import TableSql, as_older_version, running_tables

INSERT = "INSERT INTO t VALUES (?)"
COUNT = "SELECT count(*) FROM t"


@pytest.fixture(autouse=True, params=["on the event loop", "in the thread"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a write runs that comes alone: both ways stand the same faults."""
    if request.param == "in the thread":
        monkeypatch.setattr(EventLoopTime, "begin", lambda _: None)


async def given_table(sql: TableSql) -> None:
    await sql.run("CREATE TABLE t (id bigint PRIMARY KEY)")


async def until_in_flight(store: GatedStore, commits: int = 1) -> None:
    await until(lambda: len(store.in_flight) >= commits)


async def insert_in_flight(sql: TableSql, store: GatedStore, id: int) -> "asyncio.Task[Result]":
    """An insert that the log has not answered yet, nor will it until the gate is opened."""
    store.close_gate()
    write = asyncio.create_task(sql.run(INSERT, [id]))
    await until_in_flight(store)
    return write


async def until_waiting(sql: TableSql, jobs: int) -> None:
    await until(lambda: len(sql.tables._writer.queue) >= jobs)


@on_loop
async def test_writers_that_wait_share_one_commit_and_a_wrong_one_fails_alone(tmp_path: Path) -> None:
    store = GatedStore()
    async with running_tables(tmp_path, store) as sql:
        await given_table(sql)
        first = await insert_in_flight(sql, store, 0)
        others = [asyncio.create_task(sql.run(INSERT, [id])) for id in (1, 2, 0, 3, 3)]
        await until_waiting(sql, 5)
        store.settle()
        await until_in_flight(store)
        assert len(store.in_flight) == 1
        store.open_gate()
        outcomes = await asyncio.gather(first, *others, return_exceptions=True)
        assert [getattr(outcome, "affected", "refused") for outcome in outcomes] == [1, 1, 1, "refused", 1, "refused"]
        assert [event["new"]["id"] for event in await sql.events("t")] == [0, 1, 2, 3]
        assert await sql.value(COUNT) == 4


@on_loop
async def test_nothing_is_seen_before_it_is_in_the_log(tmp_path: Path) -> None:
    store = GatedStore()
    async with running_tables(tmp_path, store) as sql:
        await given_table(sql)
        write = await insert_in_flight(sql, store, 1)
        assert await sql.value(COUNT) == 0
        assert not write.done()
        store.open_gate()
        await write
        assert await sql.value(COUNT) == 1


@on_loop
async def test_what_the_log_refuses_is_not_in_the_table(tmp_path: Path) -> None:
    store = GatedStore()
    async with running_tables(tmp_path, store) as sql:
        await given_table(sql)
        write = await insert_in_flight(sql, store, 1)
        store.fail()
        with pytest.raises(StorageFullError):
            await write
        store.open_gate()
        assert await sql.value(COUNT) == 0
        await sql.run(INSERT, [1])
        assert await sql.value(COUNT) == len(await sql.events("t")) == 1


@on_loop
async def test_a_write_that_runs_too_long_is_stopped_and_its_neighbours_go_on(tmp_path: Path) -> None:
    store = GatedStore(SystemClock())
    limits = msgspec.structs.replace(DEFAULT_LIMITS, query_seconds=2)
    async with running_tables(tmp_path, store, SystemClock(), limits) as sql:
        await given_table(sql)
        await sql.run(INSERT, [[id] for id in range(1000)])
        first = await insert_in_flight(sql, store, 1000)
        before = asyncio.create_task(sql.run(INSERT, [1001]))
        many = "SELECT count(*) FROM t a, t b, t c, t d WHERE a.id + b.id + c.id + d.id = t.id"
        endless = asyncio.create_task(sql.run(f"UPDATE t SET id = id WHERE ({many}) < 0"))
        after = asyncio.create_task(sql.run(INSERT, [1002]))
        await until_waiting(sql, 3)
        store.open_gate()
        outcomes = list(await asyncio.gather(first, before, endless, after, return_exceptions=True))
        assert isinstance(outcomes.pop(2), QueryLimitError)
        assert [result.affected for result in outcomes] == [1, 1, 1]  # type: ignore[union-attr]
        assert await sql.value(COUNT) == len(await sql.events("t")) == 1003


class _FailingCommits:
    """SQLite refuses to commit, as it does on a full disk, as long as the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing = True
        ours = WriterConnection._execute

        def refuse(execution: WriterConnection, sql: str) -> None:
            if sql == "COMMIT" and self.failing:
                raise apsw.FullError("database or disk is full")
            ours(execution, sql)

        monkeypatch.setattr(WriterConnection, "_execute", refuse)


@on_loop
async def test_a_change_that_is_in_the_log_only_is_in_the_table_before_anybody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_tables(tmp_path) as sql:
        await given_table(sql)
        await sql.run(INSERT, [1])
        disk = _FailingCommits(monkeypatch)
        with pytest.raises(TablesBehindError, match="in the log"):
            await sql.run(INSERT, [2])
        for text in (COUNT, "INSERT INTO t VALUES (3)"):
            with pytest.raises(TablesBehindError):
                await sql.run(text)
        disk.failing = False
        await until(lambda: sql.tables._writer.behind is None)
        assert await sql.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
        await sql.run(INSERT, [3])
        assert len(await sql.events("t")) == await sql.value(COUNT) == 3


@on_loop
async def test_a_commit_that_works_the_second_time_is_answered_as_if_nothing_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_tables(tmp_path) as sql:
        await given_table(sql)
        disk = _FailingCommits(monkeypatch)
        bring_up = WriterConnection.bring_up

        def healed(execution: WriterConnection, read: object) -> int:
            disk.failing = False
            return bring_up(execution, read)  # type: ignore[arg-type]

        monkeypatch.setattr(WriterConnection, "bring_up", healed)
        result = await sql.run(INSERT, [1])
        assert (result.affected, result.cursor) == (1, 0)
        assert await sql.rows("SELECT id FROM t") == [(1,)]


@on_loop
async def test_a_table_that_is_behind_when_it_is_closed_is_complete_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(MemoryStore()) as broker:
        tables = await Tables.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
        sql = TableSql(broker, tables)
        await given_table(sql)
        disk = _FailingCommits(monkeypatch)
        with pytest.raises(TablesBehindError):
            await sql.run(INSERT, [1])
        with pytest.raises(TablesBehindError):
            await sql.run("CREATE TABLE u (id bigint PRIMARY KEY)")
        await tables.close()
        disk.failing = False
        sql.tables = await Tables.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
        assert sql.tables.replayed == 1
        assert await sql.rows("SELECT id FROM t") == [(1,)]
        await sql.tables.close()


@on_loop
async def test_a_schema_change_that_sqlite_refuses_is_made_good_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_tables(tmp_path) as sql:
        await given_table(sql)
        disk = _FailingCommits(monkeypatch)
        with pytest.raises(TablesBehindError):
            await sql.run("CREATE TABLE u (id bigint PRIMARY KEY)")
        disk.failing = False
        await until(lambda: sql.tables._writer.behind is None)
        await sql.run("INSERT INTO u VALUES (5)")
        assert await sql.rows("SELECT id FROM u") == [(5,)]


@on_loop
async def test_a_writer_that_has_gone_is_not_run_and_one_in_flight_is(tmp_path: Path) -> None:
    store = GatedStore()
    async with running_tables(tmp_path, store) as sql:
        await given_table(sql)
        in_flight = await insert_in_flight(sql, store, 1)
        gone = asyncio.create_task(sql.run(INSERT, [2]))
        await until_waiting(sql, 1)
        for task in (in_flight, gone):
            task.cancel()
        store.open_gate()
        await sql.run(INSERT, [3])
        assert await sql.rows("SELECT id FROM t ORDER BY id") == [(1,), (3,)]


@on_loop
async def test_a_table_dropped_under_its_writers_tells_them(tmp_path: Path) -> None:
    store = GatedStore()
    async with running_tables(tmp_path, store) as sql:
        await given_table(sql)
        first = await insert_in_flight(sql, store, 1)
        drop = asyncio.create_task(sql.run("DROP TABLE t"))
        await until_waiting(sql, 1)
        late = asyncio.create_task(sql.run(INSERT, [2]))
        await until_waiting(sql, 2)
        store.open_gate()
        outcomes = await asyncio.gather(first, drop, late, return_exceptions=True)
        assert outcomes[0].affected == 1  # type: ignore[union-attr]
        assert isinstance(outcomes[2], TailraceError)
        assert list(sql.tables) == []


@on_loop
async def test_more_writers_than_may_wait_are_told_to_come_again(tmp_path: Path) -> None:
    store = GatedStore()
    limits = msgspec.structs.replace(DEFAULT_LIMITS, queued_writes=2, queued_write_bytes=10_000)
    async with running_tables(tmp_path, store, limits=limits) as sql:
        await given_table(sql)
        first = await insert_in_flight(sql, store, 1)
        with pytest.raises(OverloadedError, match="queued_write_bytes"):
            await sql.run(INSERT, [[id] for id in range(10_000)])
        more = [asyncio.create_task(sql.run(INSERT, [id])) for id in (2, 3)]
        await until_waiting(sql, 2)
        with pytest.raises(OverloadedError, match="queued_writes"):
            await sql.run(INSERT, [4])
        store.open_gate()
        await asyncio.gather(first, *more)
        assert await sql.value(COUNT) == 3


@on_loop
async def test_a_closed_table_takes_nothing(tmp_path: Path) -> None:
    async with running_tables(tmp_path) as sql:
        await given_table(sql)
        await sql.tables.close()
        with pytest.raises(StoreClosedError):
            await sql.run(INSERT, [1])


@on_loop
async def test_a_file_of_another_log_is_not_taken_for_this_one(tmp_path: Path) -> None:
    async with running_tables(tmp_path / "a") as sql:
        await given_table(sql)
        await sql.run(INSERT, [[1], [2]])
    async with running_broker(MemoryStore()) as broker:
        tables = await Tables.open(_made(tmp_path / "b"), broker, ManualClock(), DEFAULT_LIMITS)
        await given_table(TableSql(broker, tables))
        await tables.close()
        (tmp_path / "a" / FILE_NAME).rename(tmp_path / "b" / FILE_NAME)
        for _ in range(2):
            with pytest.raises(CorruptionError, match="not to this log"):
                await Tables.open(tmp_path / "b", broker, ManualClock(), DEFAULT_LIMITS)
            as_older_version(tmp_path / "b" / FILE_NAME)


@on_loop
async def test_rows_that_are_ahead_of_the_log_are_made_again_from_it(tmp_path: Path) -> None:
    async with running_broker(MemoryStore()) as broker:
        tables = await Tables.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
        sql = TableSql(broker, tables)
        await given_table(sql)
        await sql.run(INSERT, [[1], [2]])
        await tables.close()
        # As after a power cut that took the newest frames of a relaxed log.
        file = apsw.Connection(str(tmp_path / FILE_NAME))
        file.execute("INSERT INTO t VALUES (3)")
        file.execute('UPDATE "_tailrace.tables" SET next_offset = next_offset + 1')
        file.close()
        sql.tables = await Tables.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
        assert await sql.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
        await sql.run(INSERT, [3])
        assert len(await sql.events("t")) == 3
        await sql.tables.close()


@on_loop
async def test_a_job_that_fails_unexpectedly_is_answered_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_tables(tmp_path) as sql:
        await given_table(sql)
        with monkeypatch.context() as patched:
            patched.setattr("tailrace.sql.tables.change_recorder.ChangeRecorder.batches", lambda _: 1 / 0)
            with pytest.raises(TailraceError, match="ZeroDivisionError"):
                await sql.run(INSERT, [1])
        assert "Unexpected internal error in a statement" in caplog.text
        await sql.run(INSERT, [1])
        assert await sql.value(COUNT) == 1


@on_loop
async def test_writers_are_told_when_their_thread_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_tables(tmp_path) as sql:
        await given_table(sql)
        monkeypatch.setattr(WriterConnection, "roll_back", lambda _: 1 / 0)
        monkeypatch.setattr(threading, "excepthook", lambda _: None)
        for _ in range(2):
            with pytest.raises(StorageFailedError, match="restart the server"):
                await sql.run("INSERT INTO t SELECT 1 WHERE false")


@on_loop
async def test_rows_whose_changes_are_gone_from_the_log_are_missed_and_not_forgotten(tmp_path: Path) -> None:
    async with running_broker(MemoryStore()) as broker:
        tables = await Tables.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)
        sql = TableSql(broker, tables)
        await given_table(sql)
        await sql.run(INSERT, [[1], [2]])
        await tables.close()
        (tmp_path / FILE_NAME).unlink()
        # As an older version could leave it, which took no checkpoints.
        partition = broker.topics.get("t").partitions[0]
        broker.store.commit(Changes(trims=[(partition, broker.store.bounds(partition).end)]))
        with pytest.raises(CorruptionError, match="not in the log any more"):
            await Tables.open(tmp_path, broker, ManualClock(), DEFAULT_LIMITS)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
