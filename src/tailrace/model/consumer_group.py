"""Groups of the consumer protocol (KIP-848): heartbeats of members and their results, descriptions, and stored groups."""

from collections.abc import Mapping
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from tailrace.model.group import GroupState, MemberProtocol

JOINING_EPOCH = 0
"""The member epoch of a member that joins."""
LEAVING_EPOCH = -1
"""The member epoch of a member that leaves."""
STATIC_LEAVING_EPOCH = -2
"""The member epoch of a static member that will be back."""

MemberState = Literal["stable", "unrevoked", "unreleased"]
"""Whether a member has its target, is asked to give partitions up, or waits for some that others have."""


class ClassicClient(msgspec.Struct, frozen=True, array_like=True):
    """What else is known of a member that uses the classic protocol in a group of the consumer protocol."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


class ConsumerHeartbeat(NamedTuple):
    """A heartbeat. What is `None` has not changed since the last one."""

    group: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topic_names: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    """A regular expression. Empty for none."""
    assignor: str | None = None
    owned: Mapping[UUID, frozenset[int]] | None = None
    """The partitions that the member has and has not given up."""
    classic: ClassicClient | None = None
    """Set if this is a JoinGroup request of a member that uses the classic protocol."""

    @property
    def is_complete(self) -> bool:
        """Whether it has all that a joining member sends. A member that is not sure what the server knows sends that."""
        has_topics = self.topic_names is not None or self.topic_pattern is not None
        return self.rebalance_timeout_ms is not None and has_topics and self.owned is not None

    @property
    def is_kept(self) -> bool:
        """Whether it says something that the group would keep."""
        return self.topic_names is not None or self.topic_pattern is not None or self.rack_id is not None


class ConsumerHeartbeatResult(NamedTuple):
    member_id: str
    epoch: int
    assigned: Mapping[UUID, frozenset[int]] | None = None
    """The partitions that the member may read, or `None` if they have not changed."""


class ConsumerMemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """A member as it is stored."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...]
    topic_pattern: str
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: tuple[tuple[bytes, tuple[int, ...]], ...]
    revoking: tuple[tuple[bytes, tuple[int, ...]], ...]
    target: tuple[tuple[bytes, tuple[int, ...]], ...]
    classic: ClassicClient | None = None


class ConsumerGroupRecord(msgspec.Struct, frozen=True, array_like=True):
    """A group of the consumer protocol as it is stored."""

    epoch: int
    assignor: str
    topics_hash: bytes
    """Stands for the subscribed topics and the number of their partitions when the target was made."""
    members: tuple[ConsumerMemberRecord, ...]
    changed_ms: int


class DescribedPartitions(NamedTuple):
    topic_uuid: UUID
    topic: str
    partitions: tuple[int, ...]


class ConsumerMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int
    topic_names: tuple[str, ...]
    topic_pattern: str | None
    assigned: tuple[DescribedPartitions, ...]
    target: tuple[DescribedPartitions, ...]
    is_classic: bool = False
    """Whether it uses the classic protocol."""


class ConsumerGroupDescription(NamedTuple):
    name: str
    state: GroupState
    epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
