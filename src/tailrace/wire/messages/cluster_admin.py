"""Requests and responses of ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, AlterReplicaLogDirs,
UpdateFeatures."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int8, Int16, Int32, KafkaMessage, NullableSince, Since, String, Until


class ElectLeadersTopicPartitions(KafkaMessage, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class ElectLeadersRequest(KafkaMessage, frozen=True, kw_only=True):
    election_type: Annotated[Int8, Since(1)] = 0
    topic_partitions: Annotated[tuple[ElectLeadersTopicPartitions, ...] | None, NullableSince(0)] = ()
    timeout_ms: Int32 = 60000


class ElectLeadersPartitionResult(KafkaMessage, frozen=True, kw_only=True):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""


class ReplicaElectionResult(KafkaMessage, frozen=True, kw_only=True):
    topic: String = ""
    partition_result: tuple[ElectLeadersPartitionResult, ...] = ()


class ElectLeadersResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(1)] = 0
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()


ELECT_LEADERS_API = Api(43, "ElectLeaders", 0, 2, 2, ElectLeadersRequest, ElectLeadersResponse)


class ReassignablePartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    replicas: Annotated[tuple[Int32, ...] | None, NullableSince(0)] = None


class ReassignableTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[ReassignablePartition, ...] = ()


class AlterPartitionReassignmentsRequest(KafkaMessage, frozen=True, kw_only=True):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Boolean, Since(1)] = True
    topics: tuple[ReassignableTopic, ...] = ()


class ReassignablePartitionResponse(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""


class ReassignableTopicResponse(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[ReassignablePartitionResponse, ...] = ()


class AlterPartitionReassignmentsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Boolean, Since(1)] = True
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    responses: tuple[ReassignableTopicResponse, ...] = ()


ALTER_PARTITION_REASSIGNMENTS_API = Api(
    45, "AlterPartitionReassignments", 0, 1, 0, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
)


class ListPartitionReassignmentsTopics(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class ListPartitionReassignmentsRequest(KafkaMessage, frozen=True, kw_only=True):
    timeout_ms: Int32 = 60000
    topics: Annotated[tuple[ListPartitionReassignmentsTopics, ...] | None, NullableSince(0)] = ()


class OngoingPartitionReassignment(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()


class OngoingTopicReassignment(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[OngoingPartitionReassignment, ...] = ()


class ListPartitionReassignmentsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    topics: tuple[OngoingTopicReassignment, ...] = ()


LIST_PARTITION_REASSIGNMENTS_API = Api(
    46, "ListPartitionReassignments", 0, 0, 0, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
)


class AlterReplicaLogDirTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[Int32, ...] = ()


class AlterReplicaLogDir(KafkaMessage, frozen=True, kw_only=True):
    path: String = ""
    topics: tuple[AlterReplicaLogDirTopic, ...] = ()


class AlterReplicaLogDirsRequest(KafkaMessage, frozen=True, kw_only=True):
    dirs: tuple[AlterReplicaLogDir, ...] = ()


class AlterReplicaLogDirPartitionResult(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(KafkaMessage, frozen=True, kw_only=True):
    topic_name: String = ""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = ()


class AlterReplicaLogDirsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...] = ()


ALTER_REPLICA_LOG_DIRS_API = Api(34, "AlterReplicaLogDirs", 1, 2, 2, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)


class FeatureUpdateKey(KafkaMessage, frozen=True, kw_only=True):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Boolean, Until(0)] = False
    upgrade_type: Annotated[Int8, Since(1)] = 1


class UpdateFeaturesRequest(KafkaMessage, frozen=True, kw_only=True):
    timeout_ms: Int32 = 60000
    feature_updates: tuple[FeatureUpdateKey, ...] = ()
    validate_only: Annotated[Boolean, Since(1)] = False


class UpdatableFeatureResult(KafkaMessage, frozen=True, kw_only=True):
    feature: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""


class UpdateFeaturesResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    results: Annotated[tuple[UpdatableFeatureResult, ...], Until(1)] = ()


UPDATE_FEATURES_API = Api(57, "UpdateFeatures", 0, 2, 0, UpdateFeaturesRequest, UpdateFeaturesResponse)
