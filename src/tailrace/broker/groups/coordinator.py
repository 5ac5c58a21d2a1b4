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
from tailrace.broker.commits import Change, Committer
from tailrace.broker.deadlines import Deadlines
from tailrace.broker.groups.group import Effect, Group, Reply, Save
from tailrace.broker.groups.members import asked_bytes
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.registry import GroupNames, GroupRegistry
from tailrace.broker.settings import BrokerSettings
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.errors import (
    IllegalGenerationError,
    StoreClosedError,
    TailraceError,
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
    MemberDescription,
    MemberIdentity,
    OffsetCommit,
    Synced,
    SyncRequest,
)
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name
from tailrace.store.contract import Store

_log = logging.getLogger(__name__)

_NAME_IN_ID = 64


class GroupCoordinator:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        live: GroupRegistry,
        offsets: GroupOffsets,
        names: GroupNames,
        clock: Clock,
        limits: Limits,
        settings: BrokerSettings,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._store = store
        self._committer = committer
        self._live = live
        self._offsets = offsets
        self._names = names
        self._clock = clock
        self._limits = limits
        self._settings = settings
        self._new_uuid = new_uuid
        self._is_closed = False

    def start(self) -> None:
        """Take up the groups that are stored; `GroupOffsets` has read their names."""
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
        for group in self._live:
            for effect in group.end(_closed()):
                if isinstance(effect, Reply):
                    _answer(effect)

    async def join(self, request: JoinRequest) -> Joined:
        """Wait for the next generation of the group and be part of it."""
        self._check_open()
        check_group_name(request.group, self._limits)
        self._live.check_room(asked_bytes(request))
        group = self._live.get(request.group)
        if group is None:
            if request.member_id != NO_MEMBER:
                raise _unknown_member(request.group, request.member_id)
            group = self._new_group(request.group)
        joined: asyncio.Future[Joined] = self._loop.create_future()
        try:
            effects = group.join(request, joined)
        except TailraceError:
            self._live.forget_if_blank(group)
            raise
        self._carry_out(group, effects)
        return await joined

    async def sync(self, request: SyncRequest) -> Synced:
        """Hand out the shares of all, or wait for the own one."""
        self._check_open()
        group = self._live.get(request.group)
        if group is None:
            raise _unknown_member(request.group, request.member.member_id)
        synced: asyncio.Future[Synced] = self._loop.create_future()
        self._carry_out(group, group.sync(request, synced))
        return await synced

    def heartbeat(self, name: str, speaker: MemberIdentity) -> None:
        self._check_open()
        group = self._live.get(name)
        if group is None:
            raise _unknown_member(name, speaker.member_id)
        group.heartbeat(speaker)

    def leave(self, name: str, leavers: Sequence[tuple[str, str | None]]) -> list[TailraceError | None]:
        """Let members go, each a member id and a static name; a static name alone is enough. What is wrong is said for each."""
        self._check_open()
        outcomes: list[TailraceError | None] = []
        for member_id, instance_id in leavers:
            group = self._live.get(name)
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
        group = self._live.get(name)
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

    def describe(self, name: str) -> GroupDescription:
        self._check_open()
        group = self._live.find(name)
        return GroupDescription(name, "Empty", "", "", 0, NO_MEMBER, ()) if group is None else describe(group)

    def all(self) -> list[GroupListing]:
        """All groups by name. Those that only commit offsets are empty and of no type."""
        listings = []
        for name in self._live.names:
            group = self._live.get(name)
            state: GroupState = "Empty" if group is None else group.state
            listings.append(GroupListing(name, state, "" if group is None else group.protocol_type))
        return listings

    def run_due(self) -> None:
        """Do what is due by the clock. The timer of the event loop does this; tests that move the clock call it."""
        self._deadlines.run_due()

    @property
    def states(self) -> dict[GroupState, int]:
        counted = Counter(listing.state for listing in self.all())
        return {state: counted[state] for state in GROUP_STATES}

    def _new_group(self, name: str) -> Group:
        group = Group(name, self._clock, self._settings, self._limits, self._new_member_id)
        self._live.add(group)
        return group

    def _new_member_id(self, request: JoinRequest) -> str:
        # The name is for people; what makes the id unique comes after it.
        name = request.instance_id or request.client_id
        return f"{name[:_NAME_IN_ID]}-{self._new_uuid()}"

    def _wake(self, name: str) -> None:
        group = self._live.get(name)
        if group is not None:
            self._carry_out(group, group.tick())

    def _carry_out(self, group: Group, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                _answer(effect)
            else:
                self._save(group, effect)
        if group in self._live and not self._is_closed:
            self._live.measure(group)
            self._deadlines.set(group.name, group.next_due_ms())
            self._live.forget_if_blank(group)

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

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()


def describe(group: Group) -> GroupDescription:
    """What members said and were assigned is shown only while it is in force."""
    in_force = group.state == "Stable"
    return GroupDescription(
        group.name,
        group.state,
        group.protocol_type,
        group.protocol if in_force else "",
        group.generation,
        group.members.leader,
        tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if in_force else b"",
                member.assignment if in_force else b"",
            )
            for member in group.members
        ),
    )


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
