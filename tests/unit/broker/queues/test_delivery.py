"""Delivery: cancelled and repeated receives, limits, and records that are read ahead."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.broker import Broker
from tailrace.broker.queues.share import READ_AHEAD_RECORDS, ReadAhead
from tailrace.model.commit import FetchedBatches
from tailrace.model.errors import InvalidRequestError, LateReceiptError, LimitExceededError, OverloadedError
from tailrace.model.ids import Offset, PartitionId
from tailrace.model.limits import KIB, Limits
from tailrace.model.record import Message, Record
from tests.support.aio import on_loop, until
from tests.support.brokers import GatedStore, running_broker
from tests.support.queues import QueueConsumer, publish, values


@on_loop
async def test_a_cancelled_receive_leaves_its_records_to_others() -> None:
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
    """A store whose second fetch from the disk blocks until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.fetches = 0

    def fetch(self, partition: PartitionId, offset: Offset, max_bytes: int) -> FetchedBatches:
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
        await broker.publisher.publish([Message("jobs", b"a", partition=0), Message("jobs", b"b", partition=1)])
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
async def test_a_repeated_receive_needs_an_attempt_name() -> None:
    async with running_broker() as broker:
        with pytest.raises(InvalidRequestError, match="name of its attempt"):
            await QueueConsumer(broker).receive(is_repeated=True)
        with pytest.raises(LimitExceededError, match="attempt's name has 256 characters"):
            await QueueConsumer(broker).receive(attempt="x" * 256)


@on_loop
async def test_no_more_records_are_acquired_than_the_limit_allows() -> None:
    async with running_broker(limits=Limits(queue_in_flight=2)) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b", b"c")
        consumer = QueueConsumer(broker)
        held = await consumer.receive(3)
        assert values(held) == [b"a", b"b"]
        assert await consumer.receive() == []
        await consumer.ack(held[0])
        assert values(await consumer.receive()) == [b"c"]


@pytest.mark.parametrize("limits", [Limits(queue_group_in_flight=3), Limits(queues_in_flight=3)])
def test_the_limit_of_acquired_records_counts_all_partitions(limits: Limits) -> None:
    @on_loop
    async def scenario() -> None:
        async with running_broker(limits=limits) as broker:
            for topic in ("jobs.a", "jobs.b"):
                await broker.topics.create(topic)
                await publish(broker, topic, b"1", b"2")
            first, second = QueueConsumer(broker, pattern="jobs.*"), QueueConsumer(broker, pattern="jobs.*")
            held = await first.receive(10)
            assert len(held) == broker.queues.in_flight == 3
            waiting = asyncio.create_task(second.receive(wait_ms=20_000))
            await until(lambda: broker.queues.waiters == 1)
            # The limit counts the records of both partitions.
            await first.ack(held[0])
            held += await waiting
            await first.ack(*held[1:])
            assert sorted(each.record.value or b"" for each in held) == [b"1", b"1", b"2", b"2"]
            assert broker.queues.in_flight == 0

    scenario()


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        ({"most": 0}, "queue_batch"),
        ({"most": 1_001}, "queue_batch"),
        ({"wait_ms": 30_001}, "fetch_wait_ms"),
        ({"visibility_ms": 0}, "queue_hold_ms"),
        ({"visibility_ms": 12 * 3_600_000 + 1}, "queue_hold_ms"),
        ({"max_deliveries": 0}, "queue_deliveries"),
        ({"max_deliveries": 101}, "queue_deliveries"),
    ],
)
def test_an_error_names_the_limit_that_was_exceeded(asked: dict[str, int], limit: str) -> None:
    async def receive() -> None:
        async with running_broker() as broker:
            with pytest.raises(LimitExceededError, match=limit):
                await QueueConsumer(broker).receive(**asked)
            assert len(broker.queues) == 0

    asyncio.run(receive())


@on_loop
async def test_groups_partitions_and_waiting_consumers_are_bounded() -> None:
    async with running_broker(limits=Limits(queue_groups=1, queue_shares=2, queue_waiters=0)) as broker:
        await broker.topics.create("jobs", 2)
        await broker.topics.create("more")
        assert await QueueConsumer(broker).receive() == []
        with pytest.raises(LimitExceededError, match="queue_groups"):
            await QueueConsumer(broker, "another").receive()
        with pytest.raises(LimitExceededError, match="queue_shares"):
            await QueueConsumer(broker, pattern="more").receive()
        with pytest.raises(OverloadedError, match="queue_waiters"):
            await QueueConsumer(broker).receive(wait_ms=1_000)


@pytest.mark.parametrize("receipt", ["", "abc", "ä", "AAAA", "A" * 100])
def test_an_invalid_receipt_is_rejected(receipt: str) -> None:
    async def ack(broker: Broker) -> None:
        await broker.topics.create("jobs")
        await QueueConsumer(broker).receive()
        with pytest.raises(InvalidRequestError, match="not a receipt"):
            await broker.queues.acknowledge("workers", [receipt])

    async def run() -> None:
        async with running_broker() as broker:
            await ack(broker)

    asyncio.run(run())


@on_loop
async def test_the_bytes_of_one_response_are_bounded_and_the_rest_follows() -> None:
    async with running_broker(limits=Limits(answer_bytes=250_000)) as broker:
        await broker.topics.create("jobs", 5)
        for number in range(10):
            await broker.publisher.publish([Message("jobs", b"x" * 100_000, partition=number % 5)])
        consumer = QueueConsumer(broker)
        for _ in ("fresh", "given back"):
            held = []
            while got := await consumer.receive(10):
                assert sum(len(each.record.value or b"") for each in got) <= 2 * 250_000
                held += got
            assert len({(each.partition, each.record.offset) for each in held}) == 10
            await consumer.nack(*held)


def record(offset: int, size: int = 1) -> Record:
    return Record(None, b"x" * size, offset=Offset(offset))


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(1, 40), st.integers(1, 5))
def test_read_ahead_returns_records_in_order_without_gaps(offsets: set[int], most: int, size_kib: int) -> None:
    records = [record(offset, size_kib * KIB) for offset in sorted(offsets)]
    ahead = ReadAhead()
    ahead.keep(Offset(0), records, Offset(301))
    got: list[Record] = []
    at = Offset(0)
    while (found := ahead.take(at, most)) is not None:
        assert len(found.records) <= most
        assert found.end > at
        got += found.records
        at = found.end
    assert got == [each for each in records if each.offset < at]
    assert at == 301 or len(got) < len(records)


def test_read_ahead_is_bounded() -> None:
    ahead = ReadAhead()
    ahead.keep(Offset(0), [record(offset) for offset in range(1_000)], Offset(1_000))
    assert ahead.take(Offset(0), 1) is not None
    rest = ahead.take(Offset(1), 1_000)
    assert rest is not None
    assert (len(rest.records), rest.end) == (READ_AHEAD_RECORDS, READ_AHEAD_RECORDS + 1)


def test_read_ahead_returns_nothing_for_another_offset() -> None:
    ahead = ReadAhead()
    ahead.keep(Offset(5), [record(5)], Offset(6))
    assert ahead.take(Offset(4), 1) is None
    assert ahead.take(Offset(6), 1) is None
