"""DescribeAcls, CreateAcls and DeleteAcls. There is no authorizer, and clients are told so, as by a Kafka without one."""

from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.model.errors import SecurityDisabledError
from tailrace.wire.messages.acls import (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

_DISABLED = SecurityDisabledError.kafka_code
_WHY = "there are no permissions yet: every client may do everything"


class AclHandlers:
    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(DESCRIBE_ACLS_API, self.describe),
            ApiRoute(CREATE_ACLS_API, self.create),
            ApiRoute(DELETE_ACLS_API, self.delete),
        ]

    def describe(self, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=_DISABLED, error_message=_WHY)

    def create(self, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
        refused = AclCreationResult(error_code=_DISABLED, error_message=_WHY)
        return CreateAclsResponse(results=(refused,) * len(request.creations))

    def delete(self, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
        refused = DeleteAclsFilterResult(error_code=_DISABLED, error_message=_WHY)
        return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
