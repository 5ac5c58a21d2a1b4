"""Snapshots of sources at the server: what is remembered, and who may read which chunk."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from tailrace.broker.sources.snapshots import ChunkOffer, SnapshotChunk, SourceSnapshots, StagedRows
from tailrace.model.errors import UnknownSourceError
from tailrace.model.ids import TableId, TopicId
from tailrace.model.source import ALL_TABLES, Source, SourceSnapshot, SourceTable
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.sources import define_source


def _offer(snapshots: SourceSnapshots, source: Source, table: SourceTable, count: int, name: str = "offer") -> None:
    chunks = [SnapshotChunk(number, table, f"COPY {number}", 100) for number in range(count)]
    snapshots.offer(source, ChunkOffer(name, "snapshot", 1000, 0, chunks))


def _claimed(snapshots: SourceSnapshots, *, is_spark: bool = False) -> int | None:
    found = snapshots.claim("worker", None, is_spark=is_spark).chunk
    return None if found is None else found.chunk.number


async def _staged(snapshots: SourceSnapshots, source: Source, published: Sequence[int] = ()) -> list[int]:
    progress = await snapshots.progress(source, "offer", published, 0.0)
    assert progress is not None
    return [rows.number for rows in progress.staged]


@on_loop
async def test_a_snapshot_is_remembered_until_it_ends() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        source, (first, second) = await define_source(broker, "first", "second")
        begun = await broker.source_snapshots.begin(source, [first.id, second.id], ALL_TABLES, holds_all=True)
        assert broker.sources.get("shop").wanted == ()
        assert begun.known == ()
        assert broker.topics.find("_held.shop") is not None
        await broker.source_snapshots.finish_table(source, first.id, 1000)
    async with running_broker(store) as broker:
        source = broker.sources.get("shop")
        found = broker.source_snapshots.find(source)
        assert found is not None
        assert (found.done, found.is_read) == ({first.id: 1000}, False)
        assert broker.source_snapshots.state(source) == "reading"
        await broker.source_snapshots.finish_table(source, second.id, 2000)
        assert broker.source_snapshots.state(source) == "releasing"
        await broker.source_snapshots.end(source)
        assert broker.source_snapshots.state(source) is None
        assert broker.topics.find("_held.shop") is None
        with pytest.raises(UnknownSourceError):
            await broker.source_snapshots.finish_table(source, second.id, 2000)


@on_loop
async def test_what_is_wanted_meanwhile_waits_for_the_next_snapshot() -> None:
    async with running_broker(MemoryStore()) as broker:
        source, (table,) = await define_source(broker, "items")
        await broker.source_snapshots.begin(source, [table.id], ALL_TABLES, holds_all=True)
        await broker.sources.want_snapshot(source, ["public.items"])
        again = await broker.source_snapshots.begin(source, [table.id], ["public.items"], holds_all=False)
        assert again.holds_all
        await broker.source_snapshots.end(source)
        assert broker.source_snapshots.state(broker.sources.get("shop")) == "waiting"


def test_changes_that_rows_include_are_left_out() -> None:
    new, known, other = TableId(1), TableId(2), TableId(3)
    snapshot = SourceSnapshot(tables=(new, known), known=(known,), held=TopicId(9))
    assert snapshot.includes(new, 5)
    assert not snapshot.includes(known, 5)
    assert not snapshot.includes(other, 5)
    done = msgspec.structs.replace(snapshot, done={new: 10, known: 10})
    assert done.includes(new, 9)
    assert not done.includes(new, 10)
    assert done.includes(known, 9)


@on_loop
async def test_a_chunk_is_read_by_one_at_a_time_and_published_once() -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(), clock) as broker:
        snapshots = broker.source_snapshots
        source, (table,) = await define_source(broker, "items")
        _offer(snapshots, source, table, 2)
        assert [_claimed(snapshots), _claimed(snapshots), _claimed(snapshots)] == [0, 1, None]
        clock.advance(121_000)
        assert _claimed(snapshots) == 0
        assert snapshots.staged("shop", "offer", StagedRows(0, "a", 1, 10))
        assert not snapshots.staged("shop", "offer", StagedRows(0, "b", 1, 10)), "the first one was late, and is not needed"
        assert not snapshots.staged("shop", "another", StagedRows(1, "c", 1, 10))
        assert await _staged(snapshots, source) == [0]
        assert await _staged(snapshots, source, [0]) == []


@on_loop
async def test_no_more_is_read_than_can_be_published() -> None:
    async with running_broker(MemoryStore()) as broker:
        snapshots = broker.source_snapshots
        source, (table,) = await define_source(broker, "items")
        _offer(snapshots, source, table, 20)
        for number in range(8):
            assert _claimed(snapshots) == number
            snapshots.staged("shop", "offer", StagedRows(number, f"s{number}", 1, 1))
        later = snapshots.claim("worker", None, is_spark=False)
        assert (later.chunk, later.is_later) == (None, True)
        await _staged(snapshots, source, [0])
        assert _claimed(snapshots) == 8


@on_loop
async def test_the_capture_reads_while_no_pipeline_does() -> None:
    clock = ManualClock()
    async with running_broker(MemoryStore(), clock) as broker:
        snapshots = broker.source_snapshots
        source, (table,) = await define_source(broker, "items")
        _offer(snapshots, source, table, 3)

        async def is_read_by_spark() -> bool:
            progress = await snapshots.progress(source, "offer", (), 0.0)
            assert progress is not None
            return progress.is_read_by_spark

        assert not await is_read_by_spark()
        assert snapshots.note_pipeline() == 3
        assert await is_read_by_spark()
        assert _claimed(snapshots, is_spark=True) == 0
        clock.advance(11_000)
        assert not await is_read_by_spark()
        assert _claimed(snapshots) == 0, "a task of a pipeline that is gone keeps its chunk"
        assert snapshots.note_pipeline() == 2
        assert _claimed(snapshots, is_spark=True) == 1
        snapshots.failed("shop", "offer", 1, "no psycopg", is_stale=False)
        assert not await is_read_by_spark()
        assert snapshots.note_pipeline() == 0
        clock.advance(61_000)
        assert snapshots.note_pipeline() > 0


@on_loop
async def test_a_chunk_that_the_snapshot_does_not_show_any_more_is_told_at_once() -> None:
    async with running_broker(MemoryStore()) as broker:
        snapshots = broker.source_snapshots
        source, (table,) = await define_source(broker, "items")
        _offer(snapshots, source, table, 1)
        waiting = asyncio.create_task(snapshots.progress(source, "offer", (), 30.0))
        await asyncio.sleep(0)
        snapshots.failed("shop", "offer", 0, "the table items was altered", is_stale=True)
        progress = await asyncio.wait_for(waiting, 5.0)
        assert progress is not None
        assert (progress.is_stale, progress.error) == (True, "the table items was altered")
        _offer(snapshots, source, table, 1, "another")
        assert await snapshots.progress(source, "offer", (), 0.0) is None
