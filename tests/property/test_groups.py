"""A group under any order of events: clients that play by the rules, clients that come back from the dead, lost time, a disk
that is slow or fails, and a server that is killed.
"""

from dataclasses import dataclass, field
from struct import pack, unpack

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.broker.groups.group import Save
from tailrace.model.errors import (
    FencedInstanceError,
    MemberIdRequiredError,
    StorageFullError,
    TailraceError,
    UnknownMemberError,
)
from tailrace.model.group import Joined, MemberIdentity, Synced
from tailrace.model.limits import Limits
from tests.support.groups import REBALANCE_MS, SESSION_MS, GroupUnderTest, subscription

PARTITIONS = 6
MEMBERS = 4


@dataclass
class Client:
    """A consumer: its last request, and its partitions if it got a response."""

    instance: str | None = None
    member_id: str = ""
    topics: tuple[str, ...] = ("t",)
    joining: int | None = None
    joined: Joined | None = None
    syncing: int | None = None
    owned: list[int] = field(default_factory=list)

    @property
    def identity(self) -> MemberIdentity:
        assert self.joined is not None
        return MemberIdentity(self.joined.member_id, self.joined.generation, self.instance)

    @property
    def name(self) -> str:
        """The identity of the member, which a static member keeps over restarts of its client."""
        return self.instance or self.member_id

    def start_over(self) -> None:
        self.joining = self.joined = self.syncing = None
        self.owned = []


ANY_CLIENT = st.integers(0, 100)


def has_clients(machine: "GroupMachine") -> bool:
    return bool(machine.clients)


class GroupMachine(RuleBasedStateMachine):
    @initialize(instances=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=3))
    def begin(self, instances: list[str | None]) -> None:
        self.it = GroupUnderTest(Limits(group_members=MEMBERS))
        self.clients: list[Client] = []
        self.ghosts: list[tuple[MemberIdentity, list[int]]] = []
        """Identities and partitions of killed clients, which may still send requests."""
        self.tickets: set[int] = set()
        self.owners: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = {}
        """The generation that committed last, by partition."""
        self.newest_synced = 0
        for instance in instances:
            self.a_client_starts(instance)
        self.all_go_on_for_a_while(4)

    @precondition(lambda self: len(self.clients) <= MEMBERS)
    @rule(instance=st.sampled_from([None, None, "a", "b"]))
    def a_client_starts(self, instance: str | None) -> None:
        client = Client(instance)
        self._join(client)
        self.clients.append(client)

    @precondition(has_clients)
    @rule(which=ANY_CLIENT)
    def one_takes_its_answer_and_goes_on(self, which: int) -> None:
        self._go_on(self._client(which))

    @rule(rounds=st.integers(1, 4))
    def all_go_on_for_a_while(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.clients:
                self._go_on(client)
            self.it.advance(100)

    @precondition(has_clients)
    @rule(which=ANY_CLIENT)
    def one_heartbeats(self, which: int) -> None:
        client = self._client(which)
        if client.joined is None or client.joining is not None:
            return
        try:
            self.it.group.heartbeat(client.identity)
        except TailraceError as error:
            self._refused(client, error)

    @rule()
    def all_who_own_something_commit(self) -> None:
        for client in self.clients:
            if client.joined is not None and client.owned:
                self._commit(client.identity, client.owned)

    @precondition(has_clients)
    @rule(which=ANY_CLIENT, topics=st.sampled_from([("t",), ("t", "u")]))
    def one_changes_its_subscription(self, which: int, topics: tuple[str, ...]) -> None:
        client = self._client(which)
        if client.joined is not None and client.joining is None and client.topics != topics:
            client.topics = topics
            client.syncing = None
            client.owned = []
            self._join(client)

    @precondition(has_clients)
    @rule(which=ANY_CLIENT)
    def one_asks_again_because_its_connection_broke(self, which: int) -> None:
        client = self._client(which)
        if client.joining is not None and client.joining not in self.it.answers:
            self._join(client)
        elif client.syncing is not None and client.syncing not in self.it.answers:
            self._sync(client)

    @precondition(has_clients)
    @rule(which=ANY_CLIENT)
    def one_leaves(self, which: int) -> None:
        client = self._client(which)
        self.clients.remove(client)
        if client.member_id:
            try:
                self.it.leave(client.member_id, client.instance)
            except TailraceError as error:
                assert isinstance(error, UnknownMemberError | FencedInstanceError), error
            else:
                assert client.member_id not in self.it.group.members

    @precondition(has_clients)
    @rule(which=ANY_CLIENT)
    def one_is_killed(self, which: int) -> None:
        client = self._client(which)
        self.clients.remove(client)
        if client.joined is not None and client.owned:
            self.ghosts.append((client.identity, client.owned))

    @rule()
    def ghosts_speak(self) -> None:
        for identity, owned in self.ghosts:
            self._commit(identity, owned)

    @rule(milliseconds=st.sampled_from([10, 100, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.it.advance(milliseconds)

    @rule()
    def the_disk_becomes_slow(self) -> None:
        self.it.holds_saves = True

    @rule(fails=st.booleans())
    def the_disk_comes_to_an_end_with_what_it_has(self, fails: bool) -> None:
        self.it.holds_saves = False
        self.it.settle(StorageFullError("the disk is full") if fails else None)

    @rule(saves_on_disk=st.integers(0, 2))
    def the_server_is_killed_and_comes_back(self, saves_on_disk: int) -> None:
        self.tickets &= self.it.answers.keys()
        self.it.holds_saves = False
        self.it.restart(saves_on_disk)
        for client in self.clients:
            if client.joining is not None and client.joining not in self.it.answers:
                self._join(client)
            elif client.syncing is not None and client.syncing not in self.it.answers:
                self._sync(client)

    @invariant()
    def a_group_without_members_is_empty(self) -> None:
        group = self.it.group
        assert (group.state == "Empty") == (len(group.members) == 0)
        assert len(group.members) <= MEMBERS

    @invariant()
    def the_next_thing_to_do_lies_ahead(self) -> None:
        self.it.do(self.it.group.tick())
        due = self.it.group.next_due_ms()
        assert due is None or due > self.it.clock.monotonic() * 1000 - 1

    @invariant()
    def what_is_in_force_is_durable(self) -> None:
        group = self.it.group
        # A restarted static member that could not be saved got an error and joins once more.
        if group.state == "Stable" and not self.it.held and not self.it.last_save_failed:
            record = self.it.records[-1]
            stored = {member.member_id: member.assignment for member in record.members}
            assert stored == {member.member_id: member.assignment for member in group.members}
            assert (record.generation, record.leader) == (group.generation, group.members.leader)

    def teardown(self) -> None:
        if not hasattr(self, "it"):
            return
        self.it.holds_saves = False
        self.it.settle()
        self.it.advance(2 * 3_600_000)
        assert self.it.group.state == "Empty"
        assert self.tickets <= self.it.answers.keys()

    def _client(self, which: int) -> Client:
        return self.clients[which % len(self.clients)]

    def _go_on(self, client: Client) -> None:
        if client.joining in self.it.answers:
            self._take_joined(client)
        elif client.syncing in self.it.answers:
            self._take_synced(client)
        elif client.joining is None and client.syncing is None and client.joined is None:
            self._join(client)

    def _join(self, client: Client) -> None:
        told = [("range", subscription(*client.topics))]
        client.joining = self.it.join(
            client.member_id, instance=client.instance, protocols=told, asks_for_id_first=client.instance is None
        )
        self.tickets.add(client.joining)

    def _take_joined(self, client: Client) -> None:
        assert client.joining is not None
        answer = self.it.answers[client.joining]
        if isinstance(answer, MemberIdRequiredError):
            client.member_id = answer.member_id
            self._join(client)
        elif isinstance(answer, Joined):
            client.start_over()
            client.joined = answer
            client.member_id = answer.member_id
            self._sync(client)
        else:
            assert isinstance(answer, TailraceError)
            self._refused(client, answer)

    def _sync(self, client: Client) -> None:
        joined = client.joined
        assert joined is not None
        shares: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
        if joined.leader == client.member_id and not joined.skip_assignment:
            for partition in range(PARTITIONS):
                shares[sorted(shares)[partition % len(shares)]].append(partition)
        encoded = {member: pack(f">{len(share)}i", *share) for member, share in shares.items()}
        client.syncing = self.it.sync(joined, client.instance, **encoded)
        self.tickets.add(client.syncing)

    def _take_synced(self, client: Client) -> None:
        assert client.syncing is not None
        answer = self.it.answers[client.syncing]
        if isinstance(answer, Synced):
            assert client.joined is not None
            generation = client.joined.generation
            client.syncing = None
            client.owned = list(unpack(f">{len(answer.assignment) // 4}i", answer.assignment))
            for partition in client.owned:
                assert self.owners.setdefault((generation, partition), client.name) == client.name
            self.newest_synced = max(self.newest_synced, generation)
        else:
            assert isinstance(answer, TailraceError)
            self._refused(client, answer)

    def _commit(self, identity: MemberIdentity, partitions: list[int]) -> None:
        try:
            self.it.group.check_commit(identity)
        except TailraceError:
            return
        assert identity.generation >= self.newest_synced, "a fenced member has committed"
        for partition in partitions:
            assert identity.generation >= self.committed.get(partition, 0)
            self.committed[partition] = identity.generation

    def _refused(self, client: Client, error: TailraceError) -> None:
        """Let consumers rejoin, as new members if the group has removed them."""
        client.start_over()
        if isinstance(error, UnknownMemberError | FencedInstanceError):
            client.member_id = ""


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_save_of_an_older_generation_changes_nothing_in_the_newer_one() -> None:
    it = GroupUnderTest()
    first, second = it.join(), it.join()
    it.advance(100)
    it.holds_saves = True
    waiting = [it.sync(it.joined(second)), it.sync(it.joined(first), m1=b"1", m2=b"2")]
    late: list[Save] = list(it.held)
    it.leave("m2")
    again = it.join("m1")
    it.do(it.group.saved(late[0], None))
    assert it.joined(again).generation == 2
    assert it.group.state == "CompletingRebalance"
    assert all(isinstance(it.answers[ticket], TailraceError) for ticket in waiting)
