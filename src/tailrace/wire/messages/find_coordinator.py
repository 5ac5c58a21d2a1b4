"""FindCoordinator: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Int8, Int16, Int32, Message, NullableSince, Since, String, Until


class FindCoordinatorRequest(Message, frozen=True, kw_only=True):
    key: Annotated[String, Until(3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], Since(4)] = ()


class Coordinator(Message, frozen=True, kw_only=True):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""


class FindCoordinatorResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Until(3)] = 0
    error_message: Annotated[String | None, Since(1), Until(3), NullableSince(0)] = ""
    node_id: Annotated[Int32, Until(3)] = 0
    host: Annotated[String, Until(3)] = ""
    port: Annotated[Int32, Until(3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], Since(4)] = ()


API = Api(10, "FindCoordinator", 0, 6, 3, FindCoordinatorRequest, FindCoordinatorResponse)
