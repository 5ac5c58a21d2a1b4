"""Metadata: request and response."""

from typing import Annotated

from tailrace.wire.message import NO_UUID, Api, Boolean, Int16, Int32, Message, NullableSince, Since, String, Until, Uuid


class MetadataRequestTopic(Message, frozen=True, kw_only=True):
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    name: Annotated[String | None, NullableSince(10)] = ""


class MetadataRequest(Message, frozen=True, kw_only=True):
    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, NullableSince(1)] = ()
    allow_auto_topic_creation: Annotated[Boolean, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Boolean, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[Boolean, Since(8)] = False


class MetadataResponseBroker(Message, frozen=True, kw_only=True):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, Since(1), NullableSince(0)] = None


class MetadataResponsePartition(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], Since(5)] = ()


class MetadataResponseTopic(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    name: Annotated[String | None, NullableSince(12)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    is_internal: Annotated[Boolean, Since(1)] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, Since(8)] = -2147483648


class MetadataResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[String | None, Since(2), NullableSince(0)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = -2147483648
    error_code: Annotated[Int16, Since(13)] = 0


API = Api(3, "Metadata", 0, 13, 9, MetadataRequest, MetadataResponse)
