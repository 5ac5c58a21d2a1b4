"""The transaction coordinator: ends, failures, timeouts, restarts and the expiry of idle ids."""

import asyncio

import msgspec
import pytest

from tailrace.broker import keys
from tailrace.model.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    ProducerMappingError,
    StorageFullError,
    TransactionFencedError,
    UnknownTopicError,
)
from tailrace.model.transaction import ProducerIdentity
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, options, raw, running_broker, values_in
from tests.support.clocks import ManualClock
from tests.support.transactions import EITHER, TIMEOUT_MS, Producer, bounds, committed_values, fetched, stable_offset, started


@EITHER
def test_committed_records_are_seen_and_aborted_ones_are_not(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await broker.topics.create("t", 2)
            producer = await started(broker, newer=newer)
            await producer.write(0, b"a")
            await producer.write(1, b"b")
            assert await committed_values(broker, 0) == []
            await producer.commit()
            assert (await committed_values(broker, 0), await committed_values(broker, 1)) == ([b"a"], [b"b"])
            await producer.write(0, b"c")
            await producer.abort()
            await producer.write(0, b"d")
            await producer.commit()
            assert await committed_values(broker, 0) == [b"a", b"d"]
            assert await values_in(broker, "t") == [b"a", b"d"]

    run()


@on_loop
async def test_the_end_of_a_transaction_is_one_commit() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t", 3)
        producer = await started(broker)
        for partition in range(3):
            await producer.write(partition, b"x")
        await producer.commit_offset("g", 0, 1)
        store.close_gate()
        ending = asyncio.create_task(producer.commit())
        await turns()
        (commit,) = store.in_flight
        put = {key for key, _ in commit.changes.puts}
        assert len(commit.changes.appends) == 3
        assert keys.transaction_key("tx") in put
        assert keys.offset_key(broker.topics.get("t").partition(0), "g") in put
        store.open_gate()
        await ending


@on_loop
async def test_an_added_partition_without_records_gets_no_marker() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        producer = await started(broker)
        await producer.add(0, 1)
        await producer.send(0, b"x")
        await producer.commit()
        assert (bounds(broker, 0), bounds(broker, 1)) == ((0, 2), (0, 0))


@on_loop
async def test_the_first_offset_is_stored_with_the_first_batch_and_only_then() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        await producer.add(0)
        store.close_gate()
        first = asyncio.create_task(producer.send(0, b"a"))
        await turns()
        second = asyncio.create_task(producer.send(0, b"b"))
        await turns()
        key = keys.open_transaction_key(broker.topics.get("t").partition(0), producer.identity.producer_id)
        assert [key in dict(commit.changes.puts) for commit in store.in_flight] == [True, False]
        store.open_gate()
        assert (await first, await second) == (0, 1)


@on_loop
async def test_a_batch_outside_of_a_transaction_is_rejected() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        producer = await started(broker)
        with pytest.raises(InvalidTransactionStateError, match="is not in an open transaction of 'tx'"):
            await producer.send(0, b"a")
        await producer.add(0)
        with pytest.raises(InvalidTransactionStateError, match="partition 1"):
            await producer.send(1, b"a")
        plain = await broker.producers.allocate()
        stranger = Producer(broker, "no", ProducerIdentity(plain, 0))
        with pytest.raises(InvalidTransactionStateError, match="belongs to no transactional id"):
            await stranger.send(0, b"a")
        assert bounds(broker) == (0, 0)


@on_loop
async def test_a_transactional_producer_writes_in_transactions_only() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer_id, epoch = (await started(broker)).identity
        batch = raw("t", 0, b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        for batches in ([batch], [batch, batch]):
            for outcome in await broker.appender.append(batches):
                assert isinstance(outcome, InvalidTransactionStateError)


@on_loop
async def test_an_ended_transaction_can_be_ended_again_the_same_way_only() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        with pytest.raises(InvalidTransactionStateError, match=r"can't commit.*Empty"):
            await producer.commit()
        await producer.write(0, b"a")
        await producer.commit()
        await producer.commit()
        with pytest.raises(InvalidTransactionStateError, match=r"can't abort.*CompleteCommit"):
            await producer.abort()
        await producer.write(0, b"a")
        await producer.abort()
        await producer.abort()
        with pytest.raises(InvalidTransactionStateError, match=r"can't commit.*CompleteAbort"):
            await producer.commit()


@on_loop
async def test_a_batch_sent_again_after_its_transaction_has_ended_is_a_duplicate() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t")
        producer = await started(broker)
        await producer.add(0)
        batch = producer.batch(0, b"a")
        await broker.appender.append([msgspec.structs.replace(batch, batch=bytes(batch.batch))])
        await producer.commit()
        (outcome,) = await broker.appender.append([batch])
        assert (outcome.base_offset, outcome.duplicates) == (0, 1)  # type: ignore[union-attr]


@on_loop
async def test_one_request_may_begin_a_transaction_in_many_partitions() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 3)
        producer = await started(broker, newer=True)
        batches = [producer.batch(partition, b"x") for partition in (0, 1, 2, 0)]
        outcomes = await broker.appender.append(batches, adds_partitions=True)
        assert [outcome.base_offset for outcome in outcomes] == [0, 0, 0, 1]  # type: ignore[union-attr]
        assert set(broker.transaction_queries.describe("tx").partitions) == {("t", 0), ("t", 1), ("t", 2)}
        await producer.commit()
        assert await committed_values(broker, 0) == [b"x", b"x"]


@on_loop
async def test_a_topic_deleted_under_a_transaction_does_not_keep_it_from_ending() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 1)
        await broker.topics.create("other", 1)
        producer = await started(broker)
        await producer.write(0, b"a")
        await producer.commit_offset("g", 0, 0)
        await broker.transactions.add_partitions("tx", producer.identity, [("other", 0)])
        await broker.topics.delete("t")
        await broker.topics.create("t", 1)
        await producer.commit()
        assert bounds(broker) == (0, 0)
        assert await stable_offset(broker) == 0
        assert broker.offsets.committed("g", "t", 0) is None


@on_loop
async def test_no_partition_is_added_if_one_does_not_exist() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 1)
        producer = await started(broker)
        with pytest.raises(UnknownTopicError):
            await producer.add(0, 1)
        assert broker.transaction_queries.describe("tx").partitions == []


@on_loop
async def test_a_transaction_may_write_what_a_topic_with_dedup_has_seen_aborted() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", options=options(dedup="content"))
        producer = await started(broker)
        await producer.write(0, b"a")
        await producer.abort()
        await producer.write(0, b"a")
        await producer.commit()
        assert await committed_values(broker) == [b"a"]


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
            await broker.appender.append([raw("t", 0, b"plain")])
            assert await stable_offset(broker) == 1
            assert broker.transaction_services.open == (0 if newer else 1)

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
async def test_records_are_not_shown_between_their_sync_and_the_response() -> None:
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
            assert broker.transaction_services.open == 1
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
async def test_idle_ids_expire_and_those_with_open_transactions_do_not() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t")
        silent, busy = await started(broker, "silent"), await started(broker, "busy")
        await busy.add(0)
        clock.advance(7 * 24 * 3600 * 1000 + 1)
        assert await broker.transaction_services.id_expiry.run() == 1
        assert [listing.transactional_id for listing in broker.transaction_queries.find()] == ["busy"]
        with pytest.raises(ProducerMappingError):
            await silent.add(0)
