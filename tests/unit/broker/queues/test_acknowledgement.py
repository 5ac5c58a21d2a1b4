"""A receipt counts once, and repeating its outcome gets the same answer."""

import asyncio

import pytest

from tailrace.broker.queues.acknowledgement import ReceiptOutcome, ReceiptOutcomes
from tailrace.model.errors import LateReceiptError, StorageFullError
from tailrace.model.limits import Limits
from tailrace.model.queue import RejectedReceipt
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish, values


@on_loop
async def test_a_repeated_ack_gets_the_same_answer() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs", 2)
        await publish(broker, "jobs", b"a", b"b")
        consumer = QueueConsumer(broker)
        held = await consumer.receive(2)
        for _ in range(3):
            assert await consumer.ack(*held) == (2, [])
        assert (broker.queues.acknowledged, broker.queues.refused) == (2, 0)


@on_loop
async def test_an_ack_repeated_during_its_write_waits_for_that_write() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        await turns()
        store.close_gate()
        both = [asyncio.create_task(consumer.ack(held)) for _ in range(2)]
        await turns()
        assert not any(ack.done() for ack in both)
        store.fail()
        for ack in both:
            with pytest.raises(StorageFullError):
                await ack
        store.open_gate()
        assert (await consumer.ack(held)).accepted == 1
        assert broker.queues.acknowledged == 1


@on_loop
async def test_a_repeated_nack_releases_nothing_a_second_time() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker)
        (held,) = await consumer.receive()
        assert (await consumer.nack(held)).accepted == 1
        (again,) = await consumer.receive()
        assert (await consumer.nack(held)).accepted == 1
        assert await consumer.receive() == []
        assert (await consumer.ack(again)).accepted == 1


@on_loop
async def test_a_nack_that_made_a_dead_letter_can_be_repeated() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker, max_deliveries=1)
        (held,) = await consumer.receive()
        settled = await asyncio.gather(consumer.nack(held), consumer.nack(held))
        assert [each.accepted for each in settled] == [1, 1]
        assert broker.queues.dead_letters.letters == 1


@on_loop
async def test_a_receipt_used_for_one_outcome_is_rejected_for_another() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b")
        consumer = QueueConsumer(broker)
        done, back = await consumer.receive(2)
        await consumer.ack(done)
        await consumer.nack(back)
        for refused in (consumer.nack(done), consumer.extend(done), consumer.ack(back), consumer.extend(back)):
            with pytest.raises(LateReceiptError):
                await refused
        assert values(await consumer.receive(5)) == [b"b"]


@on_loop
async def test_outcomes_of_receipts_are_not_known_after_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        (held,) = await QueueConsumer(broker).receive()
        await QueueConsumer(broker).ack(held)
    async with running_broker(store, clock) as broker:
        with pytest.raises(LateReceiptError, match="done already") as told:
            await QueueConsumer(broker).ack(held)
        assert told.value.refused == [RejectedReceipt(held.receipt, str(told.value), is_done=True)]


@on_loop
async def test_the_number_of_remembered_outcomes_is_bounded() -> None:
    async with running_broker(limits=Limits(queue_receipts=2)) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a", b"b", b"c")
        consumer = QueueConsumer(broker)
        held = await consumer.receive(3)
        assert (await consumer.ack(*held)).accepted == 3
        settled = await consumer.ack(*held)
        assert [refusal.receipt for refusal in settled.refused] == [held[0].receipt]


@on_loop
async def test_an_unseen_record_is_released_without_counting_the_delivery() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"a")
        consumer = QueueConsumer(broker, max_deliveries=1)
        for _ in range(3):
            (held,) = await consumer.receive()
            assert held.deliveries == 1
            assert (await broker.queues.release("workers", [held.receipt], unseen=True)).accepted == 1
    async with running_broker(store, clock) as broker:
        (held,) = await QueueConsumer(broker).receive()
        assert held.deliveries == 1


def test_a_token_that_was_never_given_out_has_no_outcome() -> None:
    outcomes = ReceiptOutcomes(100, 4)
    tokens = [outcomes.new_token() for _ in range(3)]
    for token in (99, 103, *tokens):
        outcomes[token] = ReceiptOutcome.ACKNOWLEDGED
    assert [outcomes[token] for token in (99, *tokens, 103)] == [
        ReceiptOutcome.OPEN,
        *[ReceiptOutcome.ACKNOWLEDGED] * 3,
        ReceiptOutcome.OPEN,
    ]
    assert outcomes[outcomes.new_token()] is ReceiptOutcome.OPEN
