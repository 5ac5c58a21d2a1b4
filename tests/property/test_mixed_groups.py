"""A group that goes from one protocol to the other and back, under any order of events: no partition has two readers."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.mixed_groups import GROUP, REBALANCE_MS, ClassicClient, ConsumerClient, GroupServer, MixedClient

ANY = st.integers(0, 100)
MOST_MEMBERS = 5


class MixedGroupMachine(RuleBasedStateMachine):
    @initialize(partitions=st.integers(1, 6), is_cooperative=st.booleans(), classic=st.integers(0, 3), new=st.integers(0, 2))
    def begin(self, partitions: int, is_cooperative: bool, classic: int, new: int) -> None:
        self.it = GroupServer(partitions)
        self.is_cooperative = is_cooperative
        self.clients: list[MixedClient] = []
        self.started = 0
        for _ in range(classic):
            self.a_classic_one_joins(is_static=False)
        self._settle(2)
        for _ in range(new):
            self.one_joins(is_static=False)
        self._settle(2)

    @rule(is_static=st.booleans())
    def a_classic_one_joins(self, is_static: bool) -> None:
        if len(self.clients) < MOST_MEMBERS:
            instance = self._new_name("i") if is_static else None
            self._start(ClassicClient(self.it, is_cooperative=self.is_cooperative, instance=instance))

    @rule(is_static=st.booleans())
    def one_joins(self, is_static: bool) -> None:
        if len(self.clients) < MOST_MEMBERS:
            self._start(ConsumerClient(self.it, self._new_name("c"), self._new_name("i") if is_static else None))

    @rule(which=ANY)
    def one_goes_on(self, which: int) -> None:
        for client in self._one(which):
            client.step()

    @rule(which=ANY)
    def one_gives_up_what_it_was_asked_for(self, which: int) -> None:
        for client in self._one(which):
            client.give_up()

    @rule(rounds=st.integers(1, 3), give_up=st.booleans())
    def all_go_on(self, rounds: int, give_up: bool) -> None:
        for _ in range(rounds):
            for client in self.clients:
                if give_up:
                    client.give_up()
                client.step()

    @rule(which=ANY)
    def an_answer_is_lost(self, which: int) -> None:
        for client in self._one(which):
            client.step()
            client.lose_answer()

    @rule(which=ANY, is_killed=st.booleans())
    def one_goes(self, which: int, is_killed: bool) -> None:
        for client in self._one(which):
            self.clients.remove(client)
            client.lose_answer()
            if not is_killed:
                client.leave()

    @rule(which=ANY)
    def a_static_one_restarts_with_the_other_protocol(self, which: int) -> None:
        for client in self._one(which):
            if client.instance is None:
                continue
            self.clients.remove(client)
            client.lose_answer()
            if isinstance(client, ClassicClient):
                self._start(ConsumerClient(self.it, self._new_name("c"), client.instance))
            else:
                self._start(ClassicClient(self.it, is_cooperative=self.is_cooperative, instance=client.instance))

    @rule(milliseconds=st.sampled_from([100, 3_000, 9_000, REBALANCE_MS + 1]))
    def time_passes(self, milliseconds: int) -> None:
        while milliseconds > 0:
            self.it.advance(min(milliseconds, 3_000))
            milliseconds -= 3_000
            # Who did not do in time what it was asked to is removed, and learns it now.
            for client in self.clients:
                client.step()

    @rule()
    def the_disk_is_slow(self) -> None:
        self.it.store.close_gate()

    @rule(settled=st.integers(1, 3))
    def some_writes_are_done(self, settled: int) -> None:
        self.it.store.settle(settled)
        self.it.turn()

    @rule()
    def the_disk_is_fast(self) -> None:
        self.it.store.open_gate()
        self.it.turn()

    @rule()
    def the_disk_fails(self) -> None:
        self.it.store.fail()
        self.it.turn()

    @rule(settled=st.integers(0, 3))
    def the_server_is_killed(self, settled: int) -> None:
        self.it.kill(settled)

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        readers = Counter(each for client in getattr(self, "clients", ()) for each in client.reading)
        assert [each for each, count in readers.items() if count > 1] == []

    @precondition(lambda self: bool(getattr(self, "clients", ())))
    @rule()
    def the_group_is_described(self) -> None:
        for listing in self.it.broker.groups.all():
            described = self.it.broker.groups.describe(listing.name)
            assert (described.state, described.group_type) == (listing.state, listing.group_type)
            if described.group_type == "consumer":
                members = self.it.broker.consumer_groups.describe(GROUP).members
                assert not members or not all(member.is_classic for member in members)

    def teardown(self) -> None:
        if not hasattr(self, "it"):
            return
        try:
            self._check_end()
        finally:
            self.it.close()

    def _check_end(self) -> None:
        self.the_disk_is_fast()
        # Those who were killed are removed when their sessions end.
        for _ in range(20):
            self._settle(1)
        self._settle(4 * MOST_MEMBERS)
        if not self.clients:
            return
        read = Counter(each for client in self.clients for each in client.reading)
        assert read == Counter(range(self.it.partitions))
        described = self.it.broker.groups.describe(GROUP)
        assert (described.state, len(described.members)) == ("Stable", len(self.clients))
        is_classic = all(isinstance(client, ClassicClient) for client in self.clients)
        assert described.group_type == ("classic" if is_classic else "consumer")
        for client in self.clients:
            self.it.broker.groups.check_commit(GROUP, client.identity)

    def _settle(self, rounds: int) -> None:
        for _ in range(rounds):
            self.it.advance(3_000)
            for _ in range(3):
                self.all_go_on(1, give_up=True)
            self.no_partition_has_two_readers()

    def _start(self, client: MixedClient) -> None:
        self.clients.append(client)
        client.step()

    def _new_name(self, kind: str) -> str:
        self.started += 1
        return f"{kind}{self.started}"

    def _one(self, which: int) -> tuple[MixedClient, ...]:
        return (self.clients[which % len(self.clients)],) if self.clients else ()


TestMixedGroups = MixedGroupMachine.TestCase
TestMixedGroups.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
