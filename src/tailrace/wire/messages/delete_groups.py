"""DeleteGroups: request and response."""

from tailrace.wire.message import Api, Int16, Int32, Message, String


class DeleteGroupsRequest(Message, frozen=True, kw_only=True):
    groups_names: tuple[String, ...] = ()


class DeletableGroupResult(Message, frozen=True, kw_only=True):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()


API = Api(42, "DeleteGroups", 0, 2, 2, DeleteGroupsRequest, DeleteGroupsResponse)
