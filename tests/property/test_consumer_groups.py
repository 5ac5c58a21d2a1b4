"""A group of the consumer protocol under any order of events, and the assignors with any subscriptions."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tailrace.broker.groups.assignment import Assignment, size
from tailrace.broker.groups.assignors import AssignedMember, assign_ranges, assign_uniformly
from tailrace.broker.groups.consumer_group import decode_record, encode_record
from tailrace.model.errors import TailraceError
from tailrace.model.limits import Limits
from tests.support.consumer_groups import REBALANCE_MS, SESSION_MS, ConsumerGroupUnderTest, ObedientConsumer

TOPICS = ("t", "u", "v")
ANY = st.integers(0, 100)
SUBSCRIPTION = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple)
MOST_MEMBERS = 5


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(counts=st.lists(st.integers(1, 6), min_size=2, max_size=2), members=st.integers(1, 3))
    def begin(self, counts: list[int], members: int) -> None:
        self.it = ConsumerGroupUnderTest()
        self.consumers: list[ObedientConsumer] = []
        self.started = 0
        for name, partitions in zip(TOPICS, counts, strict=False):
            self.it.topics.make(name, partitions)
        for _ in range(members):
            self.one_joins(TOPICS[:2], is_static=False)
        self._settle(members)

    @rule(names=SUBSCRIPTION, is_static=st.booleans())
    def one_joins(self, names: tuple[str, ...], is_static: bool) -> None:
        if len(self.consumers) < MOST_MEMBERS:
            self.started += 1
            instance = f"i{self.started}" if is_static else None
            self.consumers.append(ObedientConsumer(self.it, f"c{self.started}", *names, instance=instance))
            self.consumers[-1].heartbeat()

    @rule(which=ANY, is_answered=st.booleans())
    def one_heartbeats(self, which: int, is_answered: bool) -> None:
        for consumer in self._one(which):
            consumer.heartbeat(is_answered=is_answered)

    @rule(which=ANY)
    def one_gives_up_what_it_was_asked_for(self, which: int) -> None:
        for consumer in self._one(which):
            consumer.give_up()

    @rule(rounds=st.integers(1, 3), give_up=st.booleans())
    def all_heartbeat(self, rounds: int, give_up: bool) -> None:
        for _ in range(rounds):
            for consumer in self.consumers:
                if give_up:
                    consumer.give_up()
                consumer.heartbeat()

    @rule(which=ANY, names=SUBSCRIPTION)
    def one_changes_its_subscription(self, which: int, names: tuple[str, ...]) -> None:
        for consumer in self._one(which):
            consumer.subscribe(*names)

    @rule(which=ANY, is_killed=st.booleans())
    def one_goes(self, which: int, is_killed: bool) -> None:
        if len(self.consumers) > 1:
            (consumer,) = self._one(which)
            self.consumers.remove(consumer)
            if consumer.epoch > 0 and not is_killed:
                consumer.leave()

    @rule(which=ANY)
    def a_static_one_restarts(self, which: int) -> None:
        for consumer in self._one(which):
            if consumer.instance is not None and consumer.epoch > 0:
                self.started += 1
                consumer.restart(f"c{self.started}")

    @rule(milliseconds=st.sampled_from([100, 5_000, REBALANCE_MS - 1, REBALANCE_MS + 1]))
    def time_passes(self, milliseconds: int) -> None:
        self.it.advance(milliseconds)
        for consumer in self.consumers:
            # Who did not give up in time is removed, and learns it now.
            consumer.heartbeat()

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 8))
    def a_topic_is_made_or_extended(self, name: str, partitions: int) -> None:
        there = self.it.topics.find(name)
        if there is None:
            self.it.topics.make(name, partitions)
        elif len(there.partitions) < partitions:
            self.it.topics.extend(name, partitions)

    @rule(name=st.sampled_from(TOPICS))
    def a_topic_is_deleted(self, name: str) -> None:
        if self.it.topics.find(name) is not None:
            self.it.topics.delete(name)

    @rule()
    def the_server_is_killed(self) -> None:
        self.it.restart()

    @rule(which=ANY)
    def the_server_is_killed_before_a_change_is_durable(self, which: int) -> None:
        for consumer in self._one(which):
            consumer.heartbeat(is_answered=False, is_stored=False)
            self.it.restart()

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        readers = Counter(each for consumer in getattr(self, "consumers", ()) for each in consumer.partitions)
        assert [each for each, count in readers.items() if count > 1] == []

    @invariant()
    def no_member_is_ahead_of_its_group(self) -> None:
        epoch = max((consumer.epoch for consumer in getattr(self, "consumers", ())), default=0)
        assert not hasattr(self, "it") or self.it.group.epoch >= epoch

    def teardown(self) -> None:
        if not hasattr(self, "it"):
            return
        # Those who were killed are removed when their sessions end.
        for _ in range(12):
            self._settle(1)
            self.it.advance(SESSION_MS // 9)
        self._settle(2 * MOST_MEMBERS)
        wanted = {name for consumer in self.consumers for name in consumer.names}
        read = Counter(each for consumer in self.consumers for each in consumer.partitions)
        assert read == Counter(self.it.topics.partitions(*sorted(wanted)))
        assert self.it.group.state == "Stable"

    def _settle(self, rounds: int) -> None:
        for _ in range(rounds):
            self.all_heartbeat(2, give_up=True)

    def _one(self, which: int) -> tuple[ObedientConsumer]:
        return (self.consumers[which % len(self.consumers)],)


TestConsumerGroups = ConsumerGroupMachine.TestCase
TestConsumerGroups.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


UUIDS = [UUID(int=number) for number in range(1, 6)]
TOPIC_SIZES = st.dictionaries(st.sampled_from(UUIDS), st.integers(1, 9), max_size=len(UUIDS))
SUBSCRIPTIONS = st.lists(st.frozensets(st.sampled_from(UUIDS)), min_size=1, max_size=6)


def members_of(subscriptions: list[frozenset[UUID]], sizes: dict[UUID, int]) -> dict[str, AssignedMember]:
    return {f"m{place}": AssignedMember(frozenset(topics & sizes.keys()), {}) for place, topics in enumerate(subscriptions)}


def check_complete(
    assigned: dict[str, Assignment], members: dict[str, AssignedMember], sizes: dict[UUID, int]
) -> dict[str, int]:
    """Check that each partition that somebody subscribes to has one owner, who does. Return the loads."""
    wanted = frozenset[UUID]().union(*(member.topics for member in members.values()))
    owners = Counter((topic, number) for own in assigned.values() for topic, numbers in own.items() for number in numbers)
    assert owners == Counter((topic, number) for topic in wanted for number in range(sizes[topic]))
    assert all(own.keys() <= members[member_id].topics for member_id, own in assigned.items())
    return {member_id: size(own) for member_id, own in assigned.items()}


@given(SUBSCRIPTIONS, TOPIC_SIZES)
def test_uniform_gives_each_partition_to_one_subscriber_so_that_no_move_makes_it_more_even(
    subscriptions: list[frozenset[UUID]], sizes: dict[UUID, int]
) -> None:
    members = members_of(subscriptions, sizes)
    assigned = assign_uniformly(members, sizes)
    load = check_complete(assigned, members, sizes)
    for giver, own in assigned.items():
        for taker, member in members.items():
            assert load[giver] - load[taker] <= 1 or own.keys().isdisjoint(member.topics)


@given(st.integers(1, 8), TOPIC_SIZES, st.integers(0, 8))
def test_uniform_moves_no_more_than_the_balance_asks_for(count: int, sizes: dict[UUID, int], later: int) -> None:
    topics = frozenset(sizes)
    before = assign_uniformly({f"m{number}": AssignedMember(topics, {}) for number in range(count)}, sizes)
    members = {f"m{number}": AssignedMember(topics, before.get(f"m{number}", {})) for number in range(max(1, later))}
    after = assign_uniformly(members, sizes)
    loads = sorted(check_complete(after, members, sizes).values())
    assert loads[-1] - loads[0] <= 1
    kept = sum(
        len(numbers & after[member_id].get(topic, frozenset()))
        for member_id, member in members.items()
        for topic, numbers in member.previous.items()
    )
    share, extra = divmod(sum(sizes.values()), len(members))
    had = sorted((size(member.previous) for member in members.values()), reverse=True)
    assert kept == sum(min(each, share + (place < extra)) for place, each in enumerate(had))


@given(SUBSCRIPTIONS, TOPIC_SIZES)
def test_uniform_changes_nothing_when_nothing_has_changed(subscriptions: list[frozenset[UUID]], sizes: dict[UUID, int]) -> None:
    members = members_of(subscriptions, sizes)
    first = assign_uniformly(members, sizes)
    again = {member_id: member._replace(previous=first[member_id]) for member_id, member in members.items()}
    assert assign_uniformly(again, sizes) == first


@given(SUBSCRIPTIONS, TOPIC_SIZES)
def test_range_gives_each_subscriber_consecutive_partitions_of_a_topic(
    subscriptions: list[frozenset[UUID]], sizes: dict[UUID, int]
) -> None:
    members = members_of(subscriptions, sizes)
    assigned = assign_ranges(members, sizes)
    check_complete(assigned, members, sizes)
    for topic, partitions in sizes.items():
        shares = [
            sorted(assigned[member_id].get(topic, ())) for member_id in sorted(members) if topic in members[member_id].topics
        ]
        assert [number for share in shares for number in share] == (list(range(partitions)) if shares else [])
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1


@dataclass
class Liar:
    """A client that says anything."""

    it: ConsumerGroupUnderTest
    random: Random

    def speak(self) -> None:
        random = self.random
        names = ("a", "b", "c", "d", "")
        topics = [UUID(int=number) for number in range(1, 4)]
        owned = {topic: frozenset(random.sample(range(9), random.randint(0, 4))) for topic in random.sample(topics, 2)}
        with suppress(TailraceError):
            self.it.send(
                random.choice(names),
                random.choice((0, 0, -1, -2, self.it.group.epoch, self.it.group.epoch, self.it.group.epoch - 1, 1 << 30)),
                names=random.choice((None, ("t",), ("t", "u"), ("gone",), ())),
                pattern=random.choice((None, None, "", "t|u")),
                owned=random.choice((None, {}, owned)),
                instance=random.choice((None, None, None, "i", "j")),
                rebalance_ms=random.choice((None, 0, REBALANCE_MS)),
                assignor=random.choice((None, None, "range", "uniform")),
                is_stored=random.random() < 0.9,
            )


@given(st.integers(0, 1 << 32).map(Random))
@settings(max_examples=200)
def test_no_lie_makes_a_partition_belong_to_two_members_or_an_epoch_go_back(random: Random) -> None:
    it = ConsumerGroupUnderTest(Limits(group_members=4))
    for name in TOPICS[:2]:
        it.topics.make(name, 4)
    liar = Liar(it, random)
    durable_epoch = 0
    for _ in range(60):
        liar.speak()
        if random.random() < 0.1:
            it.advance(random.choice((100, REBALANCE_MS, SESSION_MS)))
        if random.random() < 0.1:
            it.restart()
        if random.random() < 0.1:
            it.topics.extend("t", len(it.topics.partitions("t")) + 1)
        assert it.group.epoch >= durable_epoch
        record = it.group.record()
        durable_epoch = 0 if it.durable is None else (decode_record(it.durable) or record).epoch
        owners = Counter(
            (topic, number)
            for member in record.members
            for partitions in (*member.assigned, *member.revoking)
            for topic, numbers in (partitions,)
            for number in numbers
        )
        assert all(count == 1 for count in owners.values())
        assert len(record.members) <= 4
        assert decode_record(encode_record(record)) == record
