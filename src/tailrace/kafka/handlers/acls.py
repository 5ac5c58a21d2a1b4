"""DescribeAcls, CreateAcls and DeleteAcls: the grants, as Kafka's clients see them (`kafka/acl_bindings.py`).

With authentication off grants have no effect, and clients are told so, as by a Kafka without an authorizer.
"""

from collections.abc import Iterable
from itertools import groupby

from tailrace.broker.broker import Broker
from tailrace.broker.security.grants import check_grant
from tailrace.kafka.access import Access
from tailrace.kafka.acl_bindings import AclBinding, AclFilter, binding_of, grant_of
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.model.errors import SecurityDisabledError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.security import Grant, Operation
from tailrace.wire.messages.acls import (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class AclHandlers:
    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._grants = broker.grants
        self._users = broker.users
        self._is_on = broker.permissions.is_on
        self._access = Access(broker)
        self._limits = limits

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(DESCRIBE_ACLS_API, self.describe),
            ApiRoute(CREATE_ACLS_API, self.create),
            ApiRoute(DELETE_ACLS_API, self.delete),
        ]

    def describe(self, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
        try:
            self._check("describe")
            wanted = _filter(request)
            wanted.check()
        except TailraceError as error:
            return DescribeAclsResponse(error_code=error.kafka_code, error_message=str(error))
        found = [binding for binding in self._bindings(self._grants) if wanted.matches(binding)]
        return DescribeAclsResponse(
            error_message=None,
            resources=tuple(
                DescribeAclsResource(
                    resource_type=kind,
                    resource_name=name,
                    pattern_type=pattern,
                    acls=tuple(
                        AclDescription(
                            principal=each.principal,
                            host=each.host,
                            operation=each.operation,
                            permission_type=each.permission_type,
                        )
                        for each in bindings
                    ),
                )
                for (kind, name, pattern), bindings in groupby(found, lambda binding: binding[:3])
            ),
        )

    async def create(self, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
        outcomes: list[Grant | TailraceError] = []
        for creation in request.creations:
            try:
                self._check("alter")
                grant = grant_of(_created(creation), self._users, self._limits)
                check_grant(grant, self._limits)
            except TailraceError as error:
                outcomes.append(error)
            else:
                outcomes.append(grant)
        try:
            await self._grants.add([outcome for outcome in outcomes if isinstance(outcome, Grant)])
        except TailraceError as error:
            outcomes = [error if isinstance(outcome, Grant) else outcome for outcome in outcomes]
        return CreateAclsResponse(
            results=tuple(
                AclCreationResult(error_message=None)
                if isinstance(outcome, Grant)
                else AclCreationResult(error_code=outcome.kafka_code, error_message=str(outcome))
                for outcome in outcomes
            )
        )

    async def delete(self, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
        return DeleteAclsResponse(filter_results=tuple([await self._delete(each) for each in request.filters]))

    async def _delete(self, asked: DeleteAclsFilter) -> DeleteAclsFilterResult:
        try:
            self._check("alter")
            wanted = _filter(asked)
            wanted.check()
            removed = await self._grants.remove(
                lambda grant: (binding := self._binding(grant)) is not None and wanted.matches(binding)
            )
        except TailraceError as error:
            return DeleteAclsFilterResult(error_code=error.kafka_code, error_message=str(error))
        return DeleteAclsFilterResult(
            error_message=None,
            matching_acls=tuple(
                DeleteAclsMatchingAcl(
                    error_message=None,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    pattern_type=each.pattern_type,
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission_type=each.permission_type,
                )
                for each in self._bindings(removed)
            ),
        )

    def _check(self, operation: Operation) -> None:
        if not self._is_on:
            raise SecurityDisabledError("authentication is off, so every client may do everything, and ACLs have no effect")
        if (refusal := self._access.refusal(operation, "cluster")) is not None:
            raise refusal

    def _bindings(self, grants: Iterable[Grant]) -> list[AclBinding]:
        """Return the ACLs that there are of some grants, sorted by resource."""
        return sorted({binding for binding in map(self._binding, grants) if binding is not None})

    def _binding(self, grant: Grant) -> AclBinding | None:
        return binding_of(grant, self._users)


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _created(creation: AclCreation) -> AclBinding:
    return AclBinding(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
