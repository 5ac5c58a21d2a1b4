"""Queues and shares over restarts, and when records, topics or queues are deleted under their consumers."""

import asyncio

import pytest

from tailrace.model.errors import LateReceiptError, StorageFullError, UnknownGroupError
from tailrace.model.fetch import StartEdge
from tailrace.model.ids import Offset
from tailrace.model.limits import Limits
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish, values


@on_loop
async def test_a_group_that_begins_at_the_end_gets_later_records_after_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"before")
        clock.advance(1)
        assert await QueueConsumer(broker, start=StartEdge.LATEST).receive() == []
        await publish(broker, "jobs", b"after")
    async with running_broker(store, clock) as broker:
        assert values(await QueueConsumer(broker, start=StartEdge.LATEST).receive(5)) == [b"after"]


@on_loop
async def test_after_a_restart_acknowledged_records_stay_done_and_acquired_ones_are_delivered_again() -> None:
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
async def test_max_deliveries_holds_right_after_a_restart() -> None:
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


VISIBILITY_MS = 30_000


@on_loop
async def test_records_deleted_by_retention_are_skipped_and_counted() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        await publish(broker, "jobs", b"b")
        consumer = QueueConsumer(broker)
        await consumer.nack(*await consumer.receive())
        await broker.retention.delete_before("jobs", 0, Offset(1))
        assert values(await consumer.receive(5)) == [b"b"]
        assert broker.queues.missed == 1


@on_loop
async def test_deleting_a_topic_deletes_its_share() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        await broker.topics.delete("jobs")
        with pytest.raises(LateReceiptError, match="deleted"):
            await consumer.ack(held)
        assert broker.queues.describe("workers").shares == []
    async with running_broker(store, clock) as broker:
        assert broker.queues.describe("workers").shares == []


@on_loop
async def test_a_deleted_queue_leaves_nothing_behind() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        await broker.queues.delete("workers")
        with pytest.raises(UnknownGroupError, match="no queue of the group 'workers'"):
            await consumer.ack(held)
    async with running_broker(store, clock) as broker:
        assert len(broker.queues) == 0
        (again,) = await QueueConsumer(broker).receive()
        assert again.deliveries == 1


@on_loop
async def test_a_queue_whose_deletion_failed_continues() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        consumer = QueueConsumer(broker)
        held = await consumer.receive(2)
        await turns()
        store.close_gate()
        deleting = asyncio.create_task(broker.queues.delete("workers"))
        await until(lambda: bool(store.in_flight))
        assert broker.queues.in_flight == 0
        store.fail()
        with pytest.raises(StorageFullError):
            await deleting
        store.open_gate()
        assert broker.queues.in_flight == 2
        assert (await consumer.ack(held[0])).accepted == 1
        clock.advance(VISIBILITY_MS)
        broker.queues.expire_due()
        assert values(await consumer.receive(2)) == [b"b"]
