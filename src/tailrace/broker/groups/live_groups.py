"""Groups that have members, had some, or are about to, and what they hold together. Others are only names with offsets."""

from collections.abc import Iterator

from tailrace.broker.groups.group import Group
from tailrace.broker.groups.names import GroupNames
from tailrace.model.errors import LimitExceededError, UnknownGroupError
from tailrace.model.limits import Limits


class LiveGroups:
    def __init__(self, names: GroupNames, limits: Limits) -> None:
        self._names = names
        self._limits = limits
        self._groups: dict[str, Group] = {}
        self._held_bytes: dict[str, int] = {}
        self._past_rebalances = 0

    def __iter__(self) -> Iterator[Group]:
        return iter(tuple(self._groups.values()))

    def __contains__(self, group: Group) -> bool:
        """Whether it is the one in force under its name."""
        return self._groups.get(group.name) is group

    def get(self, name: str) -> Group | None:
        return self._groups.get(name)

    def find(self, name: str) -> Group | None:
        """`None` for a group that has offsets and never had members."""
        group = self._groups.get(name)
        if group is None and name not in self._names:
            raise UnknownGroupError(f"there is no group {name!r}")
        return group

    def add(self, group: Group) -> None:
        self._names.hold(group.name)
        self._groups[group.name] = group

    def measure(self, group: Group) -> None:
        """It may hold more now, or less."""
        self._held_bytes[group.name] = group.held_bytes

    def forget(self, group: Group) -> None:
        del self._groups[group.name]
        self._held_bytes.pop(group.name, None)
        self._past_rebalances += group.rebalances
        self._names.release(group.name)

    def forget_if_blank(self, group: Group) -> None:
        if group.is_blank and group in self:
            self.forget(group)

    def check_room(self, more: int) -> None:
        """Raise if so many bytes more are too much for all groups together."""
        held = sum(self._held_bytes.values())
        if held + more > self._limits.groups_state_bytes:
            raise LimitExceededError(
                f"the members of all groups hold {held} bytes and {more} more would be over groups_state_bytes"
                f" ({self._limits.groups_state_bytes})"
            )

    @property
    def names(self) -> list[str]:
        """Of all groups, those without members too, in order."""
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
