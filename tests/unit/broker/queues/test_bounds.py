"""Everything in a queue that could grow has a bound, and what is over it is refused by the bound's name."""

import asyncio

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.errors import InvalidRequestError, LimitExceededError, OverloadedError
from tailrace.model.limits import Limits
from tailrace.model.record import Message
from tests.support.aio import on_loop, until
from tests.support.brokers import running_broker
from tests.support.queues import QueueConsumer, publish, values


@on_loop
async def test_as_many_records_are_out_as_the_limit_allows() -> None:
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
def test_as_many_records_are_out_over_all_partitions_as_the_limit_allows(limits: Limits) -> None:
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
            # Room in one partition is room in the other.
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
def test_what_is_over_a_bound_is_refused_by_its_name(asked: dict[str, int], limit: str) -> None:
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
def test_what_is_no_receipt_is_refused(receipt: str) -> None:
    async def ack(broker: Broker) -> None:
        await broker.topics.create("jobs")
        await QueueConsumer(broker).receive()
        with pytest.raises(InvalidRequestError, match="no receipt"):
            await broker.queues.acknowledge("workers", [receipt])

    async def run() -> None:
        async with running_broker() as broker:
            await ack(broker)

    asyncio.run(run())


@on_loop
async def test_one_answer_holds_only_so_many_bytes_and_the_rest_follows() -> None:
    async with running_broker(limits=Limits(answer_bytes=250_000)) as broker:
        await broker.topics.create("jobs", 5)
        for number in range(10):
            await broker.publish([Message("jobs", b"x" * 100_000, partition=number % 5)])
        consumer = QueueConsumer(broker)
        for _ in ("fresh", "given back"):
            held = []
            while got := await consumer.receive(10):
                assert sum(len(each.record.value or b"") for each in got) <= 2 * 250_000
                held += got
            assert len({(each.partition, each.record.offset) for each in held}) == 10
            await consumer.nack(*held)
