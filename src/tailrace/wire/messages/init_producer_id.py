"""InitProducerId: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int16, Int32, Int64, Message, NullableSince, Since, String


class InitProducerIdRequest(Message, frozen=True, kw_only=True):
    transactional_id: Annotated[String | None, NullableSince(0)] = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1
    enable2_pc: Annotated[Boolean, Since(6)] = False
    keep_prepared_txn: Annotated[Boolean, Since(6)] = False


class InitProducerIdResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, Since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, Since(6)] = -1


API = Api(22, "InitProducerId", 0, 6, 2, InitProducerIdRequest, InitProducerIdResponse)
