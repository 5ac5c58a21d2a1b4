"""What a fetch of a pattern returns: the records of all topics that match, at their cursors."""

import asyncio
from collections import defaultdict
from itertools import chain
from typing import Any

import pytest
from aiokafka.record import MemoryRecords

from tailrace.broker.broker import Broker
from tailrace.model.errors import OffsetOutOfRangeError, UnknownPartitionError, UnreadableBatchError
from tailrace.model.fetch import AtOffset, AtTime, Isolation, PartitionBatches, StartEdge
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.names import parse_pattern
from tailrace.model.record import Message, RawBatch, Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.compression import Compression
from tailrace.wire.partitioner import partition_for_key
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, turns
from tests.support.batches import TIMESTAMP
from tests.support.brokers import append, append_unchecked, raw, running_broker
from tests.support.fetches import at, settled_in, waiting
from tests.support.transactions import TOPIC, started

Read = tuple[int, bytes | None]


def batches_in(answer: PartitionBatches) -> list[Any]:
    """Return the batches of an answer as another implementation reads them."""
    assert answer.error is None, answer.error
    memory = MemoryRecords(b"".join(answer.batches))
    found = []
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        found.append(batch)
    return found


def records(answer: PartitionBatches, offset: int = 0) -> list[Read]:
    """Return what a client shows of an answer: cursors and values, without markers and records before its offset."""
    shown = [batch for batch in batches_in(answer) if not batch.is_control_batch]
    return [(record.offset, record.value) for batch in shown for record in batch if record.offset >= offset]


def next_offset(answer: PartitionBatches) -> int:
    offset: int = batches_in(answer)[-1].next_offset
    return offset


async def read(broker: Broker, topic: str, offset: int = 0, partition: int = 0, max_bytes: int = 1_000_000) -> PartitionBatches:
    (answer,) = await broker.fetcher.fetch([at(offset, partition, topic, max_bytes)])
    return answer


async def read_all(broker: Broker, topic: str, partition: int = 0, max_bytes: int = 1_000_000) -> list[Read]:
    """Read from the beginning to the end as a client does, which continues after the last batch."""
    found: list[Read] = []
    offset = 0
    while True:
        answer = await read(broker, topic, offset, partition, max_bytes)
        if not answer.batches:
            return found
        found += records(answer, offset)
        assert next_offset(answer) > offset
        offset = next_offset(answer)


async def write(broker: Broker, topic: str, *values: bytes, partition: int = 0) -> None:
    await append(broker, raw(topic, partition, *values))


def keyed(topic: str, *pairs: tuple[bytes | None, bytes], codec: int = Compression.NONE, partition: int = 0) -> RawBatch:
    return RawBatch(topic, partition, encode_batch([Record(key, value, (), TIMESTAMP) for key, value in pairs], codec=codec))


@on_loop
async def test_records_of_all_matching_topics_come_at_their_cursors() -> None:
    async with running_broker() as broker:
        for name in ("orders.us", "orders.eu", "payments"):
            await broker.topics.create(name, 2)
        expected: list[Read] = []
        for number in range(30):
            name = ("orders.us", "orders.eu", "payments")[number % 3]
            await write(broker, name, b"%d" % number, b"%d'" % number, partition=number % 2)
            if name != "payments":
                expected += [(2 * number, b"%d" % number), (2 * number + 1, b"%d'" % number)]
        assert await read_all(broker, "orders.>") == expected
        assert await read_all(broker, "orders.*", max_bytes=200) == expected
        assert records(await read(broker, "orders.>", 31), 31) == [each for each in expected if each[0] >= 31]
        assert await read_all(broker, "*") == [
            (cursor, value) for cursor, value in await read_all(broker, ">") if cursor % 6 > 3
        ]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
def test_each_record_is_in_the_partition_of_its_key(codec: Compression) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("orders.us", 2)
            await broker.topics.create("orders.eu")
            expected = defaultdict(list)
            cursor = 0
            for number in range(40):
                pairs = [(b"k%d" % (key % 7), b"%d.%d" % (number, key)) for key in range(number % 5 + 1)]
                await append(broker, keyed(("orders.us", "orders.eu")[number % 2], *pairs, codec=codec))
                for key, value in pairs:
                    expected[partition_for_key(key, 3)].append((cursor, value))
                    cursor += 1
            for partition in range(3):
                for max_bytes in (1_000_000, 1, 500):
                    assert await read_all(broker, "orders.>@3", partition, max_bytes) == expected[partition]
            assert await read_all(broker, "orders.>@1") == sorted(chain(*expected.values()))

    run()


@on_loop
async def test_records_without_a_key_stay_in_the_order_of_their_partition() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders", 3)
        for number in range(30):
            await append(broker, keyed("orders", (None, b"%d" % number), partition=number % 3))
        parts = [await read_all(broker, "orders.>@4", partition) for partition in range(4)]
        assert sorted(chain(*parts)) == [(number, b"%d" % number) for number in range(30)]
        for origin in range(3):
            assert [any(int(value or b"") % 3 == origin for _, value in part) for part in parts].count(True) == 1


@on_loop
async def test_a_reader_in_the_middle_of_a_batch_gets_no_batch_of_earlier_records_only() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders")
        await append(broker, keyed("orders", *((b"k%d" % number, b"%d" % number) for number in range(20))))
        for offset in range(20):
            for partition in range(3):
                answer = await read(broker, "orders.>@3", offset, partition)
                shown = records(answer)
                assert all(cursor >= offset for cursor, _ in shown)
                assert next_offset(answer) == 20


@pytest.mark.parametrize("name", ["orders.>", "orders.>@2"])
def test_a_reader_among_records_of_other_topics_is_moved_on(name: str) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            for topic in ("orders.us", "other"):
                await broker.topics.create(topic)
            await write(broker, "other", *[b"x"] * 10)
            await append(broker, keyed("orders.us", (b"a", b"1")))
            partition = partition_for_key(b"a", 2) if "@" in name else 0
            answer = await read(broker, name, 3, partition)
            assert records(answer) == [(10, b"1")]
            await write(broker, "other", *[b"x"] * 10)
            # The end is that of the last matching record, and a reader there waits whatever else is written.
            answer = await read(broker, name, 11, partition)
            assert (list(answer.batches), answer.bounds.end) == ([], 11)
            fetch = waiting(broker, at(15, partition, name))
            await settled_in(broker)
            await append(broker, keyed("orders.us", (b"a", b"2")))
            assert records((await fetch)[0]) == [(21, b"2")]

    run()


@on_loop
async def test_the_other_partitions_are_moved_to_the_end() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders")
        await append(broker, keyed("orders", *((b"a", b"%d" % number) for number in range(5))))
        for partition in range(2):
            answer = await read(broker, "orders.>@2", 0, partition)
            assert len(records(answer)) == (5 if partition == partition_for_key(b"a", 2) else 0)
            assert next_offset(answer) == 5


@on_loop
async def test_a_reader_at_the_end_is_woken_by_the_next_matching_commit_also_of_a_new_topic() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders.us")
        await write(broker, "orders.us", b"0")
        fetch = waiting(broker, at(1, 0, "orders.>"))
        await settled_in(broker)
        await broker.topics.create("orders.new")
        await broker.topics.create("other")
        await write(broker, "other", b"1")
        await turns(20)
        assert not fetch.done()
        await write(broker, "orders.new", b"2")
        assert records((await fetch)[0]) == [(2, b"2")]


@on_loop
async def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders")
        one = len(raw("orders", 0, b"0").batch)
        fetch = waiting(broker, at(0, 0, "orders.>"), min_bytes=3 * one)
        await settled_in(broker)
        for number in range(2):
            await write(broker, "orders", b"%d" % number)
        await turns(20)
        assert not fetch.done()
        await write(broker, "orders", b"2")
        assert records((await fetch)[0]) == [(0, b"0"), (1, b"1"), (2, b"2")]


@pytest.mark.parametrize("woken_by", ["orders", "t"])
def test_patterns_and_topics_are_fetched_and_awaited_together(woken_by: str) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            for name in ("orders", "t"):
                await broker.topics.create(name)
                await write(broker, name, b"0")
            both = await broker.fetcher.fetch([at(0), at(0, 0, "orders.>")])
            assert [len(records(each)) for each in both] == [1, 1]
            fetch = waiting(broker, at(1), at(2, 0, "orders.>"))
            await settled_in(broker)
            await write(broker, woken_by, b"new")
            found = [[value for _, value in records(each)] for each in await fetch]
            assert found == ([[b"new"], []] if woken_by == "t" else [[], [b"new"]])

    run()


@on_loop
async def test_the_first_batch_comes_however_large_and_further_ones_only_if_they_fit() -> None:
    async with running_broker() as broker:
        for name in ("orders", "t"):
            await broker.topics.create(name)
            for _ in range(3):
                await write(broker, name, bytes(5_000))
        assert len(records(await read(broker, "orders.>", max_bytes=1))) == 1
        assert len(records(await read(broker, "orders.>", max_bytes=11_000))) == 2
        first, second = await broker.fetcher.fetch([at(0), at(0, 0, "orders.>", 1)], max_bytes=20_000)
        assert (len(records(first)), list(second.batches)) == (3, [])


@on_loop
async def test_only_committed_records_are_sent_and_an_open_transaction_is_awaited() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC, 2)
        await write(broker, TOPIC, b"before")
        writer = await started(broker, "writer")
        await writer.write(0, b"aborted", b"aborted")
        await writer.end(committed=False)
        await writer.write(1, b"committed")
        await write(broker, TOPIC, b"after")
        for isolation in Isolation:
            (answer,) = await broker.fetcher.fetch([at(0, 0, "t.>")], isolation=isolation)
            assert (records(answer), answer.aborted, answer.last_stable_offset) == ([(0, b"before")], (), 4)
        answer = await read(broker, "t.>", 1)
        assert (records(answer), next_offset(answer)) == ([], 4)
        assert await broker.pattern_positions.latest(parse_pattern("t.>", DEFAULT_LIMITS)) == 4
        fetch = waiting(broker, at(4, 0, "t.>"))
        await settled_in(broker)
        await write(broker, TOPIC, b"later")
        await turns(20)
        assert not fetch.done()
        await writer.end(committed=True)
        assert records((await fetch)[0]) == [(4, b"committed"), (5, b"after"), (6, b"later")]


@on_loop
async def test_a_large_payload_is_put_back_into_its_record() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders")
        large = bytes(300_000)
        await broker.publisher.publish([Message("orders", large, key=b"a"), Message("orders", b"small", key=b"a")])
        for name in ("orders.>", "orders.>@2"):
            partition = partition_for_key(b"a", 2) if "@" in name else 0
            assert await read_all(broker, name, partition) == [(0, large), (1, b"small")]


@on_loop
async def test_a_batch_that_can_not_be_decoded_is_an_error_behind_the_valid_ones() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("orders")
    good = raw("orders", 0, b"good")
    bad = bytearray(encode_batch([Record(None, b"bad", (), TIMESTAMP)], codec=Compression.NONE))
    bad[-1] = 9
    async with running_broker(store) as broker:
        broker.unchecked.end = type(broker.unchecked.end)(100)
        await append_unchecked(broker, good)
        await append_unchecked(broker, RawBatch("orders", 0, bad))
        (answer,) = await broker.fetcher.fetch([at(0, 0, "orders.>")])
        assert answer.error is None
        assert len(answer.batches) == 1
        (answer,) = await broker.fetcher.fetch([at(1, 0, "orders.>")])
        assert isinstance(answer.error, UnreadableBatchError)


@on_loop
async def test_offsets_outside_the_log_and_unknown_partitions_are_rejected() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders")
        await write(broker, "orders", b"0")
        for offset in (-1, 2):
            assert isinstance((await read(broker, "orders.>", offset)).error, OffsetOutOfRangeError)
        assert isinstance((await read(broker, "orders.>@2", 0, 2)).error, UnknownPartitionError)


@on_loop
async def test_deleted_topics_and_deleted_records_are_skipped_and_cursors_stay() -> None:
    async with running_broker() as broker:
        for name in ("orders.us", "orders.eu"):
            await broker.topics.create(name)
        for number in range(4):
            await write(broker, ("orders.us", "orders.eu")[number % 2], b"%d" % number)
        await broker.retention.delete_before("orders.us", 0, Offset(1))
        assert await read_all(broker, "orders.>") == [(1, b"1"), (2, b"2"), (3, b"3")]
        await broker.topics.delete("orders.eu")
        await broker.topics.create("orders.eu")
        await write(broker, "orders.eu", b"again")
        assert await read_all(broker, "orders.>") == [(2, b"2"), (4, b"again")]
        assert await broker.pattern_positions.earliest(parse_pattern("orders.>", DEFAULT_LIMITS)) == 2


@on_loop
async def test_deleted_records_of_a_batch_in_memory_are_not_sent() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders")
        await read(broker, "orders.>")
        await append(broker, keyed("orders", *((b"k%d" % number, b"%d" % number) for number in range(6))))
        await append(broker, keyed("orders", (b"a", b"6")))
        assert len(await read_all(broker, "orders.>")) == 7
        await broker.retention.delete_before("orders", 0, Offset(4))
        assert await read_all(broker, "orders.>") == [(4, b"4"), (5, b"5"), (6, b"6")]
        parts = [await read_all(broker, "orders.>@2", partition) for partition in range(2)]
        assert sorted(chain(*parts)) == [(4, b"4"), (5, b"5"), (6, b"6")]
        await broker.retention.delete_before("orders", 0, Offset(6))
        assert await read_all(broker, "orders.>") == [(6, b"6")]


@on_loop
async def test_positions_are_found_by_edge_offset_and_time() -> None:
    async with running_broker() as broker:
        for name in ("orders.us", "orders.eu", "other"):
            await broker.topics.create(name)
        for number, name in enumerate(("other", "orders.us", "orders.eu", "orders.us", "other")):
            await append(broker, raw(name, 0, b"x", timestamp=TIMESTAMP + 10 * number))
        topic = broker.topics.patterns.find("orders.>")
        assert topic is not None
        positions = broker.pattern_positions
        assert await positions.resolve(topic, StartEdge.EARLIEST) == 0
        assert await positions.resolve(topic, StartEdge.LATEST) == 5
        assert await positions.resolve(topic, AtOffset(3)) == 3
        with pytest.raises(OffsetOutOfRangeError):
            await positions.resolve(topic, AtOffset(6))
        assert await positions.resolve(topic, AtTime(TIMESTAMP + 15)) == 2
        assert await positions.resolve(topic, AtTime(TIMESTAMP + 31)) == 5
        assert await positions.at_time(topic.pattern, TIMESTAMP + 31) is None
        assert await positions.newest(topic.pattern) == (3, TIMESTAMP + 30)


@on_loop
async def test_offsets_of_groups_are_kept_over_a_restart_until_the_group_is_deleted() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("orders")
        await write(broker, "orders", b"0", b"1", b"2")
        commits = [OffsetCommit(name, 0, Offset(2)) for name in ("orders.>", "orders.>@4", "orders")]
        assert await broker.offsets.commit_each("g", commits) == [None, None, None]
        uuid = broker.topics.readable("orders.>").topic.uuid
    async with running_broker(store) as broker:
        await broker.topics.create("orders.new")
        assert broker.topics.readable("orders.>").topic.uuid == uuid
        assert {(each.topic, each.offset) for each in broker.offsets.committed_by("g")} == {
            ("orders", 2),
            ("orders.>", 2),
            ("orders.>@4", 2),
        }
        assert {(lag.topic, lag.lag) for lag in broker.offsets.lag("g")} == {("orders", 1), ("orders.>", 1), ("orders.>@4", 1)}
        assert broker.offsets.total_lags() == {("g", "orders"): 1, ("g", "orders.>"): 1, ("g", "orders.>@4"): 1}
        await broker.topics.delete("orders")
        committed = broker.offsets.committed("g", "orders.>", 0)
        assert committed is not None and committed.offset == 2
        await broker.consumers.reset("g", "orders.>", None, StartEdge.EARLIEST)
        await broker.group_removal.delete("g")
        assert broker.offsets.committed("g", "orders.>", 0) is None
    async with running_broker(store) as broker:
        assert list(broker.topics.patterns) == []


@on_loop
async def test_offsets_of_a_transaction_are_committed_with_it() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        writer = await started(broker, "writer")
        await broker.transactions.add_group("writer", writer.identity, "g")
        outcomes = await broker.transactions.commit_offsets(
            "writer", writer.identity, "g", [OffsetCommit("t.>", 0, Offset(7))], lambda: None
        )
        assert outcomes == [None]
        assert broker.offsets.committed("g", "t.>", 0) is None
        await writer.end(committed=True)
        committed = broker.offsets.committed("g", "t.>", 0)
        assert committed is not None and committed.offset == 7


@on_loop
async def test_patterns_that_nobody_reads_are_watched_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(subscribers=2)
    async with running_broker(limits=limits) as broker:
        await broker.topics.create("orders")
        await read(broker, "orders.>")
        await read(broker, "orders.>@3")
        await read(broker, "*")
        assert broker.subscriptions.subscribers == 0
        third = await read(broker, "orders.*")
        assert "as many as subscribers allows" in str(third.error)
        loop = asyncio.get_running_loop()
        later = loop.time() + 61
        monkeypatch.setattr(loop, "time", lambda: later)
        assert (await read(broker, "orders.*")).error is None


@on_loop
async def test_forty_readers_of_one_pattern_each_get_everything() -> None:
    async with running_broker() as broker:
        await broker.topics.create("orders")
        fetches = [waiting(broker, at(0, 0, "orders.>")) for _ in range(40)]
        await settled_in(broker, 40)
        await write(broker, "orders", b"0")
        for fetch in fetches:
            assert records((await fetch)[0]) == [(0, b"0")]
