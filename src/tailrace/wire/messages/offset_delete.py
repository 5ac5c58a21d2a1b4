"""OffsetDelete: request and response."""

from tailrace.wire.message import Api, Int16, Int32, Message, String


class OffsetDeleteRequestPartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


class OffsetDeleteRequest(Message, frozen=True, kw_only=True):
    group_id: String = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


class OffsetDeleteResponsePartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


class OffsetDeleteResponse(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()


API = Api(47, "OffsetDelete", 0, 0, 1, OffsetDeleteRequest, OffsetDeleteResponse)
