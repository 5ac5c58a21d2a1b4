"""EndTxn: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int16, Int32, Int64, Message, Since, String


class EndTxnRequest(Message, frozen=True, kw_only=True):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Boolean = False


class EndTxnResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Since(5)] = -1
    producer_epoch: Annotated[Int16, Since(5)] = -1


API = Api(26, "EndTxn", 0, 5, 3, EndTxnRequest, EndTxnResponse)
