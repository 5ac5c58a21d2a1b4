"""I1 to I5: what is in the log."""

from chaos.history import CallOutcome, CopyInspection
from tests.unit.chaos.histories import FAILED, OK, UNKNOWN, Story, broken, violations


def test_acked_records_that_final_reads_find_pass() -> None:
    story = Story()
    story.send("a b", at=0)
    story.poll("a@0 b@1")
    story.final("a@0 b@1")
    assert broken(story) == set()


def test_an_acked_record_below_others_that_is_gone_is_lost() -> None:
    story = Story()
    lost = story.send("a", at=0)
    story.send("b", at=1)
    passed = story.final("b@1")
    (violation,) = violations(story, "lost-write")
    assert violation.calls == (lost, passed)
    assert "'a'" in violation.message
    assert "t/0 offset 0" in violation.message
    assert not violations(story, "unseen")


def test_an_acked_record_behind_all_that_is_read_is_unseen() -> None:
    story = Story()
    story.send("a b", at=0)
    story.final("a@0")
    (violation,) = violations(story, "unseen")
    assert violation.about == {"b"}
    assert not violations(story, "lost-write")


def test_a_partition_in_which_final_reads_find_nothing_is_unseen() -> None:
    story = Story()
    story.send("a", at=0)
    story.send("b", at=0, where="t/1")
    story.final("a@0")
    (violation,) = violations(story, "unseen")
    assert "found nothing in that partition" in violation.message


def test_a_record_that_was_read_and_is_gone_is_lost_although_its_send_is_unknown() -> None:
    story = Story()
    story.send("a", outcome=UNKNOWN)
    story.send("b", at=1)
    story.poll("a@0 b@1")
    story.final("b@1")
    assert [violation.about for violation in violations(story, "lost-write")] == [{"a"}]


def test_a_record_that_only_readers_of_open_transactions_saw_may_go() -> None:
    story = Story()
    story.transaction("a@t/0:0", outcome=UNKNOWN)
    story.send("b", at=2)
    story.poll("a@0 b@2", committed=False)
    story.final("b@2")
    assert broken(story) == set()


def test_records_below_the_start_have_left_and_are_not_lost() -> None:
    story = Story()
    story.declare("t", kept=False)
    story.send("a", at=0)
    story.send("b", at=1)
    story.final("b@1")
    story.bounds(1, 2)
    assert broken(story) == set()


def test_an_unknown_send_may_be_seen_or_not() -> None:
    for seen in ("a@0", "a@0 b@1"):
        story = Story()
        story.send("a", at=0)
        story.send("b", outcome=UNKNOWN)
        story.final(seen)
        assert broken(story) == set()


def test_of_a_send_that_was_answered_in_part_the_acked_records_must_be_there() -> None:
    story = Story()
    story.send("a", at=0, outcome=UNKNOWN)
    story.send("b", at=1)
    story.final("b@1")
    assert broken(story) == {"lost-write"}


def test_two_readers_that_find_other_values_at_an_offset_show_it_reused() -> None:
    story = Story()
    story.send("a", outcome=UNKNOWN)
    story.poll("a@0")
    story.send("b", at=0)
    story.final("b@0")
    assert "inconsistent-offset" in broken(story)
    first, *_ = violations(story, "inconsistent-offset")
    assert first.about == {"a", "b"}


def test_two_acks_of_one_offset_show_it_reused() -> None:
    story = Story()
    first, second = story.send("a", at=0), story.send("b", at=0, worker="w2")
    (violation,) = violations(story, "inconsistent-offset")
    assert violation.calls == (first, second)


def test_a_record_acked_at_one_offset_and_read_at_another_is_a_duplicate() -> None:
    story = Story()
    story.send("a", at=0)
    story.final("a@1")
    assert [violation.message for violation in violations(story, "duplicate")] == [
        "'a' was acked at t/0 offset 0 and read at t/0 offset 1"
    ]


def test_an_unknown_send_that_was_stored_twice_is_a_duplicate_if_it_was_idempotent() -> None:
    for idempotent in (True, False):
        story = Story()
        story.send("a", outcome=UNKNOWN, idempotent=idempotent)
        story.final("a@0 a@1")
        assert broken(story) == ({"duplicate"} if idempotent else set())


def test_the_same_value_among_the_dead_letters_is_no_duplicate() -> None:
    story = Story()
    story.send("a", at=0)
    story.final("a@0 a@t.dead_letters/0:0")
    assert broken(story) == set()


def test_a_rejected_send_must_never_be_read() -> None:
    story = Story()
    refused = story.send("a", outcome=FAILED)
    read = story.final("a@0")
    (violation,) = violations(story, "aborted-read")
    assert violation.calls == (refused, read)


def test_an_aborted_transaction_is_for_readers_of_open_ones_only() -> None:
    for committed in (True, False):
        for outcome in (CallOutcome.OK, CallOutcome.UNKNOWN):
            story = Story()
            story.transaction("a@t/0:0", outcome=outcome, aborted=True)
            story.poll("a@0", committed=committed)
            assert bool(violations(story, "aborted-read")) is committed


def test_a_record_that_nobody_sent_is_reported_as_made_up() -> None:
    story = Story()
    story.send("a", at=0)
    story.final("a@0 x@1")
    assert broken(story) == {"never-sent"}


def test_a_record_in_a_topic_to_which_it_was_not_sent_is_reported_as_made_up() -> None:
    story = Story()
    story.send("a", at=0)
    story.send("b", at=0, where="u/0")
    story.final("a@0 b@u/0:0 a@u/0:1")
    assert broken(story) == {"never-sent"}


def test_a_call_that_is_never_completed_counts_as_unknown() -> None:
    story = Story()
    story.send("a", at=0)
    story.send("b", outcome=OK)
    story.lines.pop()
    story.final("a@0")
    assert broken(story) == set()


def test_a_copy_that_differs_is_told_with_what_differs() -> None:
    story = Story()
    story.write(CopyInspection(1.0, "prod", 100, 4))
    assert not violations(story, "copied-otherwise")
    story.write(CopyInspection(2.0, "prod", 100, 4, ("t/0 has 99 records in the copy and 100 here", "group g would read 7")))
    found = violations(story, "copied-otherwise")
    assert [violation.message for violation in found] == [
        "prod: t/0 has 99 records in the copy and 100 here",
        "prod: group g would read 7",
    ]
