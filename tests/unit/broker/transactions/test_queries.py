"""Queries about transactions, and the limits of transactions."""

import itertools

import pytest

from tailrace.model.errors import (
    InvalidTransactionalIdError,
    InvalidTransactionTimeoutError,
    LimitExceededError,
    UnknownTransactionalIdError,
)
from tailrace.model.limits import Limits
from tailrace.model.transaction import TransactionListing, TransactionState
from tests.support.aio import on_loop
from tests.support.brokers import raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.transactions import EITHER, TIMEOUT_MS, started


@on_loop
async def test_names_and_times_have_bounds() -> None:
    async with running_broker() as broker:
        init = broker.transactions.init_producer
        for name in ("", "x" * 256, "\ud800"):
            with pytest.raises(InvalidTransactionalIdError):
                await init(name, 1000)
        for timeout_ms in (0, -1, 900_001):
            with pytest.raises(InvalidTransactionTimeoutError, match="transaction_timeout_ms"):
                await init("tx", timeout_ms)


@EITHER
def test_ids_open_transactions_and_their_partitions_have_bounds(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        limits = Limits(transactional_ids=3, open_transactions=1, transaction_partitions=2)
        async with running_broker(limits=limits) as broker:
            await broker.topics.create("t", 3)
            first, second, _ = [await started(broker, name, newer=newer) for name in "abc"]
            with pytest.raises(LimitExceededError, match="transactional_ids"):
                await started(broker, "d")
            await first.write(0, b"x")
            with pytest.raises(LimitExceededError, match="open_transactions"):
                await second.write(0, b"x")
            await first.write(1, b"x")
            with pytest.raises(LimitExceededError, match="transaction_partitions"):
                await first.write(2, b"x")
            await first.commit()
            second.identity = await broker.transactions.init_producer("b", TIMEOUT_MS)
            second._sequences.clear()
            await second.write(0, b"y")

    run()


@on_loop
async def test_transactions_can_be_listed_and_described() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", 2)
        idle, busy = await started(broker, "idle"), await started(broker, "busy", timeout_ms=5000)
        began_ms = clock.now_ms()
        await busy.write(1, b"x")
        clock.advance(2000)
        find = broker.transaction_queries.find
        assert find() == [
            TransactionListing("busy", busy.identity.producer_id, TransactionState.ONGOING),
            TransactionListing("idle", idle.identity.producer_id, TransactionState.EMPTY),
        ]
        assert [found.transactional_id for found in find(states=["Empty"])] == ["idle"]
        assert [found.transactional_id for found in find(producer_ids=[busy.identity.producer_id])] == ["busy"]
        assert [found.transactional_id for found in find(lasting_ms=1999)] == ["busy"]
        assert find(lasting_ms=2000) == []
        description = broker.transaction_queries.describe("busy")
        assert description == ("busy", busy.identity, "Ongoing", 5000, began_ms, [("t", 1)])
        with pytest.raises(UnknownTransactionalIdError, match="'nobody'"):
            broker.transaction_queries.describe("nobody")


@on_loop
async def test_the_producers_of_a_partition_can_be_described() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        plain = await broker.producers.allocate()
        await broker.appender.append([raw("t", 0, b"a", b"b", producer_id=plain, producer_epoch=0, base_sequence=0)])
        producer = await started(broker)
        await producer.write(0, b"c")
        first, second = broker.transaction_queries.producers("t", 0)
        assert (first.producer, first.last_sequence, first.transaction_start) == ((plain, 0), 1, -1)
        assert (second.producer, second.last_sequence, second.transaction_start) == (producer.identity, 0, 2)
        await producer.commit()
        assert [found.transaction_start for found in broker.transaction_queries.producers("t", 0)] == [-1, -1]


@on_loop
async def test_transactions_are_counted() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        for committed in itertools.islice(itertools.cycle([True, True, False]), 6):
            await producer.write(0, b"a")
            await producer.end(committed=committed)
        counted = broker.transaction_services
        assert (counted.ids, counted.open, counted.committed, counted.aborted, counted.timed_out) == (1, 0, 4, 2, 0)
