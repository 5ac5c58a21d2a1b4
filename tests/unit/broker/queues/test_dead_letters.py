"""Records that were delivered too often become dead letters and are never lost on the way."""

import asyncio
from typing import Any

import pytest

from tailrace.broker.reading.committed_reader import CommittedReader
from tailrace.model.errors import UnknownTopicError
from tailrace.model.fetch import PartitionRecords
from tailrace.model.ids import Offset
from tailrace.model.queue import ORIGIN_TOPIC_HEADER
from tailrace.model.record import Message
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore, running_broker, values_in
from tests.support.clocks import ManualClock
from tests.support.queues import QueueConsumer, publish, values

VISIBILITY_MS = 30_000


@on_loop
async def test_after_max_deliveries_a_record_becomes_a_dead_letter_with_its_origin() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs", 2)
        await broker.publisher.publish([Message("jobs", b"poison", b"k", [("kept", b"yes")], partition=1, message_id="m-1")])
        consumer = QueueConsumer(broker, max_deliveries=2)
        for expected in (1, 2):
            (delivery,) = await consumer.receive()
            assert delivery.deliveries == expected
            await consumer.nack(delivery, reason="can't be parsed")
        assert await consumer.receive() == []
        (letter,) = (await broker.committed_reader.read("jobs.dead_letters", 0, Offset(0), max_records=10)).records
        assert (letter.key, letter.value) == (b"k", b"poison")
        assert dict(letter.headers) == {
            "kept": b"yes",
            "message_id": b"m-1",
            "dead_letter_cause": b"can't be parsed",
            "dead_letter_group": b"workers",
            "dead_letter_deliveries": b"2",
            "origin_topic": b"jobs",
            "origin_partition": b"1",
            "origin_offset": b"0",
            "origin_message_id": b"m-1",
        }


@on_loop
async def test_a_record_that_times_out_too_often_becomes_a_dead_letter() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"poison", b"good")
        consumer = QueueConsumer(broker, max_deliveries=1)
        await consumer.receive()
        clock.advance(VISIBILITY_MS)
        broker.queues.expire_due()
        await until(lambda: broker.queues.dead_letters.letters == 1)
        assert values(await consumer.receive(5)) == [b"good"]


@on_loop
async def test_wildcards_do_not_match_dead_letter_topics_and_names_do() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs.mail")
        await publish(broker, "jobs.mail", b"poison")
        consumer = QueueConsumer(broker, pattern="jobs.>", max_deliveries=1)
        await consumer.nack(*await consumer.receive())
        assert await consumer.receive() == []
        assert values(await QueueConsumer(broker, pattern="jobs.*.dead_letters").receive()) == [b"poison"]


@on_loop
async def test_a_record_that_crashes_the_server_each_time_becomes_a_dead_letter() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    for start in range(3):
        async with running_broker(store, clock) as broker:
            if start == 0:
                await broker.topics.create("jobs")
                await publish(broker, "jobs", b"poison")
            assert values(await QueueConsumer(broker, max_deliveries=3).receive()) == [b"poison"]
    async with running_broker(store, clock) as broker:
        broker.queues.expire_due()
        await until(lambda: broker.queues.dead_letters.letters == 1)
        assert await QueueConsumer(broker).receive() == []


@on_loop
async def test_a_dead_letter_that_can_not_be_stored_is_tried_again_and_not_delivered() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("jobs")
        await broker.topics.create("jobs.dead_letters")
        await publish(broker, "jobs", b"poison")
        consumer = QueueConsumer(broker, max_deliveries=1)
        (held,) = await consumer.receive()
        await turns()
        store.close_gate()
        nack = asyncio.create_task(consumer.nack(held))
        await until(lambda: bool(store.in_flight))
        store.fail()
        await nack
        store.open_gate()
        assert await consumer.receive() == []
        clock.advance(10_000)
        broker.queues.expire_due()
        await until(lambda: broker.queues.dead_letters.letters == 1)


@on_loop
async def test_a_lower_max_deliveries_applies_to_released_records_at_once() -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await publish(broker, "jobs", b"poison")
        consumer = QueueConsumer(broker)
        for _ in range(3):
            await consumer.nack(*await consumer.receive())
        assert await consumer.receive(max_deliveries=3) == []
        await until(lambda: broker.queues.dead_letters.letters == 1)


@on_loop
async def test_dead_letters_are_not_put_back_into_a_recreated_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker() as broker:
        await broker.topics.create("jobs")
        await broker.topics.create("jobs.dead_letters")
        headers = ((ORIGIN_TOPIC_HEADER, b"jobs"),)
        await broker.publisher.publish([Message("jobs.dead_letters", b"letter", headers=headers)])
        committed = broker.redrives._committed

        class RecreatingReader(CommittedReader):
            """Delete the topic and create it again while a dead letter is read."""

            def __init__(self) -> None:
                self.answers = committed.answers

            async def read(self, *place: Any, **terms: Any) -> PartitionRecords:
                await broker.topics.delete("jobs")
                await broker.topics.create("jobs")
                return await committed.read(*place, **terms)

        monkeypatch.setattr(broker.redrives, "_committed", RecreatingReader())
        with pytest.raises(UnknownTopicError, match="'jobs' was deleted while dead letters were put back"):
            await broker.redrives.redrive("jobs", [(0, 0)])
        assert await values_in(broker, "jobs", 0) == []
        monkeypatch.undo()
        assert (await broker.redrives.redrive("jobs", [(0, 0)])).put_back == 1
