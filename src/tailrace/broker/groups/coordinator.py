"""All consumer groups of the server: finds the group, lets it decide, and does what it wants done.

The groups themselves wait for nobody; here their tickets are futures, their saves are commits, and one timer wakes them all.
Everything runs on the event loop.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits.commit import Committer
from tailrace.broker.commits.proposal import Change
from tailrace.broker.groups.admission import asked_bytes
from tailrace.broker.groups.deadlines import Deadlines
from tailrace.broker.groups.effects import Effect, Reply, Save
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.names import GroupNames
from tailrace.broker.groups.offsets import Offsets
from tailrace.broker.groups.views import describe, subscribes_to
from tailrace.broker.settings import BrokerSettings
from tailrace.model.changes import Changes
from tailrace.model.clock import Clock
from tailrace.model.counting import counted
from tailrace.model.errors import (
    GroupNotEmptyError,
    GroupSubscribedError,
    IllegalGenerationError,
    LimitExceededError,
    StoreClosedError,
    TailraceError,
    UnknownGroupError,
    UnknownMemberError,
)
from tailrace.model.group import (
    GROUP_STATES,
    NO_MEMBER,
    GroupDescription,
    GroupListing,
    GroupRecord,
    GroupState,
    Joined,
    JoinRequest,
    MemberIdentity,
    Synced,
    SyncRequest,
)
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name
from tailrace.model.offset import OffsetCommit
from tailrace.store.contract import Store

_log = logging.getLogger(__name__)

_NAME_IN_ID = 64


class GroupCoordinator:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        offsets: Offsets,
        names: GroupNames,
        clock: Clock,
        limits: Limits,
        settings: BrokerSettings,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._store = store
        self._committer = committer
        self._offsets = offsets
        self._names = names
        self._clock = clock
        self._limits = limits
        self._settings = settings
        self._new_uuid = new_uuid
        self._groups: dict[str, Group] = {}
        """Groups that have members, had some, or are about to. Others are only names with offsets."""
        self._held_bytes: dict[str, int] = {}
        self._past_rebalances = 0
        self._is_closed = False
        self.expired = 0
        """Groups that were forgotten after long silence."""

    def start(self) -> None:
        """Take up the groups that are stored; `Offsets` has read their names."""
        self._loop = self._committer.loop
        self._deadlines = Deadlines(self._clock, self._loop.call_later, self._wake)
        for name in self._names:
            record = self._store.get(keys.group_key(name))
            if record:
                group = self._new_group(name)
                group.restore(msgspec.msgpack.decode(record, type=GroupRecord))
                self._carry_out(group, ())

    def close(self) -> None:
        """Tell all who wait to come again."""
        self._is_closed = True
        self._deadlines.close()
        for group in self._groups.values():
            for effect in group.end(_closed()):
                if isinstance(effect, Reply):
                    _answer(effect)

    async def join(self, request: JoinRequest) -> Joined:
        """Wait for the next generation of the group and be part of it."""
        self._check_open()
        check_group_name(request.group, self._limits)
        self._check_bytes(request)
        group = self._groups.get(request.group)
        if group is None:
            if request.member_id != NO_MEMBER:
                raise _unknown_member(request.group, request.member_id)
            group = self._new_group(request.group)
        joined: asyncio.Future[Joined] = self._loop.create_future()
        try:
            effects = group.join(request, joined)
        except TailraceError:
            self._forget_if_blank(group)
            raise
        self._carry_out(group, effects)
        return await joined

    async def sync(self, request: SyncRequest) -> Synced:
        """Hand out the shares of all, or wait for the own one."""
        self._check_open()
        group = self._groups.get(request.group)
        if group is None:
            raise _unknown_member(request.group, request.member.member_id)
        synced: asyncio.Future[Synced] = self._loop.create_future()
        self._carry_out(group, group.sync(request, synced))
        return await synced

    def heartbeat(self, name: str, speaker: MemberIdentity) -> None:
        self._check_open()
        group = self._groups.get(name)
        if group is None:
            raise _unknown_member(name, speaker.member_id)
        group.heartbeat(speaker)

    def leave(self, name: str, leavers: Sequence[tuple[str, str | None]]) -> list[TailraceError | None]:
        """Let members go, each a member id and a static name; a static name alone is enough. What is wrong is said for each."""
        self._check_open()
        outcomes: list[TailraceError | None] = []
        for member_id, instance_id in leavers:
            group = self._groups.get(name)
            try:
                if group is None:
                    raise _unknown_member(name, member_id)
                self._carry_out(group, group.leave(member_id, instance_id))
            except TailraceError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes

    def check_commit(self, name: str, speaker: MemberIdentity, *, in_transaction: bool = False) -> None:
        """Raise unless offsets of the group may be committed by this one, now."""
        self._check_open()
        group = self._groups.get(name)
        if group is not None:
            group.check_commit(speaker, in_transaction=in_transaction)
        elif speaker.generation >= 0:
            raise IllegalGenerationError(
                f"group {name!r} has no members, and {speaker.member_id!r} speaks for its generation {speaker.generation}; join"
                " again"
            )

    async def commit(
        self, name: str, speaker: MemberIdentity, commits: Sequence[OffsetCommit]
    ) -> Sequence[TailraceError | None]:
        """Commit what can be; what is wrong is said for each. It may go back: that is for the members to decide.

        Raises, with nothing committed, if the speaker may not speak for the group.
        """
        self.check_commit(name, speaker)
        return await self._offsets.commit_each(name, commits, reset=True, check=lambda: self.check_commit(name, speaker))

    async def delete_offsets(self, name: str, topic: str, partitions: Sequence[int]) -> None:
        """Forget how far the group has come in these partitions. Refused while a member reads the topic."""

        def check() -> None:
            group = self._groups.get(name)
            if group is not None and any(subscribes_to(group, known) for known in names):
                raise GroupSubscribedError(f"group {name!r} has members that read topic {topic!r}; stop them first")

        self._find(name)
        names = self._offsets.names_of(topic)
        await self._offsets.delete_offsets(name, topic, partitions, check=check)

    async def delete(self, name: str) -> None:
        """Forget a group without members, and its offsets."""
        self._find(name)
        await self._delete(name, lambda: None)

    def describe(self, name: str) -> GroupDescription:
        group = self._find(name)
        return GroupDescription(name, "Empty", "", "", 0, NO_MEMBER, ()) if group is None else describe(group)

    def all(self) -> list[GroupListing]:
        """All groups by name. Those that only commit offsets are empty and of no type."""
        listings = []
        for name in sorted({*self._names, *self._groups}):
            group = self._groups.get(name)
            state: GroupState = "Empty" if group is None else group.state
            listings.append(GroupListing(name, state, "" if group is None else group.protocol_type))
        return listings

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

    def run_due(self) -> None:
        """Do what is due by the clock. The timer of the event loop does this; tests that move the clock call it."""
        self._deadlines.run_due()

    @property
    def states(self) -> dict[GroupState, int]:
        counted = Counter(listing.state for listing in self.all())
        return {state: counted[state] for state in GROUP_STATES}

    @property
    def members(self) -> int:
        return sum(len(group.members) for group in tuple(self._groups.values()))

    @property
    def rebalances(self) -> int:
        return self._past_rebalances + sum(group.rebalances for group in tuple(self._groups.values()))

    @property
    def generations(self) -> dict[str, int]:
        return {group.name: group.generation for group in tuple(self._groups.values())}

    def _find(self, name: str) -> Group | None:
        """`None` for a group that has offsets and never had members."""
        self._check_open()
        group = self._groups.get(name)
        if group is None and name not in self._names:
            raise UnknownGroupError(f"there is no group {name!r}")
        return group

    def _new_group(self, name: str) -> Group:
        self._names.hold(name)
        group = self._groups[name] = Group(name, self._clock, self._settings, self._limits, self._new_member_id)
        return group

    def _new_member_id(self, request: JoinRequest) -> str:
        # The name is for people; what makes the id unique comes after it.
        name = request.instance_id or request.client_id
        return f"{name[:_NAME_IN_ID]}-{self._new_uuid()}"

    async def _delete(self, name: str, check: Callable[[], None]) -> None:
        def may_go() -> None:
            group = self._groups.get(name)
            if group is not None and not group.is_deserted:
                raise GroupNotEmptyError(
                    f"group {name!r} has {counted(len(group.members), 'member')}; delete it when none is left"
                )
            check()

        may_go()
        if name in self._names:
            await self._offsets.delete_group(name, check=may_go)
        group = self._groups.get(name)
        # Who joined while the deletion was on its way to the disk goes on: its group is stored anew with the next generation.
        if group is not None and group.is_deserted:
            self._forget(group)

    def _is_due(self, name: str, last_commit_ms: int | None) -> bool:
        group = self._groups.get(name)
        if (group is not None and not group.is_deserted) or self._offsets.has_pending(name):
            return False
        if last_commit_ms is None:
            return True
        last_sign_ms = max(last_commit_ms, 0 if group is None else group.changed_ms)
        return last_sign_ms + self._settings.group_retention_seconds * 1000 <= self._clock.now_ms()

    def _wake(self, name: str) -> None:
        group = self._groups.get(name)
        if group is not None:
            self._carry_out(group, group.tick())

    def _carry_out(self, group: Group, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                _answer(effect)
            else:
                self._save(group, effect)
        if self._groups.get(group.name) is group and not self._is_closed:
            self._held_bytes[group.name] = group.held_bytes
            self._deadlines.set(group.name, group.next_due_ms())
            self._forget_if_blank(group)

    def _save(self, group: Group, save: Save) -> None:
        changes = Changes(puts=((keys.group_key(group.name), msgspec.msgpack.encode(save.record)),))

        def saved(done: asyncio.Future[None]) -> None:
            error = done.exception()
            if error is not None:
                _log.warning("generation %d of group %s could not be stored: %s", save.record.generation, group.name, error)
            if error is not None and not isinstance(error, TailraceError):
                error = TailraceError(str(error))
            self._carry_out(group, group.saved(save, error))

        storing = self._committer.submit(Change(lambda: changes, lambda _: self._names.store(group.name)))
        storing.add_done_callback(saved)

    def _forget_if_blank(self, group: Group) -> None:
        if group.is_blank and self._groups.get(group.name) is group:
            self._forget(group)

    def _forget(self, group: Group) -> None:
        del self._groups[group.name]
        self._held_bytes.pop(group.name, None)
        self._past_rebalances += group.rebalances
        self._deadlines.set(group.name, None)
        self._names.release(group.name)

    def _check_bytes(self, request: JoinRequest) -> None:
        held = sum(self._held_bytes.values())
        asked = asked_bytes(request)
        if held + asked > self._limits.groups_state_bytes:
            raise LimitExceededError(
                f"the members of all groups hold {held} bytes and {asked} more would be over groups_state_bytes"
                f" ({self._limits.groups_state_bytes})"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()


def _answer(reply: Reply) -> None:
    waiting = reply.ticket
    if not isinstance(waiting, asyncio.Future) or waiting.done():
        # Whoever asked has gone.
        return
    if isinstance(reply.answer, TailraceError):
        waiting.set_exception(reply.answer.afresh())
    else:
        waiting.set_result(reply.answer)


def _unknown_member(group: str, member_id: str) -> UnknownMemberError:
    return UnknownMemberError(f"group {group!r} has no member {member_id!r}; join again as a new one")


def _closed() -> StoreClosedError:
    return StoreClosedError("the server is about to stop; find its successor and go on there")
