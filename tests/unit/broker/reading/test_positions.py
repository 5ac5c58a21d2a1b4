import pytest

from tailrace.broker.broker import Broker
from tailrace.model.commit import Changes
from tailrace.model.errors import OffsetOutOfRangeError, UnknownPartitionError, UnknownTopicError
from tailrace.model.fetch import AtOffset, AtTime, StartEdge
from tailrace.model.ids import Offset
from tailrace.model.record import RawBatch, Record
from tailrace.store.memory import MemoryStore
from tailrace.wire.codecs import Codec
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.brokers import append, append_unchecked, options, running_broker
from tests.support.clocks import ManualClock
from tests.support.transactions import started
from tests.unit.wire.test_records import body_of

NOW = ManualClock().now_ms()


async def timed(broker: Broker, *times: int, codec: Codec = Codec.NONE) -> None:
    """One batch of records with these times, counted from now."""
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
async def test_an_offset_is_taken_from_start_to_end_and_refused_outside() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await timed(broker, 0, 0, 0)
        for offset in (0, 2, 3):
            assert await broker.positions.resolve("t", 0, AtOffset(offset)) == offset
        for offset in (-1, 4):
            with pytest.raises(OffsetOutOfRangeError, match=f"not {offset}") as refused:
                await broker.positions.resolve("t", 0, AtOffset(offset))
            assert (refused.value.start, refused.value.end) == (0, 3)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("time", "offset"), [(-1000, 0), (0, 0), (1, 1), (10, 1), (11, 2), (20, 2), (21, 4), (40, 4), (41, 5), (50, 5), (51, 6)]
)
@on_loop
async def test_a_time_means_the_first_record_at_or_after_it(codec: Codec, time: int, offset: int) -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await timed(broker, 0, 10, codec=codec)
        await timed(broker, 20, 15, 40, codec=codec)
        await timed(broker, 50, codec=codec)
        assert await broker.positions.resolve("t", 0, AtTime(NOW + time)) == offset


@on_loop
async def test_the_time_of_the_record_is_told_and_none_is_after_the_last() -> None:
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
async def test_unknown_places_are_refused() -> None:
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
