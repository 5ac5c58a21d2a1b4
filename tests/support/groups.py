"""Groups for tests: requests as consumers send them, and a group that collects its replies and saves."""

import asyncio
from collections.abc import Sequence
from itertools import count
from struct import pack

from tailrace.broker.broker import Broker
from tailrace.broker.groups.group import Effect, Group, Reply, Save
from tailrace.broker.settings import BrokerSettings
from tailrace.model.errors import TailraceError
from tailrace.model.group import CONSUMER, GroupRecord, Joined, JoinRequest, MemberIdentity, MemberProtocol, Synced, SyncRequest
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tests.support.aio import turns
from tests.support.clocks import ManualClock

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 100
SETTINGS = BrokerSettings(group_initial_delay_ms=DELAY_MS)


def subscription(*topics: str, tail: bytes = b"") -> bytes:
    """Return the metadata of a joining consumer. `tail` stands for all fields after its topics."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 1, len(topics)) + names + pack(">i", -1) + tail


def joining(
    member_id: str = "",
    *,
    group: str = "g",
    instance: str | None = None,
    protocols: Sequence[tuple[str, bytes]] = (("range", subscription("t")),),
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    protocol_type: str = CONSUMER,
    asks_for_id_first: bool = False,
    can_skip_assignment: bool = False,
) -> JoinRequest:
    return JoinRequest(
        group,
        member_id,
        instance,
        "client",
        "127.0.0.1",
        session_ms,
        rebalance_ms,
        protocol_type,
        tuple(MemberProtocol(*protocol) for protocol in protocols),
        asks_for_id_first,
        can_skip_assignment,
    )


def syncing(joined: Joined, *, group: str = "g", instance: str | None = None, **shares: bytes) -> SyncRequest:
    return SyncRequest(
        group,
        MemberIdentity(joined.member_id, joined.generation, instance),
        joined.protocol_type,
        joined.protocol,
        tuple(shares.items()),
    )


def identity(joined: Joined, instance: str | None = None) -> MemberIdentity:
    return MemberIdentity(joined.member_id, joined.generation, instance)


async def stable(broker: Broker, clock: ManualClock, *instances: str | None, group: str = "g") -> list[Joined]:
    """Bring members into one generation."""
    joins = [asyncio.ensure_future(broker.groups.join(joining(group=group, instance=each))) for each in instances]
    await turns()
    clock.advance(DELAY_MS)
    broker.groups.run_due()
    members = list(await asyncio.gather(*joins))
    shares = {member.member_id: member.member_id.encode() for member in members}
    await asyncio.gather(
        *(
            broker.groups.sync(
                syncing(member, group=group, instance=instance, **(shares if member.leader == member.member_id else {}))
            )
            for member, instance in zip(members, instances, strict=True)
        )
    )
    return members


class GroupUnderTest:
    """A group with member ids `m1`, `m2`, ... whose saves succeed at once unless they are held."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, settings: BrokerSettings = SETTINGS) -> None:
        self.clock = ManualClock()
        self._ids = count(1)
        self._tickets = count(1)
        self.answers: dict[int, Joined | Synced | TailraceError] = {}
        self.holds_saves = False
        self.held: list[Save] = []
        self.last_save_failed = False
        self.records: list[GroupRecord] = []
        self._limits = limits
        self._settings = settings
        self.group = self._new_group()

    def join(self, member_id: str = "", **given: object) -> int:
        """Join and return the ticket. The reply, if there is one already, is in `answers`."""
        ticket = next(self._tickets)
        try:
            self.do(self.group.join(joining(member_id, **given), ticket))  # type: ignore[arg-type]
        except TailraceError as error:
            self._answer(ticket, error)
        return ticket

    def sync(self, joined: Joined, instance: str | None = None, **shares: bytes) -> int:
        ticket = next(self._tickets)
        try:
            self.do(self.group.sync(syncing(joined, instance=instance, **shares), ticket))  # type: ignore[arg-type]
        except TailraceError as error:
            self._answer(ticket, error)
        return ticket

    def leave(self, member_id: str, instance: str | None = None) -> None:
        self.do(self.group.leave(member_id, instance))

    def advance(self, milliseconds: int) -> None:
        """Advance the clock, and tick the group at each time that it asks for."""
        until = self.clock.monotonic() * 1000 + milliseconds
        while (due := self.group.next_due_ms()) is not None and due <= until:
            self.clock.advance(max(0, due - round(self.clock.monotonic() * 1000)))
            self.do(self.group.tick())
        self.clock.advance(round(until - self.clock.monotonic() * 1000))

    def settle(self, error: TailraceError | None = None) -> None:
        """Complete the saves that are held."""
        held, self.held = self.held, []
        for save in held:
            self._finish(save, error)

    def restart(self, saves_on_disk: int = 0) -> None:
        """Crash and restart the server. Only the last saved record is left; some of the held ones may be saved."""
        self.records += [save.record for save in self.held[:saves_on_disk]]
        self.group = self._new_group()
        self.held = []
        if self.records:
            self.group.restore(self.records[-1])

    def do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._answer(effect.ticket, effect.answer)
            elif self.holds_saves:
                self.held.append(effect)
            else:
                self._finish(effect, None)

    def joined(self, ticket: int) -> Joined:
        answer = self.answers[ticket]
        assert isinstance(answer, Joined), answer
        return answer

    def synced(self, ticket: int) -> Synced:
        answer = self.answers[ticket]
        assert isinstance(answer, Synced), answer
        return answer

    def stable(self, *instances: str | None) -> list[Joined]:
        """Bring these members (`None` for a dynamic one) into one generation, with assignments named after them."""
        tickets = [self.join(instance=instance) for instance in instances]
        self.advance(DELAY_MS)
        members = [self.joined(ticket) for ticket in tickets]
        shares = {member.member_id: member.member_id.encode() for member in members}
        for member, instance in zip(members, instances, strict=True):
            self.sync(member, instance, **(shares if member.leader == member.member_id else {}))
        assert self.group.state == "Stable"
        return members

    def _finish(self, save: Save, error: TailraceError | None) -> None:
        self.last_save_failed = error is not None
        if error is None:
            self.records.append(save.record)
        self.do(self.group.saved(save, error))

    def _answer(self, ticket: object, answer: Joined | Synced | TailraceError) -> None:
        assert isinstance(ticket, int)
        assert ticket not in self.answers, f"{ticket} was answered twice"
        self.answers[ticket] = answer

    def _new_group(self) -> Group:
        return Group("g", self.clock, self._settings, self._limits, lambda _: f"m{next(self._ids)}")
