"""TxnOffsetCommit: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int16, Int32, Int64, Message, NullableSince, Since, String


class TxnOffsetCommitRequestPartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(2)] = -1
    committed_metadata: Annotated[String | None, NullableSince(0)] = ""


class TxnOffsetCommitRequestTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


class TxnOffsetCommitRequest(Message, frozen=True, kw_only=True):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[String | None, Since(3), NullableSince(0)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


class TxnOffsetCommitResponsePartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


class TxnOffsetCommitResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()


API = Api(28, "TxnOffsetCommit", 0, 5, 3, TxnOffsetCommitRequest, TxnOffsetCommitResponse)
