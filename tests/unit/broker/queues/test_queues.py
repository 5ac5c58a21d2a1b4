"""The rules of queues: each record goes to one consumer for a limited time, and then back or to the dead letters."""

import asyncio

import pytest

from tailrace.model.errors import LateReceiptError, StorageFullError
from tailrace.model.fetch import StartEdge
from tailrace.model.record import Message
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish, values

VISIBILITY_MS = 30_000


@on_loop
async def test_each_record_goes_to_one_consumer_of_a_group() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs", 2)
        await publish(broker, "jobs", *(b"%d" % number for number in range(10)))
        first, second = QueueConsumer(broker), QueueConsumer(broker)
        got = values(await first.receive(3)) + values(await second.receive(10)) + values(await first.receive(10))
        assert sorted(got) == [b"%d" % number for number in range(10)]  # type: ignore[type-var]


@on_loop
async def test_each_group_gets_every_record() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        for group in ("one", "two"):
            assert values(await QueueConsumer(broker, group).receive(5)) == [b"a", b"b"]


@on_loop
async def test_a_record_that_nobody_acknowledges_is_available_again_after_its_visibility_timeout() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (first,) = await consumer.receive()
        clock.advance(VISIBILITY_MS - 1)
        broker.queues.expire_due()
        assert await consumer.receive() == []
        clock.advance(1)
        broker.queues.expire_due()
        (again,) = await consumer.receive()
        assert (again.record.value, first.deliveries, again.deliveries) == (b"a", 1, 2)


@on_loop
async def test_an_ack_after_the_timeout_is_rejected_even_before_the_record_is_released() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (late,) = await consumer.receive()
        clock.advance(VISIBILITY_MS)
        with pytest.raises(LateReceiptError, match="timeout of the record at offset 0 has passed"):
            await consumer.ack(late)
        broker.queues.expire_due()
        assert values(await consumer.receive()) == [b"a"]


@on_loop
async def test_an_ack_for_a_record_that_another_consumer_has_acquired_is_rejected() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        slow, quick = QueueConsumer(broker), QueueConsumer(broker)
        (late,) = await slow.receive()
        clock.advance(VISIBILITY_MS)
        broker.queues.expire_due()
        (current,) = await quick.receive()
        with pytest.raises(LateReceiptError, match="handed out again"):
            await slow.ack(late)
        assert await quick.ack(current) == (1, [])
        with pytest.raises(LateReceiptError, match="done already"):
            await slow.ack(late)


@on_loop
async def test_of_several_receipts_the_late_ones_are_named_and_the_others_count() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        consumer = QueueConsumer(broker)
        (late,) = await consumer.receive(visibility_ms=1_000)
        (good,) = await consumer.receive()
        clock.advance(1_000)
        settled = await consumer.ack(late, good)
        assert settled.accepted == 1
        assert [refusal.receipt for refusal in settled.refused] == [late.receipt]


@on_loop
async def test_an_extension_counts_from_now() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        clock.advance(VISIBILITY_MS - 1)
        await consumer.extend(held, visibility_ms=60_000)
        clock.advance(59_999)
        broker.queues.expire_due()
        assert await consumer.receive() == []
        assert (await consumer.ack(held)).accepted == 1


@on_loop
async def test_a_nacked_record_waits_for_its_delay() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        consumer = QueueConsumer(broker)
        (first,) = await consumer.receive()
        await consumer.nack(first, delay_ms=5_000)
        assert values(await consumer.receive(5)) == [b"b"]
        clock.advance(5_000)
        broker.queues.expire_due()
        (again,) = await consumer.receive(5)
        assert (again.record.value, again.deliveries) == (b"a", 2)
        await consumer.nack(again)
        assert values(await consumer.receive(5)) == [b"a"]


@on_loop
async def test_by_key_only_one_record_of_a_key_is_acquired_at_a_time() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await broker.publisher.publish([Message("jobs", value, value[:1]) for value in (b"a1", b"a2", b"b1", b"a3", b"b2")])
        await publish(broker, "jobs", b"free1", b"free2")
        consumer = QueueConsumer(broker, order_by_key=True)
        got = await consumer.receive(10)
        assert values(got) == [b"a1", b"b1", b"free1", b"free2"]
        assert await consumer.receive(10) == []
        await consumer.nack(got[0], delay_ms=1_000)
        assert await consumer.receive(10) == []
        await consumer.ack(got[1])
        assert values(await consumer.receive(10)) == [b"b2"]
        clock.advance(1_000)
        broker.queues.expire_due()
        (again,) = await consumer.receive(10)
        assert again.record.value == b"a1"
        await consumer.ack(again)
        assert values(await consumer.receive(10)) == [b"a2"]


@on_loop
async def test_topics_created_later_are_included_and_wake_waiting_consumers() -> None:
    async with running_broker() as broker:
        consumer = QueueConsumer(broker, pattern="jobs.*", start=StartEdge.LATEST)
        waiting = asyncio.create_task(consumer.receive(wait_ms=20_000))
        await until(lambda: broker.queues.waiters == 1)
        await broker.topics.create("jobs.new")
        await publish(broker, "jobs.new", b"a")
        assert values(await waiting) == [b"a"]


@on_loop
async def test_a_waiting_consumer_gets_a_record_that_another_releases() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        first, second = QueueConsumer(broker), QueueConsumer(broker)
        (held,) = await first.receive()
        waiting = asyncio.create_task(second.receive(wait_ms=20_000))
        await until(lambda: broker.queues.waiters == 1)
        await first.nack(held)
        (again,) = await waiting
        waiting = asyncio.create_task(first.receive(wait_ms=20_000))
        await until(lambda: broker.queues.waiters == 1)
        clock.advance(VISIBILITY_MS)
        broker.queues.expire_due()
        assert values(await waiting) == [again.record.value]


@on_loop
async def test_an_ack_that_can_not_be_stored_fails_and_can_be_repeated() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        await turns()
        store.close_gate()
        ack = asyncio.create_task(consumer.ack(held))
        await turns()
        assert not ack.done()
        store.fail()
        with pytest.raises(StorageFullError):
            await ack
        store.open_gate()
        assert (await consumer.ack(held)).accepted == 1


@on_loop
async def test_acks_that_come_together_share_writes() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", *[b"x"] * 100)
        consumer = QueueConsumer(broker)
        held = await consumer.receive(100)
        await turns()
        store.close_gate()
        acks = [asyncio.create_task(consumer.ack(each)) for each in held]
        await turns()
        writes = len(store.in_flight)
        store.settle()
        await until(lambda: bool(store.in_flight))
        writes += len(store.in_flight)
        store.settle()
        assert sum(settled.accepted for settled in await asyncio.gather(*acks)) == 100
        assert writes == 2


@on_loop
async def test_the_status_of_a_queue_shows_lag_and_records_in_flight() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b", b"c", b"d", b"e")
        consumer = QueueConsumer(broker)
        held = await consumer.receive(3)
        await consumer.ack(held[0])
        await consumer.nack(held[1])
        (status,) = broker.queues.all()
        assert status == ("workers", 5, 0, [("jobs", 0, 1, 3, 5, 1, 1, 4)])
