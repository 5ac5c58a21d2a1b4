import asyncio
import logging

import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.settings import BrokerSettings
from tailrace.model.errors import OffsetOutOfRangeError, ReservedTopicError
from tailrace.model.fetch import PartitionFetch
from tailrace.model.ids import Offset
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, append, bounds_of, options, raw, running_broker, values_in
from tests.support.clocks import ManualClock

NOW = ManualClock().now_ms()
HOUR_MS = 3_600_000


async def hourly(broker: Broker, count: int, topic: str = "t", partition: int = 0) -> None:
    """Append one record for each of the last hours, the newest with the current time."""
    for age in range(count - 1, -1, -1):
        await append(broker, raw(topic, partition, b"%d hours old" % age, timestamp=NOW - age * HOUR_MS))


@on_loop
async def test_records_older_than_the_topic_keeps_go() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(retention_seconds=2 * 3600))
        await hourly(broker, 5)
        assert await broker.retention.run_once() == 2
        assert bounds_of(broker, "t") == (2, 5)
        assert await values_in(broker, "t") == [b"2 hours old", b"1 hours old", b"0 hours old"]
        assert broker.topics.get("t").trimmed_records == 2


@on_loop
async def test_records_beyond_the_bytes_that_the_topic_keeps_go() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        for number in range(10):
            await append(broker, raw("t", 0, b"%d" % number))
        size = len(raw("t", 0, b"0").batch)
        await broker.topics.alter("t", options(retention_max_bytes=3 * size))
        assert await broker.retention.run_once() == 7
        assert await values_in(broker, "t") == [b"7", b"8", b"9"]
        assert await broker.retention.run_once() == 0


@on_loop
async def test_a_batch_larger_than_the_topic_keeps_is_kept() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(retention_max_bytes=200_000))
        await append(broker, raw("t", 0, *(b"%d" % number + b"x" * 1024 for number in range(220))))
        assert await broker.retention.run_once() == 0
        assert len(await values_in(broker, "t")) == 220


@on_loop
async def test_a_topic_keeps_at_least_its_bytes_and_less_than_one_batch_more() -> None:
    """Publishes of 1,000 records, each larger than the limit of the topic, and much smaller ones."""
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(retention_max_bytes=200_000))
        for _ in range(5):
            await append(broker, raw("t", 0, *([b"x" * 1024] * 1000)))
        assert await broker.retention.run_once() == 4000
        assert bounds_of(broker, "t") == (4000, 5000)
        for _ in range(200):
            await append(broker, raw("t", 0, *([b"x" * 1024] * 3)))
        await broker.retention.run_once()
        size = len(raw("t", 0, *([b"x" * 1024] * 3)).batch)
        start, end = bounds_of(broker, "t")
        assert 200_000 <= (end - start) // 3 * size < 200_000 + size


@on_loop
async def test_the_stricter_of_time_and_bytes_rules() -> None:
    async with running_broker() as broker:
        size = len(raw("t", 0, b"0 hours old").batch)
        await broker.topics.create("t", options=options(retention_seconds=4 * 3600, retention_max_bytes=2 * size))
        await hourly(broker, 6)
        await broker.retention.run_once()
        assert bounds_of(broker, "t") == (4, 6)
        await broker.topics.alter("t", options(retention_seconds=1))
        await broker.retention.run_once()
        assert bounds_of(broker, "t") == (5, 6)


@on_loop
async def test_everything_may_go_and_offsets_go_on() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", options=options(retention_seconds=1))
        await hourly(broker, 3)
        clock.advance(1001)
        assert await broker.retention.run_once() == 3
        assert bounds_of(broker, "t") == (3, 3)
        assert await broker.retention.run_once() == 0
        assert (await append(broker, raw("t", 0, b"new", timestamp=clock.now_ms()))).base_offset == 3


@on_loop
async def test_a_topic_without_retention_keeps_everything() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        await append(broker, raw("t", 0, b"ancient", timestamp=0))
        assert await broker.retention.run_once() == 0
        assert bounds_of(broker, "t") == (0, 1)


@on_loop
async def test_partitions_and_topics_are_trimmed_each_for_itself() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2, options=options(retention_seconds=3600))
        await broker.topics.create("u", options=options(retention_seconds=7200))
        await hourly(broker, 4, "t", 0)
        await hourly(broker, 2, "t", 1)
        await hourly(broker, 4, "u")
        assert await broker.retention.run_once() == 3
        assert (bounds_of(broker, "t", 0), bounds_of(broker, "t", 1), bounds_of(broker, "u")) == ((2, 4), (0, 2), (1, 4))


@on_loop
async def test_a_moved_start_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker() as broker:
        await broker.topics.create("app.t", options=options(retention_seconds=3600))
        await hourly(broker, 4, "app.t")
        with caplog.at_level(logging.INFO, "tailrace.broker.retention"):
            await broker.retention.run_once()
        assert caplog.messages == ["retention moved the start of app.t, partition 0, from offset 0 to 2"]


@on_loop
async def test_a_reader_below_the_start_gets_an_error_and_never_jumps() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(retention_seconds=3600))
        await hourly(broker, 4)
        await broker.retention.run_once()
        with pytest.raises(OffsetOutOfRangeError) as refused:
            await broker.committed_reader.read("t", 0, Offset(1), max_records=1)
        assert (refused.value.start, refused.value.end) == (2, 4)
        (answer,) = await broker.fetcher.fetch([PartitionFetch("t", 0, Offset(1), 1000)])
        assert isinstance(answer.error, OffsetOutOfRangeError)


@on_loop
async def test_a_topic_deleted_during_retention_is_skipped() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", options=options(retention_seconds=3600))
        await hourly(broker, 4)
        store.close_gate()
        deleting = asyncio.ensure_future(broker.topics.delete("t"))
        await until(lambda: bool(store.in_flight))
        trimming = asyncio.ensure_future(broker.retention.run_once())
        await turns(50)
        store.open_gate()
        await deleting
        assert await trimming == 0


@on_loop
async def test_retention_runs_by_itself() -> None:
    settings = BrokerSettings(retention_interval_seconds=0)
    async with running_broker(settings=settings) as broker:
        await broker.topics.create("t", options=options(retention_seconds=3600))
        await hourly(broker, 4)
        await until(lambda: bounds_of(broker, "t").start == 2)


@on_loop
async def test_a_cleared_topic_is_empty_and_goes_on_where_it_was() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 3)
        for partition in (0, 0, 2):
            await append(broker, raw("t", partition, b"old"))
        assert await broker.retention.clear("t") == 3
        assert [bounds_of(broker, "t", number) for number in range(3)] == [(2, 2), (0, 0), (1, 1)]
        assert await broker.retention.clear("t") == 0
        await append(broker, raw("t", 0, b"new"))
        assert await values_in(broker, "t") == [b"new"]


@on_loop
async def test_reserved_topics_can_not_be_cleared() -> None:
    async with running_broker() as broker:
        await broker.topics.create_reserved("_routes")
        with pytest.raises(ReservedTopicError, match="_routes"):
            await broker.retention.clear("_routes")
