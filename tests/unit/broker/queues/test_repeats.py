"""Receives that are given up, or whose answers are lost: their records stay with the group, and count once."""

import asyncio
import threading

import pytest

from tailrace.model.changes import Fetched
from tailrace.model.errors import InvalidRequestError, LateReceiptError, LimitExceededError
from tailrace.model.ids import Offset, Partition
from tailrace.model.record import Message
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.queues import QueueConsumer, publish, values


@on_loop
async def test_a_receive_that_is_given_up_leaves_its_records_to_others() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        waiting = asyncio.create_task(consumer.receive(wait_ms=20_000, pattern="other"))
        await until(lambda: broker.queues.waiters == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert broker.queues.waiters == 0
        (got,) = await consumer.receive()
        assert got.deliveries == 1


class HaltingStore(GatedStore):
    """Its second fetch from the disk takes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.fetches = 0

    def fetch(self, partition: Partition, offset: Offset, max_bytes: int) -> Fetched:
        if self.cold:
            self.fetches += 1
            if self.fetches == 2:
                self.go.wait(20)
        return super().fetch(partition, offset, max_bytes)


@on_loop
async def test_a_receive_that_is_cancelled_while_it_reads_keeps_nothing() -> None:
    store = HaltingStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs", 2)
        await broker.publish([Message("jobs", b"a", partition=0), Message("jobs", b"b", partition=1)])
        consumer = QueueConsumer(broker)
        await consumer.nack(*await consumer.receive(2))
        store.cold = True
        reading = asyncio.create_task(consumer.receive(2))
        await until(lambda: store.fetches == 2)
        assert sum(share.in_flight for share in broker.queues.describe("workers").shares) == 1
        reading.cancel()
        store.go.set()
        await asyncio.gather(reading, return_exceptions=True)
        store.cold = False
        again = await consumer.receive(2)
        assert sorted((each.record.value, each.deliveries) for each in again) == [(b"a", 2), (b"b", 2)]


@on_loop
async def test_a_receive_whose_answer_was_lost_is_repeated_without_counting_twice() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs", 2)
        await publish(broker, "jobs", b"a", b"b", b"c")
        consumer = QueueConsumer(broker, max_deliveries=1)
        (other,) = await consumer.receive(attempt="other")
        lost = await consumer.receive(5, attempt="mine")
        assert await consumer.receive(5, attempt="another", is_repeated=True) == []
        for _ in range(2):
            again = await consumer.receive(5, attempt="mine", is_repeated=True)
            assert sorted(values(again)) == sorted(values(lost))  # type: ignore[type-var]
            assert {delivery.deliveries for delivery in again} == {1}
        with pytest.raises(LateReceiptError):
            await consumer.ack(*lost)
        assert await consumer.ack(other, *again) == (3, [])


@on_loop
async def test_a_repeated_receive_needs_a_name() -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidRequestError, match="name of its attempt"):
            await QueueConsumer(broker).receive(is_repeated=True)
        with pytest.raises(LimitExceededError, match="attempt's name has 256 characters"):
            await QueueConsumer(broker).receive(attempt="x" * 256)
