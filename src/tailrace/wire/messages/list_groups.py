"""ListGroups: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int16, Int32, Message, Since, String


class ListGroupsRequest(Message, frozen=True, kw_only=True):
    states_filter: Annotated[tuple[String, ...], Since(4)] = ()
    types_filter: Annotated[tuple[String, ...], Since(5)] = ()


class ListedGroup(Message, frozen=True, kw_only=True):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


class ListGroupsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()


API = Api(16, "ListGroups", 0, 5, 3, ListGroupsRequest, ListGroupsResponse)
