"""OffsetCommit: request and response."""

from typing import Annotated

from tailrace.wire.message import NO_UUID, Api, Int16, Int32, Int64, Message, NullableSince, Since, String, Until, Uuid


class OffsetCommitRequestPartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    committed_metadata: Annotated[String | None, NullableSince(0)] = ""


class OffsetCommitRequestTopic(Message, frozen=True, kw_only=True):
    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


class OffsetCommitRequest(Message, frozen=True, kw_only=True):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    retention_time_ms: Annotated[Int64, Until(4)] = -1
    group_instance_id: Annotated[String | None, Since(7), NullableSince(0)] = None
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


class OffsetCommitResponsePartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message, frozen=True, kw_only=True):
    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


class OffsetCommitResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


API = Api(8, "OffsetCommit", 2, 10, 8, OffsetCommitRequest, OffsetCommitResponse)
