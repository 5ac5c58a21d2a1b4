"""Groups of the consumer protocol over the handlers, and what requests for groups of the other protocol say of them."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.memory import MemoryStore
from tailrace.wire.messages.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE_API,
    CONSUMER_GROUP_HEARTBEAT_API,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
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
    OffsetFetchRequestTopics,
)
from tailrace.wire.messages.groups import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LIST_GROUPS_API,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
)
from tests.support.aio import on_loop, turns
from tests.support.brokers import GatedStore, running_broker
from tests.support.clocks import ManualClock
from tests.support.groups import SESSION_MS, stable, subscription
from tests.support.kafka import Asker, asker_of, running_asker

COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID = (
    15,
    22,
    23,
    24,
    25,
)
UNSUPPORTED_VERSION, INVALID_REQUEST, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 35, 42, 68, 69
GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID, GROUP_SUBSCRIBED_TO_TOPIC, FENCED_MEMBER_EPOCH = 81, 82, 86, 110
UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, STALE_MEMBER_EPOCH, INVALID_REGULAR_EXPRESSION = 111, 112, 113, 128


async def heartbeat(asker: Asker, member_id: str, epoch: int, version: int = 1, **given: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        **{"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topic_partitions": None, **given}
    )
    return await asker.ask(CONSUMER_GROUP_HEARTBEAT_API, request, version)


async def join(asker: Asker, member_id: str = "a", version: int = 1, **given: Any) -> Any:
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("t",), "topic_partitions": (), **given}
    return await heartbeat(asker, member_id, 0, version, **fields)


async def commit(asker: Asker, member_id: str, epoch: int, version: int = 9, group: str = "g") -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )
    code: int = (await asker.ask(OFFSET_COMMIT_API, request, version)).topics[0].partitions[0].error_code
    return code


async def fetch_offsets(asker: Asker, member_id: str | None, epoch: int) -> int:
    topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
    group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=topics)
    code: int = (await asker.ask(OFFSET_FETCH_API, OffsetFetchRequest(groups=(group,)), 9)).groups[0].error_code
    return code


def assigned(answer: Any) -> dict[UUID, tuple[int, ...]] | None:
    if answer.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


@pytest.mark.parametrize("version", [0, 1])
@on_loop
async def test_a_member_joins_heartbeats_and_leaves(version: int) -> None:
    async with running_asker() as asker:
        topic = await asker.broker.topics.create("t", 2)
        joined = await join(asker, "" if version == 0 else "mine", version)
        assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 5_000)
        assert joined.member_id if version == 0 else joined.member_id == "mine"
        assert assigned(joined) == {topic.uuid: (0, 1)}
        again = await heartbeat(asker, joined.member_id, 1, version)
        assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)
        owned = (HeartbeatTopicPartitions(topic_id=topic.uuid, partitions=(0, 1)),)
        assert (await heartbeat(asker, joined.member_id, 1, version, topic_partitions=owned)).error_code == 0
        left = await heartbeat(asker, joined.member_id, -1, version)
        assert (left.error_code, left.member_epoch) == (0, -1)
        assert (await heartbeat(asker, joined.member_id, 1, version)).error_code == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"member_id": ""}, INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, INVALID_REQUEST),
        ({"rebalance_timeout_ms": -2}, INVALID_REQUEST),
        ({"topic_partitions": None}, INVALID_REQUEST),
        ({"topic_partitions": (HeartbeatTopicPartitions(partitions=(1,)),)}, INVALID_REQUEST),
        ({"subscribed_topic_names": None}, INVALID_REQUEST),
        ({"instance_id": ""}, INVALID_REQUEST),
        ({"rack_id": ""}, INVALID_REQUEST),
        ({"member_epoch": -3}, INVALID_REQUEST),
        ({"member_epoch": -2}, INVALID_REQUEST),
        ({"group_id": ""}, INVALID_REQUEST),
        ({"group_id": "g" * 256}, INVALID_GROUP_ID),
        ({"server_assignor": "mine"}, UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "a)|(?:b"}, INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(?=t)t"}, INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "x" * 1_001}, INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(?:(?:t?u?){500}){2}"}, INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "é?t"}, INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(?i)" + r"\pL?" * 200}, INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": r"[\P{Lu}]t"}, INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, GROUP_ID_NOT_FOUND),
    ],
)
@on_loop
async def test_a_wrong_request_is_refused_and_makes_no_group(given: dict[str, Any], code: int) -> None:
    async with running_asker() as asker:
        refused = await join(asker, **given)
        assert refused.error_code == code
        assert refused.error_message
        assert asker.broker.groups.all() == []


@on_loop
async def test_a_pattern_is_matched_against_whole_names_and_follows_new_topics() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders.paid")
        await asker.broker.topics.create("more-orders")
        joined = await join(asker, subscribed_topic_names=None, subscribed_topic_regex=r"^orders\..*")
        first = asker.broker.topics.get("orders.paid").topic.uuid
        assert assigned(joined) == {first: (0,)}
        later = await asker.broker.topics.create("orders.sent", 2)
        told = await heartbeat(asker, "a", 1)
        assert (told.member_epoch, assigned(told)) == (2, {first: (0,), later.uuid: (0, 1)})


@on_loop
async def test_a_topic_is_not_missed_that_is_made_while_a_member_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_asker() as asker:
        await join(asker, subscribed_topic_names=None, subscribed_topic_regex="a.*")
        run, gate = asker.broker.threads.run, asyncio.Event()

        async def run_late(*call: Any) -> Any:
            await gate.wait()
            return await run(*call)

        monkeypatch.setattr(asker.broker.threads, "run", run_late)
        joining = asyncio.ensure_future(join(asker, "b", subscribed_topic_names=None, subscribed_topic_regex="b.*"))
        await turns()
        made = await asker.broker.topics.create("b1")
        beating = asyncio.ensure_future(heartbeat(asker, "a", 1))
        await turns()
        gate.set()
        joined = await joining
        assert (await beating).error_code == 0
        assert assigned(joined) or assigned(await heartbeat(asker, "b", joined.member_epoch)) == {made.uuid: (0,)}


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("(a*)*" * 50 + "b", 0),
        ("(.*)(.*)(.*)(.*)(.*)(.*)z", 0),
        ("(" * 200 + ")" * 200, 0),
        ("[ab]*a[ab]{190}c", 0),
        ("((a{30}){30}|b){1}.*", 0),
        ("(?:" + "a?b?" * 100 + "){200}c", INVALID_REGULAR_EXPRESSION),
        ("(?:" + "a?b?" * 100 + r")\Q\E{200}c", INVALID_REGULAR_EXPRESSION),
        ("(?:" + "a?b?" * 100 + ")*(?i){200}c", INVALID_REGULAR_EXPRESSION),
    ],
)
@on_loop
async def test_no_pattern_holds_the_server_up(pattern: str, code: int) -> None:
    async with running_asker() as asker:
        for number in range(50):
            await asker.broker.topics.create("ab" * 100 + str(number))
        async with asyncio.timeout(10):
            assert (await join(asker, subscribed_topic_regex=pattern)).error_code == code


@on_loop
async def test_members_that_can_not_share_a_group_of_the_other_protocol_are_refused() -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        await asker.broker.topics.create("t")
        await stable(asker.broker, clock, None, group="classic")
        assert (await join(asker, group_id="classic")).error_code == GROUP_ID_NOT_FOUND
        await join(asker)
        protocols = (JoinGroupRequestProtocol(name="range", metadata=subscription("t")),)
        request = JoinGroupRequest(group_id="g", session_timeout_ms=SESSION_MS, protocol_type="connect", protocols=protocols)
        assert (await asker.ask(JOIN_GROUP_API, request)).error_code == INCONSISTENT_GROUP_PROTOCOL
        old = HeartbeatRequest(group_id="g", member_id="a", generation_id=1)
        assert (await asker.ask(HEARTBEAT_API, old)).error_code == UNKNOWN_MEMBER_ID


@on_loop
async def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets_and_its_epoch() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        asker = asker_of(broker, clock)
        await broker.topics.create("t")
        (member,) = await stable(broker, clock, None)
        assert await commit(asker, member.member_id, 1) == 0
        broker.groups.leave("g", [(member.member_id, None)])
        joined = await join(asker)
        assert joined.member_epoch == 3
        assert [each.offset for each in broker.offsets.committed_by("g")] == [0]
        assert await commit(asker, member.member_id, 1) == UNKNOWN_MEMBER_ID
        await heartbeat(asker, "a", -1)
    async with running_broker(store, clock) as broker:
        (again,) = await stable(broker, clock, None)
        assert again.generation == 5
        assert [each.offset for each in broker.offsets.committed_by("g")] == [0]
        assert broker.groups.all()[0].group_type == "classic"


@on_loop
async def test_offsets_are_committed_and_fetched_with_the_epoch_of_the_member() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        await join(asker)
        assert await commit(asker, "a", 1) == 0
        assert await commit(asker, "a", 2) == STALE_MEMBER_EPOCH
        assert await commit(asker, "a", 0) == STALE_MEMBER_EPOCH
        assert await commit(asker, "b", 1) == UNKNOWN_MEMBER_ID
        assert await commit(asker, "", -1) == UNKNOWN_MEMBER_ID
        assert await commit(asker, "a", 1, version=8) == UNSUPPORTED_VERSION
        assert await commit(asker, "a", 1, group="gone") == GROUP_ID_NOT_FOUND
        assert await commit(asker, "a", 1, version=8, group="gone") == ILLEGAL_GENERATION
        assert await fetch_offsets(asker, "a", 1) == 0
        assert await fetch_offsets(asker, None, -1) == 0
        assert await fetch_offsets(asker, "a", 2) == STALE_MEMBER_EPOCH
        assert await fetch_offsets(asker, "b", 1) == UNKNOWN_MEMBER_ID
        await heartbeat(asker, "a", -1)
        assert await commit(asker, "", -1) == 0


@on_loop
async def test_tools_see_which_protocol_a_group_uses() -> None:
    clock = ManualClock()
    async with running_asker(clock=clock) as asker:
        topic = await asker.broker.topics.create("t")
        await stable(asker.broker, clock, None, group="old")
        await join(asker)
        for types, expected in (((), {"g", "old"}), (("Consumer",), {"g"}), (("classic",), {"old"}), (("share",), set())):
            listed = await asker.ask(LIST_GROUPS_API, ListGroupsRequest(types_filter=types))
            assert {group.group_id for group in listed.groups} == expected
        both = (await asker.ask(LIST_GROUPS_API, ListGroupsRequest())).groups
        assert [(each.group_id, each.group_type, each.group_state) for each in both] == [
            ("g", "consumer", "Stable"),
            ("old", "classic", "Stable"),
        ]
        request = ConsumerGroupDescribeRequest(group_ids=("g", "old", "gone"))
        group, old, gone = (await asker.ask(CONSUMER_GROUP_DESCRIBE_API, request)).groups
        assert (group.error_code, group.group_state, group.group_epoch, group.assignor_name) == (0, "Stable", 1, "uniform")
        (member,) = group.members
        assert (member.member_id, member.member_epoch, member.subscribed_topic_names, member.member_type) == ("a", 1, ("t",), 1)
        (part,) = member.assignment.topic_partitions
        assert (part.topic_id, part.topic_name, part.partitions) == (topic.uuid, "t", (0,))
        assert member.target_assignment == member.assignment
        assert (old.error_code, gone.error_code) == (GROUP_ID_NOT_FOUND, GROUP_ID_NOT_FOUND)
        assert "there is no group 'gone'" in gone.error_message
        assert "the classic one" in old.error_message
        described = (await asker.ask(DESCRIBE_GROUPS_API, DescribeGroupsRequest(groups=("g",)))).groups[0]
        assert (described.error_code, described.group_state) == (GROUP_ID_NOT_FOUND, "Dead")
        assert asker.broker.groups.states["Stable"] == 2


@on_loop
async def test_a_group_with_members_is_not_deleted_nor_are_the_offsets_that_it_reads() -> None:
    async with running_asker() as asker:
        for topic in ("t", "other"):
            await asker.broker.topics.create(topic)
        await join(asker)
        assert await commit(asker, "a", 1) == 0
        delete = DeleteGroupsRequest(groups_names=("g",))
        assert (await asker.ask(DELETE_GROUPS_API, delete)).results[0].error_code == NON_EMPTY_GROUP
        for topic, code in (("t", GROUP_SUBSCRIBED_TO_TOPIC), ("other", 0)):
            partitions = (OffsetDeleteRequestPartition(partition_index=0),)
            request = OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name=topic, partitions=partitions),))
            assert (await asker.ask(OFFSET_DELETE_API, request)).topics[0].partitions[0].error_code == code
        await heartbeat(asker, "a", -1)
        assert (await asker.ask(DELETE_GROUPS_API, delete)).results[0].error_code == 0
        assert asker.broker.groups.all() == []
        assert (await join(asker)).member_epoch == 1


@on_loop
async def test_nothing_is_answered_before_it_is_durable() -> None:
    clock = ManualClock()
    store = GatedStore(clock)
    async with running_broker(store, clock) as broker:
        asker = asker_of(broker, clock)
        await broker.topics.create("t")
        store.close_gate()
        joining = asyncio.ensure_future(join(asker))
        await turns()
        beating = asyncio.ensure_future(heartbeat(asker, "a", 1))
        await turns()
        assert not joining.done()
        assert not beating.done()
        store.fail()
        assert (await joining).error_code == COORDINATOR_NOT_AVAILABLE
        assert (await beating).error_code == COORDINATOR_NOT_AVAILABLE
        store.open_gate()
        assert (await heartbeat(asker, "a", 1)).error_code == 0
    async with running_broker(store, clock) as broker:
        assert (await heartbeat(asker_of(broker, clock), "a", 1)).error_code == 0


@on_loop
async def test_members_are_removed_by_the_clock_and_their_removal_is_durable() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    async with running_broker(store, clock) as broker:
        asker = asker_of(broker, clock)
        await broker.topics.create("t")
        await join(asker)
        clock.advance(DEFAULT_LIMITS.group_consumer_session_timeout_ms)
        broker.consumer_groups.run_due()
        assert broker.groups.describe("g").state == "Empty"
        await turns()
    async with running_broker(store, clock) as broker:
        described = broker.groups.describe("g")
        assert (described.state, described.generation, described.group_type) == ("Empty", 2, "consumer")


@on_loop
async def test_static_members_are_refused_as_kafka_refuses_them() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        await join(asker, "a", instance_id="i")
        assert (await join(asker, "b", instance_id="i")).error_code == UNRELEASED_INSTANCE_ID
        assert (await heartbeat(asker, "b", 1, instance_id="i")).error_code == FENCED_INSTANCE_ID
        assert (await heartbeat(asker, "a", 7, instance_id="i")).error_code == FENCED_MEMBER_EPOCH
        assert (await heartbeat(asker, "a", -2, instance_id="i")).member_epoch == -2
        assert (await join(asker, "b", instance_id="i")).member_epoch == 1


@on_loop
async def test_a_full_group_says_so() -> None:
    limits = type(DEFAULT_LIMITS)(group_members=1)
    async with running_asker(limits=limits) as asker:
        await join(asker, "a")
        assert (await join(asker, "b")).error_code == GROUP_MAX_SIZE_REACHED
