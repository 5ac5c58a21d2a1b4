"""Groups and their offsets go: because somebody wants it, or after long silence. Never those that have members."""

import logging
from collections.abc import Callable, Sequence

from tailrace.broker.groups.group import Group
from tailrace.broker.groups.members import subscribed_topics
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.registry import GroupNames, GroupRegistry
from tailrace.broker.settings import BrokerSettings
from tailrace.model.clock import Clock
from tailrace.model.errors import GroupNotEmptyError, GroupSubscribedError, UnknownGroupError
from tailrace.model.group import CONSUMER
from tailrace.model.text import counted

_log = logging.getLogger(__name__)


class GroupRemoval:
    def __init__(
        self, live: GroupRegistry, offsets: GroupOffsets, names: GroupNames, clock: Clock, settings: BrokerSettings
    ) -> None:
        self._live = live
        self._offsets = offsets
        self._names = names
        self._clock = clock
        self._settings = settings
        self.expired = 0
        """Groups that were forgotten after long silence."""

    async def delete_offsets(self, name: str, topic: str, partitions: Sequence[int]) -> None:
        """Forget how far the group has come in these partitions. Refused while a member reads the topic."""

        def check() -> None:
            group = self._live.get(name)
            if group is not None and any(subscribes_to(group, known) for known in names):
                raise GroupSubscribedError(f"group {name!r} has members that read topic {topic!r}; stop them first")

        self._live.find(name)
        names = self._offsets.names_of(topic)
        await self._offsets.delete_offsets(name, topic, partitions, check=check)

    async def delete(self, name: str) -> None:
        """Forget a group without members, and its offsets."""
        self._live.find(name)
        await self._delete(name, lambda: None)

    async def expire(self) -> int:
        """Forget groups that have been without members and commits for longer than the settings keep them.

        A group that never committed anything has nothing to be kept for. One with offsets in an open transaction stays.
        """
        gone = 0
        for name in self._names:
            seen_ms = self._names.last_commit_ms(name)
            if not self._is_due(name, seen_ms):
                continue

            def check(name: str = name, seen_ms: int | None = seen_ms) -> None:
                if self._names.last_commit_ms(name) != seen_ms or self._offsets.has_pending(name):
                    raise GroupNotEmptyError(f"group {name!r} has just committed an offset")

            try:
                await self._delete(name, check)
            except (GroupNotEmptyError, UnknownGroupError):
                continue
            _log.info("group %s was silent for longer than group_retention_seconds and is forgotten", name)
            gone += 1
        self.expired += gone
        return gone

    async def _delete(self, name: str, check: Callable[[], None]) -> None:
        def may_go() -> None:
            group = self._live.get(name)
            if group is not None and not group.is_deserted:
                raise GroupNotEmptyError(
                    f"group {name!r} has {counted(len(group.members), 'member')}; delete it when none is left"
                )
            check()

        may_go()
        if name in self._names:
            await self._offsets.delete_group(name, check=may_go)
        group = self._live.get(name)
        # Who joined while the deletion was on its way to the disk goes on: its group is stored anew with the next generation.
        if group is not None and group.is_deserted:
            self._live.forget(group)

    def _is_due(self, name: str, last_commit_ms: int | None) -> bool:
        group = self._live.get(name)
        if (group is not None and not group.is_deserted) or self._offsets.has_pending(name):
            return False
        if last_commit_ms is None:
            return True
        last_sign_ms = max(last_commit_ms, 0 if group is None else group.changed_ms)
        return last_sign_ms + self._settings.group_retention_seconds * 1000 <= self._clock.now_ms()


def subscribes_to(group: Group, topic: str) -> bool:
    """Whether a member reads the topic. One whose subscription can't be read may read anything."""
    if group.protocol_type != CONSUMER:
        return len(group.members) > 0
    for member in group.members:
        for protocol in member.protocols:
            topics = subscribed_topics(protocol.metadata)
            if topics is None or topic in topics:
                return True
    return False
