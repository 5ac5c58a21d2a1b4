"""The survey finds and saves the oldest timestamps, and keeps up with appends and deletions."""

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from tailrace.broker import keys
from tailrace.broker.broker import Broker
from tailrace.broker.reading.scan import ScanRange
from tailrace.broker.times.oldest_times import SavedTimes, TimeRun, TimeRunChunk, extended, without_later
from tailrace.model.commit import Append, Changes, FetchedBatches
from tailrace.model.errors import CorruptionError, OffsetOutOfRangeError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS, KIB, MIB
from tailrace.model.record import NO_TIMESTAMP, Record
from tailrace.store.contract import Store
from tailrace.store.memory import MemoryStore
from tailrace.wire.batch import with_records
from tailrace.wire.record_timestamps import NEVER_MS
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.brokers import NEVER, CountingStore, GatedStore, running_broker

AT_ONCE = msgspec.structs.replace(NEVER, survey_percent=100)
HALF_A_RUN = Random(3).randbytes(33 * KIB)
"""A value whose batch is a little more than half of the smallest run."""


def append(store: Store, partition: PartitionId, *times: int, value: bytes = HALF_A_RUN) -> None:
    """Append a batch for each timestamp."""
    for time in times:
        batch = encode_batch([Record(None, value, (), time)])
        store.commit(Changes(appends=(Append(partition, batch, 1, time),)))


def runs_of(store: Store, partition: PartitionId) -> list[tuple[int, ...]]:
    return [tuple(run) for run in SavedTimes(store).runs(partition)]


async def topic(broker: Broker, name: str = "t") -> PartitionId:
    return PartitionId((await broker.topics.create(name)).id, 0)


@on_loop
async def test_all_but_the_last_bit_of_a_partition_is_surveyed() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, 50, 40, 70, 60, 90)
        await broker.survey.run_once()
        assert runs_of(store, t) == [(0, 2, 40), (2, 4, 60)]
        append(store, t, 80)
        await broker.survey.run_once()
        assert runs_of(store, t) == [(0, 2, 40), (2, 4, 60), (4, 6, 80)]
        assert broker.survey.unsurveyed_bytes == 0


@on_loop
async def test_it_goes_on_where_it_was_after_a_restart() -> None:
    store = CountingStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, *range(20))
        await broker.survey.run_once()
    before = runs_of(store, t)
    assert before == [(start, start + 2, start) for start in range(0, 20, 2)]
    async with running_broker(store, settings=AT_ONCE) as broker:
        store.fetches = 0
        append(store, t, 500, 501)
        await broker.survey.run_once()
        assert store.fetches == 2
        assert runs_of(store, t) == [*before, (20, 22, 500)]
        assert broker.oldest_times.not_after(499, t, ScanRange(Offset(15), Offset(22))) == [ScanRange(Offset(15), Offset(20))]


@on_loop
async def test_surveyed_records_are_not_read_again() -> None:
    store = CountingStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        append(store, await topic(broker), *range(21))
        await broker.survey.run_once()
        commits, store.fetches = store.stats().commits, 0
        await broker.survey.run_once()
        assert (store.fetches, store.stats().commits) == (0, commits)


@on_loop
async def test_many_partitions_share_few_commits_and_none_is_forgotten() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        made = await broker.topics.create("t", 40)
        partitions = [PartitionId(made.id, number) for number in range(40)]
        for partition in partitions:
            append(store, partition, *range(partition.number, partition.number + 4))
        commits = store.stats().commits
        await broker.survey.run_once()
        assert all(runs_of(store, each) == [(0, 2, each.number), (2, 4, each.number + 2)] for each in partitions)
        assert store.stats().commits - commits == 2


@on_loop
async def test_large_partitions_have_larger_runs() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, *range(100), value=bytes(128 * KIB))
        await broker.survey.run_once()
        assert {end - start for start, end, _ in runs_of(store, t)} == {2}, "12.5 MiB in runs of a 64th, 200 KiB"


@on_loop
async def test_what_a_query_has_learned_is_not_read_again() -> None:
    store = CountingStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, *range(100, 110))
        broker.oldest_times.learn(t, ScanRange(Offset(0), Offset(8)), 100)
        await broker.survey.run_once()
        assert runs_of(store, t) == [(0, 8, 100), (8, 10, 108)]
        assert store.fetches == 2
        assert broker.oldest_times.learned(t, Offset(0)) is None


@on_loop
async def test_what_was_learned_as_one_and_is_too_large_for_a_run_is_looked_at() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, *range(100, 106), value=bytes(MIB))
        broker.oldest_times.learn(t, ScanRange(Offset(0), Offset(6)), 100)
        await broker.survey.run_once()
        assert runs_of(store, t)[:3] == [(0, 1, 100), (1, 2, 101), (2, 3, 102)]


@on_loop
async def test_saved_times_of_deleted_records_are_deleted() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, *range(300), value=b"small")
        await broker.retention.delete_before("t", 0, Offset(1))
        runs = [TimeRun(Offset(start), Offset(start + 1), start) for start in range(300)]
        puts = [(keys.times_key(t, chunk.first), chunk.packed) for chunk in extended(None, runs)]
        store.commit(Changes(puts=puts))
        for start, kept in [(1, [0, 64, 128, 192, 256]), (127, [64, 128, 192, 256]), (256, [256])]:
            await broker.retention.delete_before("t", 0, Offset(start))
            await broker.survey.run_once()
            assert [chunk.first for chunk in SavedTimes(store).chunks(t)] == kept
        await broker.retention.clear("t")
        append(store, t, 1, 2)
        await broker.survey.run_once()
        assert runs_of(store, t) == [(300, 302, 1)]


@on_loop
async def test_a_partition_that_begins_within_a_batch_is_surveyed_by_whole_batches() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        batch = encode_batch([Record(None, HALF_A_RUN, (), time) for time in (5, 6, 7, 8)])
        store.commit(Changes(appends=(Append(t, batch, 4, 8),)))
        await broker.retention.delete_before("t", 0, Offset(2))
        await broker.survey.run_once()
        assert runs_of(store, t) == [(0, 4, 5)]


@on_loop
async def test_times_go_with_their_topic() -> None:
    store = GatedStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, *range(10))
        await broker.survey.run_once()
        assert runs_of(store, t)
        append(store, t, *range(10))
        await broker.topics.delete("t")
        assert store.range(keys.times_of_topic(t.topic_id)) == []
        await broker.survey.run_once()
        assert store.range(keys.times_of_topic(t.topic_id)) == []


@on_loop
async def test_a_topic_that_is_deleted_while_it_is_surveyed_leaves_nothing() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, *range(20))
        notes = broker.survey._progress
        notes.end(t, store.bounds(t))
        notes.add(t, TimeRun(Offset(0), Offset(2), 0))
        await broker.topics.delete("t")
        await broker.survey.run_once()
        assert store.range(keys.times_of_topic(t.topic_id)) == []


@on_loop
async def test_what_could_not_be_saved_is_saved_the_next_time() -> None:
    store = GatedStore()
    impatient = msgspec.structs.replace(DEFAULT_LIMITS, publish_wait_ms=10)
    async with running_broker(store, limits=impatient, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, *range(10))
        store.room = 0
        await broker.survey.run_once()
        assert runs_of(store, t) == []
        store.room = 10
        await broker.survey.run_once()
        assert [start for start, _, _ in runs_of(store, t)] == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("error", [CorruptionError("bad bytes"), OffsetOutOfRangeError("gone", 0, 0)])
@on_loop
async def test_a_partition_that_cant_be_read_does_not_keep_the_others_waiting(error: Exception) -> None:
    class Broken(MemoryStore):
        def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
            if partition == broken:
                raise error
            return super().fetch(partition, offset, max_bytes)

    store = Broken()
    async with running_broker(store, settings=AT_ONCE) as broker:
        broken, whole = await topic(broker, "broken"), await topic(broker, "whole")
        for each in (broken, whole):
            append(store, each, 7, 8)
        await broker.survey.run_once()
        assert (runs_of(store, broken), runs_of(store, whole)) == ([], [(0, 2, 7)])


@on_loop
async def test_a_batch_that_cant_be_decoded_is_never_left_out() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        good = bytes(encode_batch([Record(None, HALF_A_RUN, (), 1_000)]))
        bad = with_records(good, [b"\xff" * len(HALF_A_RUN)], 0)
        store.commit(Changes(appends=[Append(t, batch, 1, 1_000) for batch in (good, bad, good, good)]))
        await broker.survey.run_once()
        whole = ScanRange(Offset(0), Offset(4))
        assert broker.oldest_times.not_after(0, t, whole) == [ScanRange(Offset(0), Offset(2))]


@on_loop
async def test_records_without_a_time_hold_no_query_up() -> None:
    store = MemoryStore()
    async with running_broker(store, settings=AT_ONCE) as broker:
        t = await topic(broker)
        append(store, t, NO_TIMESTAMP, NO_TIMESTAMP)
        await broker.survey.run_once()
        assert runs_of(store, t) == [(0, 2, NEVER_MS)]


@on_loop
async def test_it_can_be_turned_off() -> None:
    store = MemoryStore()
    off = msgspec.structs.replace(NEVER, survey_percent=0)
    async with running_broker(store, settings=off) as broker:
        assert "survey" not in broker.jobs.runs
    async with running_broker(store, settings=AT_ONCE) as broker:
        assert "survey" in broker.jobs.runs


def test_runs_that_follow_share_a_chunk_until_it_is_full() -> None:
    runs = [TimeRun(Offset(start), Offset(start + 1), start) for start in range(100)]
    chunks = extended(None, runs)
    assert [chunk.first for chunk in chunks] == [0, 64]
    assert [run for chunk in chunks for run in chunk.runs()] == runs
    (grown,) = extended(chunks[-1], [TimeRun(Offset(100), Offset(105), 7)])
    assert (grown.first, grown.end) == (64, 105)
    behind_a_gap = extended(grown, [TimeRun(Offset(106), Offset(107), 7)])
    assert [chunk.first for chunk in behind_a_gap] == [106]


@pytest.mark.parametrize(
    ("time", "left"), [(4, [(20, 30), (40, 100)]), (5, [(0, 10), (20, 30), (40, 100)]), (6, [(0, 10), (20, 100)])]
)
def test_saved_runs_that_are_later_are_left_out(time: int, left: Sequence[tuple[int, int]]) -> None:
    runs = [TimeRun(Offset(0), Offset(10), 5), TimeRun(Offset(10), Offset(20), 7), TimeRun(Offset(30), Offset(40), 6)]
    assert list(without_later(runs, time, ScanRange(Offset(0), Offset(100)))) == left


def test_chunks_are_found_however_many_there_are() -> None:
    store = MemoryStore()
    one, other = PartitionId(TopicId(1), 0), PartitionId(TopicId(1), 1)
    chunks = [
        TimeRunChunk(Offset(2 * number), extended(None, [TimeRun(Offset(0), Offset(1), 0)])[0].packed) for number in range(600)
    ]
    for partition in (one, other):
        store.commit(Changes(puts=[(keys.times_key(partition, chunk.first), chunk.packed) for chunk in chunks]))
    assert list(SavedTimes(store).chunks(one)) == chunks
