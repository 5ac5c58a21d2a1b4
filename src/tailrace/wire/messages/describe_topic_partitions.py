"""DescribeTopicPartitions: request and response."""

from typing import Annotated

from tailrace.wire.message import NO_UUID, Api, Boolean, Int16, Int32, Message, NullableSince, String, Uuid


class TopicRequest(Message, frozen=True, kw_only=True):
    name: String = ""


class Cursor(Message, frozen=True, kw_only=True):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message, frozen=True, kw_only=True):
    topics: tuple[TopicRequest, ...] = ()
    response_partition_limit: Int32 = 2000
    cursor: Annotated[Cursor | None, NullableSince(0)] = None


class DescribeTopicPartitionsResponsePartition(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, NullableSince(0)] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, NullableSince(0)] = None
    offline_replicas: tuple[Int32, ...] = ()


class DescribeTopicPartitionsResponseTopic(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    name: Annotated[String | None, NullableSince(0)] = ""
    topic_id: Uuid = NO_UUID
    is_internal: Boolean = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = ()
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: Annotated[Cursor | None, NullableSince(0)] = None


API = Api(75, "DescribeTopicPartitions", 0, 0, 0, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
