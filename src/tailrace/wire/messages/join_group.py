"""JoinGroup: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Bytes, Int16, Int32, Message, NullableSince, Since, String


class JoinGroupRequestProtocol(Message, frozen=True, kw_only=True):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message, frozen=True, kw_only=True):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(5), NullableSince(0)] = None
    protocol_type: String = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: Annotated[String | None, Since(8), NullableSince(0)] = None


class JoinGroupResponseMember(Message, frozen=True, kw_only=True):
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(5), NullableSince(0)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, Since(7), NullableSince(0)] = None
    protocol_name: Annotated[String | None, NullableSince(7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Boolean, Since(9)] = False
    member_id: String = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


API = Api(11, "JoinGroup", 0, 9, 6, JoinGroupRequest, JoinGroupResponse)
