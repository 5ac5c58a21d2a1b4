"""Consumer groups as values: what members ask, what they are answered, and how a group looks from outside."""

from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from tailrace.model.ids import Offset

GroupState = Literal["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]
"""As Kafka names them, because clients and tools read these words."""

GROUP_STATES: tuple[GroupState, ...] = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
CONSUMER = "consumer"
"""The protocol type of groups whose members read topics; others, such as Kafka Connect's, are opaque."""
NO_GENERATION = -1
NO_MEMBER = ""


class MemberProtocol(NamedTuple):
    """A way to share out the work that a member understands, and what it wants under it."""

    name: str
    metadata: bytes


class MemberIdentity(NamedTuple):
    """Who speaks: a member in a generation. The defaults are those of a client that manages its partitions by itself."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    instance_id: str | None = None


class JoinRequest(NamedTuple):
    group: str
    member_id: str
    """Empty for a member that is new."""
    instance_id: str | None
    """The name that a static member keeps over its restarts."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    """Best first."""
    asks_for_id_first: bool = True
    """A new member is told its id and joins with it, so that a join that is sent again makes no second member."""
    can_skip_assignment: bool = False
    """A leader that comes back understands that there is nothing to assign."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...]
    """For the leader, who shares out the work; empty for the others."""
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    group: str
    member: MemberIdentity
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """From the leader: what each member gets."""


class Synced(NamedTuple):
    protocol_type: str
    protocol: str
    assignment: bytes


class MemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """A member as it is stored."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes


class GroupRecord(msgspec.Struct, frozen=True, array_like=True):
    """A group as it is stored: one generation in force, or nobody."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[MemberRecord, ...]
    changed_ms: int
    """Since when it is so."""


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    """Both are empty while the group rebalances."""


class GroupDescription(NamedTuple):
    name: str
    state: GroupState
    protocol_type: str
    protocol: str
    generation: int
    leader: str
    members: tuple[MemberDescription, ...]


class GroupListing(NamedTuple):
    name: str
    state: GroupState
    protocol_type: str


NO_LEADER_EPOCH = -1


class OffsetCommit(NamedTuple):
    """A group has dealt with everything below `offset`."""

    topic: str
    """Name or alias."""
    partition: int
    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    topic_uuid: UUID | None = None
    """Commit only if the topic is still this one. `None`: whichever has the name."""


class CommittedOffset(NamedTuple):
    topic: str
    partition: int
    offset: Offset
    leader_epoch: int
    metadata: str
    committed_ms: int


class Lag(NamedTuple):
    """Records of a partition that a group has not dealt with yet."""

    topic: str
    partition: int
    offset: Offset
    end: Offset
    lag: int
