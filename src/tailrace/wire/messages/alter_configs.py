"""AlterConfigs: request and response."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Int8, Int16, Int32, Message, NullableSince, String


class AlterableConfig(Message, frozen=True, kw_only=True):
    name: String = ""
    value: Annotated[String | None, NullableSince(0)] = ""


class AlterConfigsResource(Message, frozen=True, kw_only=True):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


class AlterConfigsRequest(Message, frozen=True, kw_only=True):
    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Boolean = False


class AlterConfigsResourceResponse(Message, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


API = Api(33, "AlterConfigs", 0, 2, 2, AlterConfigsRequest, AlterConfigsResponse)
