"""Requests and responses of CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeTopicPartitions."""

from typing import Annotated

from tailrace.wire.message import (
    NO_UUID,
    Api,
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    KafkaMessage,
    NullableSince,
    Since,
    String,
    Tag,
    Until,
    Uuid,
)


class CreatableReplicaAssignment(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


class CreatableTopicConfig(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""


class CreatableTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(KafkaMessage, frozen=True, kw_only=True):
    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: Int32 = 60000
    validate_only: Boolean = False


class CreatableTopicConfigs(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""
    read_only: Boolean = False
    config_source: Int8 = -1
    is_sensitive: Boolean = False


class CreatableTopicResult(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    topic_id: Annotated[Uuid, Since(7)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    topic_config_error_code: Annotated[Int16, Since(5), Tag(0)] = 0
    num_partitions: Annotated[Int32, Since(5)] = -1
    replication_factor: Annotated[Int16, Since(5)] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, Since(5), NullableSince(0)] = ()


class CreateTopicsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[CreatableTopicResult, ...] = ()


CREATE_TOPICS_API = Api(19, "CreateTopics", 2, 7, 5, CreateTopicsRequest, CreateTopicsResponse)


class DeleteTopicState(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String | None, NullableSince(0)] = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(KafkaMessage, frozen=True, kw_only=True):
    topic_names: Annotated[tuple[String, ...], Until(5)] = ()
    topics: Annotated[tuple[DeleteTopicState, ...], Since(6)] = ()
    timeout_ms: Int32 = 0


class DeletableTopicResult(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String | None, NullableSince(6)] = ""
    topic_id: Annotated[Uuid, Since(6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(5), NullableSince(0)] = None


class DeleteTopicsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: tuple[DeletableTopicResult, ...] = ()


DELETE_TOPICS_API = Api(20, "DeleteTopics", 1, 6, 4, DeleteTopicsRequest, DeleteTopicsResponse)


class CreatePartitionsAssignment(KafkaMessage, frozen=True, kw_only=True):
    broker_ids: tuple[Int32, ...] = ()


class CreatePartitionsTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    count: Int32 = 0
    assignments: Annotated[tuple[CreatePartitionsAssignment, ...] | None, NullableSince(0)] = ()


class CreatePartitionsRequest(KafkaMessage, frozen=True, kw_only=True):
    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Boolean = False


class CreatePartitionsTopicResult(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = None


class CreatePartitionsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()


CREATE_PARTITIONS_API = Api(37, "CreatePartitions", 0, 3, 2, CreatePartitionsRequest, CreatePartitionsResponse)


class DeleteRecordsPartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


class DeleteRecordsRequest(KafkaMessage, frozen=True, kw_only=True):
    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


class DeleteRecordsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()


DELETE_RECORDS_API = Api(21, "DeleteRecords", 0, 2, 2, DeleteRecordsRequest, DeleteRecordsResponse)


class DescribeTopicPartitionsTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""


class DescribeTopicPartitionsCursor(KafkaMessage, frozen=True, kw_only=True):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(KafkaMessage, frozen=True, kw_only=True):
    topics: tuple[DescribeTopicPartitionsTopic, ...] = ()
    response_partition_limit: Int32 = 2000
    cursor: Annotated[DescribeTopicPartitionsCursor | None, NullableSince(0)] = None


class DescribeTopicPartitionsResponsePartition(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, NullableSince(0)] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, NullableSince(0)] = None
    offline_replicas: tuple[Int32, ...] = ()


class DescribeTopicPartitionsResponseTopic(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    name: Annotated[String | None, NullableSince(0)] = ""
    topic_id: Uuid = NO_UUID
    is_internal: Boolean = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = ()
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: Annotated[DescribeTopicPartitionsCursor | None, NullableSince(0)] = None


DESCRIBE_TOPIC_PARTITIONS_API = Api(
    75, "DescribeTopicPartitions", 0, 0, 0, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
)
