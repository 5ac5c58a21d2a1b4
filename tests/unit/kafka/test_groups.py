"""Consumer groups over the handlers, in every version of every request."""

import asyncio
from typing import Any

import pytest

from tailrace.model.group import NO_MEMBER
from tailrace.wire.messages.group_offsets import (
    OFFSET_COMMIT_API,
    OFFSET_DELETE_API,
    OFFSET_FETCH_API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tailrace.wire.messages.groups import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    LIST_GROUPS_API,
    SYNC_GROUP_API,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupMember,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.support.aio import on_loop, turns
from tests.support.brokers import append, raw
from tests.support.clocks import ManualClock
from tests.support.groups import DELAY_MS, SESSION_MS, subscription
from tests.support.kafka import Asker, running_asker

REBALANCE_IN_PROGRESS = 27
UNKNOWN_MEMBER_ID = 25
MEMBER_ID_REQUIRED = 79


def all_versions(api: Any) -> range:
    return range(api.lowest, api.highest + 1)


async def join(asker: Asker, clock: ManualClock, version: int = 9, **given: Any) -> Any:
    """Join as the only member and return the generation."""
    request = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol(name="range", metadata=subscription("t")),),
        **given,
    }
    if version >= 4 and "member_id" not in given and "group_instance_id" not in given:
        told = await asker.ask(JOIN_GROUP_API, JoinGroupRequest(**request), version)
        assert told.error_code == MEMBER_ID_REQUIRED
        request["member_id"] = told.member_id
    joining = asyncio.ensure_future(asker.ask(JOIN_GROUP_API, JoinGroupRequest(**request), version))
    await turns()
    clock.advance(DELAY_MS)
    asker.broker.groups.run_due()
    return await joining


async def stable(asker: Asker, clock: ManualClock) -> Any:
    joined = await join(asker, clock)
    synced = await asker.ask(SYNC_GROUP_API, sync_of(joined))
    assert (synced.error_code, synced.assignment) == (0, b"share")
    return joined


def sync_of(joined: Any) -> SyncGroupRequest:
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")
    return SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=(share,))


@pytest.mark.parametrize("version", all_versions(JOIN_GROUP_API))
@on_loop
async def test_a_member_joins_in_every_version(version: int) -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        joined = await join(asker, clock, version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.leader == joined.member_id != NO_MEMBER
        assert joined.members[0].metadata == subscription("t")
        refused = await asker.ask(JOIN_GROUP_API, JoinGroupRequest(group_id="g", member_id="nobody"), version)
        assert refused.error_code == 26
        assert refused.member_id == "nobody"


@pytest.mark.parametrize("version", all_versions(SYNC_GROUP_API))
@on_loop
async def test_a_member_gets_its_assignment_in_every_version(version: int) -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        joined = await join(asker, clock)
        synced = await asker.ask(SYNC_GROUP_API, sync_of(joined), version)
        assert (synced.error_code, synced.assignment) == (0, b"share")
        refused = await asker.ask(SYNC_GROUP_API, SyncGroupRequest(group_id="other"), version)
        assert refused.error_code == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", all_versions(HEARTBEAT_API))
@on_loop
async def test_heartbeats_say_where_the_group_is_in_every_version(version: int) -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        joined = await stable(asker, clock)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert (await asker.ask(HEARTBEAT_API, beat, version)).error_code == 0
        newcomer = asyncio.ensure_future(join(asker, clock, group_instance_id="a"))
        await turns()
        assert (await asker.ask(HEARTBEAT_API, beat, version)).error_code == REBALANCE_IN_PROGRESS
        newcomer.cancel()


@pytest.mark.parametrize("version", all_versions(LEAVE_GROUP_API))
@on_loop
async def test_a_member_leaves_in_every_version(version: int) -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        joined = await stable(asker, clock)
        leaving = LeaveGroupRequest(
            group_id="g",
            member_id=joined.member_id,
            members=(LeaveGroupMember(member_id=joined.member_id), LeaveGroupMember(member_id="nobody")),
        )
        left = await asker.ask(LEAVE_GROUP_API, leaving, version)
        assert left.error_code == 0
        if version >= 3:
            assert [each.error_code for each in left.members] == [0, UNKNOWN_MEMBER_ID]
        else:
            assert (await asker.ask(LEAVE_GROUP_API, leaving, version)).error_code == UNKNOWN_MEMBER_ID
        assert asker.broker.groups.describe("g").state == "Empty"


@pytest.mark.parametrize("version", all_versions(DESCRIBE_GROUPS_API))
@on_loop
async def test_a_group_is_described_in_every_version(version: int) -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        await stable(asker, clock)
        there, missing = (await asker.ask(DESCRIBE_GROUPS_API, DescribeGroupsRequest(groups=("g", "missing")), version)).groups
        assert (there.group_state, there.protocol_type, there.protocol_data) == ("Stable", "consumer", "range")
        assert [(each.client_id, each.client_host) for each in there.members] == [("test", "/192.0.2.1")]
        assert (missing.group_state, missing.error_code) == ("Dead", 69 if version >= 6 else 0)


@pytest.mark.parametrize("version", all_versions(LIST_GROUPS_API))
@on_loop
async def test_groups_are_listed_in_every_version(version: int) -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        await stable(asker, clock)

        async def listed(**filters: tuple[str, ...]) -> list[str]:
            response = await asker.ask(LIST_GROUPS_API, ListGroupsRequest(**filters), version)
            return [each.group_id for each in response.groups]

        assert await listed() == ["g"]
        if version >= 4:
            assert await listed(states_filter=("stable", "Dead")) == ["g"]
            assert await listed(states_filter=("Empty",)) == []
        if version >= 5:
            assert await listed(types_filter=("Classic",)) == ["g"]
            assert await listed(types_filter=("consumer",)) == []


@pytest.mark.parametrize("version", all_versions(DELETE_GROUPS_API))
@on_loop
async def test_groups_are_deleted_in_every_version(version: int) -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        joined = await stable(asker, clock)

        async def delete() -> list[int]:
            request = DeleteGroupsRequest(groups_names=("g", "missing"))
            return [each.error_code for each in (await asker.ask(DELETE_GROUPS_API, request, version)).results]

        assert await delete() == [68, 69]
        asker.broker.groups.leave("g", [(joined.member_id, None)])
        assert await delete() == [0, 69]


@pytest.mark.parametrize("version", all_versions(OFFSET_COMMIT_API))
@on_loop
async def test_offsets_are_committed_in_every_version(version: int) -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        topic = await asker.broker.topics.create("t", 1)
        await append(asker.broker, raw("t", 0, b"1"))
        joined = await stable(asker, clock)

        async def commit(generation: int, partition: int) -> int:
            wanted = OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=1, committed_leader_epoch=3, committed_metadata="note"
            )
            request = OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=generation,
                member_id=joined.member_id,
                topics=(OffsetCommitRequestTopic(name="t", topic_id=topic.uuid, partitions=(wanted,)),),
            )
            (answered,) = (await asker.ask(OFFSET_COMMIT_API, request, version)).topics
            assert (answered.name, answered.topic_id) == (("t", answered.topic_id) if version < 10 else ("", topic.uuid))
            (outcome,) = answered.partitions
            code: int = outcome.error_code
            return code

        assert await commit(1, 0) == 0
        assert await commit(1, 9) == 3
        assert await commit(0, 0) == 22
        committed = asker.broker.offsets.committed("g", "t", 0)
        assert committed is not None
        assert (committed.offset, committed.metadata) == (1, "note")
        assert committed.leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", all_versions(OFFSET_FETCH_API))
@pytest.mark.parametrize("everything", [False, True])
@on_loop
async def test_offsets_are_fetched_in_every_version(version: int, everything: bool) -> None:
    if everything and version < 2:
        return
    async with running_asker() as asker:
        topic = await asker.broker.topics.create("t", 2)
        commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="note")
        await asker.ask(
            OFFSET_COMMIT_API,
            OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=(commit,)),)),
            9,
        )
        wanted = (OffsetFetchRequestTopics(name="t", topic_id=topic.uuid, partition_indexes=(0, 1)),)
        request = OffsetFetchRequest(
            group_id="g",
            topics=None if everything else (OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),),
            groups=(
                OffsetFetchRequestGroup(group_id="g", topics=None if everything else wanted),
                OffsetFetchRequestGroup(group_id="new", topics=wanted),
            ),
            require_stable=True,
        )
        response = await asker.ask(OFFSET_FETCH_API, request, version)
        found = response.topics if version < 8 else response.groups[0].topics
        assert [(each.partition_index, each.committed_offset, each.metadata) for each in found[0].partitions] == [
            (0, 0, "note"),
            (1, -1, ""),
        ][: 1 if everything else 2]
        if version >= 8:
            assert [each.committed_offset for each in response.groups[1].topics[0].partitions] == [-1, -1]
        if version >= 10:
            assert found[0].topic_id == topic.uuid


@on_loop
async def test_topics_by_an_unknown_id_are_rejected_one_by_one() -> None:
    async with running_asker() as asker:
        topic = await asker.broker.topics.create("t", 1)
        wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        request = OffsetCommitRequest(
            group_id="g",
            topics=(
                OffsetCommitRequestTopic(partitions=(wanted,)),
                OffsetCommitRequestTopic(topic_id=topic.uuid, partitions=(wanted,)),
            ),
        )
        response = await asker.ask(OFFSET_COMMIT_API, request, 10)
        assert [each.partitions[0].error_code for each in response.topics] == [100, 0]
        asked = OffsetFetchRequestGroup(group_id="g", topics=(OffsetFetchRequestTopics(partition_indexes=(0,)),))
        fetched = await asker.ask(OFFSET_FETCH_API, OffsetFetchRequest(groups=(asked,)), 10)
        assert fetched.groups[0].topics[0].partitions[0].error_code == 100


@on_loop
async def test_invalid_group_names_are_rejected_or_empty() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 1)
        for name in ("", "g" * 70_000):
            topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
            groups = (
                OffsetFetchRequestGroup(group_id=name, topics=topics),
                OffsetFetchRequestGroup(group_id=name, topics=None),
            )
            some, everything = (await asker.ask(OFFSET_FETCH_API, OffsetFetchRequest(groups=groups), 9)).groups
            assert some.topics[0].partitions[0].committed_offset == -1
            assert everything.topics == ()
            deleted = await asker.ask(DELETE_GROUPS_API, DeleteGroupsRequest(groups_names=(name,)))
            assert deleted.results[0].error_code == 69
            commit = OffsetCommitRequestTopic(name="t", partitions=(OffsetCommitRequestPartition(),))
            refused = await asker.ask(OFFSET_COMMIT_API, OffsetCommitRequest(group_id=name, topics=(commit,)), 9)
            assert refused.topics[0].partitions[0].error_code == 24
            joined = await asker.ask(JOIN_GROUP_API, JoinGroupRequest(group_id=name))
            assert joined.error_code == 24
        assert asker.traffic.handler_faults == 0


@on_loop
async def test_offsets_of_a_topic_that_is_read_are_not_deleted() -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        await asker.broker.topics.create("t", 1, alias="the-alias")
        joined = await stable(asker, clock)

        async def delete(group: str, topic: str) -> tuple[int, list[int]]:
            wanted = OffsetDeleteRequestTopic(name=topic, partitions=(OffsetDeleteRequestPartition(partition_index=0),))
            response = await asker.ask(OFFSET_DELETE_API, OffsetDeleteRequest(group_id=group, topics=(wanted,)))
            return response.error_code, [each.error_code for topic in response.topics for each in topic.partitions]

        assert await delete("g", "t") == (0, [86])
        assert await delete("g", "the-alias") == (0, [86])
        assert await delete("missing", "t") == (69, [])
        asker.broker.groups.leave("g", [(joined.member_id, None)])
        assert await delete("g", "t") == (0, [0])
        assert await delete("g", "missing") == (0, [3])


@on_loop
async def test_a_stopping_server_makes_clients_look_for_the_coordinator() -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        waiting = asyncio.ensure_future(join(asker, clock, 3))
        await turns(3)
        asker.broker.groups.close()
        assert (await waiting).error_code == 15
        assert (await asker.ask(HEARTBEAT_API, HeartbeatRequest(group_id="g"))).error_code == 15
        assert (await asker.ask(LEAVE_GROUP_API, LeaveGroupRequest(group_id="g"))).error_code == 15


@pytest.mark.parametrize("version", all_versions(OFFSET_FETCH_API))
@on_loop
async def test_committed_offsets_are_deleted_with_their_topic(version: int) -> None:
    async with running_asker() as asker:
        old = await asker.broker.topics.create("t")
        await append(asker.broker, raw("t", 0, b"0", b"1", b"2"))
        committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)

        async def commit(by_id: bool) -> int:
            topic = OffsetCommitRequestTopic(name="t", topic_id=old.uuid, partitions=(committed,))
            request = OffsetCommitRequest(group_id="g", topics=(topic,))
            (answered,) = (await asker.ask(OFFSET_COMMIT_API, request, 10 if by_id else 9)).topics
            code: int = answered.partitions[0].error_code
            return code

        assert await commit(by_id=True) == 0
        await asker.broker.topics.delete("t")
        new = await asker.broker.topics.create("t")
        await append(asker.broker, raw("t", 0, b"0", b"1", b"2", b"3", b"4"))
        assert await commit(by_id=True) == 100
        if version < 8:
            request = OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),))
            (topic,) = (await asker.ask(OFFSET_FETCH_API, request, version)).topics
        else:
            asked = OffsetFetchRequestTopics(name="t", topic_id=new.uuid, partition_indexes=(0,))
            groups = (OffsetFetchRequestGroup(group_id="g", topics=(asked,)),)
            (topic,) = (await asker.ask(OFFSET_FETCH_API, OffsetFetchRequest(groups=groups), version)).groups[0].topics
        assert topic.partitions[0].committed_offset == -1
