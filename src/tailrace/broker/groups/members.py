"""The members of a group: found by id and by static name, with their leader and the protocol that they agree on."""

from collections import Counter
from collections.abc import Iterator

from tailrace.broker.groups.member import Member
from tailrace.model.errors import FencedInstanceError, UnknownMemberError
from tailrace.model.group import NO_MEMBER, MemberProtocol


class Members:
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
        """The slowest member sets the pace."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def find_instance(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self._by_instance.get(instance_id)

    def get(self, member_id: str, instance_id: str | None) -> Member:
        """The member that speaks. A static name is held by one member at a time; an earlier holder is fenced."""
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
        """A static member goes on under another id; it keeps its place in the order and its part as the leader."""
        if self.leader == member.member_id:
            self.leader = member_id
        old = member.member_id
        member.member_id = member_id
        self._by_id = {member_id if key == old else key: each for key, each in self._by_id.items()}

    def lead_by_one_who_joined(self) -> bool:
        """Keep the leader if it has joined, else choose one who has. False if nobody has."""
        joined = [member.member_id for member in self._by_id.values() if member.joining is not None]
        if self.leader not in joined:
            if not joined:
                return False
            self.leader = joined[0]
        return True

    def agree_with(self, protocols: tuple[MemberProtocol, ...], besides: Member | None) -> bool:
        """Whether a member with these protocols and all others but `besides` have one in common."""
        common = {protocol.name for protocol in protocols}
        for member in self._by_id.values():
            if member is not besides:
                common &= {protocol.name for protocol in member.protocols}
        return bool(common)

    def elected_protocol(self) -> str:
        """Each member votes for the first of its protocols that all understand; of equals, the leader prefers one."""
        common = set.intersection(*({protocol.name for protocol in member.protocols} for member in self._by_id.values()))
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in common) for member in self._by_id.values()
        )
        preferred = [protocol.name for protocol in self._by_id[self.leader].protocols if protocol.name in common]
        return max(preferred, key=lambda name: votes[name])
