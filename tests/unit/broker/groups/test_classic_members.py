"""Members of the classic protocol in a group of the consumer protocol, and groups that are upgraded and downgraded."""

from struct import pack
from uuid import UUID

import msgspec
import pytest

from tailrace.broker.groups import classic_members
from tailrace.broker.groups.consumer_group import decode_record, encode_record
from tailrace.model.consumer_group import ConsumerGroupRecord
from tailrace.model.errors import (
    FencedInstanceError,
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    LimitExceededError,
    RebalanceInProgressError,
    UnknownGroupError,
    UnknownMemberError,
    UnreleasedInstanceError,
)
from tailrace.model.group import CONSUMER, GroupRecord, Joined, MemberIdentity, MemberProtocol, MemberRecord
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.wire.consumer_protocol import decode_assignment, encode_assignment
from tests.support.consumer_groups import SESSION_MS as CONSUMER_SESSION_MS
from tests.support.consumer_groups import ConsumerGroupUnderTest
from tests.support.groups import REBALANCE_MS, SESSION_MS, GroupUnderTest, joining, syncing
from tests.support.mixed_groups import subscription_of


class MixedGroup(ConsumerGroupUnderTest):
    """A group with topic `t`, which classic members can join."""

    def __init__(self, partitions: int = 2, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(limits)
        self.limits = limits
        self.topic: UUID = self.topics.make("t", partitions)

    def join_classic(
        self,
        member_id: str = "",
        *owned: int,
        protocol: str = "cooperative-sticky",
        metadata: bytes | None = None,
        **given: object,
    ) -> Joined:
        said = subscription_of(owned) if metadata is None else metadata
        request = joining(member_id, protocols=((protocol, said),), **given)  # type: ignore[arg-type]
        heartbeat = classic_members.joining(self.group, request, self.topics, self.limits)
        result = self.group.heartbeat(heartbeat, self.topics.version, {})
        self.store()
        return classic_members.joined(self.group.find(result.member_id, request.instance_id))

    def sync(self, joined: Joined) -> list[int]:
        synced = classic_members.sync(self.group, syncing(joined), self.topics)
        assert (synced.protocol_type, synced.protocol) == (CONSUMER, joined.protocol)
        return decode_assignment(synced.assignment).get("t", [])

    def heartbeat(self, joined: Joined) -> None:
        classic_members.heartbeat(self.group, MemberIdentity(joined.member_id, joined.generation))

    def upgrade(self, record: GroupRecord) -> ConsumerGroupRecord:
        """Let this be the group that a classic one becomes."""
        classic = GroupUnderTest().group
        classic.restore(record)
        upgraded = classic_members.upgraded(classic, self.topics)
        self.group.restore(upgraded)
        self.store()
        return upgraded


def member_record(member_id: str, *assigned: int, owned: tuple[int, ...] = (), instance: str | None = None) -> MemberRecord:
    protocols = (MemberProtocol("cooperative-sticky", subscription_of(owned)),)
    share = encode_assignment({"t": assigned}) if assigned else b""
    return MemberRecord(member_id, instance, "client", "/192.0.2.1", SESSION_MS, REBALANCE_MS, protocols, share)


def group_record(*members: MemberRecord, generation: int = 7) -> GroupRecord:
    return GroupRecord(generation, CONSUMER, "cooperative-sticky", members[0].member_id, members, 0)


def test_a_classic_member_gets_what_the_server_assigns_and_leads_nobody() -> None:
    it = MixedGroup()
    it.join("new")
    joined = it.join_classic()
    assert (joined.generation, joined.protocol, joined.leader, joined.members) == (2, "cooperative-sticky", "", ())
    assert it.sync(joined) == []
    it.heartbeat(joined)
    it.send("new", 1)
    it.send("new", 1, owned={it.topic: frozenset({0})})
    with pytest.raises(RebalanceInProgressError):
        it.heartbeat(joined)
    again = it.join_classic(joined.member_id)
    assert (again.generation, it.sync(again)) == (2, [1])
    it.heartbeat(again)
    assert it.group.state == "Stable"


def test_a_cooperative_member_keeps_its_partitions_until_it_joins_without_them() -> None:
    it = MixedGroup()
    it.upgrade(group_record(member_record("old", 0, 1)))
    assert it.join("new").assigned == {}
    with pytest.raises(RebalanceInProgressError):
        it.heartbeat(Joined(7, "", "", "", "old", ()))
    asked = it.join_classic("old", 0, 1)
    assert asked.generation == 7
    kept = it.sync(asked)
    assert len(kept) == 1
    assert it.send("new", 8).assigned is None
    done = it.join_classic("old", *kept)
    assert (done.generation, it.sync(done)) == (8, kept)
    assert it.send("new", 8).assigned == {it.topic: frozenset({0, 1} - set(kept))}


def test_an_eager_member_has_given_up_everything_when_it_joins() -> None:
    it = MixedGroup()
    it.upgrade(group_record(member_record("old", 0, 1)))
    it.join("new")
    joined = it.join_classic("old", metadata=subscription_of((), version=0))
    assert (joined.generation, len(it.sync(joined))) == (8, 1)
    assert it.send("new", 8).assigned is not None
    assert it.group.state == "Stable"


def test_members_of_an_upgraded_group_keep_their_partitions() -> None:
    it = MixedGroup(3)
    record = it.upgrade(group_record(member_record("a", 0, 1), member_record("b", 2, instance="i")))
    assert [(each.epoch, each.state, each.assigned) for each in record.members] == [
        (7, "stable", ((it.topic.bytes, (0, 1)),)),
        (7, "stable", ((it.topic.bytes, (2,)),)),
    ]
    it.group.check_commit(MemberIdentity("a", 7))
    assert it.join("new").assigned == {}
    it.group.check_commit(MemberIdentity("b", 7, "i"))
    with pytest.raises(IllegalGenerationError):
        it.group.check_commit(MemberIdentity("a", 8))


def test_what_a_cooperative_member_is_still_giving_up_belongs_to_nobody_else_after_an_upgrade() -> None:
    it = MixedGroup()
    # In its last generation the member owned both and was assigned one: it may not have given the other up yet.
    it.upgrade(group_record(member_record("a", 0, owned=(0, 1))))
    assert it.join("new").assigned == {}
    with pytest.raises(RebalanceInProgressError):
        it.heartbeat(Joined(7, "", "", "", "a", ()))
    it.join_classic("a", 0)
    assert it.send("new", 8).assigned == {it.topic: frozenset({1})}


def test_a_member_that_was_removed_and_still_reads_has_to_give_up_before_it_joins_again() -> None:
    it = MixedGroup()
    it.join("new")
    with pytest.raises(UnknownMemberError):
        it.join_classic("removed", 0)
    assert it.join_classic("removed").generation == 2


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (msgspec.structs.replace(group_record(member_record("a", 0)), protocol_type="connect"), "'connect', not 'consumer'"),
        (group_record(msgspec.structs.replace(member_record("a"), assignment=b"share")), "can't be read"),
        (group_record(msgspec.structs.replace(member_record("a"), protocols=(MemberProtocol("p", b"\0"),))), "can't be read"),
        (
            group_record(
                msgspec.structs.replace(
                    member_record("a"), assignment=encode_assignment({"t": [0]})[:-4] + pack(">ic", 1, b"x")
                )
            ),
            "data of its own",
        ),
        (group_record(member_record("a", 0), member_record("b", 0)), "more than one member"),
    ],
)
def test_a_group_that_would_lose_something_is_not_upgraded(record: GroupRecord, reason: str) -> None:
    with pytest.raises(UnknownGroupError, match=reason):
        MixedGroup().upgrade(record)


def test_partitions_that_are_gone_are_left_out_of_an_upgrade() -> None:
    it = MixedGroup(1)
    share = encode_assignment({"t": [0, 5, -1], "deleted": [0]})
    record = it.upgrade(group_record(msgspec.structs.replace(member_record("a"), assignment=share)))
    assert record.members[0].assigned == ((it.topic.bytes, (0,)),)


def test_the_last_consumer_member_leaves_a_classic_group_with_everything_that_may_be_read() -> None:
    it = MixedGroup(3)
    it.upgrade(group_record(member_record("a", 0, 1, 2)))
    it.join("new")
    it.join_classic("a", 0, 1, 2)
    it.send("new", -1)
    assert it.group.is_classic
    record = classic_members.downgraded(it.group, it.topics, 5)
    assert (record.generation, record.leader, record.changed_ms) == (8, "", 5)
    (member,) = record.members
    assert decode_assignment(member.assignment) == {"t": [0, 1, 2]}
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)


def test_a_downgraded_group_rebalances_also_after_a_restart_of_the_server() -> None:
    it = GroupUnderTest()
    it.group.restore(msgspec.structs.replace(group_record(member_record("a", 0)), leader="", protocol=""))
    assert it.group.state == "PreparingRebalance"
    with pytest.raises(RebalanceInProgressError):
        it.group.heartbeat(MemberIdentity("a", 7))
    joined = it.joined(it.join("a"))
    assert (joined.generation, joined.leader) == (8, "a")


def test_classic_members_have_sessions_of_their_own_length() -> None:
    it = MixedGroup()
    it.join("new")
    joined = it.join_classic()
    it.sync(joined)
    it.advance(SESSION_MS - 1)
    it.heartbeat(joined)
    it.advance(SESSION_MS)
    assert [member.member_id for member in it.group.members] == ["new"]
    assert CONSUMER_SESSION_MS > 2 * SESSION_MS


def test_a_classic_member_that_does_not_sync_or_join_in_time_is_removed() -> None:
    for syncs in (False, True):
        it = MixedGroup()
        it.join("new")
        joined = it.join_classic(session_ms=100_000, rebalance_ms=20_000)
        if syncs:
            it.sync(joined)
            it.send("new", 1)
            it.send("new", 1, owned={it.topic: frozenset({0})})
            with pytest.raises(RebalanceInProgressError):
                it.heartbeat(joined)
        it.advance(19_999)
        assert len(it.group.members) == 2
        it.advance(1)
        assert [member.member_id for member in it.group.members] == ["new"]


def test_a_classic_member_that_has_synced_may_be_as_slow_as_its_session() -> None:
    it = MixedGroup()
    it.join("new")
    joined = it.join_classic(session_ms=40_000, rebalance_ms=20_000)
    it.sync(joined)
    it.advance(30_000)
    assert len(it.group.members) == 2


def test_classic_members_need_a_common_assignor_and_readable_metadata() -> None:
    it = MixedGroup()
    it.join("new")
    joined = it.join_classic()
    for given in (
        {"protocol": "range"},
        {"protocol_type": "connect"},
        {"metadata": b""},
        {"metadata": b"\0\1\0\0\0\1\0\1t" * 9},
    ):
        with pytest.raises(InconsistentProtocolError):
            it.join_classic(**given)
    # Alone it may change its assignor.
    assert it.join_classic(joined.member_id, protocol="range").protocol == "range"


def test_static_members_take_over_across_protocols() -> None:
    it = MixedGroup(1)
    it.upgrade(group_record(member_record("old", 0, instance="i")))
    taken = it.join("new", instance="i")
    assert taken.assigned == {it.topic: frozenset({0})}
    with pytest.raises(FencedInstanceError):
        classic_members.heartbeat(it.group, MemberIdentity("old", 7, "i"))
    with pytest.raises(UnreleasedInstanceError):
        it.join("newer", instance="i")
    back = it.join_classic(instance="i")
    assert it.group.is_classic
    assert it.group.find(back.member_id, "i").progress.assigned == {it.topic: frozenset({0})}
    with pytest.raises(FencedInstanceError):
        it.send("new", taken.epoch, instance="i")


def test_a_classic_static_member_that_was_taken_over_is_fenced() -> None:
    it = MixedGroup()
    it.join("new")
    old = it.join_classic(instance="i")
    assert it.join_classic(instance="i").member_id != old.member_id
    with pytest.raises(FencedInstanceError):
        it.join_classic(old.member_id, instance="i")
    with pytest.raises(UnknownMemberError):
        it.join_classic("x", instance="j")


def test_members_are_removed_by_the_protocol_that_they_use_and_static_ones_by_their_name() -> None:
    it = MixedGroup()
    it.join("new", instance="i")
    joined = it.join_classic()
    with pytest.raises(UnknownMemberError):
        classic_members.leave(it.group, "new", None)
    with pytest.raises(UnknownMemberError):
        it.send(joined.member_id, -1)
    with pytest.raises(UnknownMemberError):
        it.send(joined.member_id, joined.generation)
    classic_members.leave(it.group, joined.member_id, None)
    classic_members.leave(it.group, "", "i")
    assert it.group.is_empty


def test_a_member_is_assigned_topics_by_the_names_that_it_subscribes_to() -> None:
    it = MixedGroup()
    it.join("new")
    joined = it.join_classic()
    member = it.group.find(joined.member_id, None)
    live = it.topics.find("t")
    assert live is not None
    it.topics._lives["alias"] = live
    member.topic_names = ("alias", "t")
    member.progress = member.progress._replace(assigned={it.topic: frozenset({1})})
    synced = classic_members.sync(it.group, syncing(joined), it.topics)
    assert decode_assignment(synced.assignment) == {"alias": [1]}


def test_mixed_groups_have_the_bounds_of_others() -> None:
    it = MixedGroup(limits=Limits(group_members=2, group_state_bytes=1_500))
    it.join("new")
    with pytest.raises(LimitExceededError):
        it.join_classic(metadata=subscription_of(()) + bytes(1_500))
    joined = it.join_classic(metadata=subscription_of(()) + bytes(600))
    it.join_classic(joined.member_id, metadata=subscription_of(()) + bytes(700))
    with pytest.raises(GroupFullError):
        it.join_classic()


def test_a_restarted_server_goes_on_with_a_mixed_group() -> None:
    it = MixedGroup()
    it.join("new")
    joined = it.join_classic()
    it.sync(joined)
    it.restart()
    assert it.sync(joined) == []
    it.heartbeat(joined)
    assert not it.group.is_classic
    record = it.group.record()
    assert decode_record(encode_record(record)) == record


def test_groups_that_were_stored_before_there_were_mixed_ones_are_read() -> None:
    it = MixedGroup()
    it.join("new")
    epoch, assignor, topics_hash, members, changed_ms = msgspec.msgpack.decode(encode_record(it.group.record())[1:])
    older = b"\xc1" + msgspec.msgpack.encode((epoch, assignor, topics_hash, [each[:-1] for each in members], changed_ms))
    assert decode_record(older) == it.group.record()
