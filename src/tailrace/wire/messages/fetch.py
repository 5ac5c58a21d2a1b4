"""Requests and responses of Fetch, ListOffsets, OffsetForLeaderEpoch."""

from typing import Annotated

from tailrace.wire.message import (
    NO_UUID,
    Api,
    Int8,
    Int16,
    Int32,
    Int64,
    KafkaMessage,
    NullableSince,
    Records,
    Since,
    String,
    Tag,
    Until,
    Uuid,
)


class FetchReplicaState(KafkaMessage, frozen=True, kw_only=True):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(KafkaMessage, frozen=True, kw_only=True):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Since(12)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, Since(17), Tag(0)] = NO_UUID
    high_watermark: Annotated[Int64, Since(18), Tag(1)] = 9223372036854775807


class FetchTopic(KafkaMessage, frozen=True, kw_only=True):
    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[FetchPartition, ...] = ()


class ForgottenTopic(KafkaMessage, frozen=True, kw_only=True):
    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[Int32, ...] = ()


class FetchRequest(KafkaMessage, frozen=True, kw_only=True):
    cluster_id: Annotated[String | None, Since(12), NullableSince(0), Tag(0)] = None
    replica_id: Annotated[Int32, Until(14)] = -1
    replica_state: Annotated[FetchReplicaState, Since(15), Tag(1)] = FetchReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, Since(7)] = 0
    session_epoch: Annotated[Int32, Since(7)] = -1
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], Since(7)] = ()
    rack_id: Annotated[String, Since(11)] = ""


class FetchEpochEndOffset(KafkaMessage, frozen=True, kw_only=True):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class FetchLeaderIdAndEpoch(KafkaMessage, frozen=True, kw_only=True):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class FetchSnapshotId(KafkaMessage, frozen=True, kw_only=True):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class FetchAbortedTransaction(KafkaMessage, frozen=True, kw_only=True):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class FetchPartitionData(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    diverging_epoch: Annotated[FetchEpochEndOffset, Since(12), Tag(0)] = FetchEpochEndOffset()
    current_leader: Annotated[FetchLeaderIdAndEpoch, Since(12), Tag(1)] = FetchLeaderIdAndEpoch()
    snapshot_id: Annotated[FetchSnapshotId, Since(12), Tag(2)] = FetchSnapshotId()
    aborted_transactions: Annotated[tuple[FetchAbortedTransaction, ...] | None, NullableSince(0)] = ()
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: Annotated[Records | None, NullableSince(0)] = b""


class FetchableTopicResponse(KafkaMessage, frozen=True, kw_only=True):
    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[FetchPartitionData, ...] = ()


class FetchNodeEndpoint(KafkaMessage, frozen=True, kw_only=True):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, NullableSince(0)] = None


class FetchResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: Annotated[tuple[FetchNodeEndpoint, ...], Since(16), Tag(0)] = ()


FETCH_API = Api(1, "Fetch", 4, 18, 12, FetchRequest, FetchResponse)


class ListOffsetsPartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


class ListOffsetsRequest(KafkaMessage, frozen=True, kw_only=True):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: Annotated[Int32, Since(10)] = 0


class ListOffsetsPartitionResponse(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResponse(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


class ListOffsetsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()


LIST_OFFSETS_API = Api(2, "ListOffsets", 1, 11, 6, ListOffsetsRequest, ListOffsetsResponse)


class OffsetForLeaderPartition(KafkaMessage, frozen=True, kw_only=True):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(KafkaMessage, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


class OffsetForLeaderEpochRequest(KafkaMessage, frozen=True, kw_only=True):
    replica_id: Annotated[Int32, Since(3)] = -2
    topics: tuple[OffsetForLeaderTopic, ...] = ()


class EpochEndOffset(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(KafkaMessage, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[EpochEndOffset, ...] = ()


class OffsetForLeaderEpochResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()


OFFSET_FOR_LEADER_EPOCH_API = Api(
    23, "OffsetForLeaderEpoch", 2, 4, 4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
)
