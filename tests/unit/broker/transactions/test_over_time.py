"""Transactions that last: over their time-out, over a restart, and ids that fall silent."""

import pytest

from tailrace.model.errors import ProducerFencedError, ProducerMappingError, TransactionFencedError
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.brokers import running_broker
from tests.support.clocks import ManualClock
from tests.support.transactions import EITHER, TIMEOUT_MS, committed_values, stable_offset, started


@EITHER
def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        clock = ManualClock()
        async with running_broker(clock=clock) as broker:
            await broker.topics.create("t")
            producer = await started(broker, newer=newer, timeout_ms=1000)
            await producer.write(0, b"a")
            clock.advance(999)
            assert await broker.transactions.abort_overdue() == 0
            clock.advance(1)
            assert await broker.transactions.abort_overdue() == 1
            assert await broker.transactions.abort_overdue() == 0
            assert await stable_offset(broker) == 2
            assert await committed_values(broker) == []
            assert broker.transactions.timed_out == 1
            with pytest.raises(TransactionFencedError):
                await producer.commit()
            with pytest.raises(ProducerFencedError):
                await producer.send(0, b"late")

    run()


@on_loop
async def test_a_transaction_that_ends_in_time_is_not_aborted_later() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t")
        producer = await started(broker, timeout_ms=1000)
        await producer.write(0, b"a")
        await producer.commit()
        clock.advance(900)
        await producer.write(0, b"b")
        clock.advance(900)
        assert await broker.transactions.abort_overdue() == 0


@EITHER
def test_an_open_transaction_survives_a_restart(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        store, clock = MemoryStore(), ManualClock()
        async with running_broker(store, clock) as broker:
            await broker.topics.create("t")
            producer = await started(broker, newer=newer)
            await producer.write(0, b"a")
            await producer.commit_offset("g", 0, 1)
        async with running_broker(store, clock) as broker:
            assert await stable_offset(broker) == 0
            assert broker.collector()._sources.transactions.open == 1
            producer.broker = broker
            await producer.write(0, b"b")
            assert await committed_values(broker) == []
            await producer.commit()
            assert await committed_values(broker) == [b"a", b"b"]
            committed = broker.offsets.committed("g", "t", 0)
            assert committed is not None
            assert committed.offset == 1
        async with running_broker(store, clock) as broker:
            assert await committed_values(broker) == [b"a", b"b"]
            assert await stable_offset(broker) == 3

    run()


@on_loop
async def test_a_transaction_left_open_over_a_restart_times_out() -> None:
    store, clock = MemoryStore(), ManualClock()
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t")
        await (await started(broker)).write(0, b"a")
    clock.advance(TIMEOUT_MS)
    async with running_broker(store, clock) as broker:
        assert await broker.transactions.abort_overdue() == 1
        assert await stable_offset(broker) == 2


@on_loop
async def test_silent_ids_are_forgotten_and_open_ones_are_not() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t")
        silent, busy = await started(broker, "silent"), await started(broker, "busy")
        await busy.add(0)
        clock.advance(7 * 24 * 3600 * 1000 + 1)
        assert await broker._transactions.silent_ids.forget() == 1
        assert [listing.transactional_id for listing in broker.transaction_queries.find()] == ["busy"]
        with pytest.raises(ProducerMappingError):
            await silent.add(0)
