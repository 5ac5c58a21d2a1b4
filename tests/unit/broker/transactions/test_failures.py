"""Writes of a transaction that fail, or are still in flight: nothing is half changed and nothing is shown early."""

import asyncio

import pytest

from tailrace.model.errors import StorageFullError
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, raw, running_broker
from tests.support.transactions import EITHER, committed_values, fetched, stable_offset, started


@EITHER
def test_when_a_commit_fails_nothing_of_the_transaction_is_changed(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        store = GatedStore()
        async with running_broker(store) as broker:
            await broker.topics.create("t")
            producer = await started(broker, newer=newer)
            await producer.write(0, b"a")
            store.close_gate()
            ending = asyncio.create_task(producer.commit())
            await turns()
            store.fail()
            with pytest.raises(StorageFullError):
                await ending
            store.open_gate()
            assert await stable_offset(broker) == 0
            await producer.commit()
            assert await committed_values(broker) == [b"a"]

    run()


@EITHER
def test_a_first_batch_that_fails_holds_nothing_back(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        store = GatedStore()
        async with running_broker(store) as broker:
            await broker.topics.create("t")
            producer = await started(broker, newer=newer)
            if not newer:
                await producer.add(0)
            store.close_gate()
            sending = asyncio.create_task(producer.send(0, b"a"))
            await turns()
            store.fail()
            with pytest.raises(StorageFullError):
                await sending
            store.open_gate()
            await broker.append([raw("t", 0, b"plain")])
            assert await stable_offset(broker) == 1
            assert broker.collector()._sources.transactions.open == (0 if newer else 1)

    run()


@on_loop
async def test_a_request_waits_for_a_change_of_its_transaction_that_is_in_flight() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        await producer.write(0, b"a")
        store.close_gate()
        first = asyncio.create_task(producer.commit())
        await turns()
        second = asyncio.create_task(producer.commit())
        await turns()
        assert len(store.in_flight) == 1
        store.fail()
        await turns()
        store.open_gate()
        with pytest.raises(StorageFullError):
            await first
        await second
        assert await committed_values(broker) == [b"a"]


@on_loop
async def test_records_are_not_shown_between_their_sync_and_the_answer() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        await producer.add(0)
        store.close_gate()
        sending = asyncio.create_task(producer.send(0, b"a"))
        await turns()
        store.settle()
        answer = await fetched(broker)
        assert (list(answer.batches), answer.bounds.end, answer.last_stable_offset) == ([], 1, 0)
        store.open_gate()
        await sending
