"""CreatePartitions: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int16, Int32, Message, NullableSince, String


class CreatePartitionsAssignment(Message, frozen=True, kw_only=True):
    broker_ids: tuple[Int32, ...] = ()


class CreatePartitionsTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    count: Int32 = 0
    assignments: Annotated[tuple[CreatePartitionsAssignment, ...] | None, NullableSince(0)] = ()


class CreatePartitionsRequest(Message, frozen=True, kw_only=True):
    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Boolean = False


class CreatePartitionsTopicResult(Message, frozen=True, kw_only=True):
    name: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = None


class CreatePartitionsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()


API = Api(37, "CreatePartitions", 0, 3, 2, CreatePartitionsRequest, CreatePartitionsResponse)
