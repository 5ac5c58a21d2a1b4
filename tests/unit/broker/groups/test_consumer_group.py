"""One group of the consumer protocol: epochs, targets, hand-over, timeouts, static members and bounds."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from tailrace.broker.groups.assignment import is_within, size, together
from tailrace.model.errors import (
    FencedInstanceError,
    FencedMemberEpochError,
    GroupFullError,
    LimitExceededError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnreleasedInstanceError,
)
from tailrace.model.group import GroupState, MemberIdentity
from tailrace.model.limits import Limits
from tests.support.consumer_groups import REBALANCE_MS, SESSION_MS, ConsumerGroupUnderTest


def group_of_topic(partitions: int, limits: Limits | None = None) -> tuple[ConsumerGroupUnderTest, UUID]:
    it = ConsumerGroupUnderTest() if limits is None else ConsumerGroupUnderTest(limits)
    return it, it.topics.make("t", partitions)


def state_of(it: ConsumerGroupUnderTest) -> GroupState:
    return it.group.state


def numbers(*of: int) -> frozenset[int]:
    return frozenset(of)


def test_the_first_member_gets_all_partitions_at_once() -> None:
    it, topic = group_of_topic(3)
    joined = it.join("a")
    assert (joined.epoch, joined.assigned) == (1, {topic: numbers(0, 1, 2)})
    assert it.group.state == "Stable"


def test_a_partition_is_assigned_only_after_its_owner_has_given_it_up() -> None:
    it, topic = group_of_topic(2)
    it.join("a")
    assert it.join("b").assigned == {}
    assert state_of(it) == "Reconciling"
    asked = it.send("a", 1)
    assert (asked.epoch, asked.assigned) == (1, {topic: numbers(0)})
    assert it.send("b", 2).assigned is None
    still = it.send("a", 1, owned={topic: numbers(0, 1)})
    assert (still.epoch, still.assigned) == (1, None)
    assert it.send("b", 2).assigned is None
    assert it.send("a", 1, owned={topic: numbers(0)}).epoch == 2
    assert it.send("b", 2).assigned == {topic: numbers(1)}
    assert state_of(it) == "Stable"


def test_a_heartbeat_without_news_is_answered_without_an_assignment() -> None:
    it, _ = group_of_topic(1)
    it.join("a")
    version = it.group.version
    assert it.send("a", 1).assigned is None
    assert it.group.version == version


def test_a_complete_heartbeat_is_answered_with_the_assignment() -> None:
    it, topic = group_of_topic(1)
    it.join("a")
    again = it.send("a", 1, names=("t",), owned={topic: numbers(0)}, rebalance_ms=REBALANCE_MS)
    assert again.assigned == {topic: numbers(0)}


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    it, topic = group_of_topic(2)
    it.join("a", rebalance_ms=10_000)
    it.join("b")
    it.send("a", 1)
    it.advance(9_999)
    it.send("a", 1)
    it.advance(1)
    with pytest.raises(UnknownMemberError):
        it.send("a", 1)
    assert it.send("b", 2).assigned == {topic: numbers(0, 1)}


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    it, topic = group_of_topic(2)
    it.join("a")
    it.join("b")
    it.advance(SESSION_MS - 1)
    it.send("b", 2)
    it.advance(1)
    assert [member.member_id for member in it.group.members] == ["b"]
    assert it.send("b", 2).assigned == {topic: numbers(0, 1)}


def test_a_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    it, topic = group_of_topic(1)
    it.join("a")
    it.join("b")
    left = it.send("a", -1)
    assert (left.member_id, left.epoch) == ("a", -1)
    assert it.send("b", 2).assigned == {topic: numbers(0)}
    it.send("b", -1)
    assert it.group.state == "Empty"


@pytest.mark.parametrize("epoch", [2, 5])
def test_a_member_with_an_epoch_from_the_future_is_fenced(epoch: int) -> None:
    it, _ = group_of_topic(1)
    it.join("a")
    with pytest.raises(FencedMemberEpochError):
        it.send("a", epoch)


def test_the_epoch_before_is_taken_if_the_answer_was_lost() -> None:
    it, topic = group_of_topic(2)
    it.join("a")
    assert it.join("a").epoch == 1
    it.topics.extend("t", 4)
    assert it.send("a", 1).epoch == 2
    again = it.send("a", 1, owned={topic: numbers(0, 1)}, names=("t",), rebalance_ms=REBALANCE_MS)
    assert (again.epoch, again.assigned) == (2, {topic: numbers(0, 1, 2, 3)})
    with pytest.raises(FencedMemberEpochError):
        it.send("a", 1, owned={topic: numbers(0, 1, 9)})
    it.topics.extend("t", 5)
    it.send("a", 2)
    with pytest.raises(FencedMemberEpochError):
        it.send("a", 1, owned={topic: numbers(0, 1)})


def test_a_member_that_joins_again_is_told_what_it_has_and_gives_up_nothing_by_that() -> None:
    it, topic = group_of_topic(2)
    it.join("a")
    it.join("b")
    it.send("a", 1)
    again = it.join("a")
    assert (again.epoch, again.assigned) == (1, {topic: numbers(0)})
    assert it.send("b", 2).assigned is None
    it.send("a", 1, owned={topic: numbers(0)})
    assert it.send("b", 2).assigned == {topic: numbers(1)}
    assert it.join("a").epoch == 2
    assert it.group.epoch == 2


def test_only_a_member_with_its_epoch_may_commit() -> None:
    it, _ = group_of_topic(1)
    it.group.check_commit(MemberIdentity())
    it.join("a")
    it.group.check_commit(MemberIdentity("a", 1))
    it.group.check_commit(MemberIdentity(), in_transaction=True)
    for identity, error in (
        (MemberIdentity("a", 0), StaleMemberEpochError),
        (MemberIdentity("a", 2), StaleMemberEpochError),
        (MemberIdentity("b", 1), UnknownMemberError),
        (MemberIdentity(), UnknownMemberError),
    ):
        with pytest.raises(error):
            it.group.check_commit(identity)


def test_topics_that_are_made_extended_and_deleted_lead_to_a_new_target() -> None:
    it, topic = group_of_topic(1)
    it.join("a", "t", "u")
    other = it.topics.make("u", 2)
    assert it.send("a", 1).assigned == {topic: numbers(0), other: numbers(0, 1)}
    it.topics.extend("t", 2)
    assert it.send("a", 2).assigned == {topic: numbers(0, 1), other: numbers(0, 1)}
    it.topics.delete("u")
    asked = it.send("a", 3)
    assert (asked.epoch, asked.assigned) == (3, {topic: numbers(0, 1)})
    assert it.send("a", 3, owned={topic: numbers(0, 1)}).epoch == 4
    it.topics.make("unrelated", 1)
    assert it.send("a", 4).epoch == 4


def test_a_topic_that_is_made_again_is_another_topic() -> None:
    it, before = group_of_topic(1)
    it.join("a")
    it.topics.delete("t")
    after = it.topics.make("t", 1)
    asked = it.send("a", 1)
    assert (asked.epoch, asked.assigned) == (1, {})
    assert it.send("a", 1, owned={}).assigned == {after: numbers(0)}
    assert before != after


def test_a_pattern_follows_the_topics_that_match() -> None:
    it, topic = group_of_topic(1)
    joined = it.join("a", pattern="t|u")
    assert joined.assigned == {topic: numbers(0)}
    other = it.topics.make("u", 1)
    assert it.send("a", 1).assigned == {topic: numbers(0), other: numbers(0)}
    assert it.group.subscribes_to("u")
    assert not it.group.subscribes_to("v")
    assert it.send("a", 2, pattern="", names=("t",)).assigned == {topic: numbers(0)}
    assert not it.group.subscribes_to("u")


def test_most_members_decide_on_the_assignor_and_the_default_is_uniform() -> None:
    it, _ = group_of_topic(4)
    it.join("a")
    assert it.group.assignor == "uniform"
    it.join("b", assignor="range")
    it.join("c", assignor="range")
    it.join("d", assignor="uniform")
    assert it.group.assignor == "range"
    it.send("b", -1)
    it.send("c", -1)
    assert it.group.assignor == "uniform"


class TestStaticMembers:
    def test_it_gets_its_partitions_back_and_the_others_notice_nothing(self) -> None:
        it, topic = group_of_topic(2)
        it.join("a", instance="i")
        it.join("b")
        it.send("a", 1, instance="i")
        it.send("a", 1, instance="i", owned={topic: numbers(0)})
        assert it.send("b", 2).assigned == {topic: numbers(1)}
        assert it.send("a", -2, instance="i").epoch == -2
        assert it.send("b", 2).assigned is None
        back = it.join("a2", instance="i")
        assert (back.member_id, back.epoch, back.assigned) == ("a2", 2, {topic: numbers(0)})
        assert (it.group.epoch, it.send("b", 2).assigned) == (2, None)

    def test_the_client_before_is_fenced(self) -> None:
        it, _ = group_of_topic(1)
        it.join("a", instance="i")
        it.send("a", -2, instance="i")
        it.join("a2", instance="i")
        for epoch in (1, -1, -2):
            with pytest.raises(FencedInstanceError):
                it.send("a", epoch, instance="i")
        with pytest.raises(UnknownMemberError):
            it.send("a", 1)

    def test_its_name_is_taken_until_it_leaves_or_its_session_ends(self) -> None:
        it, topic = group_of_topic(1)
        it.join("a", instance="i")
        with pytest.raises(UnreleasedInstanceError):
            it.join("b", instance="i")
        it.advance(SESSION_MS)
        assert it.join("b", instance="i").assigned == {topic: numbers(0)}

    def test_its_place_is_lost_if_it_is_not_back_before_its_session_ends(self) -> None:
        it, topic = group_of_topic(1)
        it.join("a", instance="i")
        it.join("b")
        it.advance(SESSION_MS - 1)
        it.send("a", -2, instance="i")
        it.send("b", 2)
        it.advance(SESSION_MS)
        assert [member.member_id for member in it.group.members] == []
        assert it.join("c").assigned == {topic: numbers(0)}

    def test_it_can_leave_for_good(self) -> None:
        it, topic = group_of_topic(1)
        it.join("a", instance="i")
        it.send("a", -1, instance="i")
        assert it.join("b").assigned == {topic: numbers(0)}

    def test_it_can_come_back_as_the_same_member(self) -> None:
        it, topic = group_of_topic(1)
        it.join("a", instance="i")
        it.send("a", -2, instance="i")
        assert it.join("a", instance="i").assigned == {topic: numbers(0)}


def test_a_full_group_takes_no_new_member() -> None:
    it, _ = group_of_topic(1, Limits(group_members=1))
    it.join("a")
    with pytest.raises(GroupFullError):
        it.join("b")
    assert it.send("a", 1).epoch == 1


def test_what_a_group_keeps_has_a_bound() -> None:
    it, _ = group_of_topic(1, Limits(group_state_bytes=200))
    it.join("a")
    with pytest.raises(LimitExceededError, match="group_state_bytes"):
        it.join("b", "t" * 200)
    assert [member.member_id for member in it.group.members] == ["a"]


@pytest.mark.parametrize("owned", [{}, None])
def test_a_restarted_server_goes_on_where_it_was(owned: Mapping[UUID, frozenset[int]] | None) -> None:
    it, topic = group_of_topic(2)
    it.join("a", instance="i")
    it.join("b")
    it.send("a", 1, instance="i")
    described = [member.record() for member in it.group.members]
    it.restart()
    assert [member.record() for member in it.group.members] == described
    assert (it.group.epoch, it.group.state) == (2, "Reconciling")
    it.advance(REBALANCE_MS - 1)
    assert it.send("b", 2, owned=owned).assigned is None
    it.send("a", 1, instance="i", owned={topic: numbers(0)})
    assert it.send("b", 2).assigned == {topic: numbers(1)}


def test_a_member_that_leaves_a_restarted_server_first_moves_nothing_of_the_others() -> None:
    it = ConsumerGroupUnderTest()
    for name in "tuv":
        it.topics.make(name, 4)
    for name in "abc":
        it.join(name, pattern="t|u|v")
    for _ in range(3):
        for member in it.group.members:
            it.send(member.member_id, member.progress.epoch, owned=member.progress.assigned)
    before = {member.member_id: member.progress.assigned for member in it.group.members}
    assert all(before.values())
    it.restart()
    assert it.group.subscribes_to("u")
    it.send("c", -1)
    for member in it.group.members:
        assert is_within(before[member.member_id], member.target)
    assert size(together(*(member.target for member in it.group.members))) == 12


def test_a_restarted_server_sees_topics_that_changed_while_it_was_down() -> None:
    it, topic = group_of_topic(1)
    it.join("a", pattern="t|u")
    it.topics.make("u", 1)
    it.restart()
    assert len(it.send("a", 1).assigned or ()) == 2
    it.restart()
    assert it.send("a", 2).epoch == 2
    assert it.group.state == "Stable"
    assert it.topics.find_by_uuid(topic) is not None
