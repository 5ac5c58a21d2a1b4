"""Offsets of consumer groups that are committed with a transaction."""

import asyncio

import pytest

from tailrace.broker.broker import Broker
from tailrace.model.errors import InvalidTransactionStateError, UnknownGroupError, UnknownPartitionError, UnstableOffsetsError
from tailrace.model.group import OffsetCommit
from tailrace.model.ids import Offset
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, append, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.transactions import EITHER, started

LONG_MS = 8 * 24 * 3600 * 1000


async def with_records(broker: Broker) -> None:
    await broker.topics.create("t", 2)
    await append(broker, raw("t", 0, *[b"x"] * 10))


def offset_of(broker: Broker, group: str = "g", partition: int = 0) -> int | None:
    committed = broker.offsets.committed(group, "t", partition)
    return None if committed is None else committed.offset


@EITHER
def test_offsets_are_committed_with_the_transaction_or_not_at_all(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        async with running_broker() as broker:
            await with_records(broker)
            producer = await started(broker, newer=newer)
            await producer.commit_offset("g", 0, 3)
            assert offset_of(broker) is None
            await producer.commit()
            assert offset_of(broker) == 3
            await producer.commit_offset("g", 0, 5)
            await producer.abort()
            assert offset_of(broker) == 3

    run()


@on_loop
async def test_the_last_offset_of_a_transaction_counts_and_may_be_lower_than_before() -> None:
    async with running_broker() as broker:
        await with_records(broker)
        producer = await started(broker)
        await producer.commit_offset("g", 0, 9)
        await producer.commit_offset("g", 0, 4)
        await producer.commit()
        assert offset_of(broker) == 4
        await producer.commit_offset("g", 0, 2)
        await producer.commit()
        assert offset_of(broker) == 2


@on_loop
async def test_pending_offsets_are_unstable_until_the_transaction_ends() -> None:
    store = MemoryStore()
    async with running_broker(store) as broker:
        await with_records(broker)
        producer = await started(broker)
        await producer.commit_offset("g", 0, 3)
        check = broker.transaction_queries.check_offset_stable
        with pytest.raises(UnstableOffsetsError, match="'g' for partition 0"):
            check("g", "t", 0)
        check("g", "t", 1)
        check("other", "t", 0)
    async with running_broker(store) as broker:
        check = broker.transaction_queries.check_offset_stable
        with pytest.raises(UnstableOffsetsError):
            check("g", "t", 0)
        producer.broker = broker
        await producer.commit()
        check("g", "t", 0)


@on_loop
async def test_a_group_that_was_not_added_is_rejected() -> None:
    async with running_broker() as broker:
        await with_records(broker)
        producer = await started(broker)
        await producer.add(0)
        with pytest.raises(InvalidTransactionStateError, match="group 'g' is not in an open transaction"):
            await broker.transactions.commit_offsets(
                "tx", producer.identity, "g", [OffsetCommit("t", 0, Offset(1))], lambda: None
            )


@on_loop
async def test_a_member_that_the_group_rejects_commits_nothing() -> None:
    async with running_broker() as broker:
        await with_records(broker)
        producer = await started(broker, newer=True)

        def refuse() -> None:
            raise UnknownGroupError("not a member")

        with pytest.raises(UnknownGroupError):
            await broker.transactions.commit_offsets(
                "tx", producer.identity, "g", [OffsetCommit("t", 0, Offset(1))], refuse, adds_group=True
            )
        assert broker.transaction_queries.describe("tx").state == "Empty"
        assert broker.transaction_services.open == 0


@on_loop
async def test_invalid_offsets_are_rejected_one_by_one() -> None:
    async with running_broker() as broker:
        await with_records(broker)
        producer = await started(broker, newer=True)
        outcomes = await broker.transactions.commit_offsets(
            "tx",
            producer.identity,
            "g",
            [OffsetCommit("t", 9, Offset(1)), OffsetCommit("t", 0, Offset(99), 7, "note"), OffsetCommit("t", 1, Offset(-2))],
            lambda: None,
            adds_group=True,
        )
        assert isinstance(outcomes[0], UnknownPartitionError)
        assert outcomes[1:] == [None, None]
        await producer.commit()
        committed = broker.offsets.committed("g", "t", 0)
        assert committed is not None
        assert (committed.offset, committed.leader_epoch, committed.metadata) == (99, 7, "note")
        assert [each.offset for each in broker.offsets.committed_by("g")] == [99, -2]


@on_loop
async def test_a_group_with_pending_offsets_does_not_expire() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await with_records(broker)
        await broker.offsets.commit("g", [OffsetCommit("t", 1, Offset(0))])
        producer = await started(broker)
        await producer.commit_offset("g", 0, 3)
        await producer.commit_offset("new", 0, 4)
        clock.advance(LONG_MS)
        assert await broker.group_removal.expire() == 0
        await producer.commit()
        assert (offset_of(broker), offset_of(broker, "new")) == (3, 4)
        clock.advance(LONG_MS)
        assert await broker.group_removal.expire() == 2


@on_loop
async def test_a_group_whose_transaction_is_aborted_expires() -> None:
    async with running_broker() as broker:
        await with_records(broker)
        producer = await started(broker)
        await producer.commit_offset("g", 0, 3)
        await producer.abort()
        assert await broker.group_removal.expire() == 1
        assert broker.offsets.groups == []


@EITHER
def test_deleting_a_group_deletes_its_pending_offsets(newer: bool) -> None:
    @on_loop
    async def run() -> None:
        store = MemoryStore()
        async with running_broker(store) as broker:
            await with_records(broker)
            producer = await started(broker, newer=newer)
            await producer.commit_offset("g", 0, 3)
            await producer.commit_offset("other", 0, 4)
            await broker.group_removal.delete("g")
            broker.transaction_queries.check_offset_stable("g", "t", 0)
            await producer.commit()
            assert (offset_of(broker), offset_of(broker, "other")) == (None, 4)
            assert broker.offsets.groups == ["other"]
        async with running_broker(store) as broker:
            assert broker.offsets.groups == ["other"]

    run()


@on_loop
async def test_offsets_committed_after_the_deletion_count_again() -> None:
    async with running_broker() as broker:
        await with_records(broker)
        producer = await started(broker)
        await producer.commit_offset("g", 0, 3)
        await broker.group_removal.delete("g")
        await producer.commit_offset("g", 0, 5)
        await producer.commit()
        assert offset_of(broker) == 5


@on_loop
async def test_a_pending_offset_in_flight_is_deleted_with_its_group() -> None:
    store = GatedStore()
    async with running_broker(store) as broker:
        await with_records(broker)
        await broker.offsets.commit("g", [OffsetCommit("t", 0, Offset(1))])
        producer = await started(broker)
        await broker.transactions.add_group(producer.name, producer.identity, "g")
        store.close_gate()
        coming = asyncio.ensure_future(
            broker.transactions.commit_offsets(
                producer.name, producer.identity, "g", [OffsetCommit("t", 0, Offset(7))], lambda: None
            )
        )
        await turns()
        assert broker.offsets.has_pending("g")
        deletion = asyncio.ensure_future(broker.group_removal.delete("g"))
        await turns()
        store.open_gate()
        assert await coming == [None]
        await deletion
        await producer.commit()
        assert offset_of(broker) is None
        assert not broker.offsets.has_pending("g")


@on_loop
async def test_deleted_offsets_are_deleted_in_open_transactions_too() -> None:
    async with running_broker() as broker:
        await with_records(broker)
        producer = await started(broker)
        await producer.commit_offset("g", 0, 3)
        await producer.commit_offset("g", 1, 0)
        await broker.offsets.delete_offsets("g", "t", [0])
        broker.transaction_queries.check_offset_stable("g", "t", 0)
        with pytest.raises(UnstableOffsetsError):
            broker.transaction_queries.check_offset_stable("g", "t", 1)
        await producer.commit()
        assert (offset_of(broker), offset_of(broker, partition=1)) == (None, 0)
