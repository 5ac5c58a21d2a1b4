"""DeleteTopics: request and response."""

from typing import Annotated

from tailrace.wire.message import NO_UUID, Api, Int16, Int32, Message, NullableSince, Since, String, Until, Uuid


class DeleteTopicState(Message, frozen=True, kw_only=True):
    name: Annotated[String | None, NullableSince(0)] = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(Message, frozen=True, kw_only=True):
    topic_names: Annotated[tuple[String, ...], Until(5)] = ()
    topics: Annotated[tuple[DeleteTopicState, ...], Since(6)] = ()
    timeout_ms: Int32 = 0


class DeletableTopicResult(Message, frozen=True, kw_only=True):
    name: Annotated[String | None, NullableSince(6)] = ""
    topic_id: Annotated[Uuid, Since(6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(5), NullableSince(0)] = None


class DeleteTopicsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: tuple[DeletableTopicResult, ...] = ()


API = Api(20, "DeleteTopics", 1, 6, 4, DeleteTopicsRequest, DeleteTopicsResponse)
