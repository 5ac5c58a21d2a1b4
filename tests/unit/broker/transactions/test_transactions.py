"""The rules of transactions: all of their records are seen at once or none, and only what is announced can be ended."""

import asyncio

import msgspec
import pytest

from tailrace.broker import keys
from tailrace.model.errors import InvalidTransactionStateError, UnknownTopicError
from tailrace.model.transaction import ProducerIdentity
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, options, raw, running_broker, values_in
from tests.support.transactions import EITHER, Producer, bounds, committed_values, stable_offset, started


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
async def test_an_announced_partition_without_records_gets_no_marker() -> None:
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
async def test_a_batch_outside_of_a_transaction_is_refused() -> None:
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
            for outcome in await broker.append(batches):
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
        await broker.append([msgspec.structs.replace(batch, batch=bytes(batch.batch))])
        await producer.commit()
        (outcome,) = await broker.append([batch])
        assert (outcome.base_offset, outcome.duplicates) == (0, 1)  # type: ignore[union-attr]


@on_loop
async def test_one_request_may_begin_a_transaction_in_many_partitions() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 3)
        producer = await started(broker, newer=True)
        batches = [producer.batch(partition, b"x") for partition in (0, 1, 2, 0)]
        outcomes = await broker.append(batches, adds_partitions=True)
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
async def test_no_partition_is_added_if_one_is_not_there() -> None:
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
