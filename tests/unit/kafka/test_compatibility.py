"""Responses that other suites compare with Kafka's. The expected ones are those of Apache Kafka 4.3.1."""

from typing import Any

import pytest

from tailrace.model.record import MESSAGE_ID_HEADER, Record
from tailrace.wire.messages.cluster import (
    DESCRIBE_CLUSTER_API,
    METADATA_API,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from tailrace.wire.messages.group_offsets import (
    OFFSET_COMMIT_API,
    OFFSET_FETCH_API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tailrace.wire.messages.groups import DESCRIBE_GROUPS_API, DescribeGroupsRequest
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.messages.topics import (
    CREATE_TOPICS_API,
    DESCRIBE_TOPIC_PARTITIONS_API,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.batches import TIMESTAMP
from tests.support.brokers import options
from tests.support.kafka import Asker, running_asker

UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION = 3, 17, 36, 37, 38
INVALID_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION = 39, 40, 42, 44
TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS, NOT_ASKED = 3576, 3400, 8096, -2147483648


@pytest.mark.parametrize("offset", [5, 1_000, 3, 0, -1, -2, -5, 1 << 62])
@on_loop
async def test_any_offset_is_committed_and_read_back(offset: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 2)
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="m"
        )
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
        )
        committed = await asker.ask(OFFSET_COMMIT_API, request, 8)
        assert committed.topics[0].partitions[0].error_code == 0
        for wanted in ((OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),), None):
            asked = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=wanted),))
            fetched = (await asker.ask(OFFSET_FETCH_API, asked, 8)).groups[0].topics[0].partitions[0]
            assert (fetched.committed_offset, fetched.metadata, fetched.error_code) == (offset, "m", 0)


def assigned(*servers: int, partition: int = 0) -> dict[str, Any]:
    assignment = CreatableReplicaAssignment(partition_index=partition, broker_ids=servers)
    return {"num_partitions": -1, "replication_factor": -1, "assignments": (assignment,)}


def configured(name: str, value: str) -> dict[str, Any]:
    return {"configs": (CreatableTopicConfig(name=name, value=value),)}


WRONG = {
    "no replicas": ({"replication_factor": 0}, INVALID_REPLICATION),
    "no partitions": ({"num_partitions": 0}, INVALID_PARTITIONS),
    "unknown config": (configured("nonsense", "1"), INVALID_CONFIG),
    "bad value": (configured("retention.ms", "x"), INVALID_CONFIG),
    "unknown server": (assigned(99), INVALID_ASSIGNMENT),
    "one server twice": (assigned(0, 0), INVALID_ASSIGNMENT),
    "no server": (assigned(), INVALID_ASSIGNMENT),
    "numbers with a gap": (assigned(0, partition=1), INVALID_ASSIGNMENT),
    "assigned and counted": (assigned(0) | {"num_partitions": 2}, INVALID_REQUEST),
    "assigned and replicated": (assigned(0) | {"replication_factor": 1}, INVALID_REQUEST),
}


async def create(asker: Asker, name: str, **fields: Any) -> int:
    wanted = CreatableTopic(name=name, **({"num_partitions": 1, "replication_factor": 1} | fields))
    for validate_only in (True, False):
        request = CreateTopicsRequest(topics=(wanted,), validate_only=validate_only)
        code: int = (await asker.ask(CREATE_TOPICS_API, request, 7)).topics[0].error_code
        if code or not validate_only:
            break
    return code


@pytest.mark.parametrize("what", WRONG)
@on_loop
async def test_an_existing_topic_is_reported_before_other_errors(what: str) -> None:
    fields, code = WRONG[what]
    async with running_asker() as asker:
        await asker.broker.topics.create("there")
        assert await create(asker, "there", **fields) == TOPIC_EXISTS
        assert await create(asker, "new", **fields) == code
        assert await create(asker, "a b", **fields) == INVALID_TOPIC
        assert await create(asker, "_changes.x", **fields) == POLICY_VIOLATION
        assert await create(asker, "new") == 0


@on_loop
async def test_authorized_operations_are_returned_if_asked_for() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t")
        named = tuple(MetadataRequestTopic(name=name) for name in ("t", "a b", "gone"))
        for asks in (True, False):
            request = MetadataRequest(
                topics=named,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=asks,
                include_topic_authorized_operations=asks,
            )
            answer = await asker.ask(METADATA_API, request, 8)
            assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if asks else NOT_ASKED)
            expected = TOPIC_OPERATIONS if asks else NOT_ASKED
            assert [topic.topic_authorized_operations for topic in answer.topics] == [expected] * 3
            cluster = await asker.ask(
                DESCRIBE_CLUSTER_API, DescribeClusterRequest(include_cluster_authorized_operations=asks), 0
            )
            assert cluster.cluster_authorized_operations == (CLUSTER_OPERATIONS if asks else NOT_ASKED)
            groups = await asker.ask(
                DESCRIBE_GROUPS_API, DescribeGroupsRequest(groups=("g",), include_authorized_operations=asks), 5
            )
            assert groups.groups[0].authorized_operations == (GROUP_OPERATIONS if asks else NOT_ASKED)
        both = DescribeTopicPartitionsRequest(
            topics=(DescribeTopicPartitionsTopic(name="t"), DescribeTopicPartitionsTopic(name="gone"))
        )
        partitions = await asker.ask(DESCRIBE_TOPIC_PARTITIONS_API, both, 0)
        assert [topic.topic_authorized_operations for topic in partitions.topics] == [TOPIC_OPERATIONS] * 2


async def produce_to(asker: Asker, topic: str, batch: bytes, partition: int = 0) -> tuple[int, int]:
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=partition, records=batch),))
    answer = await asker.ask(PRODUCE_API, ProduceRequest(acks=-1, topic_data=(data,)), 12)
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


def named(*ids: str) -> bytes:
    return bytes(encode_batch([Record(None, name.encode(), [(MESSAGE_ID_HEADER, name.encode())], TIMESTAMP) for name in ids]))


@pytest.mark.parametrize("name", ["_changes.shop.orders", "_changes.x", "_routes"])
@on_loop
async def test_producers_to_a_missing_reserved_topic_are_rejected_at_once(name: str) -> None:
    """With a code that makes producers fail, not one that makes them wait for the topic to be created."""
    async with running_asker() as asker:
        assert await produce_to(asker, name, named("a")) == (POLICY_VIOLATION, -1)
        for may_create, code in ((True, INVALID_TOPIC), (False, UNKNOWN_TOPIC)):
            request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=may_create)
            assert (await asker.ask(METADATA_API, request, 12)).topics[0].error_code == code
        assert asker.broker.topics.find(name) is None


@on_loop
async def test_duplicates_are_acknowledged_with_the_stored_offset_or_none() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("t", 2, options=options(dedup="id"))
        assert await produce_to(asker, "t", named("a", "b", "c")) == (0, 0)
        # All of them are stored, one after another.
        assert await produce_to(asker, "t", named("b", "c")) == (0, 1)
        # The second one follows the first one, which was stored before.
        assert await produce_to(asker, "t", named("c", "d")) == (0, 2)
        # No single base offset fits these, so the response has none.
        code, told = await produce_to(asker, "t", named("d", "a", "e"))
        assert code == 0
        assert told + 2 < 0
        # This one is stored in another partition.
        assert await produce_to(asker, "t", named("a"), partition=1) == (0, -1)
