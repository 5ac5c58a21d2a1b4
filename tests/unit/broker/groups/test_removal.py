"""Groups that are deleted on demand or expire, and those that are kept."""

import asyncio

import msgspec
import pytest

from tailrace.broker import keys
from tailrace.model.errors import GroupNotEmptyError, GroupSubscribedError, UnknownGroupError
from tailrace.model.group import GroupRecord, MemberIdentity
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock
from tests.support.groups import DELAY_MS, SESSION_MS, identity, joining, stable, syncing
from tests.support.offsets import up_to

WEEK_MS = 7 * 24 * 3600 * 1000


@on_loop
async def test_a_group_with_members_can_not_be_deleted() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", 1)
        (member,) = await stable(broker, clock, None)
        await broker.groups.commit("g", identity(member), [up_to("t", 0, 0)])
        with pytest.raises(GroupNotEmptyError):
            await broker.group_removal.delete("g")
        assert broker.groups.leave("g", [(member.member_id, None)]) == [None]
        await broker.group_removal.delete("g")
        assert broker.groups.all() == []
        assert broker.offsets.committed_by("g") == []
        assert list(store.range(keys.GROUPS)) == []
        with pytest.raises(UnknownGroupError):
            await broker.group_removal.delete("g")


@on_loop
async def test_a_member_that_joins_during_a_deletion_stays() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        (member,) = await stable(broker, clock, None)
        broker.groups.leave("g", [(member.member_id, None)])
        await turns()
        store.close_gate()
        deletion = asyncio.ensure_future(broker.group_removal.delete("g"))
        await turns()
        joined = asyncio.ensure_future(broker.groups.join(joining()))
        await turns()
        store.open_gate()
        await deletion
        clock.advance(DELAY_MS)
        broker.groups.run_due()
        await broker.groups.sync(syncing(await joined))
        assert [(each.name, each.state) for each in broker.groups.all()] == [("g", "Stable")]
        assert msgspec.msgpack.decode(store.get(keys.group_key("g")) or b"", type=GroupRecord).members != ()


@on_loop
async def test_offsets_of_a_topic_that_is_read_can_not_be_deleted() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", 2)
        await broker.topics.create("u", 1)
        both = [up_to("t", 0, 0), up_to("t", 1, 0), up_to("u", 0, 0)]
        await broker.groups.commit("g", MemberIdentity(), both)
        (member,) = await stable(broker, clock, None)
        with pytest.raises(GroupSubscribedError):
            await broker.group_removal.delete_offsets("g", "t", [0])
        await broker.group_removal.delete_offsets("g", "u", [0])
        broker.groups.leave("g", [(member.member_id, None)])
        await broker.group_removal.delete_offsets("g", "t", [1])
        assert [(each.topic, each.partition) for each in broker.offsets.committed_by("g")] == [("t", 0)]
        with pytest.raises(UnknownGroupError):
            await broker.group_removal.delete_offsets("other", "t", [0])


@on_loop
async def test_an_idle_group_expires_and_a_busy_one_does_not() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        await broker.topics.create("t", 1)
        for group in ("left", "simple", "busy"):
            await broker.groups.commit(group, MemberIdentity(), [up_to("t", 0, 0)])
        clock.advance(WEEK_MS - SESSION_MS)
        (busy,) = await stable(broker, clock, None, group="busy")
        (left,) = await stable(broker, clock, None, group="left")
        broker.groups.leave("left", [(left.member_id, None)])
        assert await broker.group_removal.expire() == 0
        clock.advance(SESSION_MS - 1)
        broker.groups.heartbeat("busy", identity(busy))
        assert await broker.group_removal.expire() == 1
        assert broker.group_removal.expired == 1
        assert [each.name for each in broker.groups.all()] == ["busy", "left"]
        clock.advance(WEEK_MS)
        broker.groups.heartbeat("busy", identity(busy))
        await broker.group_removal.expire()
        assert [each.name for each in broker.groups.all()] == ["busy"]


@on_loop
async def test_a_group_that_commits_while_it_expires_is_kept() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", 1)
        await broker.groups.commit("g", MemberIdentity(), [up_to("t", 0, 0)])
        store.close_gate()
        deletion = asyncio.ensure_future(broker.group_removal.delete("g"))
        await turns()
        commit = asyncio.ensure_future(broker.groups.commit("g", MemberIdentity(), [up_to("t", 0, 0)]))
        await turns()
        store.open_gate()
        await asyncio.gather(deletion, commit)
        assert await broker.group_removal.expire() == 0
        assert len(broker.offsets.committed_by("g")) == 1


@on_loop
async def test_the_last_commit_of_a_group_is_known_after_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        await broker.topics.create("t", 1)
        await broker.groups.commit("g", MemberIdentity(), [up_to("t", 0, 0)])
    async with running_broker(store, clock) as broker:
        clock.advance(WEEK_MS - 1)
        assert await broker.group_removal.expire() == 0
        clock.advance(1)
        assert await broker.group_removal.expire() == 1


@on_loop
async def test_a_group_that_never_committed_expires_with_its_last_member() -> None:
    clock = ManualClock()
    async with running_broker(clock=clock) as broker:
        (member,) = await stable(broker, clock, None)
        assert await broker.group_removal.expire() == 0
        broker.groups.leave("g", [(member.member_id, None)])
        await turns()
        assert await broker.group_removal.expire() == 1
        assert broker.groups.all() == []
