"""OffsetFetch: request and response."""

from typing import Annotated

from tailrace.wire.message import NO_UUID, Api, Boolean, Int16, Int32, Int64, Message, NullableSince, Since, String, Until, Uuid


class OffsetFetchRequestTopics(Message, frozen=True, kw_only=True):
    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchRequestGroup(Message, frozen=True, kw_only=True):
    group_id: String = ""
    member_id: Annotated[String | None, Since(9), NullableSince(0)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: Annotated[tuple[OffsetFetchRequestTopics, ...] | None, NullableSince(0)] = ()


class OffsetFetchRequestTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchRequest(Message, frozen=True, kw_only=True):
    group_id: Annotated[String, Until(7)] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, Until(7), NullableSince(2)] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], Since(8)] = ()
    require_stable: Annotated[Boolean, Since(7)] = False


class OffsetFetchResponsePartitions(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: Annotated[String | None, NullableSince(0)] = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Message, frozen=True, kw_only=True):
    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    partitions: tuple[OffsetFetchResponsePartitions, ...] = ()


class OffsetFetchResponseGroup(Message, frozen=True, kw_only=True):
    group_id: String = ""
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: Int16 = 0


class OffsetFetchResponsePartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(5)] = -1
    metadata: Annotated[String | None, NullableSince(0)] = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()


class OffsetFetchResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], Until(7)] = ()
    error_code: Annotated[Int16, Since(2), Until(7)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Since(8)] = ()


API = Api(9, "OffsetFetch", 1, 10, 6, OffsetFetchRequest, OffsetFetchResponse)
