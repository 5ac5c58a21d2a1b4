"""Requests and responses of InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, ListTransactions,
DescribeTransactions, DescribeProducers."""

from typing import Annotated

from tailrace.wire.message import (
    NO_UUID,
    Api,
    Boolean,
    Int16,
    Int32,
    Int64,
    KafkaMessage,
    NullableSince,
    Since,
    String,
    Until,
    Uuid,
)


class InitProducerIdRequest(KafkaMessage, frozen=True, kw_only=True):
    transactional_id: Annotated[String | None, NullableSince(0)] = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1
    enable2_pc: Annotated[Boolean, Since(6)] = False
    keep_prepared_txn: Annotated[Boolean, Since(6)] = False


class InitProducerIdResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, Since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, Since(6)] = -1


INIT_PRODUCER_ID_API = Api(22, "InitProducerId", 0, 6, 2, InitProducerIdRequest, InitProducerIdResponse)


class AddPartitionsToTxnTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[Int32, ...] = ()


class AddPartitionsToTxnTransaction(KafkaMessage, frozen=True, kw_only=True):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Boolean = False
    topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddPartitionsToTxnRequest(KafkaMessage, frozen=True, kw_only=True):
    v3_and_below_transactional_id: Annotated[String, Until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, Until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, Until(3)] = 0
    v3_and_below_topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], Until(3)] = ()
    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], Since(4)] = ()


class AddPartitionsToTxnPartitionResult(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


class AddPartitionsToTxnResult(KafkaMessage, frozen=True, kw_only=True):
    transactional_id: String = ""
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = ()


class AddPartitionsToTxnResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results_by_topic_v3_and_below: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], Until(3)] = ()
    error_code: Annotated[Int16, Since(4)] = 0
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], Since(4)] = ()


ADD_PARTITIONS_TO_TXN_API = Api(24, "AddPartitionsToTxn", 0, 5, 3, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)


class AddOffsetsToTxnRequest(KafkaMessage, frozen=True, kw_only=True):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


ADD_OFFSETS_TO_TXN_API = Api(25, "AddOffsetsToTxn", 0, 4, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)


class TxnOffsetCommitRequestPartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(2)] = -1
    committed_metadata: Annotated[String | None, NullableSince(0)] = ""


class TxnOffsetCommitRequestTopic(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String, Until(5)] = ""
    topic_id: Annotated[Uuid, Since(6)] = NO_UUID
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


class TxnOffsetCommitRequest(KafkaMessage, frozen=True, kw_only=True):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[String | None, Since(3), NullableSince(0)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


class TxnOffsetCommitResponsePartition(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(KafkaMessage, frozen=True, kw_only=True):
    name: Annotated[String, Until(5)] = ""
    topic_id: Annotated[Uuid, Since(6)] = NO_UUID
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


class TxnOffsetCommitResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()


TXN_OFFSET_COMMIT_API = Api(28, "TxnOffsetCommit", 0, 6, 3, TxnOffsetCommitRequest, TxnOffsetCommitResponse)


class EndTxnRequest(KafkaMessage, frozen=True, kw_only=True):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Boolean = False


class EndTxnResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Since(5)] = -1
    producer_epoch: Annotated[Int16, Since(5)] = -1


END_TXN_API = Api(26, "EndTxn", 0, 5, 3, EndTxnRequest, EndTxnResponse)


class ListTransactionsRequest(KafkaMessage, frozen=True, kw_only=True):
    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[String | None, Since(2), NullableSince(0)] = None


class ListedTransaction(KafkaMessage, frozen=True, kw_only=True):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[String, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()


LIST_TRANSACTIONS_API = Api(66, "ListTransactions", 0, 2, 0, ListTransactionsRequest, ListTransactionsResponse)


class DescribeTransactionsRequest(KafkaMessage, frozen=True, kw_only=True):
    transactional_ids: tuple[String, ...] = ()


class DescribedTransactionTopic(KafkaMessage, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribedTransaction(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[DescribedTransactionTopic, ...] = ()


class DescribeTransactionsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    transaction_states: tuple[DescribedTransaction, ...] = ()


DESCRIBE_TRANSACTIONS_API = Api(65, "DescribeTransactions", 0, 0, 0, DescribeTransactionsRequest, DescribeTransactionsResponse)


class DescribeProducersTopic(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class DescribeProducersRequest(KafkaMessage, frozen=True, kw_only=True):
    topics: tuple[DescribeProducersTopic, ...] = ()


class DescribedProducer(KafkaMessage, frozen=True, kw_only=True):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class DescribeProducersPartitionResponse(KafkaMessage, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = None
    active_producers: tuple[DescribedProducer, ...] = ()


class DescribeProducersTopicResponse(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[DescribeProducersPartitionResponse, ...] = ()


class DescribeProducersResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeProducersTopicResponse, ...] = ()


DESCRIBE_PRODUCERS_API = Api(61, "DescribeProducers", 0, 0, 0, DescribeProducersRequest, DescribeProducersResponse)
