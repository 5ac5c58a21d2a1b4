"""Requests and responses of JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups, DescribeGroups, DeleteGroups."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Bytes, Int16, Int32, KafkaMessage, NullableSince, Since, String, Until


class JoinGroupRequestProtocol(KafkaMessage, frozen=True, kw_only=True):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(5), NullableSince(0)] = None
    protocol_type: String = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: Annotated[String | None, Since(8), NullableSince(0)] = None


class JoinGroupResponseMember(KafkaMessage, frozen=True, kw_only=True):
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(5), NullableSince(0)] = None
    metadata: Bytes = b""


class JoinGroupResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, Since(7), NullableSince(0)] = None
    protocol_name: Annotated[String | None, NullableSince(7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Boolean, Since(9)] = False
    member_id: String = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


JOIN_GROUP_API = Api(11, "JoinGroup", 0, 9, 6, JoinGroupRequest, JoinGroupResponse)


class SyncGroupRequestAssignment(KafkaMessage, frozen=True, kw_only=True):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(3), NullableSince(0)] = None
    protocol_type: Annotated[String | None, Since(5), NullableSince(0)] = None
    protocol_name: Annotated[String | None, Since(5), NullableSince(0)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, Since(5), NullableSince(0)] = None
    protocol_name: Annotated[String | None, Since(5), NullableSince(0)] = None
    assignment: Bytes = b""


SYNC_GROUP_API = Api(14, "SyncGroup", 0, 5, 4, SyncGroupRequest, SyncGroupResponse)


class HeartbeatRequest(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(3), NullableSince(0)] = None


class HeartbeatResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


HEARTBEAT_API = Api(12, "Heartbeat", 0, 4, 4, HeartbeatRequest, HeartbeatResponse)


class LeaveGroupMember(KafkaMessage, frozen=True, kw_only=True):
    member_id: String = ""
    group_instance_id: Annotated[String | None, NullableSince(0)] = None
    reason: Annotated[String | None, Since(5), NullableSince(0)] = None


class LeaveGroupRequest(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    member_id: Annotated[String, Until(2)] = ""
    members: Annotated[tuple[LeaveGroupMember, ...], Since(3)] = ()


class LeaveGroupMemberResponse(KafkaMessage, frozen=True, kw_only=True):
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[String | None, Since(3), NullableSince(0)] = ""
    error_code: Annotated[Int16, Since(3)] = 0


class LeaveGroupResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[LeaveGroupMemberResponse, ...], Since(3)] = ()


LEAVE_GROUP_API = Api(13, "LeaveGroup", 0, 5, 4, LeaveGroupRequest, LeaveGroupResponse)


class ListGroupsRequest(KafkaMessage, frozen=True, kw_only=True):
    states_filter: Annotated[tuple[String, ...], Since(4)] = ()
    types_filter: Annotated[tuple[String, ...], Since(5)] = ()


class ListedGroup(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


class ListGroupsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()


LIST_GROUPS_API = Api(16, "ListGroups", 0, 5, 3, ListGroupsRequest, ListGroupsResponse)


class DescribeGroupsRequest(KafkaMessage, frozen=True, kw_only=True):
    groups: tuple[String, ...] = ()
    include_authorized_operations: Annotated[Boolean, Since(3)] = False


class DescribedGroupMember(KafkaMessage, frozen=True, kw_only=True):
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(4), NullableSince(0)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(6), NullableSince(0)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, Since(3)] = -2147483648


class DescribeGroupsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: tuple[DescribedGroup, ...] = ()


DESCRIBE_GROUPS_API = Api(15, "DescribeGroups", 0, 6, 5, DescribeGroupsRequest, DescribeGroupsResponse)


class DeleteGroupsRequest(KafkaMessage, frozen=True, kw_only=True):
    groups_names: tuple[String, ...] = ()


class DeletableGroupResult(KafkaMessage, frozen=True, kw_only=True):
    group_id: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(3), NullableSince(0)] = None


class DeleteGroupsResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()


DELETE_GROUPS_API = Api(42, "DeleteGroups", 0, 3, 2, DeleteGroupsRequest, DeleteGroupsResponse)
