"""Requests and responses of ApiVersions, Metadata, DescribeCluster, FindCoordinator, DescribeLogDirs."""

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


class ApiVersionsRequest(KafkaMessage, frozen=True, kw_only=True):
    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""


class ApiVersion(KafkaMessage, frozen=True, kw_only=True):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], Since(3), Tag(0)] = ()
    finalized_features_epoch: Annotated[Int64, Since(3), Tag(1)] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], Since(3), Tag(2)] = ()
    zk_migration_ready: Annotated[Boolean, Since(3), Tag(3)] = False


API_VERSIONS_API = Api(18, "ApiVersions", 0, 4, 3, ApiVersionsRequest, ApiVersionsResponse)


class MetadataRequestTopic(KafkaMessage, frozen=True, kw_only=True):
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    name: Annotated[String | None, NullableSince(10)] = ""


class MetadataRequest(KafkaMessage, frozen=True, kw_only=True):
    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, NullableSince(1)] = ()
    allow_auto_topic_creation: Annotated[Boolean, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Boolean, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[Boolean, Since(8)] = False


class MetadataResponseBroker(KafkaMessage, frozen=True, kw_only=True):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, Since(1), NullableSince(0)] = None


class MetadataResponsePartition(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], Since(5)] = ()


class MetadataResponseTopic(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    name: Annotated[String | None, NullableSince(12)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    is_internal: Annotated[Boolean, Since(1)] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, Since(8)] = -2147483648


class MetadataResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[String | None, Since(2), NullableSince(0)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = -2147483648
    error_code: Annotated[Int16, Since(13)] = 0


METADATA_API = Api(3, "Metadata", 0, 13, 9, MetadataRequest, MetadataResponse)


class DescribeClusterRequest(KafkaMessage, frozen=True, kw_only=True):
    include_cluster_authorized_operations: Boolean = False
    endpoint_type: Annotated[Int8, Since(1)] = 1
    include_fenced_brokers: Annotated[Boolean, Since(2)] = False


class DescribeClusterBroker(KafkaMessage, frozen=True, kw_only=True):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, NullableSince(0)] = None
    is_fenced: Annotated[Boolean, Since(2)] = False


class DescribeClusterResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = None
    endpoint_type: Annotated[Int8, Since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = -2147483648


DESCRIBE_CLUSTER_API = Api(60, "DescribeCluster", 0, 2, 0, DescribeClusterRequest, DescribeClusterResponse)


class FindCoordinatorRequest(KafkaMessage, frozen=True, kw_only=True):
    key: Annotated[String, Until(3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], Since(4)] = ()


class FoundCoordinator(KafkaMessage, frozen=True, kw_only=True):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""


class FindCoordinatorResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Until(3)] = 0
    error_message: Annotated[String | None, Since(1), Until(3), NullableSince(0)] = ""
    node_id: Annotated[Int32, Until(3)] = 0
    host: Annotated[String, Until(3)] = ""
    port: Annotated[Int32, Until(3)] = 0
    coordinators: Annotated[tuple[FoundCoordinator, ...], Since(4)] = ()


FIND_COORDINATOR_API = Api(10, "FindCoordinator", 0, 6, 3, FindCoordinatorRequest, FindCoordinatorResponse)


class DescribableLogDirTopic(KafkaMessage, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribeLogDirsRequest(KafkaMessage, frozen=True, kw_only=True):
    topics: Annotated[tuple[DescribableLogDirTopic, ...] | None, NullableSince(0)] = ()


class DescribeLogDirsPartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Boolean = False


class DescribeLogDirsTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


class DescribeLogDirsResult(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1
    is_cordoned: Annotated[Boolean, Since(5)] = False


class DescribeLogDirsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()


DESCRIBE_LOG_DIRS_API = Api(35, "DescribeLogDirs", 1, 5, 2, DescribeLogDirsRequest, DescribeLogDirsResponse)
