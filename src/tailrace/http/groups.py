"""`/api/groups`: who consumes, how far each group has come, and putting one somewhere else."""

import msgspec
from litestar import Controller, delete, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody

from tailrace.broker.broker import Broker
from tailrace.http.consuming import NonNegative, StartPlace, to_start
from tailrace.http.description import described
from tailrace.http.messages import read_body
from tailrace.http.paging import DEFAULT_PAGE, PageSize, page
from tailrace.model.group import GroupState, Lag


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

    @put("/{group_id:str}/offsets", opt=described(ResetOffsets))
    async def reset(self, group_id: FromPath[str], body: RawBody, broker: NamedDependency[Broker]) -> ResetAnswer:
        """Put a group without members somewhere else, forwards or back."""
        asked = read_body(body, ResetOffsets)
        placed = await broker.consumers.reset(group_id, asked.topic, asked.partition_id, to_start(asked.start))
        return ResetAnswer(broker.topics.get(asked.topic).topic.name, [PartitionReset(*each) for each in placed])


def _place(lag: Lag) -> str:
    # Partitions are counted, so their numbers are padded to sort as numbers.
    return f"{lag.topic}/{lag.partition:05}"
