"""The group coordinator: passes requests to the consumer groups and carries out the effects that they return.

Groups never wait. Here their tickets are futures, their saves are commits, and one timer wakes them all. Everything runs on
the event loop.

Requests for groups of the consumer protocol, in which members of the classic one can be, go on to `consumer_coordinator.py`.
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
from tailrace.broker.groups.consumer_coordinator import ConsumerGroupCoordinator
from tailrace.broker.groups.consumer_group import ConsumerGroup, decode_record
from tailrace.broker.groups.group import Effect, Group, Reply, Save
from tailrace.broker.groups.members import check_request, request_bytes
from tailrace.broker.groups.offsets import GroupOffsets
from tailrace.broker.groups.registry import GroupNames, GroupRegistry
from tailrace.broker.security.permissions import Permissions
from tailrace.broker.settings import BrokerSettings
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.errors import (
    IllegalGenerationError,
    RebalanceInProgressError,
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

_NAME_LENGTH = 64


class GroupCoordinator:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        groups: GroupRegistry,
        consumer_groups: ConsumerGroupCoordinator,
        offsets: GroupOffsets,
        names: GroupNames,
        permissions: Permissions,
        clock: Clock,
        limits: Limits,
        settings: BrokerSettings,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._store = store
        self._committer = committer
        self._groups = groups
        self._consumer_groups = consumer_groups
        self._offsets = offsets
        self._names = names
        self._permissions = permissions
        self._clock = clock
        self._limits = limits
        self._settings = settings
        self._new_uuid = new_uuid
        self._is_closed = False

    def start(self) -> None:
        """Load the stored groups. `GroupOffsets` has loaded their names before."""
        self._loop = self._committer.loop
        self._deadlines = Deadlines(self._clock, self._loop.call_later, self._wake)
        for name in self._names:
            record = self._store.get(keys.group_key(name))
            if record and decode_record(record) is None:
                group = self._new_group(name)
                group.restore(msgspec.msgpack.decode(record, type=GroupRecord))
                self._apply(group, ())

    def close(self) -> None:
        """Answer all waiting members with an error that makes them reconnect."""
        self._is_closed = True
        self._deadlines.close()
        for group in self._groups:
            if isinstance(group, Group):
                _end(group, _closed())

    async def join(self, request: JoinRequest) -> Joined:
        """Join a group. Returns when the next generation begins."""
        self._permissions.require("consume", "group", request.group)
        self._check_open()
        check_group_name(request.group, self._limits)
        self._groups.check_room(request_bytes(request))
        mixed = self._groups.get_consumer(request.group)
        if mixed is not None and not mixed.is_empty:
            check_request(request, self._settings)
            return await self._consumer_groups.join(request, self._new_member_id)
        group = self._groups.get_classic(request.group)
        if group is None:
            if request.member_id != NO_MEMBER:
                raise _unknown_member(request.group, request.member_id)
            group = self._new_group(request.group)
        joined: asyncio.Future[Joined] = self._loop.create_future()
        try:
            effects = group.join(request, joined)
        except TailraceError:
            self._groups.forget_if_disposable(group)
            raise
        self._apply(group, effects)
        return await joined

    async def sync(self, request: SyncRequest) -> Synced:
        """Return the member's assignment once the leader has sent the assignments of all."""
        self._permissions.require("consume", "group", request.group)
        self._check_open()
        group = self._groups.get(request.group)
        if group is None:
            raise _unknown_member(request.group, request.member.member_id)
        if isinstance(group, ConsumerGroup):
            return await self._consumer_groups.sync(group, request)
        synced: asyncio.Future[Synced] = self._loop.create_future()
        self._apply(group, group.sync(request, synced))
        return await synced

    def heartbeat(self, name: str, member: MemberIdentity) -> None:
        self._permissions.require("consume", "group", name)
        self._check_open()
        group = self._groups.get(name)
        if group is None:
            raise _unknown_member(name, member.member_id)
        if isinstance(group, ConsumerGroup):
            self._consumer_groups.classic_heartbeat(group, member)
        else:
            group.heartbeat(member)

    def leave(self, name: str, members: Sequence[tuple[str, str | None]]) -> list[TailraceError | None]:
        """Remove members, given by member id and instance id, or by instance id alone. Return an error or `None` for each."""
        self._permissions.require("consume", "group", name)
        self._check_open()
        outcomes: list[TailraceError | None] = []
        for member_id, instance_id in members:
            group = self._groups.get(name)
            try:
                if group is None:
                    raise _unknown_member(name, member_id)
                if isinstance(group, ConsumerGroup):
                    self._consumer_groups.leave(group, member_id, instance_id)
                else:
                    self._apply(group, group.leave(member_id, instance_id))
            except TailraceError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes

    def check_commit(self, name: str, member: MemberIdentity, *, in_transaction: bool = False) -> None:
        """Raise unless this member may commit offsets of the group now."""
        self._check_open()
        group = self._groups.get(name)
        if group is not None:
            group.check_commit(member, in_transaction=in_transaction)
        elif member.generation >= 0:
            raise IllegalGenerationError(
                f"group {name!r} has no members, and member {member.member_id!r} is of generation {member.generation}; join"
                " again"
            )

    async def commit(
        self, name: str, member: MemberIdentity, commits: Sequence[OffsetCommit]
    ) -> Sequence[TailraceError | None]:
        """Commit what can be committed, and return an error or `None` for each offset. Members may move offsets back.

        Raises, with nothing committed, if the member may not commit for the group. Needs `consume` on the group and the topics.
        """
        self._permissions.require("consume", "group", name)
        self.check_commit(name, member)
        return await self._offsets.commit_each(name, commits, reset=True, check=lambda: self.check_commit(name, member))

    def is_consumer_member(self, name: str, member_id: str) -> bool:
        """Return whether this member of the group uses the consumer protocol."""
        group = self._groups.get_consumer(name)
        return group is not None and any(each.member_id == member_id and each.classic is None for each in group.members)

    def check_fetch(self, name: str, member: MemberIdentity) -> None:
        """Raise unless who fetches offsets may describe the group, and is a member with its epoch, if the group is one of the
        consumer protocol."""
        self._permissions.require("describe", "group", name)
        group = self._groups.get_consumer(name)
        if group is not None:
            group.check_epoch(member)

    def describe(self, name: str) -> GroupDescription:
        self._permissions.require("describe", "group", name)
        self._check_open()
        group = self._groups.find(name)
        if isinstance(group, ConsumerGroup):
            return _describe_consumer_group(group)
        return GroupDescription(name, "Empty", "", "", 0, NO_MEMBER, ()) if group is None else describe(group)

    def visible(self) -> list[GroupListing]:
        """List the groups that the principal of the request may describe, by name."""
        return [listing for listing in self.all() if self._permissions.may("describe", "group", listing.name)]

    def all(self) -> list[GroupListing]:
        """List all groups by name. Those that only commit offsets are empty and have no protocol type."""
        listings = []
        for name in self._groups.names:
            group = self._groups.get(name)
            if group is None:
                listings.append(GroupListing(name, "Empty", ""))
            else:
                listings.append(GroupListing(name, group.state, group.protocol_type, group.group_type))
        return listings

    def run_due(self) -> None:
        """Run what is due. The timer of the event loop calls this; so do tests that move the clock."""
        self._deadlines.run_due()

    @property
    def states(self) -> dict[GroupState, int]:
        counted = Counter(listing.state for listing in self.all())
        return {state: counted[state] for state in GROUP_STATES}

    def adopt(self, before: ConsumerGroup, record: GroupRecord) -> None:
        """Go on with a group that only classic members are left in. Its record is stored by the caller."""
        group = self._make_group(record.generation, before.name)
        group.restore(record)
        self._groups.replace(before, group)
        self._apply(group, ())

    def end(self, group: Group) -> None:
        """Let all who wait in a group join again: it has become one of the consumer protocol."""
        self._deadlines.set(group.name, None)
        _end(group, RebalanceInProgressError(f"group {group.name!r} now has members of the consumer protocol; join again"))

    def _new_group(self, name: str) -> Group:
        before = self._groups.get_consumer(name)
        group = self._make_group(0 if before is None else before.epoch, name)
        if before is None:
            self._groups.add(group)
        else:
            self._groups.replace(before, group)
        return group

    def _make_group(self, generation: int, name: str) -> Group:
        return Group(name, self._clock, self._settings, self._limits, self._new_member_id, generation=generation)

    def _new_member_id(self, request: JoinRequest) -> str:
        # The name is for people; the UUID makes the id unique.
        name = request.instance_id or request.client_id
        return f"{name[:_NAME_LENGTH]}-{self._new_uuid()}"

    def _wake(self, name: str) -> None:
        group = self._groups.get_classic(name)
        if group is not None:
            self._apply(group, group.tick())

    def _apply(self, group: Group, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                _answer(effect)
            else:
                self._save(group, effect)
        if group in self._groups and not self._is_closed:
            self._groups.measure(group)
            self._deadlines.set(group.name, group.next_due_ms())
            self._groups.forget_if_disposable(group)

    def _save(self, group: Group, save: Save) -> None:
        changes = Changes(puts=((keys.group_key(group.name), msgspec.msgpack.encode(save.record)),))

        def saved(done: asyncio.Future[None]) -> None:
            error = done.exception()
            if error is not None:
                _log.warning("can't store generation %d of group %s: %s", save.record.generation, group.name, error)
            if error is not None and not isinstance(error, TailraceError):
                error = TailraceError(str(error))
            self._apply(group, group.saved(save, error))

        storing = self._committer.submit(Change(lambda: changes, lambda _: self._names.store(group.name)))
        storing.add_done_callback(saved)

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()


def describe(group: Group) -> GroupDescription:
    """Describe a group. The metadata and assignments of members are shown only while the group is stable."""
    is_stable = group.state == "Stable"
    return GroupDescription(
        group.name,
        group.state,
        group.protocol_type,
        group.protocol if is_stable else "",
        group.generation,
        group.members.leader,
        tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members
        ),
    )


def _describe_consumer_group(group: ConsumerGroup) -> GroupDescription:
    members = tuple(
        MemberDescription(member.member_id, member.instance_id, member.client_id, member.client_host, b"", b"")
        for member in group.members
    )
    return GroupDescription(
        group.name, group.state, group.protocol_type, group.assignor, group.epoch, NO_MEMBER, members, group.group_type
    )


def _end(group: Group, error: TailraceError) -> None:
    for effect in group.end(error):
        if isinstance(effect, Reply):
            _answer(effect)


def _answer(reply: Reply) -> None:
    future = reply.ticket
    if not isinstance(future, asyncio.Future) or future.done():
        # The client has disconnected.
        return
    if isinstance(reply.answer, TailraceError):
        future.set_exception(reply.answer.afresh())
    else:
        future.set_result(reply.answer)


def _unknown_member(group: str, member_id: str) -> UnknownMemberError:
    return UnknownMemberError(f"group {group!r} has no member {member_id!r}; join again as a new one")


def _closed() -> StoreClosedError:
    return StoreClosedError("the server is stopping; find the coordinator again and retry")
