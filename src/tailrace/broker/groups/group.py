"""One consumer group as a state machine that never waits.

Every method takes one event and returns the effects to carry out: which requests to answer and what to make durable. A request
that can't be answered yet leaves its ticket with its member. Errors are raised before anything has changed.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──the leader's sync is saved──▶ Stable
      ▲                  │      ▲                                              │                                        │
      └── nobody left ───┘      └──────────── a join, a leave, a session that ends, a sync that does not come ──────────┘

An assignment is sent only once it is durable, so that a restarted server knows every generation that members act in.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.broker.groups.members import Member, MemberAdmission, Members, Ticket, check_request, has_same_subscription
from tailrace.broker.settings import BrokerSettings
from tailrace.model.clock import Clock
from tailrace.model.errors import (
    FencedInstanceError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    TailraceError,
    UnknownMemberError,
)
from tailrace.model.group import (
    NO_MEMBER,
    GroupRecord,
    GroupState,
    GroupType,
    Joined,
    JoinedMember,
    JoinRequest,
    MemberIdentity,
    Synced,
    SyncRequest,
)
from tailrace.model.limits import Limits

NEW_MEMBER_MS = 300_000
"""How long a new member may wait for its first generation. It sends no heartbeats meanwhile, so it may be gone."""


class Reply(NamedTuple):
    ticket: Ticket
    answer: Joined | Synced | TailraceError


class Save(NamedTuple):
    """Make this durable, then call `Group.saved` with the result."""

    record: GroupRecord
    reply: Reply | None = None
    """Sent once the record is durable, to a static member that restarted."""


Effect = Reply | Save


class Group:
    group_type: GroupType = "classic"

    def __init__(
        self,
        name: str,
        clock: Clock,
        settings: BrokerSettings,
        limits: Limits,
        new_member_id: Callable[[JoinRequest], str],
        *,
        generation: int = 0,
    ) -> None:
        """A group that was one of the consumer protocol before goes on after its epoch."""
        self.name = name
        self.state: GroupState = "Empty"
        self.generation = generation
        self.protocol_type = ""
        self.protocol = ""
        self.members = Members(name)
        self.rebalances = 0
        self.changed_ms = clock.now_ms()
        """When the present generation began, or the last member left."""
        self._clock = clock
        self._settings = settings
        self._admission = MemberAdmission(name, self.members, limits)
        self._new_member_id = new_member_id
        self._effects: list[Effect] = []
        self._pending: dict[str, int] = {}
        """Ids given to new members that have not joined with them yet, and when they expire."""
        self._saving: Save | None = None
        """The leader's assignments while they are being written."""
        self._delay_until_ms = 0
        """Until when a first rebalance waits for more members, although all known ones have joined."""
        self._join_until_ms = 0
        self._sync_until_ms = 0

    def restore(self, record: GroupRecord) -> None:
        """Continue from a stored record. Sessions begin again, because nobody could send heartbeats to a stopped server."""
        self.generation = record.generation
        self.protocol_type = record.protocol_type
        self.protocol = record.protocol
        self.changed_ms = record.changed_ms
        for stored in record.members:
            member = Member.from_record(stored)
            self.members.add(member)
            self._extend_session(member)
        self.members.leader = record.leader
        self.state = "Stable" if record.members else "Empty"
        if record.members and record.leader == NO_MEMBER:
            # It was one of the consumer protocol, and its members have not shared anything out yet.
            self._rebalance()

    @property
    def is_disposable(self) -> bool:
        """Whether the group holds nothing that is worth keeping."""
        return self.is_empty and self.generation == 0

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and none that are about to join."""
        return self.state == "Empty" and not self._pending

    @property
    def held_bytes(self) -> int:
        return self.members.held_bytes

    def join(self, request: JoinRequest, ticket: Ticket) -> Sequence[Effect]:
        """Join, or join again. Answered with `Joined` when the next generation begins."""
        check_request(request, self._settings)
        static = self.members.find_instance(request.instance_id)
        if request.member_id != NO_MEMBER:
            self._join_known(request, ticket)
        elif static is not None:
            self._admission.check_protocols(request, self.protocol_type, static)
            self._replace_static(static, request, ticket)
        else:
            self._admission.check_room(len(self._pending))
            self._admission.check_protocols(request, self.protocol_type)
            member_id = self._new_member_id(request)
            if request.asks_for_id_first and request.instance_id is None:
                self._give_id(member_id, request, ticket)
            else:
                self._add(member_id, request, ticket)
        return self._take_effects()

    def sync(self, request: SyncRequest, ticket: Ticket) -> Sequence[Effect]:
        """Ask for the assignment; the leader sends those of all. Answered with `Synced` once these are durable."""
        member = self._member(request.member)
        if self.state == "PreparingRebalance":
            raise self._rebalancing()
        for given, chosen in ((request.protocol_type, self.protocol_type), (request.protocol, self.protocol)):
            if given is not None and given != chosen:
                raise InconsistentProtocolError(f"group {self.name!r} has agreed on {chosen!r}, not on {given!r}")
        leads = member.member_id == self.members.leader
        if self.state == "CompletingRebalance":
            assignments = dict(request.assignments)
            if leads:
                self._admission.check_bytes(sum(map(len, assignments.values())))
            self._answer_sync(member, self._rebalancing())
            member.syncing = ticket
            member.must_sync = False
            if leads and self._saving is None:
                self._saving = Save(self._record(assignments))
                self._effects.append(self._saving)
        else:
            member.must_sync = False
            self._reply(ticket, self._synced(member))
        self._extend_session(member)
        return self._take_effects()

    def heartbeat(self, identity: MemberIdentity) -> None:
        member = self._member(identity)
        self._extend_session(member)
        if self.state == "PreparingRebalance":
            raise self._rebalancing()

    def leave(self, member_id: str, instance_id: str | None) -> Sequence[Effect]:
        if instance_id is None and self._pending.pop(member_id, None) is not None:
            self._complete_join_if_due()
            return self._take_effects()
        static = self.members.find_instance(instance_id)
        if static is not None and member_id == NO_MEMBER:
            self._remove(static)
        else:
            self._remove(self.members.get(member_id, instance_id))
        return self._take_effects()

    def check_commit(self, identity: MemberIdentity, *, in_transaction: bool = False) -> None:
        """Raise unless this member may commit offsets now.

        A client without a generation may commit only while the group is empty. Transactions of old clients never name a member
        and are accepted; their producer's epoch fences them.
        """
        names_nobody = identity.generation < 0 and identity.member_id == NO_MEMBER and identity.instance_id is None
        if identity.generation < 0 and self.state == "Empty":
            return
        if names_nobody:
            if in_transaction:
                return
            raise UnknownMemberError(
                f"group {self.name!r} has members, so a commit must name one of them and its generation; stop them first"
            )
        member = self._member(identity)
        self._extend_session(member)
        if self.state == "CompletingRebalance" and not in_transaction:
            raise self._rebalancing()

    def saved(self, save: Save, error: TailraceError | None) -> Sequence[Effect]:
        """Take the result of a `Save`."""
        if save.reply is not None:
            self._reply(save.reply.ticket, save.reply.answer if error is None else error)
        if save is self._saving:
            self._saving = None
            if error is None:
                self._become_stable(save.record)
            else:
                for member in self.members:
                    self._answer_sync(member, error)
                self._rebalance()
        return self._take_effects()

    def tick(self) -> Sequence[Effect]:
        """Expire sessions and deadlines that have passed."""
        now = self._now_ms()
        for member_id in [member_id for member_id, until in self._pending.items() if until <= now]:
            del self._pending[member_id]
        gone = [
            member
            for member in self.members
            if self._session_end(member) <= now or (member.must_sync and self._sync_until_ms <= now)
        ]
        if gone:
            self._remove(*gone)
        else:
            self._complete_join_if_due()
        return self._take_effects()

    def next_due_ms(self) -> int | None:
        """Return when to call `tick` next. Heartbeats may make it later, never earlier."""
        due = list(self._pending.values())
        due += [end for member in self.members if (end := self._session_end(member)) < _NEVER]
        if self.state == "PreparingRebalance":
            due.append(self._delay_until_ms if self._delay_until_ms > self._now_ms() else self._join_until_ms)
        elif any(member.must_sync for member in self.members):
            due.append(self._sync_until_ms)
        return min(due, default=None)

    def end(self, error: TailraceError) -> Sequence[Effect]:
        """Answer all waiting requests with the error. The group is not used afterwards."""
        for member in self.members:
            self._answer_join(member, error)
            self._answer_sync(member, error)
        self._saving = None
        self.state = "Dead"
        return self._take_effects()

    def _member(self, identity: MemberIdentity) -> Member:
        member = self.members.get(identity.member_id, identity.instance_id)
        if identity.generation != self.generation:
            raise IllegalGenerationError(
                f"group {self.name!r} is in generation {self.generation}, and member {identity.member_id!r} is of generation"
                f" {identity.generation}; join again"
            )
        return member

    def _join_known(self, request: JoinRequest, ticket: Ticket) -> None:
        if request.member_id in self._pending and request.instance_id is None:
            self._admission.check_room(len(self._pending) - 1)
            self._admission.check_protocols(request, self.protocol_type)
            del self._pending[request.member_id]
            self._add(request.member_id, request, ticket)
            return
        member = self.members.get(request.member_id, request.instance_id)
        self._admission.check_protocols(request, self.protocol_type, member)
        has_same_protocols = request.protocols == member.protocols
        leads_stable = self.state == "Stable" and member.member_id == self.members.leader
        if self.state == "PreparingRebalance" or leads_stable or not has_same_protocols:
            self._update(member, request, ticket)
            self._rebalance()
        else:
            # The response to its join was lost.
            self._extend_session(member)
            self._reply(ticket, self._joined(member))

    def _give_id(self, member_id: str, request: JoinRequest, ticket: Ticket) -> None:
        self._pending[member_id] = self._now_ms() + request.session_timeout_ms
        self._reply(ticket, MemberIdRequiredError(f"join group {self.name!r} again as member {member_id!r}", member_id))

    def _add(self, member_id: str, request: JoinRequest, ticket: Ticket) -> None:
        member = Member(member_id, self._admission.bounded(request))
        member.joining = ticket
        self._extend_session(member)
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self.members.add(member)
        if self.state == "PreparingRebalance" and self._delay_until_ms > self._now_ms():
            self._delay_until_ms = min(self._now_ms() + self._settings.group_initial_delay_ms, self._join_until_ms)
        self._rebalance()

    def _update(self, member: Member, request: JoinRequest, ticket: Ticket) -> None:
        self._answer_join(member, self._rebalancing())
        if len(self.members) == 1:
            self.protocol_type = request.protocol_type
        member.take(self._admission.bounded(request))
        member.joining = ticket
        self._extend_session(member)

    def _replace_static(self, member: Member, request: JoinRequest, ticket: Ticket) -> None:
        """Give a static member's place to its restarted client, without a rebalance if its subscription is the same."""
        old_leader = self.members.leader
        fenced = FencedInstanceError(f"another client took over static member {member.instance_id!r} of group {self.name!r}")
        self._answer_join(member, fenced)
        self._answer_sync(member, fenced)
        keeps_assignment = self.state == "Stable" and has_same_subscription(member, request, self.protocol_type, self.protocol)
        self.members.rename(member, self._new_member_id(request))
        member.take(self._admission.bounded(request))
        member.must_sync = False
        self._extend_session(member)
        if keeps_assignment and self.members.elected_protocol() == self.protocol:
            joined = self._joined(member)
            leads = member.member_id == self.members.leader
            if not request.can_skip_assignment:
                # An old client that learns that it leads would assign again.
                joined = joined._replace(leader=old_leader, members=())
            elif leads:
                joined = joined._replace(skip_assignment=True)
            assignments = {each.member_id: each.assignment for each in self.members}
            self._effects.append(Save(self._record(assignments), Reply(ticket, joined)))
        else:
            member.joining = ticket
            self._rebalance()

    def _remove(self, *members: Member) -> None:
        for member in members:
            gone = UnknownMemberError(
                f"member {member.member_id!r} is no longer in group {self.name!r}; join again as a new one"
            )
            self._answer_join(member, gone)
            self._answer_sync(member, gone)
            self.members.remove(member)
        self._rebalance()

    def _rebalance(self) -> None:
        if self.state != "PreparingRebalance":
            for member in self.members:
                self._answer_sync(member, self._rebalancing())
                member.must_sync = False
            now = self._now_ms()
            self._saving = None
            self._join_until_ms = now + self.members.rebalance_timeout_ms
            self._delay_until_ms = now
            if self.state == "Empty":
                self._delay_until_ms = min(now + self._settings.group_initial_delay_ms, self._join_until_ms)
            self.state = "PreparingRebalance"
            self.rebalances += 1
        self._complete_join_if_due()

    def _complete_join_if_due(self) -> None:
        if self.state != "PreparingRebalance":
            return
        now = self._now_ms()
        all_joined = not self._pending and all(member.joining is not None for member in self.members)
        if not len(self.members) or now >= self._join_until_ms or (all_joined and now >= self._delay_until_ms):
            self._complete_join()

    def _complete_join(self) -> None:
        for member in self.members:
            # A static member may be restarting: only the end of its session removes it.
            if member.joining is None and member.instance_id is None:
                self.members.remove(member)
        if not len(self.members):
            self._become_empty()
        elif not self.members.elect_leader():
            self._join_until_ms = self._now_ms() + self.members.rebalance_timeout_ms
        else:
            self._begin_generation()

    def _begin_generation(self) -> None:
        self.generation += 1
        self.protocol = self.members.elected_protocol()
        self.state = "CompletingRebalance"
        self._sync_until_ms = self._now_ms() + self.members.rebalance_timeout_ms
        for member in self.members:
            member.is_new = False
            if member.joining is not None:
                member.must_sync = True
                self._answer_join(member, self._joined(member))

    def _become_stable(self, record: GroupRecord) -> None:
        assignments = {stored.member_id: stored.assignment for stored in record.members}
        self.state = "Stable"
        self.changed_ms = record.changed_ms
        for member in self.members:
            member.assignment = assignments[member.member_id]
            self._answer_sync(member, self._synced(member))

    def _become_empty(self) -> None:
        self.generation += 1
        self.protocol = ""
        self.state = "Empty"
        record = self._record({})
        self.changed_ms = record.changed_ms
        self._effects.append(Save(record))

    def _record(self, assignments: dict[str, bytes]) -> GroupRecord:
        members = tuple(member.record(assignments.get(member.member_id, b"")) for member in self.members)
        return GroupRecord(
            self.generation, self.protocol_type, self.protocol, self.members.leader, members, self._clock.now_ms()
        )

    def _joined(self, member: Member) -> Joined:
        leader = self.members.leader
        others: tuple[JoinedMember, ...] = ()
        if member.member_id == leader:
            others = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol)) for each in self.members
            )
        return Joined(self.generation, self.protocol_type, self.protocol, leader, member.member_id, others)

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol, member.assignment)

    def _session_end(self, member: Member) -> int:
        """Return when the session ends. It does not end while a member waits for a response, unless the member is new."""
        return _NEVER if member.is_waiting and not member.is_new else member.deadline_ms

    def _extend_session(self, member: Member) -> None:
        """Begin the session again: the member has sent a request, or has got a response and sends the next request."""
        timeout_ms = max(NEW_MEMBER_MS, member.session_timeout_ms) if member.is_new else member.session_timeout_ms
        member.deadline_ms = self._now_ms() + timeout_ms

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def _rebalancing(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(f"group {self.name!r} is rebalancing; join again")

    def _answer_join(self, member: Member, answer: Joined | TailraceError) -> None:
        if member.joining is not None:
            self._reply(member.joining, answer)
            member.joining = None
            self._extend_session(member)

    def _answer_sync(self, member: Member, answer: Synced | TailraceError) -> None:
        if member.syncing is not None:
            self._reply(member.syncing, answer)
            member.syncing = None
            self._extend_session(member)

    def _reply(self, ticket: Ticket, answer: Joined | Synced | TailraceError) -> None:
        self._effects.append(Reply(ticket, answer))

    def _take_effects(self) -> Sequence[Effect]:
        effects, self._effects = self._effects, []
        return effects


_NEVER = 1 << 62
