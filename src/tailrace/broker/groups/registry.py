"""The registry of consumer groups: their names, the time of their last commit, and those that have members.

A join or a commit makes a group, so their number and size are limited here.
"""

from collections.abc import Iterator

from tailrace.broker.groups.consumer_group import ConsumerGroup
from tailrace.broker.groups.group import Group
from tailrace.model.errors import LimitExceededError, UnknownGroupError
from tailrace.model.limits import Limits


class GroupNames:
    """A name is **stored** once something of its group is durable, and **held** while it has members or a write in flight."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._stored: set[str] = set()
        self._held: dict[str, int] = {}
        self._last_commit_ms: dict[str, int] = {}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the stored names in order."""
        return iter(sorted(self._stored))

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, group: str) -> bool:
        return group in self._stored

    def hold(self, group: str) -> None:
        """Hold the name until `release` is called as often. Raises if there are too many groups."""
        if group not in self._stored and group not in self._held:
            count = len(self._stored | self._held.keys())
            if count >= self._limits.groups:
                raise LimitExceededError(
                    f"there are {count} groups, as many as groups allows; delete one before {group!r} is made"
                )
        self._held[group] = self._held.get(group, 0) + 1

    def release(self, group: str) -> None:
        if self._held[group] == 1:
            del self._held[group]
        else:
            self._held[group] -= 1

    def store(self, group: str) -> None:
        self._stored.add(group)

    def remove(self, group: str) -> None:
        self._stored.discard(group)
        self._last_commit_ms.pop(group, None)

    def committed(self, group: str, at_ms: int) -> None:
        """Note the time of a commit."""
        self._last_commit_ms[group] = max(at_ms, self._last_commit_ms.get(group, 0))

    def last_commit_ms(self, group: str) -> int | None:
        """Return the time of the last commit, or `None` if there was none."""
        return self._last_commit_ms.get(group)


AnyGroup = Group | ConsumerGroup
"""A group of the classic or of the consumer protocol. A name belongs to one of them at a time."""


class GroupRegistry:
    """The groups that have members, had some, or are about to. All others are only names with offsets."""

    def __init__(self, names: GroupNames, limits: Limits) -> None:
        self._names = names
        self._limits = limits
        self._groups: dict[str, AnyGroup] = {}
        self._held_bytes: dict[str, int] = {}
        self._past_rebalances = 0

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(tuple(self._groups.values()))

    def __contains__(self, group: AnyGroup) -> bool:
        """Return whether this object is the group of its name now."""
        return self._groups.get(group.name) is group

    def get(self, name: str) -> AnyGroup | None:
        return self._groups.get(name)

    def get_classic(self, name: str) -> Group | None:
        group = self._groups.get(name)
        return group if isinstance(group, Group) else None

    def get_consumer(self, name: str) -> ConsumerGroup | None:
        group = self._groups.get(name)
        return group if isinstance(group, ConsumerGroup) else None

    def find(self, name: str) -> AnyGroup | None:
        """Return the group, or `None` if it has offsets and never had members. Raises if there is no such group."""
        group = self._groups.get(name)
        if group is None and name not in self._names:
            raise UnknownGroupError(f"there is no group {name!r}; `tailrace groups list` lists them")
        return group

    def add(self, group: AnyGroup) -> None:
        self._names.hold(group.name)
        self._groups[group.name] = group

    def replace(self, before: AnyGroup, group: AnyGroup) -> None:
        """Put a group of the other protocol in the place of one."""
        self._past_rebalances += before.rebalances
        self._groups[group.name] = group
        self.measure(group)

    def measure(self, group: AnyGroup) -> None:
        """Update the memory that the group takes."""
        self._held_bytes[group.name] = group.held_bytes

    def forget(self, group: AnyGroup) -> None:
        del self._groups[group.name]
        self._held_bytes.pop(group.name, None)
        self._past_rebalances += group.rebalances
        self._names.release(group.name)

    def forget_if_disposable(self, group: Group) -> None:
        if group.is_disposable and group in self:
            self.forget(group)

    def check_room(self, more: int) -> None:
        """Raise if this many more bytes exceed the limit of all groups together."""
        held = sum(self._held_bytes.values())
        if held + more > self._limits.groups_state_bytes:
            raise LimitExceededError(
                f"the members of all groups hold {held} bytes and {more} more would exceed groups_state_bytes"
                f" ({self._limits.groups_state_bytes})"
            )

    @property
    def names(self) -> list[str]:
        """The names of all groups, also of those without members, in order."""
        return sorted({*self._names, *self._groups})

    @property
    def members(self) -> int:
        return sum(len(group.members) for group in self)

    @property
    def rebalances(self) -> int:
        return self._past_rebalances + sum(group.rebalances for group in self)

    @property
    def generations(self) -> dict[str, int]:
        return {group.name: group.generation for group in self}
