"""Only the newest producer of a transactional id, in its newest epoch, may act for it."""

import asyncio

import pytest

from tailrace.model.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    ProducerMappingError,
    TransactionFencedError,
)
from tailrace.model.ids import ProducerId
from tailrace.model.transaction import ProducerIdentity
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, running_broker
from tests.support.transactions import EITHER, TIMEOUT_MS, Producer, committed_values, started


@EITHER
def test_a_new_producer_fences_the_old_one_and_aborts_what_it_left_in_one_commit(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        store = GatedStore()
        async with running_broker(store) as broker:
            await broker.topics.create("t")
            old = await started(broker, newer=newer)
            await old.write(0, b"left")
            store.close_gate()
            starting = asyncio.create_task(started(broker, newer=newer))
            await turns()
            (commit,) = store.in_flight
            assert len(commit.changes.appends) == 1
            store.open_gate()
            new = await starting
            assert new.identity == (old.identity.producer_id, old.identity.epoch + 1)
            with pytest.raises(ProducerFencedError):
                await old.send(0, b"late")
            with pytest.raises(TransactionFencedError):
                await old.add(0)
            with pytest.raises(TransactionFencedError):
                await old.commit()
            await new.write(0, b"new")
            await new.commit()
            assert await committed_values(broker) == [b"new"]

    run()


@on_loop
async def test_a_producer_that_asks_for_its_next_epoch_again_gets_the_same() -> None:
    async with running_broker() as broker:
        first = (await started(broker)).identity
        second = await broker.transactions.init_producer("tx", TIMEOUT_MS, first)
        assert second == (first.producer_id, 1)
        assert await broker.transactions.init_producer("tx", TIMEOUT_MS, first) == second
        third = await broker.transactions.init_producer("tx", TIMEOUT_MS, second)
        assert third.epoch == 2
        with pytest.raises(TransactionFencedError, match="epoch 0 has been fenced"):
            await broker.transactions.init_producer("tx", TIMEOUT_MS, first)


@on_loop
async def test_newer_clients_get_an_epoch_for_each_transaction() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer = await started(broker, newer=True)
        before = producer.identity
        await producer.write(0, b"a")
        await producer.commit()
        assert producer.identity == (before.producer_id, before.epoch + 1)
        again = await broker.transactions.end("tx", before, committed=True, bumps_epoch=True)
        assert again == producer.identity
        with pytest.raises(InvalidTransactionStateError):
            await broker.transactions.end("tx", before, committed=False, bumps_epoch=True)
        with pytest.raises(InvalidTransactionStateError):
            await producer.commit()
        late = Producer(broker, "tx", before, newer=True)
        late.batch(0, b"a")
        with pytest.raises(ProducerFencedError):
            await late.send(0, b"late")
        await producer.abort()
        assert producer.identity.epoch == before.epoch + 2
        await producer.write(0, b"b")
        with pytest.raises(TransactionFencedError):
            await broker.transactions.end("tx", before, committed=True, bumps_epoch=True)


@EITHER
def test_when_the_epochs_are_used_up_a_new_producer_id_follows(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("t")
            producer = await started(broker, newer=newer)
            identity = producer.identity
            for _ in range((1 << 15) - 2):
                identity = await broker.transactions.init_producer("tx", TIMEOUT_MS)
            assert identity == (producer.identity.producer_id, (1 << 15) - 2)
            producer.identity = identity
            await producer.write(0, b"a")
            if newer:
                await producer.commit()
                retried = await broker.transactions.end("tx", identity, committed=True, bumps_epoch=True)
                assert retried == producer.identity
            else:
                producer = await started(broker)
            assert producer.identity == (identity.producer_id + 1, 0)
            await producer.write(0, b"b")
            await producer.commit()
            assert await committed_values(broker) == ([b"a", b"b"] if newer else [b"b"])

    run()


@on_loop
async def test_only_the_producer_of_an_id_may_act_for_it() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        for name, identity in (("tx", ProducerIdentity(ProducerId(99), 0)), ("other", producer.identity)):
            with pytest.raises(ProducerMappingError):
                await Producer(broker, name, identity).add(0)
            with pytest.raises(ProducerMappingError):
                await Producer(broker, name, identity).commit()
        with pytest.raises(TransactionFencedError):
            await Producer(broker, "tx", producer.identity._replace(epoch=1)).add(0)
