"""Schemas of `/api/groups`, and of what members of a group send: `POST /api/groups/{group_id}/join`, `/sync`, `/heartbeat`,
`/leave`, `/begin` and `/commit`.
"""

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from tailrace.api.consume import StartPlace
from tailrace.api.messages import NonNegative
from tailrace.model.fetch import StartEdge
from tailrace.model.group import NO_GENERATION, NO_MEMBER, GroupState, GroupType

Milliseconds = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class GroupEntry(msgspec.Struct):
    group_id: str
    state: GroupState
    protocol_type: str
    """`consumer` for groups with members; empty for groups that only commit offsets."""
    group_type: GroupType


class GroupPage(msgspec.Struct):
    groups: list[GroupEntry]
    next: str | None


class MemberView(msgspec.Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class GroupView(msgspec.Struct):
    group_id: str
    state: GroupState
    protocol_type: str
    group_type: GroupType
    protocol: str
    """The assignor that distributes the partitions."""
    generation: int
    """The epoch, if the type is `consumer`."""
    leader: str
    members: list[MemberView]
    lag: int
    """Messages in all partitions that the group has not committed yet."""


class OffsetView(msgspec.Struct):
    topic_name: str
    partition_id: int
    committed_offset: int
    """Where the group continues."""
    end_offset: int
    lag: int


class OffsetPage(msgspec.Struct):
    offsets: list[OffsetView]
    next: str | None


class ResetOffsetsBody(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    start: StartPlace
    partition_id: NonNegative | None = None
    """If left out, all partitions."""


class PartitionReset(msgspec.Struct):
    partition_id: int
    committed_offset: int


class ResetOffsetsResponse(msgspec.Struct):
    topic_name: str
    partitions: list[PartitionReset]


class OfferedProtocol(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    metadata: bytes
    """The member's subscription in Kafka's format, in base64."""


class JoinBody(msgspec.Struct, forbid_unknown_fields=True):
    protocols: list[OfferedProtocol]
    """Best first."""
    member_id: str = NO_MEMBER
    """Empty for a new member: the error that it gets carries the id to join with."""
    instance_id: str | None = None
    client_id: str = ""
    session_timeout_ms: Milliseconds = 30_000
    rebalance_timeout_ms: Milliseconds = 60_000


class GroupMember(msgspec.Struct):
    member_id: str
    metadata: bytes


class JoinResponse(msgspec.Struct):
    member_id: str
    generation: int
    protocol: str
    leader: str
    members: list[GroupMember]
    """For the leader, which assigns the partitions; empty for the others."""


class MemberAssignment(msgspec.Struct, forbid_unknown_fields=True):
    member_id: str
    assignment: bytes


class SyncBody(msgspec.Struct, forbid_unknown_fields=True):
    member_id: str
    generation: int
    assignments: list[MemberAssignment] = []
    """From the leader: each member's assignment in Kafka's format, in base64."""
    instance_id: str | None = None


class SyncResponse(msgspec.Struct):
    protocol: str
    assignment: bytes


class HeartbeatBody(msgspec.Struct, forbid_unknown_fields=True):
    member_id: str
    generation: int
    instance_id: str | None = None


class LeaveBody(msgspec.Struct, forbid_unknown_fields=True):
    member_id: str
    instance_id: str | None = None


class BeginBody(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partitions: list[NonNegative]
    start: StartPlace | None = StartEdge.EARLIEST
    """Where to start in partitions for which the group has no committed offset; with `null` that is an error."""
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION


class PartitionPosition(msgspec.Struct):
    partition_id: int
    offset: int


class BeginResponse(msgspec.Struct):
    topic_name: str
    topic_uuid: UUID
    """To send along with fetches and commits: a topic that is created again under the same name has another one."""
    positions: list[PartitionPosition]


class OffsetToCommit(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition_id: NonNegative
    offset: NonNegative
    """Where the group continues: one after the last offset that is processed."""
    topic_uuid: UUID | None = None
    """If set, a topic that was deleted and created again under the same name is an error."""


class CommitOffsetsBody(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[OffsetToCommit]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
