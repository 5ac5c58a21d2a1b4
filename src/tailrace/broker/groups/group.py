"""One consumer group, as a state machine that waits for nobody.

Every method is told one thing, looks at the clock, and returns what to do: whom to answer and what to make durable. A request
that can't be answered yet leaves its ticket with its member. A refusal is raised before anything has changed.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──the leader's sync is saved──▶ Stable
      ▲                  │      ▲                                              │                                        │
      └── nobody left ───┘      └──────────── a join, a leave, a session that ends, a sync that does not come ──────────┘

An assignment is answered only once it is durable, so a server that comes back knows every generation that members act for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.broker.groups.members import Member, MemberAdmission, Members, Ticket, wants_the_same
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
    Joined,
    JoinedMember,
    JoinRequest,
    MemberIdentity,
    Synced,
    SyncRequest,
)
from tailrace.model.limits import Limits

NEW_MEMBER_MS = 300_000
"""How long a new member may wait for its first generation. Nobody hears from it while it waits, so it may be long gone."""


class Reply(NamedTuple):
    ticket: Ticket
    answer: Joined | Synced | TailraceError


class Save(NamedTuple):
    """Make this durable, then tell the group by `saved` what became of it."""

    record: GroupRecord
    reply: Reply | None = None
    """Goes out once the record is durable: the new instance of a static member waits for this one."""


Effect = Reply | Save


class Group:
    def __init__(
        self, name: str, clock: Clock, settings: BrokerSettings, limits: Limits, new_member_id: Callable[[JoinRequest], str]
    ) -> None:
        self.name = name
        self.state: GroupState = "Empty"
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.members = Members(name)
        self.rebalances = 0
        self.changed_ms = clock.now_ms()
        """When the generation in force began, or the last member left."""
        self._clock = clock
        self._settings = settings
        self._admission = MemberAdmission(name, self.members, settings, limits)
        self._new_member_id = new_member_id
        self._effects: list[Effect] = []
        self._pending: dict[str, int] = {}
        """Ids given out to new members that have not joined with them yet, and until when they may."""
        self._saving: Save | None = None
        """The leader's assignment on its way to the disk."""
        self._settles_at_ms = 0
        """Until when a first rebalance waits for more members, though all that are known have joined."""
        self._join_until_ms = 0
        self._sync_until_ms = 0

    def restore(self, record: GroupRecord) -> None:
        """Go on where the record left off. Sessions begin anew: nobody could be heard while the server was away."""
        self.generation = record.generation
        self.protocol_type = record.protocol_type
        self.protocol = record.protocol
        self.changed_ms = record.changed_ms
        for stored in record.members:
            member = Member.from_record(stored)
            self.members.add(member)
            self._hear(member)
        self.members.leader = record.leader
        self.state = "Stable" if record.members else "Empty"

    @property
    def is_blank(self) -> bool:
        """Nothing would be lost if it were forgotten."""
        return self.is_deserted and self.generation == 0

    @property
    def is_deserted(self) -> bool:
        """Nobody is in it or about to join."""
        return self.state == "Empty" and not self._pending

    @property
    def held_bytes(self) -> int:
        return self.members.held_bytes

    def join(self, request: JoinRequest, ticket: Ticket) -> Sequence[Effect]:
        """Come in, or come again. Answered with `Joined` when the next generation begins."""
        self._admission.check_request(request)
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
                self._promise_id(member_id, request, ticket)
            else:
                self._add(member_id, request, ticket)
        return self._take_effects()

    def sync(self, request: SyncRequest, ticket: Ticket) -> Sequence[Effect]:
        """Ask for a share of the work; the leader hands out all shares. Answered with `Synced` once these are durable."""
        member = self._speaker(request.member)
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
            member.owes_sync = False
            if leads and self._saving is None:
                self._saving = Save(self._record(assignments))
                self._effects.append(self._saving)
        else:
            member.owes_sync = False
            self._reply(ticket, self._synced(member))
        self._hear(member)
        return self._take_effects()

    def heartbeat(self, speaker: MemberIdentity) -> None:
        member = self._speaker(speaker)
        self._hear(member)
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

    def check_commit(self, speaker: MemberIdentity, *, in_transaction: bool = False) -> None:
        """Raise unless the offsets that come with this may be committed.

        Whoever speaks for no generation may commit only while nobody is in the group. Transactions of old clients never name a
        member and are let through; their producer's epoch fences them.
        """
        names_nobody = speaker.generation < 0 and speaker.member_id == NO_MEMBER and speaker.instance_id is None
        if speaker.generation < 0 and self.state == "Empty":
            return
        if names_nobody:
            if in_transaction:
                return
            raise UnknownMemberError(
                f"group {self.name!r} has members, so a commit must name one of them and its generation; stop them first"
            )
        member = self._speaker(speaker)
        self._hear(member)
        if self.state == "CompletingRebalance" and not in_transaction:
            raise self._rebalancing()

    def saved(self, save: Save, error: TailraceError | None) -> Sequence[Effect]:
        """A `Save` has come to its end."""
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
        """Do what has become due."""
        now = self._now_ms()
        for member_id in [member_id for member_id, until in self._pending.items() if until <= now]:
            del self._pending[member_id]
        gone = [
            member
            for member in self.members
            if self._session_end(member) <= now or (member.owes_sync and self._sync_until_ms <= now)
        ]
        if gone:
            self._remove(*gone)
        else:
            self._complete_join_if_due()
        return self._take_effects()

    def next_due_ms(self) -> int | None:
        """When to `tick` next. Heartbeats make it later than said here, never earlier."""
        due = list(self._pending.values())
        due += [end for member in self.members if (end := self._session_end(member)) < _NEVER]
        if self.state == "PreparingRebalance":
            due.append(self._settles_at_ms if self._settles_at_ms > self._now_ms() else self._join_until_ms)
        elif any(member.owes_sync for member in self.members):
            due.append(self._sync_until_ms)
        return min(due, default=None)

    def end(self, error: TailraceError) -> Sequence[Effect]:
        """Answer all who wait; the group is not used any more."""
        for member in self.members:
            self._answer_join(member, error)
            self._answer_sync(member, error)
        self._saving = None
        self.state = "Dead"
        return self._take_effects()

    def _speaker(self, speaker: MemberIdentity) -> Member:
        member = self.members.get(speaker.member_id, speaker.instance_id)
        if speaker.generation != self.generation:
            raise IllegalGenerationError(
                f"group {self.name!r} is in generation {self.generation}, and member {speaker.member_id!r} speaks for"
                f" {speaker.generation}; join again"
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
        says_the_same = request.protocols == member.protocols
        leads_stable = self.state == "Stable" and member.member_id == self.members.leader
        if self.state == "PreparingRebalance" or leads_stable or not says_the_same:
            self._update(member, request, ticket)
            self._rebalance()
        else:
            # The answer to its join was lost on the way.
            self._hear(member)
            self._reply(ticket, self._joined(member))

    def _promise_id(self, member_id: str, request: JoinRequest, ticket: Ticket) -> None:
        self._pending[member_id] = self._now_ms() + request.session_timeout_ms
        self._reply(ticket, MemberIdRequiredError(f"join group {self.name!r} again as member {member_id!r}", member_id))

    def _add(self, member_id: str, request: JoinRequest, ticket: Ticket) -> None:
        member = Member(member_id, self._admission.bounded(request))
        member.joining = ticket
        self._hear(member)
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self.members.add(member)
        if self.state == "PreparingRebalance" and self._settles_at_ms > self._now_ms():
            self._settles_at_ms = min(self._now_ms() + self._settings.group_initial_delay_ms, self._join_until_ms)
        self._rebalance()

    def _update(self, member: Member, request: JoinRequest, ticket: Ticket) -> None:
        self._answer_join(member, self._rebalancing())
        if len(self.members) == 1:
            self.protocol_type = request.protocol_type
        member.take(self._admission.bounded(request))
        member.joining = ticket
        self._hear(member)

    def _replace_static(self, member: Member, request: JoinRequest, ticket: Ticket) -> None:
        """The client of a static member has restarted. If it wants the same as before, it gets it without a rebalance."""
        led_by = self.members.leader
        fenced = FencedInstanceError(f"another client took over static member {member.instance_id!r} of group {self.name!r}")
        self._answer_join(member, fenced)
        self._answer_sync(member, fenced)
        goes_on = self.state == "Stable" and wants_the_same(member, request, self.protocol_type, self.protocol)
        self.members.rename(member, self._new_member_id(request))
        member.take(self._admission.bounded(request))
        member.owes_sync = False
        self._hear(member)
        if goes_on and self.members.elected_protocol() == self.protocol:
            joined = self._joined(member)
            leads = member.member_id == self.members.leader
            if not request.can_skip_assignment:
                # An old client would assign anew if it were told that it leads.
                joined = joined._replace(leader=led_by, members=())
            elif leads:
                joined = joined._replace(skip_assignment=True)
            shares = {each.member_id: each.assignment for each in self.members}
            self._effects.append(Save(self._record(shares), Reply(ticket, joined)))
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
                member.owes_sync = False
            now = self._now_ms()
            self._saving = None
            self._join_until_ms = now + self.members.rebalance_timeout_ms
            self._settles_at_ms = now
            if self.state == "Empty":
                self._settles_at_ms = min(now + self._settings.group_initial_delay_ms, self._join_until_ms)
            self.state = "PreparingRebalance"
            self.rebalances += 1
        self._complete_join_if_due()

    def _complete_join_if_due(self) -> None:
        if self.state != "PreparingRebalance":
            return
        now = self._now_ms()
        all_joined = not self._pending and all(member.joining is not None for member in self.members)
        if not len(self.members) or now >= self._join_until_ms or (all_joined and now >= self._settles_at_ms):
            self._complete_join()

    def _complete_join(self) -> None:
        for member in self.members:
            # A static member may be in the middle of a restart: only the end of its session puts it out.
            if member.joining is None and member.instance_id is None:
                self.members.remove(member)
        if not len(self.members):
            self._become_empty()
        elif not self.members.lead_by_one_who_joined():
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
                member.owes_sync = True
                self._answer_join(member, self._joined(member))

    def _become_stable(self, record: GroupRecord) -> None:
        shares = {stored.member_id: stored.assignment for stored in record.members}
        self.state = "Stable"
        self.changed_ms = record.changed_ms
        for member in self.members:
            member.assignment = shares[member.member_id]
            self._answer_sync(member, self._synced(member))

    def _become_empty(self) -> None:
        self.generation += 1
        self.protocol = ""
        self.state = "Empty"
        record = self._record({})
        self.changed_ms = record.changed_ms
        self._effects.append(Save(record))

    def _record(self, shares: dict[str, bytes]) -> GroupRecord:
        members = tuple(member.record(shares.get(member.member_id, b"")) for member in self.members)
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
        """Whoever waits for our answer is not expected to speak, unless it is new: then nobody knows if it is still there."""
        return _NEVER if member.is_waiting and not member.is_new else member.deadline_ms

    def _hear(self, member: Member) -> None:
        """Its session begins anew: it spoke, or it is answered and now expected to speak."""
        patience = max(NEW_MEMBER_MS, member.session_timeout_ms) if member.is_new else member.session_timeout_ms
        member.deadline_ms = self._now_ms() + patience

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def _rebalancing(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(f"group {self.name!r} rebalances; join again")

    def _answer_join(self, member: Member, answer: Joined | TailraceError) -> None:
        if member.joining is not None:
            self._reply(member.joining, answer)
            member.joining = None
            self._hear(member)

    def _answer_sync(self, member: Member, answer: Synced | TailraceError) -> None:
        if member.syncing is not None:
            self._reply(member.syncing, answer)
            member.syncing = None
            self._hear(member)

    def _reply(self, ticket: Ticket, answer: Joined | Synced | TailraceError) -> None:
        self._effects.append(Reply(ticket, answer))

    def _take_effects(self) -> Sequence[Effect]:
        effects, self._effects = self._effects, []
        return effects


_NEVER = 1 << 62
