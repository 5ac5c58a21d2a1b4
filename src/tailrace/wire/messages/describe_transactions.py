"""DescribeTransactions: request and response."""

from tailrace.wire.message import Api, Int16, Int32, Int64, Message, String


class DescribeTransactionsRequest(Message, frozen=True, kw_only=True):
    transactional_ids: tuple[String, ...] = ()


class TopicData(Message, frozen=True, kw_only=True):
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class TransactionState(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[TopicData, ...] = ()


class DescribeTransactionsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    transaction_states: tuple[TransactionState, ...] = ()


API = Api(65, "DescribeTransactions", 0, 0, 0, DescribeTransactionsRequest, DescribeTransactionsResponse)
