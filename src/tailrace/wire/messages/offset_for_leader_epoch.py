"""OffsetForLeaderEpoch: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int16, Int32, Int64, Message, Since, String


class OffsetForLeaderPartition(Message, frozen=True, kw_only=True):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Message, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


class OffsetForLeaderEpochRequest(Message, frozen=True, kw_only=True):
    replica_id: Annotated[Int32, Since(3)] = -2
    topics: tuple[OffsetForLeaderTopic, ...] = ()


class EpochEndOffset(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Message, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[EpochEndOffset, ...] = ()


class OffsetForLeaderEpochResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()


API = Api(23, "OffsetForLeaderEpoch", 2, 4, 4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
