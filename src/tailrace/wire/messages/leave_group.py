"""LeaveGroup: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int16, Int32, Message, NullableSince, Since, String, Until


class MemberIdentity(Message, frozen=True, kw_only=True):
    member_id: String = ""
    group_instance_id: Annotated[String | None, NullableSince(0)] = None
    reason: Annotated[String | None, Since(5), NullableSince(0)] = None


class LeaveGroupRequest(Message, frozen=True, kw_only=True):
    group_id: String = ""
    member_id: Annotated[String, Until(2)] = ""
    members: Annotated[tuple[MemberIdentity, ...], Since(3)] = ()


class MemberResponse(Message, frozen=True, kw_only=True):
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[String | None, Since(3), NullableSince(0)] = ""
    error_code: Annotated[Int16, Since(3)] = 0


class LeaveGroupResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResponse, ...], Since(3)] = ()


API = Api(13, "LeaveGroup", 0, 5, 4, LeaveGroupRequest, LeaveGroupResponse)
