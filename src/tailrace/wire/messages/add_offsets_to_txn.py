"""AddOffsetsToTxn: request and response."""

from tailrace.wire.message import Api, Int16, Int32, Int64, Message, String


class AddOffsetsToTxnRequest(Message, frozen=True, kw_only=True):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


API = Api(25, "AddOffsetsToTxn", 0, 4, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
