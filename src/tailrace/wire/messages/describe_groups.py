"""DescribeGroups: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Bytes, Int16, Int32, Message, NullableSince, Since, String


class DescribeGroupsRequest(Message, frozen=True, kw_only=True):
    groups: tuple[String, ...] = ()
    include_authorized_operations: Annotated[Boolean, Since(3)] = False


class DescribedGroupMember(Message, frozen=True, kw_only=True):
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(4), NullableSince(0)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(6), NullableSince(0)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, Since(3)] = -2147483648


class DescribeGroupsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: tuple[DescribedGroup, ...] = ()


API = Api(15, "DescribeGroups", 0, 6, 5, DescribeGroupsRequest, DescribeGroupsResponse)
