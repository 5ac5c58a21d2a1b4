"""What a queue still knows after a restart."""

import pytest

from tailrace.model.errors import LateReceiptError
from tailrace.model.limits import Limits
from tailrace.model.start import Edge
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish, values


@on_loop
async def test_a_group_that_begins_at_the_latest_gets_what_comes_after_also_after_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"before")
        clock.advance(1)
        assert await QueueConsumer(broker, start=Edge.LATEST).receive() == []
        await publish(broker, "jobs", b"after")
    async with running_broker(store, clock) as broker:
        assert values(await QueueConsumer(broker, start=Edge.LATEST).receive(5)) == [b"after"]


@on_loop
async def test_what_is_acknowledged_stays_so_after_a_restart_and_what_was_out_comes_again() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b", b"c", b"d")
        before = await QueueConsumer(broker).receive(3)
        await QueueConsumer(broker).ack(before[1])
    async with running_broker(store, clock) as broker:
        consumer = QueueConsumer(broker)
        with pytest.raises(LateReceiptError, match="restarted"):
            await consumer.ack(before[0])
        got = await consumer.receive(10)
        assert [(each.record.value, each.deliveries) for each in got] == [(b"a", 2), (b"c", 2), (b"d", 1)]


@on_loop
async def test_a_record_is_not_handed_out_too_often_right_after_a_restart_either() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"poison")
        await QueueConsumer(broker, max_deliveries=1).receive()
    async with running_broker(store, clock) as broker:
        assert await QueueConsumer(broker).receive() == []


@on_loop
async def test_keys_are_read_again_after_a_restart_however_large_the_records_are() -> None:
    clock = ManualClock()
    limits = Limits(fetch_bytes=150_000)
    store = MemoryStore(clock, limits)
    async with running_broker(store, clock, limits) as broker:
        await broker.topics.create("jobs")
        for number in range(6):
            await publish(broker, "jobs", b"%d" % number * 100_000, key=b"a" if number % 2 else b"b")
        while await QueueConsumer(broker).receive(10):
            pass
    async with running_broker(store, clock, limits) as broker:
        consumer = QueueConsumer(broker, order_by_key=True)
        first = [*await consumer.receive(10), *await consumer.receive(10)]
        assert [each.record.offset for each in first] == [0, 1]
