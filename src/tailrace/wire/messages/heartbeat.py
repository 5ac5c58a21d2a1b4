"""Heartbeat: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int16, Int32, Message, NullableSince, Since, String


class HeartbeatRequest(Message, frozen=True, kw_only=True):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(3), NullableSince(0)] = None


class HeartbeatResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


API = Api(12, "Heartbeat", 0, 4, 4, HeartbeatRequest, HeartbeatResponse)
