"""ListTransactions: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int16, Int32, Int64, Message, NullableSince, Since, String


class ListTransactionsRequest(Message, frozen=True, kw_only=True):
    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[String | None, Since(2), NullableSince(0)] = None


class TransactionState(Message, frozen=True, kw_only=True):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[String, ...] = ()
    transaction_states: tuple[TransactionState, ...] = ()


API = Api(66, "ListTransactions", 0, 2, 0, ListTransactionsRequest, ListTransactionsResponse)
