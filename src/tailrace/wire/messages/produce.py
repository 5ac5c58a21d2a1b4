"""Requests and responses of Produce."""

from typing import Annotated

from tailrace.wire.message import (
    NO_UUID,
    Api,
    Int16,
    Int32,
    Int64,
    KafkaMessage,
    NullableSince,
    Records,
    Since,
    String,
    Tag,
    Until,
    Uuid,
)


class PartitionProduceData(KafkaMessage, frozen=True, kw_only=True):
    index: Int32 = 0
    records: Annotated[Records | None, NullableSince(0)] = b""


class TopicProduceData(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partition_data: tuple[PartitionProduceData, ...] = ()


class ProduceRequest(KafkaMessage, frozen=True, kw_only=True):
    transactional_id: Annotated[String | None, NullableSince(0)] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: tuple[TopicProduceData, ...] = ()


class BatchIndexAndErrorMessage(KafkaMessage, frozen=True, kw_only=True):
    batch_index: Int32 = 0
    batch_index_error_message: Annotated[String | None, NullableSince(0)] = None


class ProduceLeaderIdAndEpoch(KafkaMessage, frozen=True, kw_only=True):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(KafkaMessage, frozen=True, kw_only=True):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    record_errors: Annotated[tuple[BatchIndexAndErrorMessage, ...], Since(8)] = ()
    error_message: Annotated[String | None, Since(8), NullableSince(0)] = None
    current_leader: Annotated[ProduceLeaderIdAndEpoch, Since(10), Tag(0)] = ProduceLeaderIdAndEpoch()


class TopicProduceResponse(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partition_responses: tuple[PartitionProduceResponse, ...] = ()


class ProduceNodeEndpoint(KafkaMessage, frozen=True, kw_only=True):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, NullableSince(0)] = None


class ProduceResponse(KafkaMessage, frozen=True, kw_only=True):
    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[tuple[ProduceNodeEndpoint, ...], Since(10), Tag(0)] = ()


PRODUCE_API = Api(0, "Produce", 3, 13, 9, ProduceRequest, ProduceResponse)
