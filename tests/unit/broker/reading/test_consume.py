"""Where a consumer reads, alone and for a group, and what an ack changes."""

import asyncio

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.commit import Changes
from tailrace.model.consume import AckRequest, Consumed, ConsumeRequest, PartitionOffset
from tailrace.model.errors import (
    InvalidGroupNameError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OffsetRegressionError,
    TailraceError,
    UnknownMemberError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tailrace.model.fetch import AtOffset, AtTime, StartEdge
from tailrace.model.ids import Offset
from tailrace.model.record import RawBatch, Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.compression import Compression
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop, turns
from tests.support.brokers import append, append_unchecked, options, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.groups import joining
from tests.support.transactions import TOPIC, started
from tests.unit.wire.test_records import body_of


async def consume(broker: Broker, **fields: object) -> Consumed:
    return await broker.consumers.consume(ConsumeRequest("t", **fields))  # type: ignore[arg-type]


async def ack(broker: Broker, upto: int, partition: int = 0, group: str = "g") -> None:
    await broker.consumers.ack(AckRequest("t", group, partition, upto))


def committed(broker: Broker, partition: int = 0, group: str = "g") -> int | None:
    found = broker.offsets.committed(group, "t", partition)
    return None if found is None else found.offset


def values(found: Consumed) -> list[bytes | None]:
    return [record.record.value for record in found.records]


def offsets(found: Consumed) -> list[int]:
    return [record.record.offset for record in found.records]


async def numbered(broker: Broker, count: int, partition: int = 0) -> None:
    for number in range(count):
        await append(broker, raw("t", partition, str(number).encode()))


@pytest.mark.parametrize(
    ("start", "first"), [(None, 0), (StartEdge.EARLIEST, 0), (StartEdge.LATEST, 5), (AtOffset(3), 3), (AtTime(0), 0)], ids=str
)
def test_without_a_group_a_read_starts_where_the_request_says_and_stores_nothing(start: object, first: int) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("t")
            await numbered(broker, 5)
            for _ in range(2):
                found = await consume(broker, start=start)
                assert offsets(found) == list(range(first, 5))
                assert found.positions[0].next_offset == 5
            assert list(broker.offsets.groups) == []

    run()


@on_loop
async def test_a_group_begins_at_its_start_once_and_then_where_it_has_committed() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await numbered(broker, 5)
        assert offsets(await consume(broker, group="g", start=StartEdge.LATEST)) == []
        await numbered(broker, 3)
        assert offsets(await consume(broker, group="g", start=StartEdge.LATEST)) == [5, 6, 7]
        assert offsets(await consume(broker, group="g", start=StartEdge.EARLIEST)) == [5, 6, 7]
        await ack(broker, 6)
        assert offsets(await consume(broker, group="g", start=StartEdge.EARLIEST)) == [7]


@on_loop
async def test_reading_moves_no_offset() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await numbered(broker, 5)
        await consume(broker, group="g", limit=3)
        assert committed(broker) == 0
        assert offsets(await consume(broker, group="g", limit=3)) == [0, 1, 2]


@on_loop
async def test_an_offset_that_is_asked_for_counts_always_and_commits_nothing() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await numbered(broker, 5)
        assert offsets(await consume(broker, group="g", start=AtOffset(3))) == [3, 4]
        assert committed(broker) is None
        await consume(broker, group="g")
        await ack(broker, 3)
        assert offsets(await consume(broker, group="g", start=AtOffset(1))) == [1, 2, 3, 4]
        assert committed(broker) == 4


@on_loop
async def test_two_that_begin_for_a_group_at_once_begin_at_the_same_place() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await numbered(broker, 2)
        first = asyncio.ensure_future(consume(broker, group="g", start=StartEdge.LATEST))
        second = asyncio.ensure_future(consume(broker, group="g", start=StartEdge.EARLIEST))
        assert offsets(await first) == offsets(await second)


@on_loop
async def test_partitions_are_read_together_in_the_order_of_the_log() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 3)
        for number in range(9):
            await append(broker, raw("t", (number * 2) % 3, str(number).encode()))
        found = await consume(broker, limit=5)
        assert values(found) == [b"0", b"1", b"2", b"3", b"4"]
        assert found.has_more
        rest = await consume(broker, positions=[PartitionOffset(at.partition, at.next_offset) for at in found.positions])
        assert values(rest) == [b"5", b"6", b"7", b"8"]
        assert not rest.has_more


@on_loop
async def test_no_record_overtakes_those_of_a_partition_that_was_read_in_part() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        await append(broker, raw("t", 0, *(b"%d" % number for number in range(6))))
        await append(broker, raw("t", 1, b"6"))
        found = await consume(broker, limit=3)
        assert values(found) == [b"0", b"1", b"2"]
        assert [(at.partition, at.next_offset) for at in found.positions] == [(0, 3), (1, 0)]


@on_loop
async def test_a_read_steps_over_aborted_transactions_and_waits_for_open_ones() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        producer = await started(broker)
        await producer.write(0, b"aborted")
        await producer.abort()
        await producer.write(0, b"open")
        await append(broker, raw("t", 0, b"after"))
        found = await consume(broker, group="g")
        assert (values(found), found.has_more) == ([], False)
        assert found.positions[0].next_offset == 2
        await producer.commit()
        assert values(await consume(broker, group="g")) == [b"open", b"after"]


@on_loop
async def test_a_read_that_waits_is_not_answered_by_an_abort() -> None:
    async with running_broker() as broker:
        await broker.topics.create(TOPIC)
        producer = await started(broker)
        waiting = asyncio.ensure_future(consume(broker, wait_ms=20_000))
        await producer.write(0, b"aborted")
        await producer.abort()
        await turns(20)
        assert not waiting.done()
        await append(broker, raw("t", 0, b"here"))
        assert values(await waiting) == [b"here"]


@pytest.mark.parametrize(
    ("upto", "error"), [(5, OffsetOutOfRangeError), (-1, OffsetOutOfRangeError), (1, OffsetRegressionError)]
)
def test_an_ack_beyond_the_end_or_backwards_is_rejected(upto: int, error: type[TailraceError]) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("t")
            await numbered(broker, 5)
            await ack(broker, 2)
            with pytest.raises(error, match=str(upto) if error is OffsetOutOfRangeError else "can't go back"):
                await ack(broker, upto)
            assert committed(broker) == 3
            await ack(broker, 2)
            assert committed(broker) == 3

    run()


@on_loop
async def test_an_outsider_does_not_ack_for_a_group_with_members() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await numbered(broker, 5)
        joined = asyncio.ensure_future(broker.groups.join(joining(group="g")))
        await turns(5)
        with pytest.raises(UnknownMemberError):
            await ack(broker, 2)
        joined.cancel()


@on_loop
async def test_a_group_that_retention_has_overtaken_learns_how_to_continue() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await numbered(broker, 5)
        await consume(broker, group="g")
        await broker.retention.delete_before("t", 0, Offset(3))
        with pytest.raises(OffsetOutOfRangeError, match="ack up to 2 or reset the group"):
            await consume(broker, group="g")
        await ack(broker, 2)
        assert offsets(await consume(broker, group="g")) == [3, 4]


@on_loop
async def test_a_reset_may_go_back_in_all_partitions() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        await numbered(broker, 3)
        await numbered(broker, 3, partition=1)
        await ack(broker, 2)
        assert await broker.consumers.reset("g", "t", None, StartEdge.EARLIEST) == [(0, 0), (1, 0)]
        assert await broker.consumers.reset("g", "t", 1, AtOffset(2)) == [(1, 2)]
        assert (committed(broker, 0), committed(broker, 1)) == (0, 2)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"start": AtOffset(1)}, InvalidRequestError),
        ({"positions": [PartitionOffset(0, Offset(0))], "start": StartEdge.LATEST}, InvalidRequestError),
        ({"positions": [PartitionOffset(0, Offset(0)), PartitionOffset(0, Offset(1))]}, InvalidRequestError),
        ({"positions": [PartitionOffset(2, Offset(0))]}, UnknownPartitionError),
        ({"positions": [PartitionOffset(0, Offset(7))]}, OffsetOutOfRangeError),
        ({"partition": 2}, UnknownPartitionError),
        ({"group": ""}, InvalidGroupNameError),
    ],
)
def test_a_contradictory_read_is_rejected(fields: dict[str, object], error: type[TailraceError]) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("t", 2)
            with pytest.raises(error):
                await consume(broker, **fields)
            assert list(broker.offsets.groups) == []

    run()


NOW = ManualClock().now_ms()


async def timed(broker: Broker, *times: int, codec: Compression = Compression.NONE) -> None:
    """Append one batch of records with these timestamps, relative to now."""
    records = [Record(None, b"v" * 50, (), NOW + time) for time in times]
    await append(broker, RawBatch("t", 0, encode_batch(records, codec=codec)))


@on_loop
async def test_the_edges_are_the_start_and_the_end() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(retention_max_bytes=100))
        assert await broker.positions.resolve("t", 0, StartEdge.EARLIEST) == 0
        assert await broker.positions.resolve("t", 0, StartEdge.LATEST) == 0
        for _ in range(5):
            await timed(broker, 0)
        await broker.retention.run_once()
        assert await broker.positions.resolve("t", 0, StartEdge.EARLIEST) == 4
        assert await broker.positions.resolve("t", 0, StartEdge.LATEST) == 5


@on_loop
async def test_an_offset_is_taken_from_start_to_end_and_rejected_outside() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await timed(broker, 0, 0, 0)
        for offset in (0, 2, 3):
            assert await broker.positions.resolve("t", 0, AtOffset(offset)) == offset
        for offset in (-1, 4):
            with pytest.raises(OffsetOutOfRangeError, match=f"not {offset}") as refused:
                await broker.positions.resolve("t", 0, AtOffset(offset))
            assert (refused.value.start, refused.value.end) == (0, 3)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize(
    ("time", "offset"), [(-1000, 0), (0, 0), (1, 1), (10, 1), (11, 2), (20, 2), (21, 4), (40, 4), (41, 5), (50, 5), (51, 6)]
)
@on_loop
async def test_a_time_means_the_first_record_at_or_after_it(codec: Compression, time: int, offset: int) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await timed(broker, 0, 10, codec=codec)
        await timed(broker, 20, 15, 40, codec=codec)
        await timed(broker, 50, codec=codec)
        assert await broker.positions.resolve("t", 0, AtTime(NOW + time)) == offset


@on_loop
async def test_a_record_is_found_by_its_time_and_none_after_the_last() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        assert await broker.positions.at_time("t", 0, 0) is None
        await timed(broker, 0, 10)
        assert await broker.positions.at_time("t", 0, NOW + 5) == (1, NOW + 10)
        assert await broker.positions.at_time("t", 0, NOW + 11) is None


@on_loop
async def test_a_time_before_the_start_means_the_start() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(retention_max_bytes=100))
        for time in range(4):
            await timed(broker, time)
        await broker.retention.run_once()
        assert await broker.positions.resolve("t", 0, AtTime(NOW)) == 3


@on_loop
async def test_records_below_a_start_in_the_middle_of_a_batch_are_not_found() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        await timed(broker, 10, 20, 0, 5)
        store.commit(Changes(trims=((broker.topics.get("t").partition(0), Offset(2)),)))
        assert await broker.positions.at_time("t", 0, NOW + 3) == (3, NOW + 5)


@on_loop
async def test_a_batch_whose_records_cannot_be_read_is_begun_with() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await timed(broker, -10)
        await append_unchecked(broker, RawBatch("t", 0, body_of(0x0C, 0, 0, 2, 1, 1, 0)))
        assert await broker.positions.resolve("t", 0, AtTime(NOW)) == 1


@on_loop
async def test_unknown_topics_and_partitions_are_rejected() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        for start in (StartEdge.EARLIEST, AtOffset(0), AtTime(0)):
            with pytest.raises(UnknownTopicError):
                await broker.positions.resolve("nowhere", 0, start)
            with pytest.raises(UnknownPartitionError):
                await broker.positions.resolve("t", 1, start)


@on_loop
async def test_a_marker_has_a_time_and_a_place_like_a_record_as_in_kafka() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t")
        await timed(broker, 0)
        producer = await started(broker)
        await producer.write(0, b"in a transaction")
        clock.advance(5_000)
        await producer.commit()
        assert await broker.positions.newest("t", 0) == (2, NOW + 5_000)
        assert await broker.positions.at_time("t", 0, NOW + 1) == (2, NOW + 5_000)
        assert await broker.positions.resolve("t", 0, AtTime(NOW + 1)) == 2
        assert await broker.positions.at_time("t", 0, NOW + 5_001) is None
