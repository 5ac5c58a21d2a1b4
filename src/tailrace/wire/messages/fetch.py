"""Fetch: request and response."""

from typing import Annotated

from tailrace.wire.message import (
    NO_UUID,
    Api,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableSince,
    Records,
    Since,
    String,
    Tag,
    Until,
    Uuid,
)


class ReplicaState(Message, frozen=True, kw_only=True):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Message, frozen=True, kw_only=True):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Since(12)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, Since(17), Tag(0)] = NO_UUID
    high_watermark: Annotated[Int64, Since(18), Tag(1)] = 9223372036854775807


class FetchTopic(Message, frozen=True, kw_only=True):
    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[FetchPartition, ...] = ()


class ForgottenTopic(Message, frozen=True, kw_only=True):
    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[Int32, ...] = ()


class FetchRequest(Message, frozen=True, kw_only=True):
    cluster_id: Annotated[String | None, Since(12), NullableSince(0), Tag(0)] = None
    replica_id: Annotated[Int32, Until(14)] = -1
    replica_state: Annotated[ReplicaState, Since(15), Tag(1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, Since(7)] = 0
    session_epoch: Annotated[Int32, Since(7)] = -1
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], Since(7)] = ()
    rack_id: Annotated[String, Since(11)] = ""


class EpochEndOffset(Message, frozen=True, kw_only=True):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Message, frozen=True, kw_only=True):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Message, frozen=True, kw_only=True):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Message, frozen=True, kw_only=True):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    diverging_epoch: Annotated[EpochEndOffset, Since(12), Tag(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Since(12), Tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Since(12), Tag(2)] = SnapshotId()
    aborted_transactions: Annotated[tuple[AbortedTransaction, ...] | None, NullableSince(0)] = ()
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: Annotated[Records | None, NullableSince(0)] = b""


class FetchableTopicResponse(Message, frozen=True, kw_only=True):
    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[PartitionData, ...] = ()


class NodeEndpoint(Message, frozen=True, kw_only=True):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, NullableSince(0)] = None


class FetchResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], Since(16), Tag(0)] = ()


API = Api(1, "Fetch", 4, 18, 12, FetchRequest, FetchResponse)
