"""I6 to I8 and I11: offsets in order of time, and reads in order of offsets."""

import pytest

from chaos.history import BoundsCall, PollCall, SendCall
from tests.unit.chaos.histories import UNKNOWN, Story, broken, location, records, violations


def test_later_sends_of_a_worker_get_higher_offsets() -> None:
    story = Story()
    story.send("a", at=0)
    story.send("b", at=1)
    assert not violations(story, "nonmonotonic-send")


def test_a_later_send_with_a_lower_offset_is_named_with_both_calls() -> None:
    story = Story()
    calls = (story.send("a", at=5), story.send("b", at=3))
    (violation,) = violations(story, "nonmonotonic-send")
    assert violation.calls == calls


def test_sends_that_overlap_may_be_ordered_either_way() -> None:
    story = Story()
    first = story.begin(SendCall(((location("t/0"), "a"),)))
    second = story.begin(SendCall(((location("t/0"), "b"),)))
    story.end(first, locations=(location("t/0", 1),))
    story.end(second, locations=(location("t/0", 0),))
    assert not violations(story, "nonmonotonic-send")
    assert not violations(story, "stale-end")


def test_within_a_send_later_records_lie_behind() -> None:
    for offsets, wrong in (((0, 1), False), ((1, 0), True)):
        story = Story()
        asked = tuple((location("t/0"), value) for value in "ab")
        story.call(SendCall(asked), locations=tuple(location("t/0", offset) for offset in offsets))
        assert bool(violations(story, "int-nonmonotonic-send")) is wrong


def test_an_end_that_rises_passes() -> None:
    story = Story()
    story.bounds(0, 0)
    story.send("a", at=0)
    story.bounds(0, 1)
    story.send("b", at=1)
    story.final("a@0 b@1")
    assert broken(story) == set()


@pytest.mark.parametrize("known", ["bounds", "send", "poll"])
def test_an_end_that_falls_is_stale(known: str) -> None:
    story = Story()
    if known == "bounds":
        story.bounds(0, 5)
    elif known == "send":
        story.send("a", at=4, worker="w2")
    else:
        story.poll("a@4")
    story.bounds(0, 4)
    (violation,) = violations(story, "stale-end")
    assert "known to be at 5" in violation.message


def test_an_offset_below_a_known_end_is_stale() -> None:
    story = Story()
    story.bounds(0, 5)
    story.send("a", at=4, worker="w2")
    assert violations(story, "stale-end")


def test_a_question_that_was_under_way_may_miss_what_was_acked_meanwhile() -> None:
    story = Story()
    asked = story.begin(BoundsCall(("t",)))
    story.send("a", at=0)
    story.end(asked, ends=(location("t/0", 0),))
    assert not violations(story, "stale-end")


def test_a_reader_that_goes_from_one_record_to_the_next_passes() -> None:
    story = Story()
    story.send("a b c", at=0)
    story.poll("a@0")
    story.poll("b@1 c@2")
    assert not violations(story, "poll-skip")
    assert not violations(story, "nonmonotonic-poll")


def test_a_reader_that_passes_a_visible_record_skips() -> None:
    story = Story()
    acked = story.send("a b c", at=0)
    before, after = story.poll("a@0"), story.poll("c@2")
    (violation,) = violations(story, "poll-skip")
    assert violation.calls == (acked, before, after)
    assert "'b'" in violation.message


def test_a_skip_is_known_by_what_another_reader_saw() -> None:
    story = Story()
    story.send("b", outcome=UNKNOWN)
    story.poll("a@0 b@1 c@2", worker="r2")
    story.poll("a@0 c@2")
    assert violations(story, "poll-skip")


def test_offsets_that_nobody_saw_and_no_ack_names_are_no_skip() -> None:
    story = Story()
    story.send("a", at=0)
    story.transaction("b@t/0:1", aborted=True)
    story.send("c", at=3)
    story.poll("a@0 c@3", committed=True)
    assert not violations(story, "poll-skip")


def test_what_only_readers_of_open_transactions_saw_is_no_skip() -> None:
    story = Story()
    story.transaction("b@t/0:1", outcome=UNKNOWN)
    story.poll("a@0 b@1 c@3", worker="r2", committed=False)
    story.poll("a@0 c@3", committed=True)
    assert not violations(story, "poll-skip")


def test_a_session_is_held_to_where_it_said_it_begins() -> None:
    story = Story()
    story.send("a b", at=0)
    story.poll("b@1", begins=(location("t/0", 0),))
    assert violations(story, "poll-skip")


def test_a_new_session_may_begin_anywhere() -> None:
    story = Story()
    story.send("a b c", at=0)
    story.poll("a@0", session="s1")
    story.poll("c@2", session="s2")
    story.poll("a@0", session="s3")
    assert not violations(story, "poll-skip")
    assert not violations(story, "nonmonotonic-poll")


def test_a_step_back_between_polls_and_within_one_have_names_of_their_own() -> None:
    story = Story()
    story.poll("a@0 b@1")
    story.poll("b@1")
    story.poll("d@3 c@2", session="other")
    assert len(violations(story, "nonmonotonic-poll")) == 1
    assert len(violations(story, "int-nonmonotonic-poll")) == 1


def test_a_rebalance_excuses_subscribed_reads_alone() -> None:
    for subscribed in (True, False):
        story = Story()
        story.poll("a@0 b@1", subscribed=subscribed)
        story.owned("m1", 2, "t/0")
        story.poll("a@0", subscribed=subscribed)
        assert bool(violations(story, "nonmonotonic-poll")) is not subscribed


def test_a_rebalance_within_a_poll_excuses_what_the_poll_brought() -> None:
    story = Story()
    story.poll("a@0 b@1", subscribed=True)
    call = story.begin(PollCall("s", subscribed=True), worker="r1")
    story.owned("m1", 2, "t/0", worker="r1")
    story.end(call, seen=records("c@2 a@0", "t/0"))
    assert not violations(story, "nonmonotonic-poll")
    assert not violations(story, "int-nonmonotonic-poll")


def test_without_a_rebalance_subscribed_reads_are_held_to_the_rule() -> None:
    story = Story()
    story.owned("m1", 1, "t/0")
    story.poll("a@0 b@1", subscribed=True)
    story.poll("a@0", subscribed=True)
    assert violations(story, "nonmonotonic-poll")


def test_a_reader_below_the_start_that_gets_an_error_passes() -> None:
    story = Story()
    story.declare("t", kept=False)
    story.send("a b c", at=0)
    story.poll("a@0", session="s1")
    story.call(PollCall("s1"), worker="r1", out_of_range=(location("t/0", 1),))
    story.poll("c@2", session="s2")
    story.final("c@2")
    story.bounds(2, 3)
    assert broken(story) == set()


def test_a_reader_below_the_start_that_is_carried_on_jumped() -> None:
    story = Story()
    story.declare("t", kept=False)
    story.send("a b c", at=0)
    story.poll("a@0")
    story.bounds(2, 3)
    story.poll("c@2")
    assert violations(story, "silent-jump")
    assert not violations(story, "poll-skip")


def test_a_start_that_falls_is_named() -> None:
    for later, wrong in ((5, False), (4, True)):
        story = Story()
        story.bounds(5, 9)
        story.bounds(later, 9)
        assert bool(violations(story, "falling-start")) is wrong


def test_a_start_above_the_end_is_named() -> None:
    for start, wrong in ((9, False), (10, True)):
        story = Story()
        story.bounds(start, 9)
        assert bool(violations(story, "start-above-end")) is wrong


def test_nothing_leaves_a_topic_without_retention() -> None:
    for kept in (True, False):
        story = Story()
        story.declare("t", kept=kept)
        story.bounds(1, 5)
        assert bool(violations(story, "kept-record-gone")) is kept


def test_a_rejected_offset_of_a_topic_without_retention_is_named_and_excuses_nothing() -> None:
    story = Story()
    story.send("a b", at=0)
    story.call(PollCall("s"), worker="r1", out_of_range=(location("t/0", 2),))
    story.final("a@0")
    assert broken(story) == {"kept-record-gone", "unseen"}
