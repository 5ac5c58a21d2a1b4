"""Requests and responses of ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from typing import Annotated

from tailrace.wire.message import NO_UUID, Api, Boolean, Int8, Int16, Int32, KafkaMessage, NullableSince, Since, String, Uuid


class HeartbeatTopicPartitions(KafkaMessage, frozen=True, kw_only=True):
    topic_id: Uuid = NO_UUID
    partitions: tuple[Int32, ...] = ()


class ConsumerGroupHeartbeatRequest(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: Annotated[String | None, NullableSince(0)] = None
    rack_id: Annotated[String | None, NullableSince(0)] = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Annotated[tuple[String, ...] | None, NullableSince(0)] = None
    subscribed_topic_regex: Annotated[String | None, Since(1), NullableSince(0)] = None
    server_assignor: Annotated[String | None, NullableSince(0)] = None
    topic_partitions: Annotated[tuple[HeartbeatTopicPartitions, ...] | None, NullableSince(0)] = ()


class HeartbeatAssignment(KafkaMessage, frozen=True, kw_only=True):
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] = ()


class ConsumerGroupHeartbeatResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = None
    member_id: Annotated[String | None, NullableSince(0)] = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Annotated[HeartbeatAssignment | None, NullableSince(0)] = None


CONSUMER_GROUP_HEARTBEAT_API = Api(
    68, "ConsumerGroupHeartbeat", 0, 1, 0, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
)


class ConsumerGroupDescribeRequest(KafkaMessage, frozen=True, kw_only=True):
    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Boolean = False


class DescribedTopicPartitions(KafkaMessage, frozen=True, kw_only=True):
    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribedAssignment(KafkaMessage, frozen=True, kw_only=True):
    topic_partitions: tuple[DescribedTopicPartitions, ...] = ()


class DescribedConsumerMember(KafkaMessage, frozen=True, kw_only=True):
    member_id: String = ""
    instance_id: Annotated[String | None, NullableSince(0)] = None
    rack_id: Annotated[String | None, NullableSince(0)] = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    subscribed_topic_regex: Annotated[String | None, NullableSince(0)] = None
    assignment: DescribedAssignment = DescribedAssignment()
    target_assignment: DescribedAssignment = DescribedAssignment()
    member_type: Annotated[Int8, Since(1)] = -1


class DescribedConsumerGroup(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: tuple[DescribedConsumerMember, ...] = ()
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedConsumerGroup, ...] = ()


CONSUMER_GROUP_DESCRIBE_API = Api(
    69, "ConsumerGroupDescribe", 0, 1, 0, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
)
