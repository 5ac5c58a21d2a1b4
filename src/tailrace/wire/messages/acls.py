"""Requests and responses of DescribeAcls, CreateAcls, DeleteAcls."""

from typing import Annotated

from tailrace.wire.message import Api, Int8, Int16, Int32, KafkaMessage, NullableSince, String


class DescribeAclsRequest(KafkaMessage, frozen=True, kw_only=True):
    resource_type_filter: Int8 = 0
    resource_name_filter: Annotated[String | None, NullableSince(0)] = ""
    pattern_type_filter: Int8 = 3
    principal_filter: Annotated[String | None, NullableSince(0)] = ""
    host_filter: Annotated[String | None, NullableSince(0)] = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(KafkaMessage, frozen=True, kw_only=True):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(KafkaMessage, frozen=True, kw_only=True):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: tuple[AclDescription, ...] = ()


class DescribeAclsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    resources: tuple[DescribeAclsResource, ...] = ()


DESCRIBE_ACLS_API = Api(29, "DescribeAcls", 1, 3, 2, DescribeAclsRequest, DescribeAclsResponse)


class AclCreation(KafkaMessage, frozen=True, kw_only=True):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(KafkaMessage, frozen=True, kw_only=True):
    creations: tuple[AclCreation, ...] = ()


class AclCreationResult(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""


class CreateAclsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[AclCreationResult, ...] = ()


CREATE_ACLS_API = Api(30, "CreateAcls", 1, 3, 2, CreateAclsRequest, CreateAclsResponse)


class DeleteAclsFilter(KafkaMessage, frozen=True, kw_only=True):
    resource_type_filter: Int8 = 0
    resource_name_filter: Annotated[String | None, NullableSince(0)] = ""
    pattern_type_filter: Int8 = 3
    principal_filter: Annotated[String | None, NullableSince(0)] = ""
    host_filter: Annotated[String | None, NullableSince(0)] = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(KafkaMessage, frozen=True, kw_only=True):
    filters: tuple[DeleteAclsFilter, ...] = ()


class DeleteAclsMatchingAcl(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


class DeleteAclsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()


DELETE_ACLS_API = Api(31, "DeleteAcls", 1, 3, 2, DeleteAclsRequest, DeleteAclsResponse)
