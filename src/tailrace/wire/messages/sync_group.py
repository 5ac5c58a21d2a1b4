"""SyncGroup: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Bytes, Int16, Int32, Message, NullableSince, Since, String


class SyncGroupRequestAssignment(Message, frozen=True, kw_only=True):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message, frozen=True, kw_only=True):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(3), NullableSince(0)] = None
    protocol_type: Annotated[String | None, Since(5), NullableSince(0)] = None
    protocol_name: Annotated[String | None, Since(5), NullableSince(0)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, Since(5), NullableSince(0)] = None
    protocol_name: Annotated[String | None, Since(5), NullableSince(0)] = None
    assignment: Bytes = b""


API = Api(14, "SyncGroup", 0, 5, 4, SyncGroupRequest, SyncGroupResponse)
