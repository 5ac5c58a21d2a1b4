"""Checkpoints of the rows of tables: what the log keeps when retention takes changes away, and tables made again from them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.model.consume import LogEdge
from tailrace.model.errors import ReservedTopicError
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.names import parse_pattern
from tailrace.model.table import TableCheckpoint, checkpoint_partition
from tailrace.sql.tables.tables import FILE_NAME, Tables
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, bounds_of, options, running_broker
from tests.support.clocks import ManualClock
from tests.support.tables import TableSql

SMALL = msgspec.structs.replace(DEFAULT_LIMITS, snapshot_rows=10)
"""Checkpoints of many pieces."""
ALL = "SELECT * FROM t ORDER BY id"


async def open_tables(folder: Path, broker: Broker, clock: ManualClock, limits: Limits = SMALL) -> TableSql:
    return TableSql(broker, await Tables.open(folder, broker, clock, limits))


async def given_rows(sql: TableSql, rows: int = 95) -> None:
    await sql.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, body json, amount decimal(8, 2), seen timestamp, raw bytes, free numeric)"
    )
    values = [
        [id, f'{{"n": {id}}}', f"{id}.5", f"2026-01-0{1 + id % 9}", bytes([id % 256]), f"{id}.{'0' * (id % 40)}"]
        for id in range(rows)
    ]
    await sql.run("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", values)
    await sql.run("UPDATE t SET body = NULL WHERE id % 7 = 0")
    await sql.run("DELETE FROM t WHERE id % 10 = 3")


async def checkpointed(sql: TableSql) -> None:
    taken = sql.broker.changes.stats.checkpoints
    sql.broker.changes.checkpoints.want(sql.broker.tables.get("t"))
    await until(lambda: sql.broker.changes.stats.checkpoints > taken)


async def rows_durable(sql: TableSql) -> None:
    """Wait until retention knows that SQLite has synced everything, which it does when it has nothing else to do."""
    table = sql.broker.tables.get("t")
    end = sql.broker.changes.bounds(table).end
    await until(lambda: sql.broker.changes._durable.get(sql.broker.topics.get("t").partitions[0]) == end)


@on_loop
async def test_rows_are_made_again_after_retention_has_taken_all_changes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await given_rows(sql)
        truth = await sql.rows(ALL)
        await broker.topics.alter("t", options(retention_seconds=60))
        await rows_durable(sql)
        clock.advance(120_000)
        assert await broker.retention.run_once() == 0, "changes went that no checkpoint covers"
        await until(lambda: broker.changes.stats.checkpoints == 1)
        assert await broker.retention.run_once() > 0
        start, end = bounds_of(broker, "t")
        assert start == end > 0
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, clock)
        assert await sql.rows(ALL) == truth
        await sql.run("INSERT INTO t (id) VALUES (1000)")
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, clock)
        assert len(await sql.rows(ALL)) == len(truth) + 1
        await sql.tables.close()


@on_loop
async def test_rows_that_change_while_a_checkpoint_is_taken_are_as_they_are_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers go on between any two pieces, and while one is read and not in the log, before and behind where it is."""
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await given_rows(sql)
        checkpoints, table = broker.changes.checkpoints, broker.tables.get("t")
        append, pieces = checkpoints.append, 0

        async def write() -> None:
            nonlocal pieces
            pieces += 1
            for id in (pieces, 50, 94 - pieces):
                await sql.run("UPDATE t SET amount = amount + 1 WHERE id = ?", [id])
            await sql.run("DELETE FROM t WHERE id = ?", [3 * pieces])
            await sql.run("INSERT INTO t (id) VALUES (?) ON CONFLICT DO NOTHING", [4 * pieces])

        async def append_among_writers(*piece: Any, is_done: bool) -> TableCheckpoint | None:
            await write()
            appended = await append(*piece, is_done=is_done)
            await write()
            return appended

        monkeypatch.setattr(checkpoints, "append", append_among_writers)
        await checkpointed(sql)
        assert pieces > 10
        truth = await sql.rows(ALL)
        found = checkpoints.find(table)
        assert found is not None
        assert found.offset < broker.changes.bounds(table).end
        await rows_durable(sql)
        await broker.retention.delete_before("t", 0, found.offset)
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, clock)
        assert await sql.rows(ALL) == truth
        await sql.tables.close()


@on_loop
async def test_a_checkpoint_takes_the_place_of_the_one_before_and_goes_with_its_table(tmp_path: Path) -> None:
    async with running_broker(MemoryStore(), limits=SMALL) as broker:
        sql = await open_tables(tmp_path, broker, ManualClock())
        await given_rows(sql)
        table = broker.tables.get("t")
        partition = checkpoint_partition(table)
        for _ in range(3):
            await checkpointed(sql)
            found = broker.changes.checkpoint(table)
            assert found is not None
            assert tuple(broker.store.bounds(partition)) == (found.first, found.end)
            assert found.rows == found.end - found.first == len(await sql.rows(ALL))
        await sql.run("DROP TABLE t")
        assert partition not in broker.store.partitions()
        assert broker.changes.checkpoint(table) is None
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY)")
        assert broker.changes.checkpoint(broker.tables.get("t")) is None
        assert await sql.rows(ALL) == []
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, ManualClock())
        assert await sql.rows(ALL) == []
        await sql.tables.close()


@on_loop
async def test_a_table_that_is_dropped_under_its_checkpoint_leaves_nothing_of_it(tmp_path: Path) -> None:
    store = GatedStore()
    async with running_broker(store, limits=SMALL) as broker:
        sql = await open_tables(tmp_path, broker, ManualClock())
        await given_rows(sql)
        table = broker.tables.get("t")
        broker.changes.checkpoints.want(table)
        await until(lambda: broker.changes.checkpoints.unfinished(table) is not None)
        await sql.run("DROP TABLE t")
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY)")
        await checkpointed(sql)
        assert broker.changes.checkpoints.unfinished(table) is broker.changes.checkpoint(table) is None
        await sql.tables.close()


@on_loop
async def test_one_that_was_begun_is_finished_by_the_next_start(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await given_rows(sql)
        table = broker.tables.get("t")
        broker.changes.checkpoints.want(table)
        await until(lambda: broker.changes.checkpoints.unfinished(table) is not None)
        await sql.tables.close()
        begun = broker.changes.checkpoints.unfinished(table)
        assert begun is not None
        assert broker.changes.checkpoint(table) is None
    async with running_broker(store, clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await until(lambda: broker.changes.checkpoint(table) is not None)
        found = broker.changes.checkpoint(table)
        assert found is not None
        assert (found.first, found.offset) == (begun.first, begun.offset)
        assert found.rows == len(await sql.rows(ALL))
        await sql.tables.close()


@on_loop
async def test_a_table_that_is_empty_has_a_checkpoint_too(tmp_path: Path) -> None:
    async with running_broker(MemoryStore()) as broker:
        sql = await open_tables(tmp_path, broker, ManualClock())
        await sql.run("CREATE TABLE t (id bigint PRIMARY KEY)")
        await sql.run("INSERT INTO t VALUES (1)")
        await sql.run("DELETE FROM t WHERE id = 1")
        await rows_durable(sql)
        assert await broker.retention.delete_before("t", 0, None) == 2
        await sql.tables.close()
        (tmp_path / FILE_NAME).unlink()
        sql = await open_tables(tmp_path, broker, ManualClock())
        assert await sql.rows(ALL) == []
        await sql.tables.close()


@on_loop
async def test_deleting_changes_on_demand_waits_for_a_checkpoint(tmp_path: Path) -> None:
    async with running_broker(MemoryStore(), limits=SMALL) as broker:
        sql = await open_tables(tmp_path, broker, ManualClock())
        await given_rows(sql)
        await rows_durable(sql)
        end = broker.changes.bounds(broker.tables.get("t")).end
        assert await broker.retention.delete_before("t", 0, None) == end
        assert broker.changes.stats.checkpoints == 1
        await sql.tables.close()
        await sql.broker.changes.checkpoints.cover(broker.topics.get("t").partitions[0], Offset(end + 1))
        with pytest.raises(ReservedTopicError):
            # Nobody is there who could take one.
            broker.changes.applied({broker.tables.get("t").id: Offset(0)})
            await broker.retention.delete_before("t", 0, None)


@on_loop
async def test_nobody_reads_checkpoints_as_records_of_a_topic(tmp_path: Path) -> None:
    async with running_broker(MemoryStore(), limits=SMALL) as broker:
        pattern = parse_pattern("_changes.*", DEFAULT_LIMITS)
        from_the_tail = broker.subscriptions.subscribe(pattern, LogEdge.BEGINNING)
        sql = await open_tables(tmp_path, broker, ManualClock())
        await given_rows(sql)
        before = broker.store.end_cursor()
        await checkpointed(sql)
        assert broker.store.end_cursor() > before
        assert [partition.number for partition in broker.topics.get("t").partitions] == [0]
        await sql.run("INSERT INTO t (id) VALUES (1000)")
        from_the_log = broker.subscriptions.subscribe(pattern, LogEdge.BEGINNING)
        end = broker.changes.bounds(broker.tables.get("t")).end
        for subscription in (from_the_tail, from_the_log):
            seen: list[tuple[int, int]] = []
            while len(seen) < end:
                batches = await subscription.read(20)
                assert batches, "nothing came in time"
                seen += [(batch.partition, record.offset) for batch in batches for record in batch.records]
            assert seen == [(0, offset) for offset in range(end)]
            subscription.close()
        await sql.tables.close()


@on_loop
async def test_a_large_table_with_few_changes_waits_until_they_are_worth_a_checkpoint(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(clock), clock, SMALL) as broker:
        sql = await open_tables(tmp_path, broker, clock)
        await given_rows(sql)
        await broker.topics.alter("t", options(retention_seconds=60))
        checkpoints, table = broker.changes.checkpoints, broker.tables.get("t")
        await checkpointed(sql)
        covered = broker.changes.bounds(table).end

        async def run_out() -> None:
            await rows_durable(sql)
            clock.advance(120_000)
            await broker.retention.run_once()
            await asyncio.sleep(0)

        await sql.run("UPDATE t SET amount = 0 WHERE id = 1")
        await run_out()
        assert bounds_of(broker, "t")[0] == covered
        assert not checkpoints._wanted
        for _ in range(2):
            await sql.run("UPDATE t SET amount = amount + 1")
        await run_out()
        await until(lambda: broker.changes.stats.checkpoints == 2)
        await sql.run("UPDATE t SET amount = 0 WHERE id = 1")
        clock.advance(SMALL.table_checkpoint_seconds * 1000)
        await run_out()
        await until(lambda: broker.changes.stats.checkpoints == 3)
        await sql.tables.close()
