"""Consumer groups: requests of members and their results, descriptions of groups, and committed offsets."""

from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from tailrace.model.ids import Offset

GroupState = Literal["Empty", "PreparingRebalance", "CompletingRebalance", "Reconciling", "Stable", "Dead"]
"""The names are Kafka's, because clients and tools read them."""

GROUP_STATES: tuple[GroupState, ...] = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Reconciling",
    "Stable",
    "Dead",
)
GroupType = Literal["classic", "consumer"]
"""The protocol by which members share partitions: JoinGroup and SyncGroup, or ConsumerGroupHeartbeat (KIP-848)."""
CONSUMER = "consumer"
"""The protocol type of groups that read topics. Other types, such as Kafka Connect's, are opaque to the server."""
NO_GENERATION = -1
NO_MEMBER = ""


class MemberProtocol(NamedTuple):
    """An assignment protocol that a member supports, and its metadata for it, such as a subscription."""

    name: str
    metadata: bytes


class MemberIdentity(NamedTuple):
    """A member in a generation. The defaults are those of a client that assigns its partitions to itself."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    instance_id: str | None = None


class JoinRequest(NamedTuple):
    group: str
    member_id: str
    """Empty for a new member."""
    instance_id: str | None
    """The name that a static member keeps across restarts."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    """Supported protocols, preferred ones first."""
    asks_for_id_first: bool = True
    """A new member is told its id and joins again with it, so that a repeated join does not create a second member."""
    can_skip_assignment: bool = False
    """Whether a leader that rejoins can be told to skip the assignment."""


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
    """All members, for the leader, which assigns partitions. Empty for the others."""
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    group: str
    member: MemberIdentity
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """The assignment of each member, from the leader."""


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
    """A group as it is stored: with its current generation, or without members."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[MemberRecord, ...]
    changed_ms: int
    """When the group changed to this state."""


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    """Metadata and assignment are empty while the group rebalances."""


class GroupDescription(NamedTuple):
    name: str
    state: GroupState
    protocol_type: str
    protocol: str
    """The assignor."""
    generation: int
    """The group epoch, if the group is of the consumer protocol."""
    leader: str
    members: tuple[MemberDescription, ...]
    group_type: GroupType = "classic"


class GroupListing(NamedTuple):
    name: str
    state: GroupState
    protocol_type: str
    group_type: GroupType = "classic"


NO_LEADER_EPOCH = -1


class OffsetCommit(NamedTuple):
    """A group has processed everything below `offset`."""

    topic: str
    """Name or alias."""
    partition: int
    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    topic_uuid: UUID | None = None
    """Commit only if the topic is still this one. `None` commits for whichever topic has the name."""


class CommittedOffset(NamedTuple):
    topic: str
    partition: int
    offset: Offset
    leader_epoch: int
    metadata: str
    committed_ms: int


class Lag(NamedTuple):
    """The number of records of a partition that a group has not processed."""

    topic: str
    partition: int
    offset: Offset
    end: Offset
    lag: int
