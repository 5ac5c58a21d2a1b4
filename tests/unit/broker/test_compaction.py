"""Which topics are compacted, when, and what readers of all kinds see afterwards."""

import pytest

from tailrace.broker import keys
from tailrace.broker.broker import Broker
from tailrace.broker.compaction import CompactionState, CompactionStep
from tailrace.broker.reading.reader import cursor_at
from tailrace.model.consume import PartitionOffset
from tailrace.model.errors import ConfigurationError, InvalidRecordsError
from tailrace.model.ids import Cursor, Offset
from tailrace.model.limits import Limits
from tailrace.model.record import Message, RawBatch, Record, reference_to
from tailrace.store.memory import MemoryStore
from tailrace.wire.batch import read_header
from tailrace.wire.compression import Compression
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.brokers import append, bounds_of, options, raw, running_broker, values_in
from tests.support.clocks import ManualClock
from tests.support.transactions import started

DAY_MS = 24 * 3_600_000
COMPACTED = options(cleanup_policy="compact")


async def write(broker: Broker, key: bytes | None, *values: bytes | None, topic: str = "t") -> None:
    for value in values:
        await broker.publisher.publish([Message(topic, value, key)])


async def keys_and_values(broker: Broker, topic: str = "t") -> list[tuple[bytes | None, bytes | None]]:
    start, end = bounds_of(broker, topic)
    found = []
    while start < end:
        read = await broker.committed_reader.read(topic, 0, start, max_records=2)
        found += [(record.key, record.value) for record in read.records]
        start = read.next_offset
    return found


@on_loop
async def test_the_last_value_of_each_key_stays() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=COMPACTED)
        await write(broker, b"a", b"1", b"2", b"3")
        await write(broker, b"b", b"1", b"2")
        await write(broker, b"c", b"1")
        assert await broker.compaction.run_once() == 3
        assert await keys_and_values(broker) == [(b"a", b"3"), (b"b", b"2"), (b"c", b"1")]
        assert bounds_of(broker, "t") == (0, 6)


@on_loop
async def test_topics_are_not_compacted_unless_they_say_so() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await write(broker, b"a", b"1", b"2", b"3")
        assert await broker.compaction.run_once() == 0
        await broker.topics.alter("t", COMPACTED)
        assert await broker.compaction.run_once() == 1  # the last batch always stays


@on_loop
async def test_a_partition_is_due_when_enough_of_it_is_new() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(cleanup_policy="compact", min_dirty_percent=60))
        for number in range(10):
            await write(broker, b"%d" % number, b"x" * 100)
        await broker.compaction.run_once()
        await write(broker, b"1", *[b"x" * 100] * 12)
        assert await broker.compaction.run_once() == 0
        await write(broker, b"1", *[b"x" * 100] * 6)
        assert await broker.compaction.run_once() > 0


@on_loop
async def test_young_records_are_left_alone() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(cleanup_policy="compact", min_compaction_lag_seconds=60))
        await write(broker, b"a", b"1", b"2", b"3")
        assert await broker.compaction.run_once() == 0
        clock.advance(61_000)
        await write(broker, b"a", b"4", b"5")
        assert await broker.compaction.run_once() == 2
        assert await keys_and_values(broker) == [(b"a", b"3"), (b"a", b"4"), (b"a", b"5")]


@on_loop
async def test_old_records_are_compacted_however_few_are_new() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create(
            "t", options=options(cleanup_policy="compact", min_dirty_percent=100, max_compaction_lag_seconds=3600)
        )
        await write(broker, b"a", b"1")
        await write(broker, b"b", b"1")
        await broker.compaction.run_once()
        await write(broker, b"a", b"2", b"3")
        assert await broker.compaction.run_once() == 0
        clock.advance(3_601_000)
        assert await broker.compaction.run_once() == 1
        assert await keys_and_values(broker) == [(b"b", b"1"), (b"a", b"2"), (b"a", b"3")]


@on_loop
async def test_a_tombstone_goes_with_the_first_compaction_after_its_time() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(cleanup_policy="compact", min_dirty_percent=0))
        await write(broker, b"a", b"1", None)
        await write(broker, b"b", b"1", b"2")
        await broker.compaction.run_once()
        assert await keys_and_values(broker) == [(b"a", None), (b"b", b"1"), (b"b", b"2")]
        clock.advance(DAY_MS - 1)
        await write(broker, b"b", b"3")
        await broker.compaction.run_once()
        assert (b"a", None) in await keys_and_values(broker)
        clock.advance(1)
        await write(broker, b"b", b"4")
        await broker.compaction.run_once()
        assert await keys_and_values(broker) == [(b"b", b"3"), (b"b", b"4")]


@on_loop
async def test_retention_and_compaction_work_on_one_topic() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("both", options=options(cleanup_policy="compact,delete", retention_seconds=3600))
        await broker.topics.create("compact", options=options(cleanup_policy="compact", retention_seconds=3600))
        for topic in ("both", "compact"):
            await write(broker, b"a", b"1", b"2", topic=topic)
            await write(broker, b"b", b"1", b"2", topic=topic)
        await broker.compaction.run_once()
        clock.advance(3_601_000)
        await write(broker, b"c", b"1", topic="both")
        assert await broker.retention.run_once() == 4
        assert await keys_and_values(broker, "both") == [(b"c", b"1")]
        assert await keys_and_values(broker, "compact") == [(b"a", b"2"), (b"b", b"1"), (b"b", b"2")]


@on_loop
async def test_what_was_aborted_goes_and_is_forgotten_and_then_its_marker_goes() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(min_dirty_percent=0, delete_retention_seconds=600))
        producer = await started(broker)
        await producer.write(0, b"aborted", b"aborted")
        await producer.abort()
        await producer.write(0, b"committed")
        await producer.commit()
        await broker.topics.alter("t", COMPACTED)
        partition = broker.topics.get("t").partition(0)

        async def compact_and_look() -> tuple[list[int], int]:
            await write(broker, b"a", b"x", b"y")
            await broker.compaction.run_once()
            batches = broker.store.fetch(partition, Offset(0), 1 << 20).batches
            markers = [head.base_offset for head in map(read_header, batches) if head.is_control]
            return markers, len(broker.store.range(keys.aborted_of_partition(partition)))

        assert await compact_and_look() == ([2, 4], 1)
        assert b"aborted" not in await values_in(broker, "t")
        clock.advance(599_000)
        assert await compact_and_look() == ([2, 4], 1)
        clock.advance(1_000)
        assert await compact_and_look() == ([2], 0)
        assert await compact_and_look() == ([], 0)


@on_loop
async def test_records_without_a_key_are_refused_everywhere() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=COMPACTED)
        with pytest.raises(InvalidRecordsError, match="'t' is compacted"):
            await broker.publisher.publish([Message("t", b"v")])
        with pytest.raises(InvalidRecordsError, match="record 0 of the batch has no key"):
            await append(broker, raw("t", 0, b"v"))
        for codec in Compression:
            mixed = [Record(b"k", b"v"), Record(None, b"v")]
            with pytest.raises(InvalidRecordsError, match="record 1 of the batch has no key") as refused:
                await append(broker, RawBatch("t", 0, encode_batch(mixed, codec=codec)))
            assert refused.value.kafka_code == 87
        await append(broker, RawBatch("t", 0, encode_batch([Record(b"", b"an empty key is one")])))
        assert await values_in(broker, "t") == [b"an empty key is one"]


@on_loop
async def test_payloads_of_removed_records_are_removed_and_those_of_kept_ones_stay() -> None:
    limits = Limits(payload_inline_bytes=1_000)
    store = MemoryStore(limits=limits)
    old, new = b"old" * 1_000, b"new" * 1_000
    async with running_broker(store, limits=limits) as broker:
        await broker.topics.create("t", options=COMPACTED)
        await broker.payload_sweep.run_once()
        await write(broker, b"a", old, new)
        await write(broker, b"b", b"small")
        await broker.compaction.run_once()
        for _ in range(2):
            await broker.payload_sweep.run_once()
        assert set(store.payloads.digests()) == {reference_to(new).digest}
        assert await keys_and_values(broker) == [(b"a", new), (b"b", b"small")]


@on_loop
async def test_payloads_that_a_stopped_server_left_are_found_by_the_first_sweep() -> None:
    limits = Limits(payload_inline_bytes=1_000)
    store = MemoryStore(limits=limits)
    async with running_broker(store, limits=limits) as broker:
        await broker.topics.create("t", options=COMPACTED)
        await write(broker, b"a", b"old" * 1_000, b"new" * 1_000, b"last")
        await broker.compaction.run_once()
    async with running_broker(store, limits=limits) as broker:
        for _ in range(2):
            await broker.payload_sweep.run_once()
        assert set(store.payloads.digests()) == {reference_to(b"new" * 1_000).digest}


@on_loop
async def test_a_topic_that_is_made_again_begins_without_compactions() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=COMPACTED)
        await write(broker, b"a", b"1", b"2", b"3")
        await broker.compaction.run_once()
        gone = broker.topics.get("t").partition(0)
        assert broker.store.get(keys.compaction_key(gone)) is not None
        await broker.topics.delete("t")
        assert broker.store.get(keys.compaction_key(gone)) is None
        await broker.topics.create("t", options=COMPACTED)
        await write(broker, b"a", b"1", b"2", b"3")
        assert await broker.compaction.run_once() == 1


@on_loop
async def test_a_read_from_an_offset_that_is_gone_begins_with_the_next_record() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=COMPACTED)
        await write(broker, b"a", *(b"%d" % number for number in range(20)))
        await write(broker, b"b", b"1")
        await broker.compaction.run_once()
        read = await broker.committed_reader.read_many("t", [PartitionOffset(0, Offset(3))], max_records=10)
        assert [record.offset for record in read[0].records] == [19, 20]


@on_loop
async def test_the_log_has_what_is_left_with_the_cursors_that_it_had() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t.a", options=COMPACTED)
        await broker.topics.create("t.b")
        cursors = {}
        for number in range(30):
            for topic in ("t.a", "t.b"):
                (done,) = await broker.publisher.publish([Message(topic, b"%d" % number, b"%d" % (number % 3))])
                cursors[topic, done.offset] = done.cursor
        await broker.compaction.run_once()
        found = []
        cursor = Cursor(0)
        while cursor < broker.store.end_cursor():
            batches, cursor = broker.store.scan(cursor, 100)
            found += [(each.partition, each.base_offset, each.cursor) for each in batches]
        topics = {broker.topics.get(name).partition(0): name for name in ("t.a", "t.b")}
        assert all(cursors[topics[partition], offset] == at for partition, offset, at in found)
        assert [offset for partition, offset, _ in found if topics[partition] == "t.a"] == [26, 27, 28, 29]


@on_loop
async def test_a_cursor_finds_its_record_or_the_next_one_that_is_left() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=COMPACTED)
        await broker.topics.create("other")
        for number in range(40):
            await write(broker, b"%d" % (number * number % 11), b"x")
            await broker.publisher.publish([Message("other", b"x")])
        await broker.compaction.run_once()
        partition = broker.topics.get("t").partition(0)
        fetched = broker.store.fetch(partition, Offset(0), 1 << 20)
        left = [
            (cursor, read_header(batch).base_offset) for batch, cursor in zip(fetched.batches, fetched.cursors, strict=True)
        ]
        view = broker.scanner.view("t").partitions[0]
        for cursor in range(broker.store.end_cursor()):
            found = view.offset_at_cursor(cursor)
            assert [offset for _, offset in left if offset >= found] == [offset for at, offset in left if at >= cursor]
            assert cursor_at(broker.store, partition, Offset(min(found, 39))) >= min(cursor, left[-1][0])


@on_loop
async def test_settings_that_make_no_sense_are_refused() -> None:
    async with running_broker() as broker:
        with pytest.raises(ConfigurationError, match="dedup = 'id'"):
            await broker.topics.create("t", options=options(cleanup_policy="compact", dedup="content"))
        with pytest.raises(ConfigurationError, match="less than min_compaction_lag_seconds"):
            await broker.topics.create(
                "t", options=options(cleanup_policy="compact", min_compaction_lag_seconds=9, max_compaction_lag_seconds=8)
            )
        with pytest.raises(ConfigurationError, match="from 0 to 100"):
            await broker.topics.create("t", options=options(min_dirty_percent=101))


def test_steps_are_merged_when_their_tombstones_have_expired() -> None:
    state = CompactionState()
    for number in range(1, 4):
        state = state.after(10 * number, number * 1_000, 0)
    assert state.expired_end(now_ms=12_000, retention_seconds=10) == 20
    assert state.after(40, 12_000, 20).steps == [
        CompactionStep(20, 2_000), CompactionStep(30, 3_000), CompactionStep(40, 12_000)
    ]  # fmt: skip


def test_the_steps_of_a_partition_are_bounded_and_none_expires_early() -> None:
    state = CompactionState()
    for number in range(1, 200):
        state = state.after(10 * number, number * 1_000, 0)
        for now in range(number * 1_000, number * 1_000 + 20_000, 1_000):
            assert state.expired_end(now, 10) <= max(0, 10 * (now // 1_000 - 10))
    assert len(state.steps) == 64
    assert state.clean_end == 1_990
