"""CreateTopics: request and response."""

from typing import Annotated

from tailrace.wire.message import NO_UUID, Api, Boolean, Int8, Int16, Int32, Message, NullableSince, Since, String, Tag, Uuid


class CreatableReplicaAssignment(Message, frozen=True, kw_only=True):
    partition_index: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


class CreatableTopicConfig(Message, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""


class CreatableTopic(Message, frozen=True, kw_only=True):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(Message, frozen=True, kw_only=True):
    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: Int32 = 60000
    validate_only: Boolean = False


class CreatableTopicConfigs(Message, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""
    read_only: Boolean = False
    config_source: Int8 = -1
    is_sensitive: Boolean = False


class CreatableTopicResult(Message, frozen=True, kw_only=True):
    name: String = ""
    topic_id: Annotated[Uuid, Since(7)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    topic_config_error_code: Annotated[Int16, Since(5), Tag(0)] = 0
    num_partitions: Annotated[Int32, Since(5)] = -1
    replication_factor: Annotated[Int16, Since(5)] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, Since(5), NullableSince(0)] = ()


class CreateTopicsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[CreatableTopicResult, ...] = ()


API = Api(19, "CreateTopics", 2, 7, 5, CreateTopicsRequest, CreateTopicsResponse)
