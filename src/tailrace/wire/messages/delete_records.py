"""DeleteRecords: request and response."""

from tailrace.wire.message import Api, Int16, Int32, Int64, Message, String


class DeleteRecordsPartition(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


class DeleteRecordsRequest(Message, frozen=True, kw_only=True):
    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


class DeleteRecordsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()


API = Api(21, "DeleteRecords", 0, 2, 2, DeleteRecordsRequest, DeleteRecordsResponse)
