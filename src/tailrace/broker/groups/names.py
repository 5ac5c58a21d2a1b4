"""Which consumer groups there are, and when each last committed. Naming a group is enough to make it, by a join or by a commit,
so they are counted.
"""

from collections.abc import Iterator

from tailrace.model.errors import LimitExceededError
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
