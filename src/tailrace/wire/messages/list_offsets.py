"""ListOffsets: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int8, Int16, Int32, Int64, Message, Since, String


class ListOffsetsPartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


class ListOffsetsRequest(Message, frozen=True, kw_only=True):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: Annotated[Int32, Since(10)] = 0


class ListOffsetsPartitionResponse(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResponse(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


class ListOffsetsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()


API = Api(2, "ListOffsets", 1, 11, 6, ListOffsetsRequest, ListOffsetsResponse)
