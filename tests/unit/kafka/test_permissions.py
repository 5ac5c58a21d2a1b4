"""Which rights each API needs, with the code of Kafka for who lacks one. What exists and what does not are one answer then."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from tailrace.kafka.dispatch import KafkaClient
from tailrace.model.errors import UnanswerableRequestError
from tailrace.model.group import NO_MEMBER, MemberIdentity, OffsetCommit
from tailrace.model.ids import Offset
from tailrace.model.record import Record
from tailrace.model.security import CLUSTER, IMPLIED_BY, OPERATIONS_ON, Grant, Operation, Principal, ResourceKind
from tailrace.wire.message import Api, KafkaMessage
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
from tailrace.wire.messages.authentication import (
    ALTER_USER_SCRAM_CREDENTIALS_API,
    DESCRIBE_USER_SCRAM_CREDENTIALS_API,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialUpsertion,
    UserName,
)
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
    ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest,
)
from tailrace.wire.messages.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    LIST_CONFIG_RESOURCES_API,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from tailrace.wire.messages.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE_API,
    CONSUMER_GROUP_HEARTBEAT_API,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from tailrace.wire.messages.fetch import (
    FETCH_API,
    LIST_OFFSETS_API,
    OFFSET_FOR_LEADER_EPOCH_API,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
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
)
from tailrace.wire.messages.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.wire.messages.quotas import (
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaFilterComponent,
    QuotaOperation,
)
from tailrace.wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_RECORDS_API,
    DELETE_TOPICS_API,
    DESCRIBE_TOPIC_PARTITIONS_API,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from tailrace.wire.messages.transactions import (
    ADD_OFFSETS_TO_TXN_API,
    ADD_PARTITIONS_TO_TXN_API,
    DESCRIBE_PRODUCERS_API,
    DESCRIBE_TRANSACTIONS_API,
    END_TXN_API,
    INIT_PRODUCER_ID_API,
    LIST_TRANSACTIONS_API,
    TXN_OFFSET_COMMIT_API,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.wire.records import encode_batch
from tests.support.aio import on_loop
from tests.support.batches import TIMESTAMP
from tests.support.kafka import Asker, running_asker
from tests.support.sasl import REQUIRED

ALICE = KafkaClient("192.0.2.1", 1, Principal("alice", "192.0.2.1"))
ADMIN = KafkaClient("192.0.2.1", 2, Principal("root", "192.0.2.1"))
THERE, GHOST = "there", "ghost"
TOPIC, GROUP, TRANSACTION, WHOLE_CLUSTER = 29, 30, 53, 31
BATCH = bytes(encode_batch([Record(None, b"v", timestamp=TIMESTAMP)]))


class Need(NamedTuple):
    kind: ResourceKind
    operation: Operation
    code: int


class Case(NamedTuple):
    api: Api
    request: Callable[[str], KafkaMessage]
    needs: tuple[Need, ...]
    version: int | None = None


def on_topic(operation: Operation) -> Need:
    return Need("topic", operation, TOPIC)


def on_group(operation: Operation) -> Need:
    return Need("group", operation, GROUP)


def on_transaction(operation: Operation) -> Need:
    return Need("transactional_id", operation, TRANSACTION)


def on_cluster(operation: Operation) -> Need:
    return Need("cluster", operation, WHOLE_CLUSTER)


def produced(name: str, batch: bytes = BATCH, **more: Any) -> ProduceRequest:
    topic = TopicProduceData(name=name, partition_data=(PartitionProduceData(index=0, records=batch),))
    return ProduceRequest(acks=-1, topic_data=(topic,), **more)


def fetched(**topic: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(topics=(FetchTopic(partitions=(partition,), **topic),))


def committed(name: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return OffsetCommitRequest(group_id=name, topics=(OffsetCommitRequestTopic(name=name, partitions=(partition,)),))


CASES = {
    "Metadata": Case(
        METADATA_API,
        lambda name: MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False),
        (on_topic("describe"),),
    ),
    "DescribeTopicPartitions": Case(
        DESCRIBE_TOPIC_PARTITIONS_API,
        lambda name: DescribeTopicPartitionsRequest(topics=(DescribeTopicPartitionsTopic(name=name),)),
        (on_topic("describe"),),
    ),
    "Produce": Case(PRODUCE_API, produced, (on_topic("publish"),), 12),
    "Produce to several partitions": Case(
        PRODUCE_API,
        lambda name: ProduceRequest(
            acks=-1,
            topic_data=(
                TopicProduceData(
                    name=name,
                    partition_data=(PartitionProduceData(index=0, records=BATCH), PartitionProduceData(index=1, records=BATCH)),
                ),
            ),
        ),
        (on_topic("publish"),),
        12,
    ),
    "Fetch": Case(FETCH_API, lambda name: fetched(topic=name), (on_topic("consume"),), 12),
    "ListOffsets": Case(
        LIST_OFFSETS_API,
        lambda name: ListOffsetsRequest(
            topics=(
                ListOffsetsTopic(
                    name=name, partitions=tuple(ListOffsetsPartition(timestamp=time) for time in (-1, -2, -3, -5, 0))
                ),
            )
        ),
        (on_topic("describe"),),
    ),
    "OffsetForLeaderEpoch": Case(
        OFFSET_FOR_LEADER_EPOCH_API,
        lambda name: OffsetForLeaderEpochRequest(
            topics=(OffsetForLeaderTopic(topic=name, partitions=(OffsetForLeaderPartition(),)),)
        ),
        (on_topic("describe"),),
    ),
    "FindCoordinator of a group": Case(
        FIND_COORDINATOR_API, lambda name: FindCoordinatorRequest(coordinator_keys=(name,)), (on_group("describe"),)
    ),
    "FindCoordinator of one group": Case(
        FIND_COORDINATOR_API, lambda name: FindCoordinatorRequest(key=name), (on_group("describe"),), 3
    ),
    "FindCoordinator of a transaction": Case(
        FIND_COORDINATOR_API,
        lambda name: FindCoordinatorRequest(coordinator_keys=(name,), key_type=1),
        (on_transaction("describe"),),
    ),
    "JoinGroup": Case(
        JOIN_GROUP_API,
        lambda name: JoinGroupRequest(
            group_id=name,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range"),),
        ),
        (on_group("consume"),),
    ),
    "SyncGroup": Case(SYNC_GROUP_API, lambda name: SyncGroupRequest(group_id=name, member_id="m"), (on_group("consume"),)),
    "Heartbeat": Case(HEARTBEAT_API, lambda name: HeartbeatRequest(group_id=name, member_id="m"), (on_group("consume"),)),
    "LeaveGroup": Case(
        LEAVE_GROUP_API,
        lambda name: LeaveGroupRequest(group_id=name, members=(LeaveGroupMember(member_id="m"),)),
        (on_group("consume"),),
    ),
    "OffsetCommit": Case(OFFSET_COMMIT_API, committed, (on_group("consume"), on_topic("consume")), 9),
    "OffsetFetch": Case(
        OFFSET_FETCH_API,
        lambda name: OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(group_id=name, topics=(OffsetFetchRequestTopics(name=name, partition_indexes=(0,)),)),
            ),
            require_stable=True,
        ),
        (on_group("describe"), on_topic("describe")),
        9,
    ),
    "OffsetFetch of old clients": Case(
        OFFSET_FETCH_API,
        lambda name: OffsetFetchRequest(group_id=name, topics=(OffsetFetchRequestTopic(name=name, partition_indexes=(0,)),)),
        (on_group("describe"), on_topic("describe")),
        1,
    ),
    "OffsetDelete": Case(
        OFFSET_DELETE_API,
        lambda name: OffsetDeleteRequest(
            group_id=THERE,
            topics=(OffsetDeleteRequestTopic(name=name, partitions=(OffsetDeleteRequestPartition(),)),),
        ),
        (on_group("drop"), on_topic("consume")),
    ),
    "DescribeGroups": Case(DESCRIBE_GROUPS_API, lambda name: DescribeGroupsRequest(groups=(name,)), (on_group("describe"),)),
    "DeleteGroups": Case(DELETE_GROUPS_API, lambda name: DeleteGroupsRequest(groups_names=(name,)), (on_group("drop"),)),
    "ConsumerGroupHeartbeat": Case(
        CONSUMER_GROUP_HEARTBEAT_API,
        lambda name: ConsumerGroupHeartbeatRequest(
            group_id=f"{name}-consumers",
            member_id="m",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=(name,),
            topic_partitions=(),
        ),
        (on_group("consume"), on_topic("describe")),
    ),
    "ConsumerGroupDescribe": Case(
        CONSUMER_GROUP_DESCRIBE_API,
        lambda name: ConsumerGroupDescribeRequest(group_ids=(name,)),
        (on_group("describe"),),
    ),
    "CreateTopics": Case(
        CREATE_TOPICS_API,
        lambda name: CreateTopicsRequest(topics=(CreatableTopic(name=name, num_partitions=1, replication_factor=1),)),
        (on_topic("create"),),
    ),
    "CreatePartitions": Case(
        CREATE_PARTITIONS_API,
        lambda name: CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=name, count=3, assignments=None),)),
        (on_topic("alter"),),
    ),
    "DeleteTopics": Case(
        DELETE_TOPICS_API, lambda name: DeleteTopicsRequest(topics=(DeleteTopicState(name=name),)), (on_topic("drop"),)
    ),
    "DeleteRecords": Case(
        DELETE_RECORDS_API,
        lambda name: DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name=name, partitions=(DeleteRecordsPartition(offset=-1),)),)
        ),
        (on_topic("drop"),),
    ),
    "DescribeConfigs of a topic": Case(
        DESCRIBE_CONFIGS_API,
        lambda name: DescribeConfigsRequest(
            resources=(DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None),)
        ),
        (on_topic("describe_configs"),),
    ),
    "DescribeConfigs of a group": Case(
        DESCRIBE_CONFIGS_API,
        lambda name: DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=32, resource_name=name),)),
        (on_group("describe_configs"),),
    ),
    "DescribeConfigs of the broker": Case(
        DESCRIBE_CONFIGS_API,
        lambda name: DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=4, resource_name="0"),)),
        (on_cluster("describe_configs"),),
    ),
    "AlterConfigs of a topic": Case(
        ALTER_CONFIGS_API,
        lambda name: AlterConfigsRequest(resources=(AlterConfigsResource(resource_type=2, resource_name=name),)),
        (on_topic("alter_configs"),),
    ),
    "IncrementalAlterConfigs of a topic": Case(
        INCREMENTAL_ALTER_CONFIGS_API,
        lambda name: IncrementalAlterConfigsRequest(
            resources=(IncrementalAlterConfigsResource(resource_type=2, resource_name=name),)
        ),
        (on_topic("alter_configs"),),
    ),
    "IncrementalAlterConfigs of the broker": Case(
        INCREMENTAL_ALTER_CONFIGS_API,
        lambda name: IncrementalAlterConfigsRequest(
            resources=(IncrementalAlterConfigsResource(resource_type=4, resource_name="0"),)
        ),
        (on_cluster("alter_configs"),),
    ),
    "ListConfigResources": Case(
        LIST_CONFIG_RESOURCES_API, lambda name: ListConfigResourcesRequest(), (on_cluster("describe_configs"),)
    ),
    "DescribeLogDirs": Case(DESCRIBE_LOG_DIRS_API, lambda name: DescribeLogDirsRequest(topics=None), (on_cluster("describe"),)),
    "AlterReplicaLogDirs": Case(
        ALTER_REPLICA_LOG_DIRS_API,
        lambda name: AlterReplicaLogDirsRequest(
            dirs=(AlterReplicaLogDir(path="log", topics=(AlterReplicaLogDirTopic(name=name, partitions=(0,)),)),)
        ),
        (on_cluster("alter"),),
    ),
    "ElectLeaders": Case(
        ELECT_LEADERS_API,
        lambda name: ElectLeadersRequest(topic_partitions=(ElectLeadersTopicPartitions(topic=name, partitions=(0,)),)),
        (on_cluster("alter"),),
    ),
    "ElectLeaders of old clients": Case(
        ELECT_LEADERS_API,
        lambda name: ElectLeadersRequest(topic_partitions=(ElectLeadersTopicPartitions(topic=name, partitions=(0,)),)),
        (on_cluster("alter"),),
        0,
    ),
    "AlterPartitionReassignments": Case(
        ALTER_PARTITION_REASSIGNMENTS_API, lambda name: AlterPartitionReassignmentsRequest(), (on_cluster("alter"),)
    ),
    "ListPartitionReassignments": Case(
        LIST_PARTITION_REASSIGNMENTS_API, lambda name: ListPartitionReassignmentsRequest(), (on_cluster("describe"),)
    ),
    "UpdateFeatures": Case(UPDATE_FEATURES_API, lambda name: UpdateFeaturesRequest(), (on_cluster("alter"),)),
    "DescribeAcls": Case(
        DESCRIBE_ACLS_API,
        lambda name: DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=name, pattern_type_filter=1, operation=1, permission_type=1
        ),
        (on_cluster("describe"),),
    ),
    "CreateAcls": Case(
        CREATE_ACLS_API,
        lambda name: CreateAclsRequest(
            creations=(
                AclCreation(
                    resource_type=2, resource_name=name, principal="User:bob", host="*", operation=3, permission_type=3
                ),
            )
        ),
        (on_cluster("alter"),),
    ),
    "DeleteAcls": Case(
        DELETE_ACLS_API,
        lambda name: DeleteAclsRequest(
            filters=(
                DeleteAclsFilter(
                    resource_type_filter=2, resource_name_filter="-", pattern_type_filter=3, operation=3, permission_type=3
                ),
            )
        ),
        (on_cluster("alter"),),
    ),
    "DescribeUserScramCredentials": Case(
        DESCRIBE_USER_SCRAM_CREDENTIALS_API,
        lambda name: DescribeUserScramCredentialsRequest(users=(UserName(name=name),)),
        (on_cluster("describe"),),
    ),
    "AlterUserScramCredentials": Case(
        ALTER_USER_SCRAM_CREDENTIALS_API,
        lambda name: AlterUserScramCredentialsRequest(
            upsertions=(
                ScramCredentialUpsertion(
                    name="bob", mechanism=1, iterations=4096, salt=b"0123456789abcdef", salted_password=bytes(32)
                ),
            )
        ),
        (on_cluster("alter"),),
    ),
    "DescribeClientQuotas": Case(
        DESCRIBE_CLIENT_QUOTAS_API,
        lambda name: DescribeClientQuotasRequest(components=(QuotaFilterComponent(entity_type="user", match=name),)),
        (on_cluster("describe_configs"),),
    ),
    "AlterClientQuotas": Case(
        ALTER_CLIENT_QUOTAS_API,
        lambda name: AlterClientQuotasRequest(
            entries=(
                QuotaAlteration(
                    entity=(AlteredQuotaEntity(entity_type="user", entity_name=name),),
                    ops=(QuotaOperation(key="requests", value=5.0),),
                ),
            )
        ),
        (on_cluster("alter_configs"),),
    ),
    "InitProducerId": Case(
        INIT_PRODUCER_ID_API,
        lambda name: InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000),
        (on_transaction("publish"),),
        5,
    ),
    "AddPartitionsToTxn": Case(
        ADD_PARTITIONS_TO_TXN_API,
        lambda name: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=name, partitions=(0,)),),
        ),
        (on_transaction("publish"), on_topic("publish")),
        3,
    ),
    "AddOffsetsToTxn": Case(
        ADD_OFFSETS_TO_TXN_API,
        lambda name: AddOffsetsToTxnRequest(transactional_id=name, group_id=name),
        (on_transaction("publish"), on_group("consume")),
    ),
    "TxnOffsetCommit": Case(
        TXN_OFFSET_COMMIT_API,
        lambda name: TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=name,
            topics=(TxnOffsetCommitRequestTopic(name=name, partitions=(TxnOffsetCommitRequestPartition(),)),),
        ),
        (on_transaction("publish"), on_group("consume"), on_topic("consume")),
        5,
    ),
    "EndTxn": Case(END_TXN_API, lambda name: EndTxnRequest(transactional_id=name), (on_transaction("publish"),)),
    "DescribeProducers": Case(
        DESCRIBE_PRODUCERS_API,
        lambda name: DescribeProducersRequest(topics=(DescribeProducersTopic(name=name, partition_indexes=(0,)),)),
        (on_topic("consume"),),
    ),
    "DescribeTransactions": Case(
        DESCRIBE_TRANSACTIONS_API,
        lambda name: DescribeTransactionsRequest(transactional_ids=(name,)),
        (on_transaction("describe"),),
    ),
}
NAMES_NOTHING = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster"}
"""APIs that everybody may ask for."""
FILTERED = {"ListGroups", "ListTransactions"}
"""APIs that leave out what may not be seen."""
NEEDS_ANOTHER = {"TxnOffsetCommit": on_topic("consume")}
"""Needs that are looked at after something that fails here: the transaction is not this producer's."""


@asynccontextmanager
async def secured() -> AsyncIterator[Asker]:
    """Return a broker with a topic, a group and a transactional id of one name, and a user without any rights."""
    async with running_asker(security=REQUIRED) as asker:
        broker = asker.broker
        await broker.users.create("alice")
        await broker.users.create("root", roles=("admin",))
        await broker.topics.create(THERE, 2)
        await broker.groups.commit(THERE, MemberIdentity(NO_MEMBER, -1, None), [OffsetCommit(THERE, 0, Offset(0), -1, "")])
        await broker.transactions.init_producer(THERE, 60_000)
        yield asker


async def allow(asker: Asker, *needs: Need) -> None:
    await asker.broker.grants.add([granted(need, name) for need in needs for name in (THERE, GHOST)])


def granted(need: Need, name: str, **more: Any) -> Grant:
    name = CLUSTER if need.kind == "cluster" else name
    pattern = "literal" if need.kind == "cluster" else "prefixed"
    return Grant(principal="alice", operation=need.operation, kind=need.kind, name=name, **{"pattern": pattern, **more})


def codes(response: Any) -> set[int]:
    return {code for code in _codes(msgspec.to_builtins(response)) if code}


def _codes(part: Any) -> Iterator[int]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name.endswith("error_code") and isinstance(value, int):
                yield value
            else:
                yield from _codes(value)
    elif isinstance(part, list | tuple):
        for each in part:
            yield from _codes(each)


async def answers(asker: Asker, case: Case, client: KafkaClient = ALICE) -> tuple[Any, Any]:
    """Return the answers for what exists and for what does not."""
    there = await asker.ask(case.api, case.request(THERE), case.version, client)
    ghost = await asker.ask(case.api, case.request(GHOST), case.version, client)
    return there, ghost


def without_names(response: Any) -> str:
    return msgspec.json.encode(response).decode().replace(THERE, GHOST)


@pytest.mark.parametrize("name", CASES)
@on_loop
async def test_who_may_nothing_learns_nothing(name: str) -> None:
    case = CASES[name]
    async with secured() as asker:
        there, ghost = await answers(asker, case)
        assert case.needs[0].code in codes(there)
        assert codes(there) <= {need.code for need in case.needs}
        assert without_names(there) == without_names(ghost)


@pytest.mark.parametrize("name", CASES)
@on_loop
async def test_each_right_is_needed(name: str) -> None:
    case = CASES[name]
    for missing in case.needs:
        if NEEDS_ANOTHER.get(name) == missing:
            continue
        async with secured() as asker:
            await allow(asker, *(need for need in case.needs if need != missing))
            there, ghost = await answers(asker, case)
            assert codes(there) == {missing.code}
            assert without_names(there) == without_names(ghost)


@pytest.mark.parametrize("name", CASES)
@on_loop
async def test_no_other_right_of_the_resource_is_enough(name: str) -> None:
    case = CASES[name]
    need = case.needs[0]
    enough = {need.operation, "all", "admin", *IMPLIED_BY.get(need.operation, ())}
    if name in ("AlterConfigs of a topic", "IncrementalAlterConfigs of a topic"):
        enough.add("alter")
    async with secured() as asker:
        await allow(asker, *(Need(need.kind, operation, 0) for operation in OPERATIONS_ON[need.kind] - enough))
        there, _ = await answers(asker, case)
        assert need.code in codes(there)


@pytest.mark.parametrize("name", CASES)
@on_loop
async def test_with_all_rights_it_is_answered(name: str) -> None:
    case = CASES[name]
    refusals = {TOPIC, GROUP, TRANSACTION, WHOLE_CLUSTER}
    async with secured() as asker:
        # Who creates a topic is shown its configs with this right.
        await allow(asker, *case.needs, on_topic("describe_configs"))
        for response in await answers(asker, case):
            assert not codes(response) & refusals
    async with secured() as asker:
        for response in await answers(asker, case, ADMIN):
            assert not codes(response) & refusals


@pytest.mark.parametrize("name", CASES)
@on_loop
async def test_a_denial_wins(name: str) -> None:
    case = CASES[name]
    async with secured() as asker:
        await allow(asker, *case.needs)
        await asker.broker.grants.add([granted(case.needs[0], THERE, is_denied=True, host="192.0.2.1")])
        there = await asker.ask(case.api, case.request(THERE), case.version, ALICE)
        assert case.needs[0].code in codes(there)


@on_loop
async def test_every_api_has_its_rights_here() -> None:
    async with running_asker(security=REQUIRED) as asker:
        known = {case.api.name for case in CASES.values()} | NAMES_NOTHING | FILTERED
        assert {route.api.name for route in asker.dispatcher.routes} - known == set()


@on_loop
async def test_lists_have_what_may_be_described() -> None:
    async with secured() as asker:
        await asker.broker.topics.create("hidden")
        await asker.broker.groups.commit(
            "hidden", MemberIdentity(NO_MEMBER, -1, None), [OffsetCommit(THERE, 0, Offset(0), -1, "")]
        )
        await asker.broker.transactions.init_producer("hidden", 60_000)
        await allow(asker, on_topic("describe"), on_group("describe"), on_transaction("describe"))
        everything = await asker.ask(METADATA_API, MetadataRequest(topics=None), client=ALICE)
        assert [topic.name for topic in everything.topics] == [THERE]
        partitions = await asker.ask(DESCRIBE_TOPIC_PARTITIONS_API, DescribeTopicPartitionsRequest(), client=ALICE)
        assert [topic.name for topic in partitions.topics] == [THERE]
        groups = await asker.ask(LIST_GROUPS_API, ListGroupsRequest(), client=ALICE)
        assert [group.group_id for group in groups.groups] == [THERE]
        transactions = await asker.ask(LIST_TRANSACTIONS_API, ListTransactionsRequest(), client=ALICE)
        assert [each.transactional_id for each in transactions.transaction_states] == [THERE]
        await asker.broker.grants.add([granted(on_cluster("describe"), "")])
        groups = await asker.ask(LIST_GROUPS_API, ListGroupsRequest(), client=ALICE)
        assert [group.group_id for group in groups.groups] == ["hidden", THERE]


@on_loop
async def test_operations_are_those_that_the_client_may_do() -> None:
    read, write, describe, alter = 1 << 3, 1 << 4, 1 << 8, 1 << 7
    none_asked = -(1 << 31)
    async with secured() as asker:
        await asker.broker.topics.create("hidden")
        await allow(asker, on_topic("consume"), on_topic("publish"), on_group("consume"))
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=THERE), MetadataRequestTopic(name="hidden")),
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        told = await asker.ask(METADATA_API, request, 10, ALICE)
        assert [topic.topic_authorized_operations for topic in told.topics] == [read | write | describe, none_asked]
        assert told.cluster_authorized_operations == 0
        partitions = await asker.ask(
            DESCRIBE_TOPIC_PARTITIONS_API,
            DescribeTopicPartitionsRequest(topics=(DescribeTopicPartitionsTopic(name=THERE),)),
            client=ALICE,
        )
        assert partitions.topics[0].topic_authorized_operations == read | write | describe
        groups = await asker.ask(
            DESCRIBE_GROUPS_API, DescribeGroupsRequest(groups=(THERE,), include_authorized_operations=True), client=ALICE
        )
        assert groups.groups[0].authorized_operations == read | describe
        await allow(asker, on_cluster("alter"))
        cluster = await asker.ask(
            DESCRIBE_CLUSTER_API, DescribeClusterRequest(include_cluster_authorized_operations=True), client=ALICE
        )
        assert cluster.cluster_authorized_operations == alter | describe


@on_loop
async def test_a_topic_id_never_tells_a_name() -> None:
    async with secured() as asker:
        there = asker.broker.topics.get(THERE).topic.uuid
        metadata = await asker.ask(
            METADATA_API, MetadataRequest(topics=(MetadataRequestTopic(topic_id=there, name=None),)), 12, ALICE
        )
        assert [(topic.error_code, topic.name, topic.topic_id) for topic in metadata.topics] == [(TOPIC, None, there)]
        deleted = await asker.ask(DELETE_TOPICS_API, DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=there),)), 6, ALICE)
        assert [(each.error_code, each.name) for each in deleted.responses] == [(TOPIC, None)]
        fetched_by_id = await asker.ask(FETCH_API, fetched(topic_id=there), 16, ALICE)
        assert codes(fetched_by_id) == {TOPIC}
        topic = TopicProduceData(topic_id=there, partition_data=(PartitionProduceData(index=0, records=BATCH),))
        produced_by_id = await asker.ask(PRODUCE_API, ProduceRequest(acks=-1, topic_data=(topic,)), 13, ALICE)
        assert codes(produced_by_id) == {TOPIC}
        for response in (metadata, deleted, fetched_by_id, produced_by_id):
            assert THERE not in msgspec.json.encode(response).decode()


@on_loop
async def test_a_client_that_wants_no_answer_is_closed() -> None:
    async with secured() as asker:
        with pytest.raises(UnanswerableRequestError):
            await asker.ask(PRODUCE_API, msgspec.structs.replace(produced(THERE), acks=0), 12, ALICE)


@on_loop
async def test_a_topic_is_made_by_asking_for_it_only_with_the_right_to() -> None:
    async with secured() as asker:
        await allow(asker, on_topic("publish"))
        request = MetadataRequest(topics=(MetadataRequestTopic(name=GHOST),))
        assert (await asker.ask(METADATA_API, request, client=ALICE)).topics[0].error_code == TOPIC
        assert asker.broker.topics.find(GHOST) is None
        await asker.broker.grants.add([granted(on_cluster("create"), "")])
        assert (await asker.ask(METADATA_API, request, client=ALICE)).topics[0].error_code == 0


@on_loop
async def test_configs_of_a_new_topic_are_told_to_who_may_describe_them() -> None:
    async with secured() as asker:
        await allow(asker, on_topic("create"))
        case = CASES["CreateTopics"]
        (result,) = (await asker.ask(case.api, case.request(GHOST), client=ALICE)).topics
        assert (result.error_code, result.topic_config_error_code, result.configs) == (0, TOPIC, ())
        assert (result.num_partitions, result.replication_factor) == (-1, -1)


@on_loop
async def test_a_producer_id_needs_the_right_to_publish_somewhere() -> None:
    request = InitProducerIdRequest(transactional_id=None)
    async with secured() as asker:
        assert (await asker.ask(INIT_PRODUCER_ID_API, request, 5, ALICE)).error_code == WHOLE_CLUSTER
        await allow(asker, on_topic("publish"))
        assert (await asker.ask(INIT_PRODUCER_ID_API, request, 5, ALICE)).error_code == 0


@pytest.mark.parametrize("transactional_id", [GHOST, THERE, None])
@on_loop
async def test_records_of_a_transaction_need_the_right_to_its_transactional_id(transactional_id: str | None) -> None:
    async with secured() as asker:
        producer = await asker.broker.transactions.init_producer(THERE, 60_000)
        batch = bytes(
            encode_batch(
                [Record(None, b"v", timestamp=TIMESTAMP)],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                transactional=True,
            )
        )
        request = produced(THERE, batch, transactional_id=transactional_id)
        await allow(asker, on_topic("publish"))
        await asker.broker.grants.add([granted(on_transaction("publish"), GHOST)])
        assert codes(await asker.ask(PRODUCE_API, request, 12, ALICE)) == {TRANSACTION}
        await asker.broker.grants.add([granted(on_transaction("publish"), THERE)])
        allowed = codes(await asker.ask(PRODUCE_API, request, 12, ALICE))
        assert allowed == ({TRANSACTION} if transactional_id is None else set())


@on_loop
async def test_groups_that_read_hidden_topics_are_not_described() -> None:
    async with secured() as asker:
        case = CASES["ConsumerGroupHeartbeat"]
        assert not codes(await asker.ask(case.api, case.request(THERE), client=ADMIN))
        describe = ConsumerGroupDescribeRequest(group_ids=(f"{THERE}-consumers",))
        await allow(asker, on_group("describe"))
        assert codes(await asker.ask(CONSUMER_GROUP_DESCRIBE_API, describe, client=ALICE)) == {TOPIC}
        await allow(asker, on_topic("describe"))
        assert not codes(await asker.ask(CONSUMER_GROUP_DESCRIBE_API, describe, client=ALICE))


@on_loop
async def test_passwords_of_administrators_are_changed_by_administrators() -> None:
    async with secured() as asker:
        await allow(asker, on_cluster("alter"))

        def password_of(name: str) -> AlterUserScramCredentialsRequest:
            return AlterUserScramCredentialsRequest(
                upsertions=(
                    ScramCredentialUpsertion(
                        name=name, mechanism=2, iterations=4096, salt=b"0123456789abcdef", salted_password=bytes(64)
                    ),
                )
            )

        assert codes(await asker.ask(ALTER_USER_SCRAM_CREDENTIALS_API, password_of("root"), client=ALICE)) == {WHOLE_CLUSTER}
        assert not codes(await asker.ask(ALTER_USER_SCRAM_CREDENTIALS_API, password_of("bob"), client=ALICE))
        assert not codes(await asker.ask(ALTER_USER_SCRAM_CREDENTIALS_API, password_of("root"), client=ADMIN))
