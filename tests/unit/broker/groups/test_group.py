"""The state machine of one group, step by step with a manual clock."""

import pytest

from tailrace.broker.groups.coordinator import describe
from tailrace.broker.groups.removal import subscribes_to
from tailrace.model.errors import (
    FencedInstanceError,
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    InvalidSessionTimeoutError,
    LimitExceededError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    StorageFullError,
    UnknownMemberError,
)
from tailrace.model.group import Joined, MemberIdentity
from tailrace.model.limits import Limits
from tests.support.groups import DELAY_MS, REBALANCE_MS, SESSION_MS, GroupUnderTest, subscription


@pytest.fixture
def it() -> GroupUnderTest:
    return GroupUnderTest()


def who(joined: Joined, instance: str | None = None) -> MemberIdentity:
    return MemberIdentity(joined.member_id, joined.generation, instance)


def test_members_that_come_together_share_the_first_generation(it: GroupUnderTest) -> None:
    first, second = it.join(), it.join()
    assert it.answers == {}
    it.advance(DELAY_MS)
    leader, follower = it.joined(first), it.joined(second)
    assert (leader.generation, leader.leader, leader.member_id) == (1, "m1", "m1")
    assert [member.member_id for member in leader.members] == ["m1", "m2"]
    assert follower.members == ()
    assert it.group.state == "CompletingRebalance"


def test_each_new_member_extends_the_first_rebalance(it: GroupUnderTest) -> None:
    it.join()
    it.advance(DELAY_MS - 1)
    it.join()
    it.advance(DELAY_MS - 1)
    assert it.answers == {}
    it.advance(1)
    assert len(it.answers) == 2


def test_assignments_are_sent_once_they_are_durable(it: GroupUnderTest) -> None:
    first, second = it.join(), it.join()
    it.advance(DELAY_MS)
    it.holds_saves = True
    follower = it.sync(it.joined(second))
    leader = it.sync(it.joined(first), m1=b"one", m2=b"two")
    assert follower not in it.answers
    assert leader not in it.answers
    it.settle()
    assert (it.synced(leader).assignment, it.synced(follower).assignment) == (b"one", b"two")
    assert it.group.state == "Stable"
    assert it.records[-1].generation == 1


def test_assignments_that_can_not_be_saved_make_all_members_rejoin(it: GroupUnderTest) -> None:
    first, second = it.join(), it.join()
    it.advance(DELAY_MS)
    it.holds_saves = True
    tickets = [it.sync(it.joined(second)), it.sync(it.joined(first), m1=b"one")]
    it.settle(StorageFullError("full"))
    assert [type(it.answers[ticket]) for ticket in tickets] == [StorageFullError, StorageFullError]
    assert it.group.state == "PreparingRebalance"


def test_a_new_member_gets_its_id_before_it_joins(it: GroupUnderTest) -> None:
    told = it.answers[it.join(asks_for_id_first=True)]
    assert isinstance(told, MemberIdRequiredError)
    assert len(it.group.members) == 0
    again = it.join(told.member_id, asks_for_id_first=True)
    it.advance(DELAY_MS)
    assert it.joined(again).member_id == told.member_id


def test_an_unused_member_id_expires(it: GroupUnderTest) -> None:
    it.join(asks_for_id_first=True)
    assert not it.group.is_disposable
    it.advance(SESSION_MS)
    assert it.group.is_disposable
    assert isinstance(it.answers[it.join("m1")], UnknownMemberError)


def test_a_rebalance_waits_for_members_that_were_given_an_id(it: GroupUnderTest) -> None:
    (member,) = it.stable(None)
    it.join(asks_for_id_first=True)
    again = it.join(member.member_id, protocols=[("range", subscription("t", "u"))])
    assert again not in it.answers
    it.join("m2")
    assert it.joined(again).generation == 2


def test_a_new_member_makes_the_others_rejoin(it: GroupUnderTest) -> None:
    (old,) = it.stable(None)
    newcomer = it.join()
    with pytest.raises(RebalanceInProgressError):
        it.group.heartbeat(who(old))
    again = it.join(old.member_id)
    assert it.joined(again).generation == it.joined(newcomer).generation == 2


def test_a_member_that_does_not_rejoin_in_time_is_removed(it: GroupUnderTest) -> None:
    first, second = it.stable(None, None)
    again = it.join(first.member_id)
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        it.advance(SESSION_MS // 2)
        if second.member_id in it.group.members:
            with pytest.raises(RebalanceInProgressError):
                it.group.heartbeat(who(second))
    assert [member.member_id for member in it.joined(again).members] == [first.member_id]
    with pytest.raises(UnknownMemberError):
        it.group.heartbeat(who(second))


def test_a_member_without_heartbeats_is_removed_when_its_session_ends(it: GroupUnderTest) -> None:
    first, second = it.stable(None, None)
    it.advance(SESSION_MS - 1)
    it.group.heartbeat(who(first))
    it.advance(1)
    assert it.group.state == "PreparingRebalance"
    with pytest.raises(UnknownMemberError):
        it.group.heartbeat(who(second))
    assert it.joined(it.join(first.member_id)).generation == 2


def test_a_group_that_all_have_left_is_empty_in_a_new_generation(it: GroupUnderTest) -> None:
    first, second = it.stable(None, None)
    it.leave(first.member_id)
    it.leave(second.member_id)
    assert (it.group.state, it.group.generation) == ("Empty", 2)
    assert it.records[-1].members == ()
    assert it.group.next_due_ms() is None


def test_a_member_that_leaves_while_it_waits_gets_a_response(it: GroupUnderTest) -> None:
    ticket = it.join()
    it.leave("m1")
    assert isinstance(it.answers[ticket], UnknownMemberError)
    assert it.group.state == "Empty"


def test_a_member_that_never_syncs_is_removed(it: GroupUnderTest) -> None:
    first, second = it.join(), it.join()
    it.advance(DELAY_MS)
    waiting = it.sync(it.joined(second))
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        it.group.heartbeat(who(it.joined(first)))
        it.advance(SESSION_MS // 2)
        if waiting in it.answers:
            break
    assert isinstance(it.answers[waiting], RebalanceInProgressError)
    assert "m1" not in it.group.members
    assert it.joined(it.join("m2")).leader == "m2"


def test_another_generation_than_the_present_one_is_rejected(it: GroupUnderTest) -> None:
    (member,) = it.stable(None)
    late = who(member)._replace(generation=0)
    with pytest.raises(IllegalGenerationError):
        it.group.heartbeat(late)
    with pytest.raises(IllegalGenerationError):
        it.group.check_commit(late)
    assert isinstance(it.answers[it.sync(member._replace(generation=0))], IllegalGenerationError)


def test_a_lost_join_response_is_sent_again(it: GroupUnderTest) -> None:
    _, follower = it.stable(None, None)
    assert it.joined(it.join(follower.member_id)) == follower
    assert it.group.state == "Stable"


def test_a_leader_that_rejoins_starts_a_rebalance(it: GroupUnderTest) -> None:
    leader, _ = it.stable(None, None)
    it.join(leader.member_id)
    assert it.group.state == "PreparingRebalance"


def test_a_changed_subscription_starts_a_rebalance(it: GroupUnderTest) -> None:
    _, follower = it.stable(None, None)
    it.join(follower.member_id, protocols=[("range", subscription("t", "u"))])
    assert it.group.state == "PreparingRebalance"


def test_a_repeated_join_answers_the_first_one(it: GroupUnderTest) -> None:
    first = it.join()
    second = it.join("m1")
    assert isinstance(it.answers[first], RebalanceInProgressError)
    it.advance(DELAY_MS)
    assert it.joined(second).generation == 1


def test_the_protocol_with_most_votes_wins(it: GroupUnderTest) -> None:
    said = subscription("t")
    tickets = [
        it.join(protocols=[("range", said), ("sticky", said)]),
        it.join(protocols=[("sticky", said), ("range", said)]),
        it.join(protocols=[("own", said), ("sticky", said), ("range", said)]),
    ]
    it.advance(DELAY_MS)
    assert {it.joined(ticket).protocol for ticket in tickets} == {"sticky"}


def test_a_member_without_a_common_protocol_is_rejected(it: GroupUnderTest) -> None:
    it.stable(None)
    assert isinstance(it.answers[it.join(protocols=[("sticky", b"")])], InconsistentProtocolError)
    assert isinstance(it.answers[it.join(protocol_type="connect")], InconsistentProtocolError)
    assert isinstance(it.answers[it.join(protocols=[])], InconsistentProtocolError)
    assert it.group.state == "Stable"


@pytest.mark.parametrize("session_ms", [0, 5_999, 1_800_001])
def test_a_session_out_of_bounds_is_rejected(it: GroupUnderTest, session_ms: int) -> None:
    assert isinstance(it.answers[it.join(session_ms=session_ms)], InvalidSessionTimeoutError)


def test_a_long_rebalance_time_out_is_cut_and_a_missing_one_is_the_session(it: GroupUnderTest) -> None:
    it.join(rebalance_ms=2**31 - 1)
    assert it.group.members.rebalance_timeout_ms == 3_600_000
    it.join("m1", rebalance_ms=-1)
    assert it.group.members.rebalance_timeout_ms == SESSION_MS


def test_a_full_group_rejects_new_members() -> None:
    it = GroupUnderTest(Limits(group_members=2))
    it.stable(None, None)
    assert isinstance(it.answers[it.join()], GroupFullError)
    assert it.group.state == "Stable"


def test_promised_member_ids_are_bounded() -> None:
    it = GroupUnderTest(Limits(group_members=2))
    told = [it.answers[it.join(asks_for_id_first=True)] for _ in range(3)]
    assert [type(answer) for answer in told] == [MemberIdRequiredError, MemberIdRequiredError, GroupFullError]


def test_the_metadata_of_members_is_bounded() -> None:
    it = GroupUnderTest(Limits(group_state_bytes=1_000))
    assert isinstance(it.answers[it.join(protocols=[("range", bytes(1_001))])], LimitExceededError)
    assert isinstance(it.answers[it.join(instance="a" * 1_001)], LimitExceededError)
    assert isinstance(it.answers[it.join(protocol_type="a" * 1_001)], LimitExceededError)
    (member,) = [it.join()]
    it.advance(DELAY_MS)
    assert isinstance(it.answers[it.sync(it.joined(member), m1=bytes(1_001))], LimitExceededError)


def test_a_static_member_that_restarts_keeps_its_assignment_without_a_rebalance(it: GroupUnderTest) -> None:
    before = it.stable("a", "b")[1]
    after = it.joined(it.join(instance="b", protocols=[("range", subscription("t", tail=b"owned"))]))
    assert (after.generation, after.leader) == (1, "m1")
    assert after.member_id not in ("m1", before.member_id)
    assert it.synced(it.sync(after, "b")).assignment == b"m2"
    assert it.group.state == "Stable"
    assert {member.member_id for member in it.records[-1].members} == {"m1", after.member_id}


def test_a_static_leader_that_restarts_is_not_asked_to_assign(it: GroupUnderTest) -> None:
    it.stable("a", "b")
    old_client = it.joined(it.join(instance="a"))
    assert old_client.leader == "m1" != old_client.member_id
    new_client = it.joined(it.join(instance="a", can_skip_assignment=True))
    assert new_client.leader == new_client.member_id
    assert new_client.skip_assignment
    assert len(new_client.members) == 2
    assert it.synced(it.sync(new_client, "a")).assignment == b"m1"


def test_the_earlier_owner_of_an_instance_id_is_fenced(it: GroupUnderTest) -> None:
    before = it.stable("a")[0]
    it.join(instance="a")
    for attempt in (it.group.heartbeat, it.group.check_commit):
        with pytest.raises(FencedInstanceError):
            attempt(who(before, "a"))
    assert isinstance(it.answers[it.sync(before, "a")], FencedInstanceError)
    assert isinstance(it.answers[it.join(before.member_id, instance="a")], FencedInstanceError)


def test_a_waiting_join_of_an_instance_id_that_is_taken_over_is_fenced(it: GroupUnderTest) -> None:
    first = it.join(instance="a")
    second = it.join(instance="a")
    assert isinstance(it.answers[first], FencedInstanceError)
    it.advance(DELAY_MS)
    assert it.joined(second).generation == 1


def test_a_static_member_with_another_subscription_starts_a_rebalance(it: GroupUnderTest) -> None:
    it.stable("a", "b")
    it.join(instance="b", protocols=[("range", subscription("u"))])
    assert it.group.state == "PreparingRebalance"


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends(it: GroupUnderTest) -> None:
    leader, _ = (it.join(instance=instance, rebalance_ms=500) for instance in "ab")
    it.advance(DELAY_MS)
    it.sync(it.joined(leader), "a")
    again = it.join("m1", instance="a", rebalance_ms=500)
    assert again not in it.answers
    it.advance(500)
    assert [member.instance_id for member in it.joined(again).members] == ["a", "b"]
    it.sync(it.joined(again), "a")
    it.advance(SESSION_MS - 500 - 1)
    it.group.heartbeat(who(it.joined(again), "a"))
    assert it.group.state == "Stable"
    it.advance(1)
    assert [member.instance_id for member in it.group.members] == ["a"]


def test_a_repeated_sync_answers_the_first_one_and_saves_once(it: GroupUnderTest) -> None:
    joined = it.join()
    it.advance(DELAY_MS)
    it.holds_saves = True
    first = it.sync(it.joined(joined), m1=b"one")
    second = it.sync(it.joined(joined), m1=b"other")
    assert isinstance(it.answers[first], RebalanceInProgressError)
    assert len(it.held) == 1
    it.settle()
    assert it.synced(second).assignment == b"one"


def test_a_waiting_sync_of_an_instance_id_that_is_taken_over_is_fenced(it: GroupUnderTest) -> None:
    tickets = [it.join(instance=instance) for instance in "ab"]
    it.advance(DELAY_MS)
    waiting = it.sync(it.joined(tickets[1]), "b")
    it.join(instance="b")
    assert isinstance(it.answers[waiting], FencedInstanceError)
    assert it.group.state == "PreparingRebalance"


def test_a_static_member_can_be_removed_by_its_instance_id(it: GroupUnderTest) -> None:
    it.stable("a", "b")
    it.leave("", "b")
    assert it.group.members.find_instance("b") is None
    with pytest.raises(UnknownMemberError):
        it.leave("", "b")


def test_a_client_that_is_no_member_may_commit_only_while_the_group_is_empty(it: GroupUnderTest) -> None:
    it.group.check_commit(MemberIdentity())
    (member,) = it.stable(None)
    with pytest.raises(UnknownMemberError):
        it.group.check_commit(MemberIdentity())
    it.group.check_commit(MemberIdentity(), in_transaction=True)
    it.group.check_commit(who(member))
    it.leave(member.member_id)
    it.group.check_commit(MemberIdentity())
    with pytest.raises(UnknownMemberError):
        it.group.check_commit(who(member))


def test_offsets_may_be_committed_while_members_rejoin_but_not_before_they_have_assignments(it: GroupUnderTest) -> None:
    first, second = it.stable(None, None)
    again = it.join(first.member_id)
    it.group.check_commit(who(second))
    it.join(second.member_id)
    with pytest.raises(RebalanceInProgressError):
        it.group.check_commit(who(it.joined(again)))


def test_a_restart_keeps_the_generation_and_begins_new_sessions(it: GroupUnderTest) -> None:
    first, second = it.stable(None, "b")
    it.advance(SESSION_MS - 1)
    it.restart()
    it.advance(SESSION_MS - 1)
    it.group.heartbeat(who(first))
    it.group.check_commit(who(second, "b"))
    assert it.synced(it.sync(second, "b")).assignment == b"m2"
    assert (it.group.state, it.group.generation, it.group.members.leader) == ("Stable", 1, "m1")


def test_a_restart_while_assignments_are_saved_uses_the_next_generation_once(it: GroupUnderTest) -> None:
    first, second = it.stable(None, None)
    it.join(first.member_id)
    it.join(second.member_id)
    it.holds_saves = True
    assert it.group.generation == 2
    it.restart()
    with pytest.raises(IllegalGenerationError):
        it.group.heartbeat(who(first)._replace(generation=2))
    it.group.heartbeat(who(first))


def test_a_description_shows_assignments_only_while_the_group_is_stable(it: GroupUnderTest) -> None:
    (member,) = it.stable(None)
    described = describe(it.group)
    assert described.members[0].assignment == b"m1"
    assert described.protocol == "range"
    it.join(member.member_id, protocols=[("range", subscription("u"))])
    it.join()
    assert describe(it.group).members[0].assignment == b""


def test_topics_that_members_read_are_known(it: GroupUnderTest) -> None:
    it.stable(None)
    assert subscribes_to(it.group, "t")
    assert not subscribes_to(it.group, "u")


def test_ending_a_group_answers_all_waiting_members(it: GroupUnderTest) -> None:
    ticket = it.join()
    it.do(it.group.end(StorageFullError("full")))
    assert isinstance(it.answers[ticket], StorageFullError)
