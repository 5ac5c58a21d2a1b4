"""Requests and responses of OffsetCommit, OffsetFetch, OffsetDelete."""

from typing import Annotated

from tailrace.wire.message import (
    NO_UUID,
    Api,
    Boolean,
    Int16,
    Int32,
    Int64,
    KafkaMessage,
    NullableSince,
    Since,
    String,
    Until,
    Uuid,
)


class OffsetCommitRequestPartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    committed_metadata: Annotated[String | None, NullableSince(0)] = ""


class OffsetCommitRequestTopic(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


class OffsetCommitRequest(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    retention_time_ms: Annotated[Int64, Until(4)] = -1
    group_instance_id: Annotated[String | None, Since(7), NullableSince(0)] = None
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


class OffsetCommitResponsePartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


class OffsetCommitResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


OFFSET_COMMIT_API = Api(8, "OffsetCommit", 2, 10, 8, OffsetCommitRequest, OffsetCommitResponse)


class OffsetFetchRequestTopics(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchRequestGroup(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    member_id: Annotated[String | None, Since(9), NullableSince(0)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: Annotated[tuple[OffsetFetchRequestTopics, ...] | None, NullableSince(0)] = ()


class OffsetFetchRequestTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchRequest(KafkaMessage, frozen=True, kw_only=True):
    group_id: Annotated[String, Until(7)] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, Until(7), NullableSince(2)] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], Since(8)] = ()
    require_stable: Annotated[Boolean, Since(7)] = False


class OffsetFetchResponsePartitions(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: Annotated[String | None, NullableSince(0)] = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    partitions: tuple[OffsetFetchResponsePartitions, ...] = ()


class OffsetFetchResponseGroup(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: Int16 = 0


class OffsetFetchResponsePartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(5)] = -1
    metadata: Annotated[String | None, NullableSince(0)] = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()


class OffsetFetchResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], Until(7)] = ()
    error_code: Annotated[Int16, Since(2), Until(7)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Since(8)] = ()


OFFSET_FETCH_API = Api(9, "OffsetFetch", 1, 10, 6, OffsetFetchRequest, OffsetFetchResponse)


class OffsetDeleteRequestPartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


class OffsetDeleteRequest(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


class OffsetDeleteResponsePartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


class OffsetDeleteResponse(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()


OFFSET_DELETE_API = Api(47, "OffsetDelete", 0, 0, 1, OffsetDeleteRequest, OffsetDeleteResponse)
