"""The members of a group of the consumer protocol: what they have said of themselves, how far they have come, and when they are
given up. A member that uses the classic protocol has `classic`.
"""

from collections.abc import Collection, Iterator

from tailrace.broker.groups.assignment import NOTHING_ASSIGNED, Assignment, from_stored, size, to_stored
from tailrace.broker.groups.members import bytes_of
from tailrace.broker.groups.reconciliation import MemberProgress
from tailrace.model.consumer_group import JOINING_EPOCH, ClassicClient, ConsumerHeartbeat, ConsumerMemberRecord
from tailrace.model.errors import FencedInstanceError, UnknownMemberError

_NAME_BYTES = 16
_PARTITION_BYTES = 32


class ConsumerMember:
    __slots__ = (
        "act_until_ms",
        "assignor",
        "classic",
        "client_host",
        "client_id",
        "instance_id",
        "member_id",
        "progress",
        "rack_id",
        "rebalance_timeout_ms",
        "session_until_ms",
        "target",
        "topic_names",
        "topic_pattern",
    )

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = 0
        self.topic_names: tuple[str, ...] = ()
        self.topic_pattern = ""
        self.assignor: str | None = None
        self.progress = MemberProgress(JOINING_EPOCH, JOINING_EPOCH)
        self.target: Assignment = NOTHING_ASSIGNED
        self.classic: ClassicClient | None = None
        self.session_until_ms = 0
        self.act_until_ms: int | None = None
        """Until when it must have done what it was asked to: given up partitions or, if classic, joined again or synced."""

    @classmethod
    def from_record(cls, record: ConsumerMemberRecord) -> "ConsumerMember":
        member = cls(record.member_id, record.instance_id)
        member.rack_id = record.rack_id
        member.client_id = record.client_id
        member.client_host = record.client_host
        member.rebalance_timeout_ms = record.rebalance_timeout_ms
        member.topic_names = record.topic_names
        member.topic_pattern = record.topic_pattern
        member.assignor = record.assignor
        member.progress = MemberProgress(
            record.epoch, record.previous_epoch, record.state, from_stored(record.assigned), from_stored(record.revoking)
        )
        member.target = from_stored(record.target)
        member.classic = record.classic
        return member

    def record(self) -> ConsumerMemberRecord:
        progress = self.progress
        return ConsumerMemberRecord(
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topic_names,
            self.topic_pattern,
            self.assignor,
            progress.epoch,
            progress.previous_epoch,
            progress.state,
            to_stored(progress.assigned),
            to_stored(progress.revoking),
            to_stored(self.target),
            self.classic,
        )

    @property
    def subscription(self) -> tuple[frozenset[str], str, str | None]:
        """What the target depends on."""
        return frozenset(self.topic_names), self.topic_pattern, self.assignor

    @property
    def client(self) -> tuple[str, str, str, str | None, int, ClassicClient | None]:
        """What else its requests say."""
        return self.member_id, self.client_id, self.client_host, self.rack_id, self.rebalance_timeout_ms, self.classic

    @property
    def said_bytes(self) -> int:
        """The bytes of what it has said of itself."""
        names = sum(map(len, (self.member_id, self.instance_id or "", self.rack_id or "", self.client_id, self.topic_pattern)))
        return names + names_bytes(self.topic_names) + _classic_bytes(self.classic)

    @property
    def held_bytes(self) -> int:
        partitions = size(self.progress.assigned) + size(self.progress.revoking) + size(self.target)
        return self.said_bytes + partitions * _PARTITION_BYTES


class ConsumerMembers:
    """Members by id and by instance id, in the order in which they joined."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._by_id: dict[str, ConsumerMember] = {}
        self._by_instance: dict[str, ConsumerMember] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._by_id.values())

    def __contains__(self, member: ConsumerMember) -> bool:
        return self._by_id.get(member.member_id) is member

    def get(self, member_id: str) -> ConsumerMember | None:
        return self._by_id.get(member_id)

    def get_instance(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self._by_instance.get(instance_id)

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member that sent a request. Raises if there is none, or another client has its instance id now."""
        if instance_id is None:
            member = self._by_id.get(member_id)
            if member is None:
                raise self.unknown(member_id)
            return member
        static = self._by_instance.get(instance_id)
        if static is None:
            raise self.unknown(instance_id)
        if static.member_id != member_id:
            raise FencedInstanceError(
                f"static member {instance_id!r} of group {self._group!r} is {static.member_id!r} now, not {member_id!r}:"
                " another client took over that group.instance.id"
            )
        return static

    def add(self, member: ConsumerMember) -> None:
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member

    def remove(self, member: ConsumerMember) -> None:
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]

    def rename(self, member: ConsumerMember, member_id: str) -> None:
        """Give a static member the id of its new client. It keeps its place in the order of members."""
        old = member.member_id
        member.member_id = member_id
        self._by_id = {member_id if key == old else key: each for key, each in self._by_id.items()}

    def unknown(self, name: str) -> UnknownMemberError:
        return UnknownMemberError(f"group {self._group!r} has no member {name!r}; join again as a new one")


def heartbeat_bytes(request: ConsumerHeartbeat) -> int:
    """Return the bytes that the group would keep of the request."""
    texts = (request.member_id, request.instance_id, request.rack_id, request.client_id, request.topic_pattern)
    names = names_bytes(request.topic_names or ())
    return sum(len(text or "") for text in texts) + names + _classic_bytes(request.classic)


def names_bytes(names: Collection[str]) -> int:
    return sum(map(len, names)) + len(names) * _NAME_BYTES


def _classic_bytes(classic: ClassicClient | None) -> int:
    return 0 if classic is None else bytes_of(classic.protocols)
