"""Which consumer groups there are, and when each last committed. Naming a group is enough to make it, by a join or by a commit,
so they are counted.
"""

from collections.abc import Iterator

from tailrace.broker.groups.group import Group
from tailrace.model.errors import LimitExceededError, UnknownGroupError
from tailrace.model.limits import Limits


class GroupNames:
    """A name is **stored** once something about its group is durable, and **held** while something is about to be."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._stored: set[str] = set()
        self._held: dict[str, int] = {}
        self._last_commit_ms: dict[str, int] = {}

    def __iter__(self) -> Iterator[str]:
        """Those that are stored, in order."""
        return iter(sorted(self._stored))

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, group: str) -> bool:
        return group in self._stored

    def hold(self, group: str) -> None:
        """Make room for it. To be released as often as it is held; refused when there are too many groups."""
        if group not in self._stored and group not in self._held:
            there = len(self._stored | self._held.keys())
            if there >= self._limits.groups:
                raise LimitExceededError(
                    f"there are {there} groups, as many as groups allows; delete one before {group!r} is made"
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

    def commits(self, group: str, at_ms: int) -> None:
        self._last_commit_ms[group] = max(at_ms, self._last_commit_ms.get(group, 0))

    def last_commit_ms(self, group: str) -> int | None:
        """`None` if it has never committed."""
        return self._last_commit_ms.get(group)


class GroupRegistry:
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
