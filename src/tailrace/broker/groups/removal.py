"""Removal of groups and their offsets, on demand or after a long idle time. Groups with members are never removed."""

import logging
from collections.abc import Callable, Sequence

from tailrace.broker.groups.consumer_group import ConsumerGroup
from tailrace.broker.groups.members import subscribed_topics
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.registry import AnyGroup, GroupNames, GroupRegistry
from tailrace.broker.security.permissions import Permissions
from tailrace.broker.settings import BrokerSettings
from tailrace.model.clock import Clock
from tailrace.model.errors import GroupNotEmptyError, GroupSubscribedError, UnknownGroupError
from tailrace.model.group import CONSUMER
from tailrace.model.text import counted

_log = logging.getLogger(__name__)


class GroupRemoval:
    def __init__(
        self,
        groups: GroupRegistry,
        offsets: GroupOffsets,
        names: GroupNames,
        permissions: Permissions,
        clock: Clock,
        settings: BrokerSettings,
    ) -> None:
        self._permissions = permissions
        self._groups = groups
        self._offsets = offsets
        self._names = names
        self._clock = clock
        self._settings = settings
        self.expired = 0
        """Groups that were removed because they were idle."""

    async def delete_offsets(self, name: str, topic: str, partitions: Sequence[int]) -> None:
        """Delete the group's offsets in these partitions. Raises while a member reads the topic.

        Needs `drop` on the group and `consume` on the topic, as in Kafka.
        """
        self._permissions.require("drop", "group", name)
        self._offsets.require_topic("consume", topic)

        def check() -> None:
            group = self._groups.get(name)
            if group is not None and any(subscribes_to(group, known) for known in names):
                raise GroupSubscribedError(f"group {name!r} has members that read topic {topic!r}; stop them first")

        self._groups.find(name)
        names = self._offsets.names_of(topic)
        await self._offsets.delete_offsets(name, topic, partitions, check=check)

    async def delete(self, name: str) -> None:
        """Delete a group without members, and its offsets. Needs `drop` on the group."""
        self._permissions.require("drop", "group", name)
        self._groups.find(name)
        await self._delete(name, lambda: None)

    async def expire(self) -> int:
        """Remove groups that have had no members and no commits for longer than `group_retention_seconds`.

        A group that never committed is removed at once. One with offsets in an open transaction stays.
        """
        removed = 0
        for name in self._names:
            last_ms = self._names.last_commit_ms(name)
            if not self._is_due(name, last_ms):
                continue

            def check(name: str = name, last_ms: int | None = last_ms) -> None:
                if self._names.last_commit_ms(name) != last_ms or self._offsets.has_pending(name):
                    raise GroupNotEmptyError(f"group {name!r} has just committed an offset")

            try:
                await self._delete(name, check)
            except (GroupNotEmptyError, UnknownGroupError):
                continue
            _log.info("group %s was idle for longer than group_retention_seconds and was removed", name)
            removed += 1
        self.expired += removed
        return removed

    async def _delete(self, name: str, check: Callable[[], None]) -> None:
        def check_removable() -> None:
            group = self._groups.get(name)
            if group is not None and not group.is_empty:
                raise GroupNotEmptyError(
                    f"group {name!r} has {counted(len(group.members), 'member')}; delete it when none is left"
                )
            check()

        check_removable()
        if name in self._names:
            await self._offsets.delete_group(name, check=check_removable)
        group = self._groups.get(name)
        # A member that joined while the deletion was written stays: the group is stored again with its next generation.
        if group is not None and group.is_empty:
            self._groups.forget(group)

    def _is_due(self, name: str, last_commit_ms: int | None) -> bool:
        group = self._groups.get(name)
        if (group is not None and not group.is_empty) or self._offsets.has_pending(name):
            return False
        if last_commit_ms is None:
            return True
        last_active_ms = max(last_commit_ms, 0 if group is None else group.changed_ms)
        return last_active_ms + self._settings.group_retention_seconds * 1000 <= self._clock.now_ms()


def subscribes_to(group: AnyGroup, topic: str) -> bool:
    """Return whether a member reads the topic. A member whose subscription can't be decoded may read any topic."""
    if isinstance(group, ConsumerGroup):
        return group.subscribes_to(topic)
    if group.protocol_type != CONSUMER:
        return len(group.members) > 0
    for member in group.members:
        for protocol in member.protocols:
            topics = subscribed_topics(protocol.metadata)
            if topics is None or topic in topics:
                return True
    return False
