"""Requests and responses of DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int8, Int16, Int32, KafkaMessage, NullableSince, Since, String


class DescribeConfigsResource(KafkaMessage, frozen=True, kw_only=True):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: Annotated[tuple[String, ...] | None, NullableSince(0)] = ()


class DescribeConfigsRequest(KafkaMessage, frozen=True, kw_only=True):
    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: Boolean = False
    include_documentation: Annotated[Boolean, Since(3)] = False


class DescribeConfigsSynonym(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""
    read_only: Boolean = False
    config_source: Int8 = -1
    is_sensitive: Boolean = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[String | None, Since(3), NullableSince(0)] = ""


class DescribeConfigsResult(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()


DESCRIBE_CONFIGS_API = Api(32, "DescribeConfigs", 1, 4, 4, DescribeConfigsRequest, DescribeConfigsResponse)


class AlterableConfig(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""


class AlterConfigsResource(KafkaMessage, frozen=True, kw_only=True):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


class AlterConfigsRequest(KafkaMessage, frozen=True, kw_only=True):
    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Boolean = False


class AlterConfigsResourceResponse(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


ALTER_CONFIGS_API = Api(33, "AlterConfigs", 0, 2, 2, AlterConfigsRequest, AlterConfigsResponse)


class IncrementalAlterableConfig(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    config_operation: Int8 = 0
    value: Annotated[String | None, NullableSince(0)] = ""


class IncrementalAlterConfigsResource(KafkaMessage, frozen=True, kw_only=True):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[IncrementalAlterableConfig, ...] = ()


class IncrementalAlterConfigsRequest(KafkaMessage, frozen=True, kw_only=True):
    resources: tuple[IncrementalAlterConfigsResource, ...] = ()
    validate_only: Boolean = False


class IncrementalAlterConfigsResourceResponse(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: tuple[IncrementalAlterConfigsResourceResponse, ...] = ()


INCREMENTAL_ALTER_CONFIGS_API = Api(
    44, "IncrementalAlterConfigs", 0, 1, 1, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
)


class ListConfigResourcesRequest(KafkaMessage, frozen=True, kw_only=True):
    resource_types: Annotated[tuple[Int8, ...], Since(1)] = ()


class ListedConfigResource(KafkaMessage, frozen=True, kw_only=True):
    resource_name: String = ""
    resource_type: Annotated[Int8, Since(1)] = 16


class ListConfigResourcesResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: tuple[ListedConfigResource, ...] = ()


LIST_CONFIG_RESOURCES_API = Api(74, "ListConfigResources", 0, 1, 0, ListConfigResourcesRequest, ListConfigResourcesResponse)
