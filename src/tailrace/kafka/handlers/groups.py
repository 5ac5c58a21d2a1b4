"""Consumer groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups and DeleteGroups."""

from tailrace.broker.broker import Broker
from tailrace.kafka.access import Access
from tailrace.kafka.cluster import NOT_ASKED
from tailrace.kafka.dispatch import ApiRoute, RequestContext
from tailrace.model.errors import MemberIdRequiredError, TailraceError, UnknownGroupError
from tailrace.model.group import JoinRequest, MemberIdentity, MemberProtocol, SyncRequest
from tailrace.wire.messages.groups import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    LIST_GROUPS_API,
    SYNC_GROUP_API,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

COORDINATOR_NOT_AVAILABLE = 15
_ASKS_FOR_ID_FIRST = 4
"""The first version of JoinGroup in which a new member gets its id before it may join."""
_CAN_SKIP_ASSIGNMENT = 9
_NULLABLE_PROTOCOL = 7
_BATCHED_LEAVE = 3
_SAYS_NOT_FOUND = 6


def group_error_code(error: TailraceError | None) -> int:
    """Return the error code for a group member. A server error makes it look for the coordinator again."""
    if error is None:
        return 0
    if error.http_status >= 500:
        return COORDINATOR_NOT_AVAILABLE
    return error.kafka_code


class GroupHandlers:
    def __init__(self, broker: Broker) -> None:
        self._groups = broker.groups
        self._removal = broker.group_removal
        self._permissions = broker.permissions
        self._access = Access(broker)

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(JOIN_GROUP_API, self.join),
            ApiRoute(SYNC_GROUP_API, self.sync),
            ApiRoute(HEARTBEAT_API, self.heartbeat),
            ApiRoute(LEAVE_GROUP_API, self.leave),
            ApiRoute(DESCRIBE_GROUPS_API, self.describe),
            ApiRoute(LIST_GROUPS_API, self.list_groups),
            ApiRoute(DELETE_GROUPS_API, self.delete),
        ]

    async def join(self, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
        try:
            joined = await self._groups.join(
                JoinRequest(
                    request.group_id,
                    request.member_id,
                    request.group_instance_id,
                    context.client_id or "",
                    f"/{context.client.host}",
                    request.session_timeout_ms,
                    request.rebalance_timeout_ms,
                    request.protocol_type,
                    tuple(MemberProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
                    asks_for_id_first=context.version >= _ASKS_FOR_ID_FIRST,
                    can_skip_assignment=context.version >= _CAN_SKIP_ASSIGNMENT,
                )
            )
        except TailraceError as error:
            return JoinGroupResponse(
                error_code=group_error_code(error),
                protocol_name=None if context.version >= _NULLABLE_PROTOCOL else "",
                member_id=error.member_id if isinstance(error, MemberIdRequiredError) else request.member_id,
            )
        return JoinGroupResponse(
            generation_id=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol,
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=tuple(
                JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
                for member_id, instance_id, metadata in joined.members
            ),
        )

    async def sync(self, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
        try:
            synced = await self._groups.sync(
                SyncRequest(
                    request.group_id,
                    MemberIdentity(request.member_id, request.generation_id, request.group_instance_id),
                    request.protocol_type,
                    request.protocol_name,
                    tuple((each.member_id, bytes(each.assignment)) for each in request.assignments),
                )
            )
        except TailraceError as error:
            return SyncGroupResponse(error_code=group_error_code(error))
        return SyncGroupResponse(
            protocol_type=synced.protocol_type, protocol_name=synced.protocol, assignment=synced.assignment
        )

    def heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        member = MemberIdentity(request.member_id, request.generation_id, request.group_instance_id)
        try:
            self._groups.heartbeat(request.group_id, member)
        except TailraceError as error:
            return HeartbeatResponse(error_code=group_error_code(error))
        return HeartbeatResponse()

    def leave(self, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
        leavers: list[tuple[str, str | None]] = [(each.member_id, each.group_instance_id) for each in request.members]
        if context.version < _BATCHED_LEAVE:
            leavers = [(request.member_id, None)]
        try:
            outcomes = self._groups.leave(request.group_id, leavers)
        except TailraceError as error:
            return LeaveGroupResponse(error_code=group_error_code(error))
        if context.version < _BATCHED_LEAVE:
            return LeaveGroupResponse(error_code=group_error_code(outcomes[0]))
        return LeaveGroupResponse(
            members=tuple(
                LeaveGroupMemberResponse(
                    member_id=member_id, group_instance_id=instance_id, error_code=group_error_code(outcome)
                )
                for (member_id, instance_id), outcome in zip(leavers, outcomes, strict=True)
            )
        )

    def describe(self, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        asks = request.include_authorized_operations
        return DescribeGroupsResponse(
            groups=tuple(
                self._described(context, name, self._access.on_group(name) if asks else NOT_ASKED) for name in request.groups
            )
        )

    def list_groups(self, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        may_list_all = self._permissions.may("describe", "cluster")
        return ListGroupsResponse(
            groups=tuple(
                ListedGroup(
                    group_id=listed.name,
                    protocol_type=listed.protocol_type,
                    group_state=listed.state,
                    group_type=listed.group_type,
                )
                for listed in (self._groups.all() if may_list_all else self._groups.visible())
                if (not states or listed.state.lower() in states) and (not types or listed.group_type in types)
            )
        )

    async def delete(self, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        results = []
        for name in dict.fromkeys(request.groups_names):
            try:
                await self._removal.delete(name)
            except TailraceError as error:
                results.append(
                    DeletableGroupResult(group_id=name, error_code=group_error_code(error), error_message=str(error))
                )
            else:
                results.append(DeletableGroupResult(group_id=name))
        return DeleteGroupsResponse(results=tuple(results))

    def _described(self, context: RequestContext, name: str, operations: int) -> DescribedGroup:
        try:
            group = self._groups.describe(name)
            if group.group_type != "classic":
                raise UnknownGroupError(f"group {name!r} is one of the consumer protocol; ConsumerGroupDescribe describes it")
        except UnknownGroupError as error:
            if context.version >= _SAYS_NOT_FOUND:
                return DescribedGroup(group_id=name, error_code=error.kafka_code, error_message=str(error), group_state="Dead")
            return DescribedGroup(group_id=name, group_state="Dead", authorized_operations=operations)
        except TailraceError as error:
            return DescribedGroup(group_id=name, error_code=group_error_code(error))
        return DescribedGroup(
            group_id=name,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol,
            members=tuple(
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata,
                    member_assignment=member.assignment,
                )
                for member in group.members
            ),
            authorized_operations=operations,
        )
