"""DescribeProducers: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int16, Int32, Int64, Message, NullableSince, String


class TopicRequest(Message, frozen=True, kw_only=True):
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class DescribeProducersRequest(Message, frozen=True, kw_only=True):
    topics: tuple[TopicRequest, ...] = ()


class ProducerState(Message, frozen=True, kw_only=True):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = None
    active_producers: tuple[ProducerState, ...] = ()


class TopicResponse(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[PartitionResponse, ...] = ()


class DescribeProducersResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResponse, ...] = ()


API = Api(61, "DescribeProducers", 0, 0, 0, DescribeProducersRequest, DescribeProducersResponse)
