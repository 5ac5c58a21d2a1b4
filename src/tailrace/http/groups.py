"""`/api/groups`: who consumes, how far each group has come, and putting one somewhere else."""

from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Controller, Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody
from msgspec import Meta

from tailrace.broker.broker import Broker
from tailrace.http.consume import NonNegative, StartPlace, to_start
from tailrace.http.messages import read_body
from tailrace.http.openapi import describe_endpoint
from tailrace.http.requests import DEFAULT_PAGE, PageSize, page
from tailrace.model.fetch import StartEdge
from tailrace.model.group import (
    CONSUMER,
    NO_GENERATION,
    NO_MEMBER,
    GroupState,
    JoinRequest,
    Lag,
    MemberIdentity,
    MemberProtocol,
    OffsetCommit,
    SyncRequest,
)
from tailrace.model.ids import Offset


class GroupEntry(msgspec.Struct):
    group_id: str
    state: GroupState
    protocol_type: str
    """`consumer` for groups with members of Kafka's kind; empty for those that only commit."""


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
    protocol: str
    """How the members share out the partitions."""
    generation: int
    leader: str
    members: list[MemberView]
    lag: int
    """Messages of all partitions that the group has not dealt with yet."""


class OffsetView(msgspec.Struct):
    topic_name: str
    partition_id: int
    committed_offset: int
    """Where the group goes on."""
    end_offset: int
    lag: int


class OffsetPage(msgspec.Struct):
    offsets: list[OffsetView]
    next: str | None


class ResetOffsets(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    start: StartPlace
    partition_id: NonNegative | None = None
    """All partitions if it is left out."""


class PartitionReset(msgspec.Struct):
    partition_id: int
    committed_offset: int


class ResetAnswer(msgspec.Struct):
    topic_name: str
    partitions: list[PartitionReset]


class GroupEndpoints(Controller):
    path = "/api/groups"
    tags = ("groups",)

    @get()
    async def all(
        self, broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
    ) -> GroupPage:
        """Groups by name."""
        groups, last = page(broker.groups.all(), lambda group: group.name, after, limit)
        return GroupPage([GroupEntry(*group) for group in groups], last)

    @get("/{group_id:str}")
    async def one(self, group_id: FromPath[str], broker: NamedDependency[Broker]) -> GroupView:
        """A group with its members and its lag."""
        group = broker.groups.describe(group_id)
        return GroupView(
            group.name,
            group.state,
            group.protocol_type,
            group.protocol,
            group.generation,
            group.leader,
            [
                MemberView(member.member_id, member.instance_id, member.client_id, member.client_host)
                for member in group.members
            ],
            sum(each.lag for each in broker.offsets.lag(group_id)),
        )

    @delete("/{group_id:str}")
    async def remove(self, group_id: FromPath[str], broker: NamedDependency[Broker]) -> None:
        """Forget a group without members, and its offsets."""
        await broker.group_removal.delete(group_id)

    @get("/{group_id:str}/offsets")
    async def offsets(
        self,
        group_id: FromPath[str],
        broker: NamedDependency[Broker],
        topic: FromQuery[str] = "",
        after: FromQuery[str] = "",
        limit: FromQuery[PageSize] = DEFAULT_PAGE,
    ) -> OffsetPage:
        """How far the group has come, by topic and partition."""
        broker.groups.describe(group_id)
        wanted = broker.topics.get(topic).topic.name if topic else None
        lags = sorted((lag for lag in broker.offsets.lag(group_id) if wanted in (None, lag.topic)), key=_place)
        chosen, last = page(lags, _place, after, limit)
        return OffsetPage([OffsetView(*lag) for lag in chosen], last)

    @put("/{group_id:str}/offsets", opt=describe_endpoint(ResetOffsets))
    async def reset(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ResetAnswer:
        """Put a group without members somewhere else, forwards or back."""
        asked = read_body(body, ResetOffsets)
        placed = await broker.consumers.reset(group_id, asked.topic, asked.partition_id, to_start(asked.start))
        return ResetAnswer(broker.topics.get(asked.topic).topic.name, [PartitionReset(*each) for each in placed])


def _place(lag: Lag) -> str:
    # Partitions are counted, so their numbers are padded to sort as numbers.
    return f"{lag.topic}/{lag.partition:05}"


Milliseconds = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class OfferedProtocol(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    metadata: bytes
    """What the member wants: a subscription in Kafka's format, in base64."""


class Join(msgspec.Struct, forbid_unknown_fields=True):
    protocols: list[OfferedProtocol]
    """Best first."""
    member_id: str = NO_MEMBER
    """Empty for a member that is new; it is refused with the id to join with."""
    instance_id: str | None = None
    client_id: str = ""
    session_timeout_ms: Milliseconds = 30_000
    rebalance_timeout_ms: Milliseconds = 60_000


class GroupMember(msgspec.Struct):
    member_id: str
    metadata: bytes


class JoinAnswer(msgspec.Struct):
    member_id: str
    generation: int
    protocol: str
    leader: str
    members: list[GroupMember]
    """For the leader, who shares out the partitions; empty for the others."""


class MemberShare(msgspec.Struct, forbid_unknown_fields=True):
    member_id: str
    assignment: bytes


class Sync(msgspec.Struct, forbid_unknown_fields=True):
    member_id: str
    generation: int
    assignments: list[MemberShare] = []
    """From the leader: what each member gets, in Kafka's format, in base64."""
    instance_id: str | None = None


class SyncAnswer(msgspec.Struct):
    protocol: str
    assignment: bytes


class Heartbeat(msgspec.Struct, forbid_unknown_fields=True):
    member_id: str
    generation: int
    instance_id: str | None = None


class Leave(msgspec.Struct, forbid_unknown_fields=True):
    member_id: str
    instance_id: str | None = None


class Begin(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partitions: list[NonNegative]
    start: StartPlace | None = StartEdge.EARLIEST
    """Where to begin where the group has committed nothing; `null` makes that an error."""
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION


class PartitionPosition(msgspec.Struct):
    partition_id: int
    offset: int


class BeginAnswer(msgspec.Struct):
    topic_name: str
    topic_uuid: UUID
    """To be sent along with fetches and commits: a topic that is made again under the same name has another."""
    positions: list[PartitionPosition]


class DoneOffset(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition_id: NonNegative
    offset: NonNegative
    """Where the group goes on: one after the last offset that is done."""
    topic_uuid: UUID | None = None
    """The topic must still be this one."""


class CommitOffsets(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[DoneOffset]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION


class MemberEndpoints(Controller):
    path = "/api/groups/{group_id:str}"
    tags = ("groups",)

    @post("/join", status_code=200, opt=describe_endpoint(Join))
    async def join(
        self, group_id: FromPath[str], request: Request[Any, Any, Any], body: RawBody, broker: NamedDependency[Broker]
    ) -> JoinAnswer:
        """Become a member, or stay one when the group shares out anew; answered when all members have joined."""
        asked = read_body(body, Join)
        joined = await broker.groups.join(
            JoinRequest(
                group_id,
                asked.member_id,
                asked.instance_id,
                asked.client_id,
                f"/{request.client.host}" if request.client else "",
                asked.session_timeout_ms,
                asked.rebalance_timeout_ms,
                CONSUMER,
                tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in asked.protocols),
            )
        )
        members = [GroupMember(member.member_id, member.metadata) for member in joined.members]
        return JoinAnswer(joined.member_id, joined.generation, joined.protocol, joined.leader, members)

    @post("/sync", status_code=200, opt=describe_endpoint(Sync))
    async def sync(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> SyncAnswer:
        """Get a share of the partitions; the leader hands out all shares."""
        asked = read_body(body, Sync)
        synced = await broker.groups.sync(
            SyncRequest(
                group_id,
                MemberIdentity(asked.member_id, asked.generation, asked.instance_id),
                None,
                None,
                tuple((share.member_id, share.assignment) for share in asked.assignments),
            )
        )
        return SyncAnswer(synced.protocol, synced.assignment)

    @post("/heartbeat", status_code=204, opt=describe_endpoint(Heartbeat))
    async def heartbeat(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        """A member is still there."""
        asked = read_body(body, Heartbeat)
        broker.groups.heartbeat(group_id, MemberIdentity(asked.member_id, asked.generation, asked.instance_id))

    @post("/leave", status_code=204, opt=describe_endpoint(Leave))
    async def leave(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        """A member goes, and its share with it."""
        asked = read_body(body, Leave)
        (refusal,) = broker.groups.leave(group_id, [(asked.member_id, asked.instance_id)])
        if refusal is not None:
            raise refusal

    @post("/begin", status_code=200, opt=describe_endpoint(Begin))
    async def begin(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> BeginAnswer:
        """Where the group goes on in these partitions. Where it has committed nothing, the start is committed first."""
        asked = read_body(body, Begin)
        member = MemberIdentity(asked.member_id, asked.generation)
        start = None if asked.start is None else to_start(asked.start)
        begun = await broker.consumers.begin(group_id, asked.topic, asked.partitions, start, member)
        return BeginAnswer(begun.topic, begun.topic_uuid, [PartitionPosition(*each) for each in begun.positions])

    @post("/commit", status_code=204, opt=describe_endpoint(CommitOffsets))
    async def commit(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        """The group is done with everything below these offsets; all of them are committed, or none."""
        asked = read_body(body, CommitOffsets)
        member = MemberIdentity(asked.member_id, asked.generation)
        commits = [
            OffsetCommit(done.topic, done.partition_id, Offset(done.offset), topic_uuid=done.topic_uuid)
            for done in asked.offsets
        ]
        await broker.consumers.commit(group_id, commits, member)
