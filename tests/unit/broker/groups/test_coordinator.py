"""The group coordinator: futures, saves in the store, timers and offsets."""

import asyncio

import pytest

from tailrace.model.errors import (
    FencedInstanceError,
    IllegalGenerationError,
    InvalidGroupNameError,
    InvalidSessionTimeoutError,
    LimitExceededError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    StorageFullError,
    StoreClosedError,
    UnknownMemberError,
    UnknownTopicError,
)
from tailrace.model.group import GroupListing, MemberIdentity
from tailrace.model.limits import Limits
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, append, raw, running_broker
from tests.support.clocks import ManualClock
from tests.support.groups import DELAY_MS, SESSION_MS, identity, joining, stable, subscription, syncing
from tests.support.offsets import up_to


@on_loop
async def test_members_get_their_assignments() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        members = await stable(broker, clock, None, None)
        described = broker.groups.describe("g")
        assert described.state == "Stable"
        assert {member.assignment for member in described.members} == {member.member_id.encode() for member in members}
        assert members[0].member_id.startswith("client-")


@on_loop
async def test_the_event_loop_drives_the_first_rebalance() -> None:
    class LoopClock(ManualClock):
        def monotonic(self) -> float:
            return asyncio.get_running_loop().time()

    async with running_broker(clock=LoopClock()) as broker:
        assert (await broker.groups.join(joining())).generation == 1


@on_loop
async def test_a_group_continues_after_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", 1)
        await append(broker, raw("t", 0, b"1"))
        first, second = await stable(broker, clock, None, "b")
    async with running_broker(store, clock) as broker:
        broker.groups.heartbeat("g", identity(first))
        assert await broker.groups.commit("g", identity(second, "b"), [up_to("t", 0, 1)]) == [None]
        assert broker.groups.describe("g").generation == 1
        clock.advance(SESSION_MS)
        broker.groups.run_due()
        with pytest.raises(UnknownMemberError):
            broker.groups.heartbeat("g", identity(first))
        assert broker.groups.describe("g").state == "Empty"


@on_loop
async def test_a_new_instance_of_a_static_member_is_known_after_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        (before,) = await stable(broker, clock, "a")
        after = await broker.groups.join(joining(instance="a"))
    async with running_broker(store, clock) as broker:
        broker.groups.heartbeat("g", identity(after, "a"))
        with pytest.raises(FencedInstanceError):
            broker.groups.heartbeat("g", identity(before, "a"))


@on_loop
async def test_assignments_that_can_not_be_stored_are_not_sent() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        joining_now = asyncio.ensure_future(broker.groups.join(joining()))
        await turns()
        clock.advance(DELAY_MS)
        broker.groups.run_due()
        joined = await joining_now
        store.close_gate()
        sync = asyncio.ensure_future(broker.groups.sync(syncing(joined)))
        await turns()
        assert not sync.done()
        store.fail()
        with pytest.raises(StorageFullError):
            await sync
        assert broker.groups.describe("g").state == "PreparingRebalance"


@on_loop
async def test_a_commit_that_waited_for_room_is_rejected_if_its_member_was_fenced_meanwhile() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", 1)
        await append(broker, raw("t", 0, b"1", b"2"))
        (member,) = await stable(broker, clock, None)
        store.close_gate()
        store.room = 0
        commit = asyncio.ensure_future(broker.groups.commit("g", identity(member), [up_to("t", 0, 2)]))
        await turns()
        assert not commit.done()
        broker.groups.leave("g", [(member.member_id, None)])
        store.open_gate()
        with pytest.raises(UnknownMemberError):
            await commit
        assert broker.offsets.committed("g", "t", 0) is None


@on_loop
async def test_members_may_move_offsets_back_and_other_clients_may_not_commit() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", 1)
        await append(broker, raw("t", 0, b"1", b"2"))
        (member,) = await stable(broker, clock, None)
        for offset in (2, 1):
            await broker.groups.commit("g", identity(member), [up_to("t", 0, offset, 7, "note")])
        committed = broker.offsets.committed("g", "t", 0)
        assert committed is not None
        assert (committed.offset, committed.leader_epoch, committed.metadata) == (1, 7, "note")
        with pytest.raises(UnknownMemberError):
            await broker.groups.commit("g", MemberIdentity(), [up_to("t", 0, 2)])
        with pytest.raises(IllegalGenerationError):
            await broker.groups.commit("g", MemberIdentity(member.member_id, 0), [up_to("t", 0, 2)])
        with pytest.raises(IllegalGenerationError):
            await broker.groups.commit("unknown", identity(member), [up_to("t", 0, 2)])


@on_loop
async def test_any_offset_can_be_committed_by_kafkas_clients_and_is_read_back_as_it_is() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 2)
        await append(broker, raw("t", 0, b"1", b"2"))
        nobody = MemberIdentity()
        await broker.groups.commit("g", nobody, [up_to("t", 0, 2), up_to("t", 1, 0)])
        for offset in (3, 1_000, 1, -1, -2, 1 << 62, -(1 << 62), 0):
            assert await broker.groups.commit("g", nobody, [up_to("t", 0, offset, 4, "note")]) == [None]
            committed = broker.offsets.committed("g", "t", 0)
            assert committed is not None
            assert (committed.offset, committed.leader_epoch, committed.metadata) == (offset, 4, "note")
            assert [each.offset for each in broker.offsets.committed_by("g")] == [offset, 0]
            assert [each.lag for each in broker.offsets.lag("g")] == [max(0, 2 - max(0, offset)), 0]
        with pytest.raises(OffsetOutOfRangeError):
            await broker.offsets.commit("g", [up_to("t", 0, -2)], reset=True)


@on_loop
async def test_each_offset_of_a_commit_is_accepted_or_rejected_by_itself() -> None:
    async with running_broker() as broker:
        await broker.topics.create("t", 1)
        commits = [up_to("t", 0, 0), up_to("gone", 0, 0), up_to("t", 0, 0, -1, "x" * 4097)]
        outcomes = await broker.groups.commit("g", MemberIdentity(), commits)
        assert [type(outcome) for outcome in outcomes] == [type(None), UnknownTopicError, OffsetMetadataTooLargeError]
        assert len(broker.offsets.committed_by("g")) == 1
        assert broker.groups.all() == [GroupListing("g", "Empty", "")]


@on_loop
async def test_groups_are_counted_whether_they_join_or_commit() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock, limits=Limits(groups=2)) as broker:
        await broker.topics.create("t", 1)
        await stable(broker, clock, None, group="a")
        await broker.groups.commit("b", MemberIdentity(), [up_to("t", 0, 0)])
        with pytest.raises(LimitExceededError, match="groups"):
            await broker.groups.join(joining(group="c"))
        with pytest.raises(LimitExceededError, match="groups"):
            await broker.groups.commit("c", MemberIdentity(), [up_to("t", 0, 0)])
        assert [each.name for each in broker.groups.all()] == ["a", "b"]


@on_loop
async def test_a_join_that_is_rejected_makes_no_group() -> None:
    async with running_broker(limits=Limits(groups=1)) as broker:
        with pytest.raises(InvalidSessionTimeoutError):
            await broker.groups.join(joining(session_ms=1))
        with pytest.raises(InvalidGroupNameError):
            await broker.groups.join(joining(group=""))
        with pytest.raises(UnknownMemberError):
            await broker.groups.join(joining("m"))
        assert broker.groups.all() == []


@on_loop
async def test_the_memory_of_all_groups_is_bounded() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock, limits=Limits(groups_state_bytes=200)) as broker:
        await stable(broker, clock, None)
        with pytest.raises(LimitExceededError, match="groups_state_bytes"):
            await broker.groups.join(joining(group="h", protocols=[("range", subscription("t", tail=bytes(200)))]))


@on_loop
async def test_closing_answers_all_waiting_members() -> None:
    async with running_broker() as broker:
        waiting = asyncio.ensure_future(broker.groups.join(joining()))
        await turns()
    with pytest.raises(StoreClosedError):
        await waiting


@on_loop
async def test_a_client_that_disconnected_while_waiting_blocks_nobody() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        gone = asyncio.ensure_future(broker.groups.join(joining()))
        await turns()
        gone.cancel()
        waiting = asyncio.ensure_future(broker.groups.join(joining()))
        await turns()
        clock.advance(DELAY_MS)
        broker.groups.run_due()
        assert (await waiting).generation == 1


@on_loop
async def test_members_generations_and_rebalances_are_counted() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        (member, _) = await stable(broker, clock, None, None)
        assert broker.group_registry.members == 2
        assert broker.groups.states["Stable"] == 1
        assert broker.group_registry.generations == {"g": 1}
        with pytest.raises(RebalanceInProgressError):
            broker.groups.leave("g", [("", None), (member.member_id, None)])
            broker.groups.heartbeat("g", MemberIdentity(broker.groups.describe("g").members[0].member_id, 1))
        assert broker.group_registry.rebalances == 2
