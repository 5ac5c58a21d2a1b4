"""Operators of a cluster of one broker are told what is true: nothing to elect, to move or to upgrade."""

from typing import Any

import pytest

from tailrace.kafka.cluster import KafkaSettings
from tailrace.kafka.features import Feature, check_update
from tailrace.model.errors import InvalidFeatureUpdateError
from tailrace.wire.messages.acls import (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tailrace.wire.messages.cluster import (
    API_VERSIONS_API,
    DESCRIBE_LOG_DIRS_API,
    ApiVersionsRequest,
    DescribeLogDirsRequest,
)
from tailrace.wire.messages.cluster_admin import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ALTER_REPLICA_LOG_DIRS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    UPDATE_FEATURES_API,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    FeatureUpdateKey,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    UpdateFeaturesRequest,
)
from tailrace.wire.messages.configs import LIST_CONFIG_RESOURCES_API, ListConfigResourcesRequest
from tailrace.wire.messages.groups import DELETE_GROUPS_API, DeleteGroupsRequest
from tests.support.aio import on_loop
from tests.support.kafka import Asker, running_asker

NONE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, INVALID_ASSIGNMENT, INVALID_REQUEST = 0, 3, 35, 39, 42
SECURITY_DISABLED, LOG_DIR_NOT_FOUND = 54, 57
GROUP_NOT_FOUND, ELECTION_NOT_NEEDED, NO_REASSIGNMENT, INVALID_UPDATE = 69, 84, 85, 95
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.mark.parametrize("version", range(3))
@on_loop
async def test_no_election_is_needed(version: int) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders", 2)
        wanted = (
            ElectLeadersTopicPartitions(topic="orders", partitions=(0, 7)),
            ElectLeadersTopicPartitions(topic="gone", partitions=(0,)),
        )
        response = await asker.ask(ELECT_LEADERS_API, ElectLeadersRequest(topic_partitions=wanted), version)
        assert response.error_code == NONE
        assert {
            (topic.topic, each.partition_id): each.error_code
            for topic in response.replica_election_results
            for each in topic.partition_result
        } == {("orders", 0): ELECTION_NOT_NEEDED, ("orders", 7): UNKNOWN_TOPIC, ("gone", 0): UNKNOWN_TOPIC}
        assert all(each.error_message for topic in response.replica_election_results for each in topic.partition_result)


@on_loop
async def test_an_election_for_all_partitions_reports_those_that_needed_one() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders", 2)
        response = await asker.ask(ELECT_LEADERS_API, ElectLeadersRequest(topic_partitions=None))
        assert (response.error_code, response.replica_election_results) == (NONE, ())


@on_loop
async def test_an_unknown_kind_of_election_is_rejected() -> None:
    async with running_asker() as asker:
        assert (await asker.ask(ELECT_LEADERS_API, ElectLeadersRequest(election_type=1))).error_code == NONE
        assert (await asker.ask(ELECT_LEADERS_API, ElectLeadersRequest(election_type=2))).error_code == INVALID_REQUEST


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("orders", 0, (0,), NONE),
        ("orders", 0, (1,), INVALID_ASSIGNMENT),
        ("orders", 0, (0, 1), INVALID_ASSIGNMENT),
        ("orders", 0, (), INVALID_ASSIGNMENT),
        ("orders", 0, None, NO_REASSIGNMENT),
        ("orders", 9, (0,), UNKNOWN_TOPIC),
        ("gone", 0, (0,), UNKNOWN_TOPIC),
    ],
)
@on_loop
async def test_a_partition_can_only_be_where_it_is(
    topic: str, partition: int, replicas: tuple[int, ...] | None, code: int, version: int
) -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders")
        wanted = ReassignableTopic(
            name=topic, partitions=(ReassignablePartition(partition_index=partition, replicas=replicas),)
        )
        request = AlterPartitionReassignmentsRequest(topics=(wanted,), allow_replication_factor_change=False)
        response = await asker.ask(ALTER_PARTITION_REASSIGNMENTS_API, request, version)
        assert response.error_code == NONE
        (answered,) = response.responses
        (found,) = answered.partitions
        assert (answered.name, found.partition_index, found.error_code) == (topic, partition, code)
        assert bool(found.error_message) == bool(code)


@on_loop
async def test_no_reassignment_is_in_progress() -> None:
    async with running_asker() as asker:
        for topics in (None, (ListPartitionReassignmentsTopics(name="gone", partition_indexes=(0,)),)):
            request = ListPartitionReassignmentsRequest(topics=topics)
            response = await asker.ask(LIST_PARTITION_REASSIGNMENTS_API, request)
            assert (response.error_code, response.topics) == (NONE, ())


@on_loop
async def test_a_partition_can_only_be_in_the_directory_where_it_is() -> None:
    async with running_asker() as asker:
        await asker.broker.topics.create("orders", 2)
        (only,) = (await asker.ask(DESCRIBE_LOG_DIRS_API, DescribeLogDirsRequest(topics=None))).results
        dirs = tuple(
            AlterReplicaLogDir(path=path, topics=(AlterReplicaLogDirTopic(name=topic, partitions=(number,)),))
            for path, topic, number in ((only.log_dir, "orders", 0), ("/other", "orders", 1), (only.log_dir, "gone", 0))
        )
        response = await asker.ask(ALTER_REPLICA_LOG_DIRS_API, AlterReplicaLogDirsRequest(dirs=dirs))
        assert {
            (topic.topic_name, each.partition_index): each.error_code for topic in response.results for each in topic.partitions
        } == {("orders", 0): NONE, ("orders", 1): LOG_DIR_NOT_FOUND, ("gone", 0): UNKNOWN_TOPIC}


@on_loop
async def test_questions_about_permissions_are_answered_as_by_a_kafka_without_an_authorizer() -> None:
    async with running_asker() as asker:
        found = await asker.ask(DESCRIBE_ACLS_API, DescribeAclsRequest())
        assert (found.error_code, found.resources) == (SECURITY_DISABLED, ())
        created = await asker.ask(CREATE_ACLS_API, CreateAclsRequest(creations=(AclCreation(), AclCreation())))
        deleted = await asker.ask(DELETE_ACLS_API, DeleteAclsRequest(filters=(DeleteAclsFilter(),)))
        assert [each.error_code for each in (*created.results, *deleted.filter_results)] == [SECURITY_DISABLED] * 3


@on_loop
async def test_the_features_in_force_are_told() -> None:
    async with running_asker() as asker:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        for version in (3, 4):
            told = await asker.ask(API_VERSIONS_API, request, version)
            assert told.finalized_features_epoch == 0
            assert {each.name: each.max_version_level for each in told.finalized_features} == {
                "group.version": 1,
                "transaction.version": 2,
            }
            assert {each.name: (each.min_version, each.max_version) for each in told.supported_features} == {
                "group.version": (1, 1),
                "transaction.version": (2, 2),
            }


async def update(asker: Asker, version: int, **fields: Any) -> tuple[int, list[tuple[str, int]]]:
    request = UpdateFeaturesRequest(feature_updates=(FeatureUpdateKey(**fields),))
    response = await asker.ask(UPDATE_FEATURES_API, request, version)
    assert bool(response.error_message) == bool(response.error_code)
    return response.error_code, [(each.feature, each.error_code) for each in response.results]


@pytest.mark.parametrize("version", range(3))
@on_loop
async def test_a_feature_keeps_its_level(version: int) -> None:
    results = [("transaction.version", NONE)] if version < 2 else []
    async with running_asker() as asker:
        assert await update(asker, version, feature="transaction.version", max_version_level=2) == (NONE, results)
        for level in (3, 1, 0, -1):
            code, _ = await update(asker, version, feature="transaction.version", max_version_level=level)
            assert code == INVALID_UPDATE
        assert (await update(asker, version, feature="metadata.version", max_version_level=1))[0] == INVALID_UPDATE
    async with running_asker() as asker:
        assert (await asker.ask(UPDATE_FEATURES_API, UpdateFeaturesRequest(), version)).error_code == NONE


def test_levels_between_the_lowest_and_the_highest_are_not_in_force() -> None:
    features = (Feature("group.version", 0, 1, 1),)
    check_update("group.version", 1, UPGRADE, features)
    with pytest.raises(InvalidFeatureUpdateError, match="level 1 is in force"):
        check_update("group.version", 0, SAFE_DOWNGRADE, features)
    with pytest.raises(InvalidFeatureUpdateError, match="levels 0 to 1"):
        check_update("group.version", 2, UPGRADE, features)
    with pytest.raises(InvalidFeatureUpdateError, match="upgrade type 9"):
        check_update("group.version", 1, 9, features)


async def listed(asker: Asker, version: int, *types: int) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=types)
    response = await asker.ask(LIST_CONFIG_RESOURCES_API, request, version)
    assert response.error_code == NONE
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


@on_loop
async def test_topics_and_the_broker_are_what_has_configs() -> None:
    async with running_asker(KafkaSettings(client_telemetry=True)) as asker:
        await asker.broker.topics.create("orders")
        await asker.broker.topics.create("bills")
        everything = [(TOPIC, "bills"), (TOPIC, "orders"), (BROKER, "0"), (CLIENT_METRICS, "tailrace")]
        assert await listed(asker, 1) == everything
        assert await listed(asker, 1, BROKER, GROUP) == [(BROKER, "0")]
        assert await listed(asker, 1, TOPIC, TOPIC) == [(TOPIC, "bills"), (TOPIC, "orders")]
        assert await listed(asker, 1, CLIENT_METRICS) == await listed(asker, 0) == [(CLIENT_METRICS, "tailrace")]
        unknown = await asker.ask(LIST_CONFIG_RESOURCES_API, ListConfigResourcesRequest(resource_types=(TOPIC, 99)), 1)
        assert (unknown.error_code, unknown.config_resources) == (UNSUPPORTED_VERSION, ())


@on_loop
async def test_why_a_group_was_not_deleted_is_told() -> None:
    async with running_asker() as asker:
        for version, says_why in ((2, False), (3, True)):
            (result,) = (await asker.ask(DELETE_GROUPS_API, DeleteGroupsRequest(groups_names=("gone",)), version)).results
            assert result.error_code == GROUP_NOT_FOUND
            assert bool(result.error_message) == says_why
