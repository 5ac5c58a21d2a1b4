"""The members of a group: their state, who leads, which protocol they elect, and who may join.

Checks of joins change nothing and are made before anything changes.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from struct import Struct
from struct import error as StructError

from tailrace.broker.settings import BrokerSettings
from tailrace.model.errors import (
    FencedInstanceError,
    GroupFullError,
    InconsistentProtocolError,
    InvalidSessionTimeoutError,
    LimitExceededError,
    UnknownMemberError,
)
from tailrace.model.group import CONSUMER, NO_MEMBER, JoinRequest, MemberProtocol, MemberRecord
from tailrace.model.limits import Limits

_SUBSCRIPTION_HEAD = Struct(">hi")
_LENGTH = Struct(">h")

Ticket = Hashable
"""Identifies a request that waits for its response; each gets exactly one."""


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "must_sync",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.assignment = b""
        self.deadline_ms = 0
        """When its session ends unless it sends a request before."""
        self.is_new = True
        """Has not been part of a generation yet."""
        self.joining: Ticket | None = None
        self.syncing: Ticket | None = None
        self.must_sync = False
        """Has got the response to its join and has not sent a sync yet."""
        self.take(request)

    @classmethod
    def from_record(cls, record: MemberRecord) -> "Member":
        member = cls.__new__(cls)
        member.member_id = record.member_id
        member.instance_id = record.instance_id
        member.client_id = record.client_id
        member.client_host = record.client_host
        member.session_timeout_ms = record.session_timeout_ms
        member.rebalance_timeout_ms = record.rebalance_timeout_ms
        member.protocols = record.protocols
        member.assignment = record.assignment
        member.deadline_ms = 0
        member.is_new = member.must_sync = False
        member.joining = member.syncing = None
        return member

    def take(self, request: JoinRequest) -> None:
        """Replace what is known of the member with the values of its join request."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = request.protocols

    def record(self, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            assignment,
        )

    @property
    def is_waiting(self) -> bool:
        return self.joining is not None or self.syncing is not None

    @property
    def held_bytes(self) -> int:
        names = len(self.member_id) + len(self.instance_id or "") + len(self.client_id)
        return names + bytes_of(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for this protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


def bytes_of(protocols: tuple[MemberProtocol, ...]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class Members:
    """The members of a group by id and by instance id, with their leader."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, Member] = {}
        self.leader = NO_MEMBER

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    @property
    def held_bytes(self) -> int:
        return sum(member.held_bytes for member in self._by_id.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def find_instance(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self._by_instance.get(instance_id)

    def get(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that sent a request. An instance id belongs to one member at a time; earlier owners are fenced."""
        if instance_id is not None:
            holder = self._by_instance.get(instance_id)
            if holder is None:
                raise UnknownMemberError(f"group {self._group!r} has no static member {instance_id!r}; join again")
            if holder.member_id != member_id:
                raise FencedInstanceError(
                    f"static member {instance_id!r} of group {self._group!r} is {holder.member_id!r} now, not {member_id!r}:"
                    " another client took over that group.instance.id"
                )
            return holder
        member = self._by_id.get(member_id)
        if member is None:
            raise UnknownMemberError(f"group {self._group!r} has no member {member_id!r}; join again as a new one")
        return member

    def add(self, member: Member) -> None:
        if not self._by_id:
            self.leader = member.member_id
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member

    def remove(self, member: Member) -> None:
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), NO_MEMBER)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new id. It keeps its place in the order of members, and stays the leader if it was."""
        if self.leader == member.member_id:
            self.leader = member_id
        old = member.member_id
        member.member_id = member_id
        self._by_id = {member_id if key == old else key: each for key, each in self._by_id.items()}

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, else choose a member that has. Return `False` if nobody has joined."""
        joined = [member.member_id for member in self._by_id.values() if member.joining is not None]
        if self.leader not in joined:
            if not joined:
                return False
            self.leader = joined[0]
        return True

    def agree_with(self, protocols: tuple[MemberProtocol, ...], besides: Member | None) -> bool:
        """Return whether these protocols have one in common with those of all members but `besides`."""
        common = {protocol.name for protocol in protocols}
        for member in self._by_id.values():
            if member is not besides:
                common &= {protocol.name for protocol in member.protocols}
        return bool(common)

    def elected_protocol(self) -> str:
        """Return the winner: each member votes for the first of its protocols that all support; the leader breaks ties."""
        common = set.intersection(*({protocol.name for protocol in member.protocols} for member in self._by_id.values()))
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in common) for member in self._by_id.values()
        )
        preferred = [protocol.name for protocol in self._by_id[self.leader].protocols if protocol.name in common]
        return max(preferred, key=lambda name: votes[name])


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a consumer's subscription, or `None` if the bytes are not a subscription.

    Assignors run in the clients, so the broker needs no other field. Fields after the topics are ignored, so that later
    versions of the format work too.
    """
    try:
        version, count = _SUBSCRIPTION_HEAD.unpack_from(metadata)
        at = _SUBSCRIPTION_HEAD.size
        if version < 0 or not 0 <= count <= (len(metadata) - at) // _LENGTH.size:
            return None
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if not 0 <= length <= len(metadata) - at:
                return None
            topics.append(metadata[at : at + length].decode())
            at += length
    except (StructError, UnicodeDecodeError):
        return None
    return frozenset(topics)


class MemberAdmission:
    """Checks whether a member may join the group."""

    def __init__(self, group: str, members: Members, limits: Limits) -> None:
        self._group = group
        self._members = members
        self._limits = limits

    def check_protocols(self, request: JoinRequest, protocol_type: str, besides: Member | None = None) -> None:
        """Raise unless the protocols fit all members but `besides`, which is the joining member's earlier state."""
        others = len(self._members) - (besides is not None)
        if others and request.protocol_type != protocol_type:
            raise InconsistentProtocolError(
                f"the members of group {self._group!r} are of the type {protocol_type!r}, not {request.protocol_type!r}"
            )
        if not self._members.agree_with(request.protocols, besides):
            offered = ", ".join(protocol.name for protocol in request.protocols)
            raise InconsistentProtocolError(
                f"the other members of group {self._group!r} do not all support one of: {offered}. Give all members of a"
                " group a common partition.assignment.strategy"
            )
        replaced = 0 if besides is None else besides.held_bytes
        self.check_bytes(request_bytes(request) - replaced)

    def check_bytes(self, more: int) -> None:
        size = self._members.held_bytes + more
        if size > self._limits.group_state_bytes:
            raise LimitExceededError(
                f"the members of group {self._group!r} would hold {size} bytes, more than group_state_bytes allows"
                f" ({self._limits.group_state_bytes})"
            )

    def check_room(self, promised: int) -> None:
        """Raise if the group is full. `promised` is the number of ids given to members that have not joined with them yet."""
        limit = self._limits.group_members
        if len(self._members) >= limit or promised >= limit:
            raise GroupFullError(
                f"group {self._group!r} has {len(self._members)} members and {promised} that are about to join;"
                f" group_members allows {limit}"
            )

    def bounded(self, request: JoinRequest) -> JoinRequest:
        return request._replace(rebalance_timeout_ms=bounded_rebalance_timeout_ms(request, self._limits))


def check_request(request: JoinRequest, settings: BrokerSettings) -> None:
    """Check what does not depend on the other members."""
    low, high = settings.group_min_session_ms, settings.group_max_session_ms
    if not low <= request.session_timeout_ms <= high:
        raise InvalidSessionTimeoutError(
            f"the session timeout is {request.session_timeout_ms} ms; group_min_session_ms and group_max_session_ms allow"
            f" {low} to {high}"
        )
    if not request.protocol_type or not request.protocols:
        raise InconsistentProtocolError("a member must name a protocol type and at least one protocol")


def bounded_rebalance_timeout_ms(request: JoinRequest, limits: Limits) -> int:
    """Return the rebalance timeout within its bound. Old clients send none; theirs is the session timeout."""
    asked = request.rebalance_timeout_ms
    return request.session_timeout_ms if asked <= 0 else min(asked, limits.rebalance_timeout_ms)


def request_bytes(request: JoinRequest) -> int:
    """Return the bytes that the group would keep of the request."""
    names = len(request.instance_id or "") + len(request.client_id) + len(request.protocol_type)
    return names + bytes_of(request.protocols)


def has_same_subscription(before: Member, request: JoinRequest, protocol_type: str, protocol: str) -> bool:
    """Return whether a static member that restarted can keep its assignment."""
    if request.protocol_type != protocol_type:
        return False
    old = before.metadata(protocol)
    new = next((each.metadata for each in request.protocols if each.name == protocol), None)
    if new == old:
        return True
    # The rest of a consumer's metadata, such as the partitions that it owned, differs after every restart.
    return (
        new is not None
        and protocol_type == CONSUMER
        and (topics := subscribed_topics(new)) is not None
        and topics == subscribed_topics(old)
    )
