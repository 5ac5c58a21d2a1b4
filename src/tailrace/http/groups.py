"""`/api/groups`: list, describe, reset and delete consumer groups, and be a member of one.

The endpoints for members are Kafka's classic group protocol in JSON: a member joins, the leader assigns the partitions, each
member gets its assignment by a sync and stays a member by heartbeats. Subscriptions and assignments are in Kafka's own format
(`wire/consumer_protocol.py`) in base64, so HTTP members and Kafka clients can be in one group.
"""

from typing import Any

from litestar import Controller, Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody

from tailrace.api.groups import (
    BeginBody,
    BeginResponse,
    CommitOffsetsBody,
    GroupEntry,
    GroupMember,
    GroupPage,
    GroupView,
    HeartbeatBody,
    JoinBody,
    JoinResponse,
    LeaveBody,
    MemberView,
    OffsetPage,
    OffsetView,
    PartitionPosition,
    PartitionReset,
    ResetOffsetsBody,
    ResetOffsetsResponse,
    SyncBody,
    SyncResponse,
)
from tailrace.broker.broker import Broker
from tailrace.http.consume import to_start
from tailrace.http.openapi import describe_endpoint
from tailrace.http.requests import DEFAULT_PAGE, PageSize, page, read_body
from tailrace.model.group import (
    CONSUMER,
    JoinRequest,
    Lag,
    MemberIdentity,
    MemberProtocol,
    OffsetCommit,
    SyncRequest,
)
from tailrace.model.ids import Offset


class GroupEndpoints(Controller):
    path = "/api/groups"
    tags = ("groups",)

    @get()
    async def all(
        self, broker: NamedDependency[Broker], after: FromQuery[str] = "", limit: FromQuery[PageSize] = DEFAULT_PAGE
    ) -> GroupPage:
        """List groups by name."""
        groups, last = page(broker.groups.visible(), lambda group: group.name, after, limit)
        return GroupPage([GroupEntry(*group) for group in groups], last)

    @get("/{group_id:str}")
    async def one(self, group_id: FromPath[str], broker: NamedDependency[Broker]) -> GroupView:
        """Return a group with its members and its lag."""
        group = broker.groups.describe(group_id)
        return GroupView(
            group.name,
            group.state,
            group.protocol_type,
            group.group_type,
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
        """Delete a group without members, and its offsets."""
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
        """List the committed offsets and the lag of a group by topic and partition."""
        broker.groups.describe(group_id)
        if topic:
            broker.topics.require("describe", topic)
        wanted = broker.topics.readable(topic).topic.name if topic else None
        lags = sorted((lag for lag in broker.offsets.lag(group_id) if wanted in (None, lag.topic)), key=_sort_key)
        chosen, last = page(lags, _sort_key, after, limit)
        return OffsetPage([OffsetView(*lag) for lag in chosen], last)

    @put("/{group_id:str}/offsets", opt=describe_endpoint(ResetOffsetsBody))
    async def reset(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ResetOffsetsResponse:
        """Reset the offsets of a group without members, forwards or backwards."""
        parsed = read_body(body, ResetOffsetsBody)
        placed = await broker.consumers.reset(group_id, parsed.topic, parsed.partition_id, to_start(parsed.start))
        return ResetOffsetsResponse(broker.topics.readable(parsed.topic).topic.name, [PartitionReset(*each) for each in placed])


def _sort_key(lag: Lag) -> str:
    # Padded, so that partitions sort as numbers.
    return f"{lag.topic}/{lag.partition:05}"


class MemberEndpoints(Controller):
    path = "/api/groups/{group_id:str}"
    tags = ("groups",)

    @post("/join", status_code=200, opt=describe_endpoint(JoinBody))
    async def join(
        self, group_id: FromPath[str], request: Request[Any, Any, Any], body: RawBody, broker: NamedDependency[Broker]
    ) -> JoinResponse:
        """Join a group, or join again in a rebalance. Answered when all members have joined."""
        parsed = read_body(body, JoinBody)
        joined = await broker.groups.join(
            JoinRequest(
                group_id,
                parsed.member_id,
                parsed.instance_id,
                parsed.client_id,
                f"/{request.client.host}" if request.client else "",
                parsed.session_timeout_ms,
                parsed.rebalance_timeout_ms,
                CONSUMER,
                tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in parsed.protocols),
            )
        )
        members = [GroupMember(member.member_id, member.metadata) for member in joined.members]
        return JoinResponse(joined.member_id, joined.generation, joined.protocol, joined.leader, members)

    @post("/sync", status_code=200, opt=describe_endpoint(SyncBody))
    async def sync(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> SyncResponse:
        """Get the assignment of a member; the leader sends those of all members."""
        parsed = read_body(body, SyncBody)
        synced = await broker.groups.sync(
            SyncRequest(
                group_id,
                MemberIdentity(parsed.member_id, parsed.generation, parsed.instance_id),
                None,
                None,
                tuple((share.member_id, share.assignment) for share in parsed.assignments),
            )
        )
        return SyncResponse(synced.protocol, synced.assignment)

    @post("/heartbeat", status_code=204, opt=describe_endpoint(HeartbeatBody))
    async def heartbeat(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        """Keep a member in its group."""
        parsed = read_body(body, HeartbeatBody)
        broker.groups.heartbeat(group_id, MemberIdentity(parsed.member_id, parsed.generation, parsed.instance_id))

    @post("/leave", status_code=204, opt=describe_endpoint(LeaveBody))
    async def leave(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        """Remove a member from its group, which rebalances."""
        parsed = read_body(body, LeaveBody)
        (refusal,) = broker.groups.leave(group_id, [(parsed.member_id, parsed.instance_id)])
        if refusal is not None:
            raise refusal

    @post("/begin", status_code=200, opt=describe_endpoint(BeginBody))
    async def begin(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> BeginResponse:
        """Return where the group continues in partitions. Without a committed offset, the start is committed first."""
        parsed = read_body(body, BeginBody)
        member = MemberIdentity(parsed.member_id, parsed.generation)
        start = None if parsed.start is None else to_start(parsed.start)
        begun = await broker.consumers.begin(group_id, parsed.topic, parsed.partitions, start, member)
        return BeginResponse(begun.topic, begun.topic_uuid, [PartitionPosition(*each) for each in begun.positions])

    @post("/commit", status_code=204, opt=describe_endpoint(CommitOffsetsBody))
    async def commit(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> None:
        """Commit offsets for a group, all or none."""
        parsed = read_body(body, CommitOffsetsBody)
        member = MemberIdentity(parsed.member_id, parsed.generation)
        commits = [
            OffsetCommit(done.topic, done.partition_id, Offset(done.offset), topic_uuid=done.topic_uuid)
            for done in parsed.offsets
        ]
        await broker.consumers.commit(group_id, commits, member)
