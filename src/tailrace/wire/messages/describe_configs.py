"""DescribeConfigs: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int8, Int16, Int32, Message, NullableSince, Since, String


class DescribeConfigsResource(Message, frozen=True, kw_only=True):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: Annotated[tuple[String, ...] | None, NullableSince(0)] = ()


class DescribeConfigsRequest(Message, frozen=True, kw_only=True):
    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: Boolean = False
    include_documentation: Annotated[Boolean, Since(3)] = False


class DescribeConfigsSynonym(Message, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Message, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""
    read_only: Boolean = False
    config_source: Int8 = -1
    is_sensitive: Boolean = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[String | None, Since(3), NullableSince(0)] = ""


class DescribeConfigsResult(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()


API = Api(32, "DescribeConfigs", 1, 4, 4, DescribeConfigsRequest, DescribeConfigsResponse)
