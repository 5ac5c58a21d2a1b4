"""Topics over the handlers: found, created, extended, emptied, altered and deleted."""

from typing import Any
from uuid import uuid4

import pytest

from tailrace.kafka.cluster import KafkaSettings
from tailrace.kafka.topic_configs import CONFIG_NAMES
from tailrace.model.limits import Limits
from tailrace.model.record import RawBatch, Record
from tailrace.wire.messages.cluster import (
    DESCRIBE_CLUSTER_API,
    DESCRIBE_LOG_DIRS_API,
    FIND_COORDINATOR_API,
    METADATA_API,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from tailrace.wire.messages.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tailrace.wire.messages.fetch import (
    LIST_OFFSETS_API,
    OFFSET_FOR_LEADER_EPOCH_API,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tailrace.wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_RECORDS_API,
    DELETE_TOPICS_API,
    DESCRIBE_TOPIC_PARTITIONS_API,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.brokers import append, bounds_of, options, raw
from tests.support.kafka import CLUSTER, Asker, running_asker

TOPIC = 2
BROKER = 4


async def find(asker: Asker, version: int = 12, **wanted: Any) -> MetadataResponseTopic:
    request = MetadataRequest(topics=(MetadataRequestTopic(**wanted),), allow_auto_topic_creation=version >= 4)
    (topic,) = (await asker.ask(METADATA_API, request, version)).topics
    assert isinstance(topic, MetadataResponseTopic)
    return topic


async def make(asker: Asker, version: int = 7, validate_only: bool = False, **wanted: Any) -> CreatableTopicResult:
    wanted = {"name": "orders", "num_partitions": 1, "replication_factor": 1, **wanted}
    request = CreateTopicsRequest(topics=(CreatableTopic(**wanted),), validate_only=validate_only)
    (topic,) = (await asker.ask(CREATE_TOPICS_API, request, version)).topics
    assert isinstance(topic, CreatableTopicResult)
    return topic


@on_loop
async def test_metadata_names_one_server_that_leads_everything() -> None:
    async with running_asker() as asker:
        made = await asker.broker.topics.create("orders", 2, alias="o")
        response = await asker.ask(METADATA_API, MetadataRequest(topics=None))
        assert (response.cluster_id, response.controller_id) == ("the-cluster", 0)
        assert [(each.node_id, each.host, each.port) for each in response.brokers] == [(0, "tailrace.example", 9092)]
        (topic,) = response.topics
        assert (topic.name, topic.topic_id) == ("orders", made.uuid)
        assert [
            (each.partition_index, each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes)
            for each in topic.partitions
        ] == [(0, 0, 0, (0,), (0,)), (1, 0, 0, (0,), (0,))]


@on_loop
async def test_a_topic_is_found_by_name_by_alias_and_by_id() -> None:
    async with running_asker() as asker:
        made = await asker.broker.topics.create("orders", alias="o")
        assert (await find(asker, name="orders")).topic_id == made.uuid
        assert (await find(asker, name="o")).name == "o"
        assert (await find(asker, name=None, topic_id=made.uuid)).name == "orders"
        assert (await find(asker, name=None, topic_id=uuid4())).error_code == 100


@pytest.mark.parametrize("version", [10, 11, 12, 13])
@on_loop
async def test_an_unknown_id_is_answered_also_in_versions_whose_answers_must_have_a_name(version: int) -> None:
    async with running_asker() as asker:
        topic = await find(asker, version, name=None, topic_id=uuid4())
        assert (topic.error_code, topic.name) == (100, None if version >= 12 else "")


@on_loop
async def test_no_topics_and_all_topics_are_said_differently_from_version_1_on() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        assert len((await asker.ask(METADATA_API, MetadataRequest(topics=()), 0)).topics) == 1
        assert len((await asker.ask(METADATA_API, MetadataRequest(topics=()), 1)).topics) == 0
        assert len((await asker.ask(METADATA_API, MetadataRequest(topics=None), 1)).topics) == 1


@on_loop
async def test_a_topic_is_created_on_metadata_unless_that_is_off() -> None:
    async with running_asker(KafkaSettings(default_partitions=3)) as asker:
        assert len((await find(asker, name="orders")).partitions) == 3
        assert (await find(asker, name="not a name")).error_code == 17
        request = MetadataRequest(topics=(MetadataRequestTopic(name="other"),), allow_auto_topic_creation=False)
        assert (await asker.ask(METADATA_API, request)).topics[0].error_code == 3
    async with running_asker(KafkaSettings(auto_create_topics=False)) as asker:
        assert (await find(asker, name="orders")).error_code == 3


@on_loop
async def test_the_partitions_of_topics_are_described_in_pages() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("a", 3)
        await asker.broker.topics.create("b", 2)
        seen: list[tuple[str | None, int]] = []
        cursor: DescribeTopicPartitionsCursor | None = None
        pages = 0
        while pages == 0 or cursor is not None:
            request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
            response = await asker.ask(DESCRIBE_TOPIC_PARTITIONS_API, request)
            seen += [(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions]
            cursor = response.next_cursor
            pages += 1
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
        assert pages == 3
        request = DescribeTopicPartitionsRequest(topics=(DescribeTopicPartitionsTopic(name="nothing"),))
        assert (await asker.ask(DESCRIBE_TOPIC_PARTITIONS_API, request)).topics[0].error_code == 3


@on_loop
async def test_the_cluster_and_every_coordinator_are_this_server() -> None:
    async with running_asker() as asker:
        cluster = await asker.ask(DESCRIBE_CLUSTER_API, DescribeClusterRequest())
        assert (cluster.cluster_id, cluster.controller_id, cluster.brokers[0].host) == ("the-cluster", 0, CLUSTER.address.host)
        one = await asker.ask(FIND_COORDINATOR_API, FindCoordinatorRequest(key="g"), 3)
        assert (one.error_code, one.node_id, one.host, one.port) == (0, 0, *CLUSTER.address)
        many = await asker.ask(FIND_COORDINATOR_API, FindCoordinatorRequest(key_type=1, coordinator_keys=("a", "b")))
        assert [(each.key, each.error_code, each.port) for each in many.coordinators] == [("a", 0, 9092), ("b", 0, 9092)]
        wrong = await asker.ask(FIND_COORDINATOR_API, FindCoordinatorRequest(key_type=9, coordinator_keys=("a",)))
        assert wrong.coordinators[0].error_code == 42


@on_loop
async def test_a_topic_is_created_as_asked() -> None:
    async with running_asker() as asker:
        configs = (
            CreatableTopicConfig(name="retention.ms", value="60000"),
            CreatableTopicConfig(name="tailrace.alias", value="o"),
        )
        result = await make(asker, num_partitions=3, configs=configs)
        topic = asker.broker.topics.get("o").topic
        assert (topic.name, topic.partitions, topic.settings.retention_seconds) == ("orders", 3, 60)
        assert (result.error_code, result.topic_id, result.num_partitions, result.replication_factor) == (0, topic.uuid, 3, 1)
        assert {config.name: config.value for config in result.configs or ()}["retention.ms"] == "60000"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"num_partitions": 0}, 37),
        ({"num_partitions": -5}, 37),
        ({"num_partitions": 100_000}, 44),
        ({"replication_factor": 0}, 38),
        ({"replication_factor": -2}, 38),
        ({"configs": (CreatableTopicConfig(name="min.insync.replicas", value="2"),)}, 40),
        ({"configs": (CreatableTopicConfig(name="segment.bytes", value="1"),)}, 40),
        ({"name": "no/slashes"}, 17),
        ({"name": "there"}, 36),
        ({"configs": (CreatableTopicConfig(name="cleanup.policy", value="shrink"),)}, 40),
        ({"configs": (CreatableTopicConfig(name="max.message.bytes", value="99999999"),)}, 40),
        ({"assignments": (CreatableReplicaAssignment(partition_index=0, broker_ids=(0,)),)}, 42),
    ],
)
@on_loop
async def test_an_invalid_topic_is_rejected_also_with_validate_only(wanted: dict[str, Any], code: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("there")
        for validate_only in (True, False):
            result = await make(asker, validate_only=validate_only, **wanted)
            assert result.error_code == code
            assert result.error_message
        assert len(asker.broker.topics) == 1


@on_loop
async def test_validate_only_creates_no_topic() -> None:
    async with running_asker() as asker:
        assert (await make(asker, validate_only=True)).error_code == 0
        assert len(asker.broker.topics) == 0


@on_loop
async def test_defaults_and_assignments_say_how_many_partitions_there_are() -> None:
    async with running_asker(KafkaSettings(default_partitions=4)) as asker:
        assert (await make(asker, num_partitions=-1, replication_factor=-1)).num_partitions == 4
        assigned = tuple(CreatableReplicaAssignment(partition_index=number, broker_ids=(0,)) for number in range(2))
        result = await make(asker, name="assigned", num_partitions=-1, replication_factor=-1, assignments=assigned)
        assert (result.error_code, result.num_partitions) == (0, 2)


@on_loop
async def test_the_same_name_twice_in_one_request_is_rejected() -> None:
    async with running_asker() as asker:
        twice = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        (result,) = (await asker.ask(CREATE_TOPICS_API, CreateTopicsRequest(topics=(twice, twice)))).topics
        assert result.error_code == 42
        assert len(asker.broker.topics) == 0


@on_loop
async def test_partitions_are_added_and_never_removed() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders", 2)

        async def grow(count: int, validate_only: bool = False, **fields: Any) -> int:
            wanted = CreatePartitionsTopic(name="orders", count=count, **{"assignments": None, **fields})
            request = CreatePartitionsRequest(topics=(wanted,), validate_only=validate_only)
            (result,) = (await asker.ask(CREATE_PARTITIONS_API, request)).results
            code: int = result.error_code
            return code

        assert await grow(5, validate_only=True) == 0
        assert asker.broker.topics.get("orders").topic.partitions == 2
        assert await grow(5) == 0
        assert asker.broker.topics.get("orders").topic.partitions == 5
        assert await grow(5) == 37
        assert await grow(1) == 37
        for assigned in ((7,), (0, 0), ()):
            assert await grow(6, assignments=(CreatePartitionsAssignment(broker_ids=assigned),)) == 39
        assert await grow(7, assignments=(CreatePartitionsAssignment(broker_ids=(0,)),)) == 39
        assert await grow(10**6, validate_only=True) == 44


@on_loop
async def test_topics_are_deleted_by_name_and_by_id() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("a")
        second = await asker.broker.topics.create("b")
        old = await asker.ask(DELETE_TOPICS_API, DeleteTopicsRequest(topic_names=("a", "nothing")), 5)
        assert [(each.name, each.error_code) for each in old.responses] == [("a", 0), ("nothing", 3)]
        states = (DeleteTopicState(topic_id=second.uuid), DeleteTopicState(topic_id=uuid4()))
        new = await asker.ask(DELETE_TOPICS_API, DeleteTopicsRequest(topics=states))
        assert [(each.name, each.error_code) for each in new.responses] == [("b", 0), (None, 100)]
        assert len(asker.broker.topics) == 0


@on_loop
async def test_records_are_deleted_up_to_an_offset_or_all() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        await append(asker.broker, raw("orders", 0, *[b"x"] * 10))

        async def delete(offset: int, number: int = 0) -> tuple[int, int]:
            wanted = DeleteRecordsTopic(
                name="orders", partitions=(DeleteRecordsPartition(partition_index=number, offset=offset),)
            )
            response = await asker.ask(DELETE_RECORDS_API, DeleteRecordsRequest(topics=(wanted,)))
            (result,) = response.topics[0].partitions
            return result.error_code, result.low_watermark

        assert await delete(4) == (0, 4)
        assert await delete(2) == (0, 4)
        assert await delete(11) == (1, -1)
        assert await delete(-5) == (1, -1)
        assert await delete(1, number=3) == (3, -1)
        assert await delete(-1) == (0, 10)
        assert bounds_of(asker.broker, "orders") == (10, 10)


@on_loop
async def test_offsets_are_found_by_edge_by_time_and_by_the_newest_time() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        for timestamps in ((1000, 1010), (5000, 4000), (2000,)):
            records = [Record(None, b"x", (), timestamp) for timestamp in timestamps]
            await append(asker.broker, RawBatch("orders", 0, encode_batch(records)))

        async def look_up(timestamp: int, **fields: int) -> tuple[int, int, int]:
            wanted = ListOffsetsPartition(timestamp=timestamp, **fields)
            request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="orders", partitions=(wanted,)),))
            (found,) = (await asker.ask(LIST_OFFSETS_API, request)).topics[0].partitions
            return found.error_code, found.offset, found.timestamp

        assert await look_up(-1) == (0, 5, -1)
        assert await look_up(-2) == (0, 0, -1)
        assert await look_up(-3) == (0, 2, 5000)
        assert await look_up(-4) == (0, 0, -1)
        assert await look_up(-5) == (0, -1, -1)
        assert await look_up(0) == (0, 0, 1000)
        assert await look_up(1005) == (0, 1, 1010)
        assert await look_up(4500) == (0, 2, 5000)
        assert await look_up(9999) == (0, -1, -1)
        assert (await look_up(-1, partition_index=7))[0] == 3
        assert (await look_up(-1, current_leader_epoch=3))[0] == 75
        assert (await look_up(-99))[0] == 35


@on_loop
async def test_the_newest_time_of_an_empty_partition_is_none() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        assert await asker.broker.positions.newest("orders", 0) is None


@on_loop
async def test_the_only_leader_epoch_ends_at_the_end() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        await append(asker.broker, raw("orders", 0, b"x", b"y"))

        async def end_of(epoch: int, **fields: int) -> tuple[int, int, int]:
            wanted = OffsetForLeaderPartition(leader_epoch=epoch, **fields)
            request = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic="orders", partitions=(wanted,)),))
            (found,) = (await asker.ask(OFFSET_FOR_LEADER_EPOCH_API, request)).topics[0].partitions
            return found.error_code, found.leader_epoch, found.end_offset

        assert await end_of(0) == (0, 0, 2)
        assert await end_of(4) == (0, -1, -1)
        assert (await end_of(0, current_leader_epoch=4))[0] == 75
        assert (await end_of(0, partition=9))[0] == 3


@on_loop
async def test_sizes_of_partitions_are_returned() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders", 2)
        await append(asker.broker, raw("orders", 1, b"x" * 100))
        response = await asker.ask(DESCRIBE_LOG_DIRS_API, DescribeLogDirsRequest(topics=None))
        (topic,) = response.results[0].topics
        empty, full = (each.partition_size for each in topic.partitions)
        assert empty == 0
        assert full > 100


@on_loop
async def test_configs_are_shown_in_full_or_as_asked() -> None:
    async with running_asker(KafkaSettings(auto_create_topics=False)) as asker:
        await asker.broker.topics.create("orders", options=options(retention_seconds=5))

        async def show(kind: int, name: str, keys: tuple[str, ...] | None = None) -> tuple[int, dict[str, str | None]]:
            wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            (result,) = (await asker.ask(DESCRIBE_CONFIGS_API, DescribeConfigsRequest(resources=(wanted,)))).results
            return result.error_code, {config.name: config.value for config in result.configs}

        assert await show(TOPIC, "orders", ("retention.ms",)) == (0, {"retention.ms": "5000"})
        assert set((await show(TOPIC, "orders"))[1]) == set(CONFIG_NAMES)
        assert await show(TOPIC, "nothing") == (3, {})
        assert await show(BROKER, "0", ("auto.create.topics.enable",)) == (0, {"auto.create.topics.enable": "false"})
        assert (await show(BROKER, "7"))[0] == 42
        assert (await show(99, "x"))[0] == 42


@on_loop
async def test_configs_are_altered_one_by_one_or_all_at_once() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders", options=options(retention_seconds=5, retention_max_bytes=10))

        async def alter(name: str, value: str | None, operation: int = 0, validate_only: bool = False) -> int:
            config = IncrementalAlterableConfig(name=name, value=value, config_operation=operation)
            resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=(config,))
            request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
            (result,) = (await asker.ask(INCREMENTAL_ALTER_CONFIGS_API, request)).responses
            code: int = result.error_code
            return code

        def settings() -> tuple[int | None, int | None]:
            topic = asker.broker.topics.get("orders").topic
            return topic.settings.retention_seconds, topic.settings.retention_max_bytes

        assert await alter("retention.ms", "9000", validate_only=True) == 0
        assert settings() == (5, 10)
        assert await alter("retention.ms", "9000") == 0
        assert settings() == (9, 10)
        assert await alter("retention.bytes", None, operation=1) == 0
        assert settings() == (9, None)
        assert await alter("retention.ms", "0") == 40
        assert await alter("retention.ms", "0", validate_only=True) == 40
        assert await alter("cleanup.policy", "compact", operation=2) == 40
        assert settings() == (9, None)
        resource = AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="orders",
            configs=(AlterableConfig(name="retention.bytes", value="77"),),
        )
        (result,) = (await asker.ask(ALTER_CONFIGS_API, AlterConfigsRequest(resources=(resource,)))).responses
        assert result.error_code == 0
        assert settings() == (None, 77)


@on_loop
async def test_more_topics_than_the_limit_are_a_policy_violation() -> None:
    async with running_asker(limits=Limits(topics=1)) as asker:
        assert (await make(asker, name="a")).error_code == 0
        assert (await make(asker, name="b")).error_code == 44
