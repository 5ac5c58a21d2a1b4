"""The coordinator of groups of the consumer protocol: passes heartbeats to them and makes what they change durable.

A heartbeat is answered when everything that its group has decided so far is durable. Each change of a group is a commit of its
own, in the order in which they were made. The next heartbeat makes up for one that could not be stored.

Classic members of these groups come through `GroupCoordinator`, which also goes on with groups that only they are left in.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4
from weakref import WeakSet

import msgspec

from tailrace.broker import keys
from tailrace.broker.commits import Change, Committer
from tailrace.broker.deadlines import Deadlines
from tailrace.broker.groups import classic_members
from tailrace.broker.groups.assignment import Assignment
from tailrace.broker.groups.assignors import ASSIGNORS
from tailrace.broker.groups.consumer_group import ConsumerGroup, decode_record, encode_record
from tailrace.broker.groups.consumer_member import heartbeat_bytes
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.registry import GroupNames, GroupRegistry
from tailrace.broker.groups.subscribed_topics import PatternMatches, SubscribedTopics
from tailrace.broker.security.permissions import Permissions
from tailrace.model.clock import Clock
from tailrace.model.commit import Changes
from tailrace.model.consumer_group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    ConsumerMemberDescription,
    DescribedPartitions,
)
from tailrace.model.errors import (
    InvalidRequestError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    StoreClosedError,
    UnknownGroupError,
    UnsupportedAssignorError,
)
from tailrace.model.group import NO_MEMBER, GroupRecord, Joined, JoinRequest, MemberIdentity, Synced, SyncRequest
from tailrace.model.limits import Limits
from tailrace.model.names import check_group_name
from tailrace.store.contract import Store

_log = logging.getLogger(__name__)


class _Saving(NamedTuple):
    version: int
    done: asyncio.Future[None]


class ClassicGroups(Protocol):
    """Where groups come from that are upgraded, and go to that are downgraded."""

    def adopt(self, before: ConsumerGroup, record: GroupRecord) -> None:
        """Go on with a group in which only classic members are left."""

    def end(self, group: Group) -> None:
        """Let the members who wait in a group that was upgraded join again."""


class ConsumerGroupCoordinator:
    def __init__(
        self,
        store: Store,
        committer: Committer,
        groups: GroupRegistry,
        names: GroupNames,
        topics: SubscribedTopics,
        permissions: Permissions,
        clock: Clock,
        limits: Limits,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._store = store
        self._committer = committer
        self._groups = groups
        self._names = names
        self._topics = topics
        self._permissions = permissions
        self._clock = clock
        self._limits = limits
        self._new_uuid = new_uuid
        self._saving: dict[ConsumerGroup, _Saving] = {}
        """The last commit in flight of each group."""
        self._reported: WeakSet[ConsumerGroup] = WeakSet()
        """Groups whose last commit failed, which is logged once."""
        self._is_closed = False

    def start(self, classic_groups: ClassicGroups) -> None:
        """Load the stored groups. `GroupOffsets` has loaded their names before."""
        self._classic_groups = classic_groups
        self._deadlines = Deadlines(self._clock, self._committer.loop.call_later, self._wake)
        for name in self._names:
            value = self._store.get(keys.group_key(name))
            record = decode_record(value) if value else None
            if record is not None:
                group = self._new_group(name)
                group.restore(record)
                self._groups.add(group)
                self._changed(group)

    def close(self) -> None:
        self._is_closed = True
        self._deadlines.close()

    async def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Take a heartbeat, with which members also join and leave. Returns when the result is durable.

        Needs `consume` on the group, and `describe` on topics that it names. A regular expression matches only such topics.
        """
        self._permissions.require("consume", "group", request.group)
        self._topics.require(request.topic_names or ())
        self._check_open()
        check_heartbeat(request)
        check_group_name(request.group, self._limits)
        if request.epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
            group = self._get(request.group)
            result = group.leave(request)
        else:
            if request.topic_pattern:
                self._topics.check_pattern(request.topic_pattern)
            version, matches = await self._match(request)
            if request.is_kept:
                self._groups.check_room(heartbeat_bytes(request))
            group, result = self._take(request, version, matches)
        await self._make_durable(group)
        return result

    async def join(self, request: JoinRequest, new_member_id: Callable[[JoinRequest], str]) -> Joined:
        """Take a JoinGroup of a classic member. Returns when what it gets is durable."""
        heartbeat = self._joining(request)
        if request.asks_for_id_first and request.member_id == NO_MEMBER and request.instance_id is None:
            member_id = new_member_id(request)
            raise MemberIdRequiredError(f"join group {request.group!r} again as member {member_id!r}", member_id)
        version, matches = await self._match(heartbeat)
        # Meanwhile others may have joined and left.
        group = self._groups.get_consumer(request.group)
        if group is None:
            raise RebalanceInProgressError(f"group {request.group!r} has changed its protocol; join again")
        result = group.heartbeat(self._joining(request), version, matches)
        joined = classic_members.joined(group.find(result.member_id, request.instance_id))
        await self._make_durable(group)
        return joined

    async def sync(self, group: ConsumerGroup, request: SyncRequest) -> Synced:
        """Return what a classic member is assigned."""
        synced = classic_members.sync(group, request, self._topics)
        await self._make_durable(group)
        return synced

    def classic_heartbeat(self, group: ConsumerGroup, identity: MemberIdentity) -> None:
        try:
            classic_members.heartbeat(group, identity)
        finally:
            self._changed(group)

    def leave(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Remove a classic member, or any static member by its instance id alone."""
        classic_members.leave(group, member_id, instance_id)
        self._store_changes(group)

    def describe(self, name: str) -> ConsumerGroupDescription:
        self._permissions.require("describe", "group", name)
        self._check_open()
        group = self._get(name)
        return ConsumerGroupDescription(
            name,
            group.state,
            group.epoch,
            group.assignor,
            tuple(
                ConsumerMemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.rack_id,
                    member.client_id,
                    member.client_host,
                    member.progress.epoch,
                    member.topic_names,
                    member.topic_pattern or None,
                    self._described(member.progress.assigned),
                    self._described(member.target),
                    member.classic is not None,
                )
                for member in group.members
            ),
        )

    def run_due(self) -> None:
        """Run what is due. The timer of the event loop calls this; so do tests that move the clock."""
        self._deadlines.run_due()

    def _take(
        self, request: ConsumerHeartbeat, version: int, matches: PatternMatches
    ) -> tuple[ConsumerGroup, ConsumerHeartbeatResult]:
        group = self._groups.get_consumer(request.group)
        if group is not None:
            return group, group.heartbeat(request, version, matches)
        classic = self._groups.get_classic(request.group)
        if request.epoch != JOINING_EPOCH:
            raise _not_a_consumer_group(request.group)
        group = self._new_group(request.group)
        if classic is not None:
            group.restore(classic_members.upgraded(classic, self._topics))
        result = group.heartbeat(request, version, matches)
        if classic is None:
            self._groups.add(group)
        else:
            self._groups.replace(classic, group)
            self._classic_groups.end(classic)
        return group, result

    def _joining(self, request: JoinRequest) -> ConsumerHeartbeat:
        return classic_members.joining(self._get(request.group), request, self._topics, self._limits)

    async def _match(self, request: ConsumerHeartbeat) -> tuple[int, PatternMatches]:
        """Return the version of the topics and what the patterns match of them."""
        version = self._topics.version
        matches: PatternMatches = {}
        # While it waits, members with other expressions may join.
        while not (wanted := self._wanted_patterns(request, version)) <= matches.keys():
            matches = await self._topics.match(wanted)
        self._check_open()
        return version, matches

    def _wanted_patterns(self, request: ConsumerHeartbeat, version: int) -> frozenset[str]:
        own = frozenset({request.topic_pattern} if request.topic_pattern else ())
        group = self._groups.get_consumer(request.group)
        return own if group is None or group.topics_version == version else own | group.patterns

    async def _make_durable(self, group: ConsumerGroup) -> None:
        stored = self._store_changes(group)
        if stored is not None:
            # The heartbeat of a client that disconnects must not cancel the commit, for which others may wait.
            await asyncio.shield(stored)

    def _store_changes(self, group: ConsumerGroup) -> asyncio.Future[None] | None:
        """Begin to store what has changed, if anything has. Return what to wait for."""
        if group.is_classic:
            return self._downgrade(group)
        self._changed(group)
        if group.version == group.saved_version:
            return None
        saving = self._saving.get(group)
        if saving is None or saving.version != group.version:
            saving = self._save(group)
        return saving.done

    def _downgrade(self, group: ConsumerGroup) -> asyncio.Future[None]:
        record = classic_members.downgraded(group, self._topics, self._clock.now_ms())
        changes = Changes(puts=((keys.group_key(group.name), msgspec.msgpack.encode(record)),))
        done = self._committer.submit(Change(lambda: changes, lambda _: self._names.store(group.name)))

        def stored(done: asyncio.Future[None]) -> None:
            error = done.exception()
            if error is not None and not self._is_closed:
                # Its next generation is stored again.
                _log.warning("can't store that group %s is a classic one again: %s", group.name, error)

        done.add_done_callback(stored)
        self._deadlines.set(group.name, None)
        self._classic_groups.adopt(group, record)
        return done

    def _save(self, group: ConsumerGroup) -> _Saving:
        version = group.version
        changes = Changes(puts=((keys.group_key(group.name), encode_record(group.record())),))
        done = self._committer.submit(Change(lambda: changes, lambda _: self._names.store(group.name)))
        saving = self._saving[group] = _Saving(version, done)

        def saved(done: asyncio.Future[None]) -> None:
            error = done.exception()
            if error is None:
                group.saved_version = max(group.saved_version, version)
                self._reported.discard(group)
            elif not self._is_closed and group not in self._reported:
                self._reported.add(group)
                _log.warning("can't store epoch %d of group %s: %s", group.epoch, group.name, error)
            if self._saving.get(group) is saving:
                del self._saving[group]
                if group.is_empty and group in self._groups and group.name not in self._names:
                    # Nothing of it was ever stored.
                    self._groups.forget(group)

        done.add_done_callback(saved)
        return saving

    def _wake(self, name: str) -> None:
        group = self._groups.get_consumer(name)
        if group is not None:
            group.tick()
            self._store_changes(group)

    def _changed(self, group: ConsumerGroup) -> None:
        if group in self._groups and not self._is_closed:
            self._groups.measure(group)
            self._deadlines.set(group.name, group.next_due_ms())

    def _new_group(self, name: str) -> ConsumerGroup:
        return ConsumerGroup(name, self._topics, self._clock, self._limits, lambda: str(self._new_uuid()))

    def _get(self, name: str) -> ConsumerGroup:
        group = self._groups.find(name)
        if not isinstance(group, ConsumerGroup):
            raise _not_a_consumer_group(name)
        return group

    def _described(self, assignment: Assignment) -> tuple[DescribedPartitions, ...]:
        found = []
        for topic, numbers in assignment.items():
            live = self._topics.find_by_uuid(topic)
            if live is not None:
                found.append(DescribedPartitions(topic, live.topic.name, tuple(sorted(numbers))))
        return tuple(found)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError("the server is shutting down; connect again")


def check_heartbeat(request: ConsumerHeartbeat) -> None:
    """Raise if fields are missing or contradict each other."""
    if not request.group:
        raise InvalidRequestError("the group id is empty; set group.id")
    if request.epoch < STATIC_LEAVING_EPOCH:
        raise InvalidRequestError(f"a member epoch is -2 or more, not {request.epoch}")
    for name, text in (("instance id", request.instance_id), ("rack id", request.rack_id)):
        if text == "":
            raise InvalidRequestError(f"the {name} is empty; leave it out")
    if request.epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms is None:
            raise InvalidRequestError("a member that joins must give its rebalance timeout")
        if request.owned is None or request.owned:
            raise InvalidRequestError("a member that joins must send an empty list of partitions")
        if request.topic_names is None and request.topic_pattern is None:
            raise InvalidRequestError("a member that joins must subscribe to topics, by name or by a regular expression")
    elif not request.member_id:
        raise InvalidRequestError("the member id is empty")
    elif request.epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise InvalidRequestError("only a static member can leave with the epoch -2: the instance id is missing")
    if request.rebalance_timeout_ms is not None and request.rebalance_timeout_ms < 0:
        raise InvalidRequestError(f"the rebalance timeout is {request.rebalance_timeout_ms} ms; it can't be below 0")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise UnsupportedAssignorError(f"there is no assignor {request.assignor!r}; there are {', '.join(sorted(ASSIGNORS))}")


def _not_a_consumer_group(name: str) -> UnknownGroupError:
    return UnknownGroupError(
        f"group {name!r} is no group of the consumer protocol; its members may use the classic one, and must stop first"
    )
