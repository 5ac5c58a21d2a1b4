"""One group of the consumer protocol (KIP-848) as a state machine that never waits.

Members send heartbeats and nothing else. The server decides which partitions each is to have, the **target**, and takes every
member there by itself: `reconciliation.py` has the steps. Whatever changes the target (members, subscriptions, topics) begins a
new **group epoch**. A member is at an epoch of its own and comes to that of the group with its target.

Members that use the classic protocol may be among them: their JoinGroup is a heartbeat with which they join, and
`classic_members.py` has the rest.

Every change gets a new `version`. The caller makes `record()` durable before it answers, so that a member never acts on
something that a restarted server does not know. Errors are raised before anything has changed.
"""

from collections import Counter
from collections.abc import Callable
from uuid import UUID

import msgspec

from tailrace.broker.groups.assignment import Assignment, is_within
from tailrace.broker.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, AssignedMember
from tailrace.broker.groups.consumer_member import ConsumerMember, ConsumerMembers, heartbeat_bytes
from tailrace.broker.groups.reconciliation import MemberProgress, advance
from tailrace.broker.groups.subscribed_topics import PatternMatches, SubscribedTopics, hash_topics
from tailrace.model.clock import Clock
from tailrace.model.consumer_group import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupRecord,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
)
from tailrace.model.errors import (
    FencedInstanceError,
    FencedMemberEpochError,
    GroupFullError,
    IllegalGenerationError,
    LimitExceededError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnreleasedInstanceError,
)
from tailrace.model.group import CONSUMER, NO_MEMBER, GroupState, GroupType, MemberIdentity
from tailrace.model.limits import Limits

_MATCH_BYTES = 64
_NO_VERSION = -1


class ConsumerGroup:
    group_type: GroupType = "consumer"
    protocol_type = CONSUMER

    def __init__(
        self,
        name: str,
        topics: SubscribedTopics,
        clock: Clock,
        limits: Limits,
        new_member_id: Callable[[], str],
        *,
        epoch: int = 0,
    ) -> None:
        """A group that was one of the classic protocol before goes on at its generation."""
        self.name = name
        self.epoch = epoch
        self.assignor = DEFAULT_ASSIGNOR
        self.rebalances = 0
        self.changed_ms = clock.now_ms()
        """When the last member left."""
        self.version = 0
        self.saved_version = 0
        """The newest version that is durable."""
        self.topics_version = _NO_VERSION
        """The version of the topics when the subscriptions were last compared with them."""
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._new_member_id = new_member_id
        self._members = ConsumerMembers(name)
        self._matches: dict[str, frozenset[UUID]] = {}
        self._topics_hash = b""

    def restore(self, record: ConsumerGroupRecord) -> None:
        """Continue from a stored record. Sessions begin again, because nobody could send heartbeats to a stopped server."""
        self.epoch = record.epoch
        self.assignor = record.assignor
        self._topics_hash = record.topics_hash
        self.changed_ms = record.changed_ms
        for stored in record.members:
            member = ConsumerMember.from_record(stored)
            self._members.add(member)
            self.extend_session(member)
            self._set_revoke_deadline(member)
        self.version = self.saved_version = 1

    @property
    def members(self) -> tuple[ConsumerMember, ...]:
        return tuple(self._members)

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def state(self) -> GroupState:
        if not self._members:
            return "Empty"
        is_stable = all(member.progress.is_at(self.epoch) for member in self._members)
        return "Stable" if is_stable else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def is_classic(self) -> bool:
        """Whether there are members and all use the classic protocol. The group is to become a classic one then."""
        return not self.is_empty and all(member.classic is not None for member in self._members)

    @property
    def held_bytes(self) -> int:
        matches = sum(map(len, self._matches.values())) * _MATCH_BYTES
        return matches + sum(member.held_bytes for member in self._members)

    @property
    def patterns(self) -> frozenset[str]:
        """The regular expressions of all subscriptions."""
        return frozenset(member.topic_pattern for member in self._members if member.topic_pattern)

    def heartbeat(self, request: ConsumerHeartbeat, topics_version: int, matches: PatternMatches) -> ConsumerHeartbeatResult:
        """Take a heartbeat of a member that joins or is there, or the JoinGroup of a classic one.

        `matches` has the topics of the request's pattern, and those of all other patterns if `topics_version` has changed.
        """
        is_joining = request.epoch == JOINING_EPOCH
        # A member that joins although it is there has lost an answer, or was fenced. It is told what it has. A join may come
        # late, so it does not prove that the member gave up what it was asked to: that takes a heartbeat with its epoch.
        # Classic members have nothing else to say it with.
        is_repeated = is_joining and request.classic is None and self._is_active(request.member_id)
        member = self._joining(request) if is_joining else self._known(request)
        if request.is_kept:
            self._check_bytes(request, member)
        before = member.progress.assigned
        # Matches that were looked up before others were are older; the next heartbeat looks up all of them again.
        is_late = topics_version < self.topics_version
        self._matches = {**matches, **self._matches} if is_late else {**self._matches, **matches}
        has_changed = self._take(member, request)
        if self.topics_version != topics_version:
            self.topics_version = topics_version
            has_changed |= self._topics_hash != hash_topics(self._subscribed()[1])
        if has_changed:
            self._change_target()
        self._advance(member, None if is_repeated else request.owned)
        self.extend_session(member)
        if request.classic is not None:
            # It has to sync.
            member.act_until_ms = self._now_ms() + member.rebalance_timeout_ms
        progress = member.progress
        is_told = is_joining or request.is_complete or progress.assigned != before
        return ConsumerHeartbeatResult(member.member_id, progress.epoch, progress.assigned if is_told else None)

    def leave(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Remove a member, or keep the place of a static one that will be back before its session ends."""
        member = self._find(request)
        if request.epoch == STATIC_LEAVING_EPOCH:
            # It has closed, so it reads nothing any more; what it had stays reserved for it.
            progress = member.progress
            member.progress = MemberProgress(STATIC_LEAVING_EPOCH, progress.epoch, progress.state, progress.assigned)
            member.act_until_ms = None
            self.extend_session(member)
            self.version += 1
        else:
            self.remove(member)
        return ConsumerHeartbeatResult(request.member_id, request.epoch)

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member that sent a request of the classic protocol."""
        return self._members.find(member_id, instance_id)

    def find_instance(self, instance_id: str | None) -> ConsumerMember | None:
        return self._members.get_instance(instance_id)

    def can_advance(self, member: ConsumerMember) -> bool:
        """Return whether a member that joined again would come to its target, or nearer to it."""
        progress = member.progress
        if progress.epoch != self.epoch:
            return True
        return progress.state == "unreleased" and self._next(member, None).state == "stable"

    def ask(self, member: ConsumerMember) -> None:
        """Give a classic member the time of a rebalance to join again, unless that time runs already."""
        if member.act_until_ms is None:
            member.act_until_ms = self._now_ms() + member.rebalance_timeout_ms

    def tick(self) -> None:
        """Remove members whose session has ended, or that did not give up partitions in time."""
        now = self._now_ms()
        gone = [
            member
            for member in self._members
            if member.session_until_ms <= now or (member.act_until_ms is not None and member.act_until_ms <= now)
        ]
        if gone:
            self.remove(*gone)

    def next_due_ms(self) -> int | None:
        """Return when to call `tick` next. Heartbeats may make it later, never earlier."""
        due = [member.session_until_ms for member in self._members]
        due += [member.act_until_ms for member in self._members if member.act_until_ms is not None]
        return min(due, default=None)

    def check_commit(self, identity: MemberIdentity, *, in_transaction: bool = False) -> None:
        """Raise unless this member may commit offsets now. A client without an epoch may only while the group is empty."""
        if identity.generation < 0 and self.is_empty:
            return
        if in_transaction and identity.generation < 0 and identity.member_id == NO_MEMBER and identity.instance_id is None:
            return
        self.check_epoch(identity)

    def check_epoch(self, identity: MemberIdentity) -> None:
        """Raise unless this is a member and its epoch."""
        member = self._members.get(identity.member_id)
        if member is None:
            raise self._members.unknown(identity.member_id)
        if identity.generation != member.progress.epoch:
            error = StaleMemberEpochError if member.classic is None else IllegalGenerationError
            raise error(
                f"member {identity.member_id!r} of group {self.name!r} is at epoch {member.progress.epoch}, not"
                f" {identity.generation}"
            )

    def subscribes_to(self, name: str) -> bool:
        """Return whether a member reads the topic with this name or alias."""
        live = self._topics.find(name)
        return any(
            name in member.topic_names or (live is not None and live.topic.uuid in self._topics_of(member))
            for member in self._members
        )

    def record(self) -> ConsumerGroupRecord:
        members = tuple(member.record() for member in self._members)
        return ConsumerGroupRecord(self.epoch, self.assignor, self._topics_hash, members, self.changed_ms)

    def _joining(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member that joins: a new one that is not added yet, or one that is there."""
        static = self._members.get_instance(request.instance_id)
        known = self._members.get(request.member_id)
        if static is not None:
            if static is known:
                return static
            if request.classic is not None and request.member_id:
                # Another client took over its name.
                return self._members.find(request.member_id, request.instance_id)
            is_taken_over = request.classic is not None or static.classic is not None
            if not is_taken_over and static.progress.epoch != STATIC_LEAVING_EPOCH:
                raise UnreleasedInstanceError(
                    f"static member {request.instance_id!r} of group {self.name!r} is {static.member_id!r}, which has not left;"
                    " it is removed when its session ends"
                )
            if known is None:
                return static
        if known is not None:
            if known.instance_id != request.instance_id:
                raise FencedInstanceError(
                    f"member {request.member_id!r} of group {self.name!r} is static member {known.instance_id!r}, not"
                    f" {request.instance_id!r}"
                )
            return known
        if len(self._members) >= self._limits.group_members:
            raise GroupFullError(
                f"group {self.name!r} has {len(self._members)} members, as many as group_members allows; stop one first"
            )
        return ConsumerMember(request.member_id or self._new_member_id(), request.instance_id)

    def _is_active(self, member_id: str) -> bool:
        member = self._members.get(member_id)
        return member is not None and member.progress.epoch != STATIC_LEAVING_EPOCH

    def _known(self, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self._find(request)
        self._check_member_epoch(member, request)
        return member

    def _find(self, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self._members.find(request.member_id, request.instance_id)
        if member.classic is not None:
            raise UnknownMemberError(
                f"member {member.member_id!r} of group {self.name!r} uses the classic protocol; join again"
            )
        return member

    def _check_member_epoch(self, member: ConsumerMember, request: ConsumerHeartbeat) -> None:
        """Raise unless this is the member's epoch, or the one before: the answer with the newer one may have been lost."""
        progress = member.progress
        if request.epoch == progress.epoch:
            return
        has_lost_answer = (
            progress.previous_epoch == request.epoch < progress.epoch
            and request.owned is not None
            and is_within(request.owned, progress.assigned)
        )
        if not has_lost_answer:
            raise FencedMemberEpochError(
                f"member {member.member_id!r} of group {self.name!r} is at epoch {progress.epoch}, not {request.epoch}; give up"
                " all partitions and join again"
            )

    def _check_bytes(self, request: ConsumerHeartbeat, member: ConsumerMember) -> None:
        replaced = member.said_bytes if member in self._members else 0
        held = self.held_bytes + max(0, heartbeat_bytes(request) - replaced)
        if held > self._limits.group_state_bytes:
            raise LimitExceededError(
                f"the members of group {self.name!r} would hold {held} bytes, more than group_state_bytes allows"
                f" ({self._limits.group_state_bytes})"
            )

    def _take(self, member: ConsumerMember, request: ConsumerHeartbeat) -> bool:
        """Take what the request says of its member. Return whether that asks for a new target."""
        client, subscription = member.client, member.subscription
        is_new = member not in self._members
        if request.epoch == JOINING_EPOCH:
            is_another = not is_new and request.member_id != member.member_id
            if is_another or member.progress.epoch == STATIC_LEAVING_EPOCH:
                self._members.rename(member, request.member_id or self._new_member_id())
                member.progress = member.progress._replace(epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
            if (member.classic is None) != (request.classic is None):
                # What the other protocol said.
                member.topic_names, member.topic_pattern, member.assignor = (), "", None
            member.classic = request.classic
        member.client_id = request.client_id
        member.client_host = request.client_host
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.rebalance_timeout_ms is not None:
            member.rebalance_timeout_ms = min(request.rebalance_timeout_ms, self._limits.rebalance_timeout_ms)
        if request.topic_names is not None:
            member.topic_names = tuple(dict.fromkeys(request.topic_names))
        if request.topic_pattern is not None:
            member.topic_pattern = request.topic_pattern
        if request.assignor is not None:
            member.assignor = request.assignor
        if is_new:
            self._members.add(member)
        if member.client != client:
            self.version += 1
        return is_new or member.subscription != subscription

    def _change_target(self) -> None:
        """Begin a new epoch with a new target for all members, unless they go on as a classic group."""
        self.version += 1
        if self.is_classic:
            return
        self.epoch += 1
        self.rebalances += 1
        topics, partitions = self._subscribed()
        self._topics_hash = hash_topics(partitions)
        votes = Counter(member.assignor for member in self._members if member.assignor is not None)
        self.assignor = max(sorted(votes), key=votes.__getitem__, default=DEFAULT_ASSIGNOR)
        members = {
            member.member_id: AssignedMember(topics[member.member_id], member.target, member.instance_id)
            for member in self._members
        }
        targets = ASSIGNORS[self.assignor](members, partitions)
        for member in self._members:
            member.target = targets[member.member_id]
        self._matches = {pattern: self._matches[pattern] for pattern in self.patterns if pattern in self._matches}

    def _advance(self, member: ConsumerMember, reported: Assignment | None) -> None:
        after = self._next(member, reported)
        if after != member.progress:
            member.progress = after
            self._set_revoke_deadline(member)
            self.version += 1

    def _next(self, member: ConsumerMember, reported: Assignment | None) -> MemberProgress:
        """Return the next step of a member that reports these partitions."""
        if member.progress.is_at(self.epoch):
            return member.progress
        taken: dict[UUID, set[int]] = {topic: set() for topic in member.target}
        for other in self._members:
            if other is not member:
                for topic, numbers in taken.items():
                    numbers |= other.progress.owned(topic)
        return advance(member.progress, self.epoch, member.target, reported, lambda topic, number: number not in taken[topic])

    def _topics_of(self, member: ConsumerMember) -> frozenset[UUID]:
        named = {live.topic.uuid for name in member.topic_names if (live := self._topics.find(name)) is not None}
        # After a restart nothing is matched before the first heartbeat: what it was to have matched before.
        matched = self._matches.get(member.topic_pattern, member.target.keys()) if member.topic_pattern else ()
        return frozenset(named | {topic for topic in matched if self._topics.find_by_uuid(topic) is not None})

    def _subscribed(self) -> tuple[dict[str, frozenset[UUID]], dict[UUID, int]]:
        """Return the topics that each member subscribes to, and the numbers of their partitions."""
        topics = {member.member_id: self._topics_of(member) for member in self._members}
        lives = (self._topics.find_by_uuid(topic) for topic in frozenset[UUID]().union(*topics.values()))
        return topics, {live.topic.uuid: len(live.partitions) for live in lives if live is not None}

    def remove(self, *members: ConsumerMember) -> None:
        for member in members:
            self._members.remove(member)
        self.changed_ms = self._clock.now_ms()
        self._change_target()

    def extend_session(self, member: ConsumerMember) -> None:
        classic = member.classic
        timeout_ms = self._limits.group_consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        member.session_until_ms = self._now_ms() + timeout_ms

    def _set_revoke_deadline(self, member: ConsumerMember) -> None:
        # A classic member is asked with the answers to its requests.
        is_asked = member.progress.state == "unrevoked" and member.classic is None
        is_here = member.progress.epoch != STATIC_LEAVING_EPOCH
        member.act_until_ms = self._now_ms() + member.rebalance_timeout_ms if is_asked and is_here else None

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)


_MARK = b"\xc1"
"""Precedes stored groups of the consumer protocol. MessagePack never uses this byte, so no classic one begins with it."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ConsumerGroupRecord)


def encode_record(record: ConsumerGroupRecord) -> bytes:
    return _MARK + _encoder.encode(record)


def decode_record(value: bytes) -> ConsumerGroupRecord | None:
    """Return the stored group, or `None` if it is one of the classic protocol."""
    return _decoder.decode(value[len(_MARK) :]) if value.startswith(_MARK) else None
