"""AddPartitionsToTxn: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int16, Int32, Int64, Message, Since, String, Until


class AddPartitionsToTxnTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    partitions: tuple[Int32, ...] = ()


class AddPartitionsToTxnTransaction(Message, frozen=True, kw_only=True):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Boolean = False
    topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddPartitionsToTxnRequest(Message, frozen=True, kw_only=True):
    v3_and_below_transactional_id: Annotated[String, Until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, Until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, Until(3)] = 0
    v3_and_below_topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], Until(3)] = ()
    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], Since(4)] = ()


class AddPartitionsToTxnPartitionResult(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Message, frozen=True, kw_only=True):
    name: String = ""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


class AddPartitionsToTxnResult(Message, frozen=True, kw_only=True):
    transactional_id: String = ""
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = ()


class AddPartitionsToTxnResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results_by_topic_v3_and_below: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], Until(3)] = ()
    error_code: Annotated[Int16, Since(4)] = 0
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], Since(4)] = ()


API = Api(24, "AddPartitionsToTxn", 0, 5, 3, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
