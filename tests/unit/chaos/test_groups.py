"""I9: owners, generations and committed offsets."""

from chaos.history import CommitCall, CommittedCall
from tests.unit.chaos.histories import FAILED, OK, UNKNOWN, Story, broken, location, violations


def test_members_that_share_the_partitions_of_a_generation_pass() -> None:
    story = Story()
    story.owned("m1", 1, "t/0", worker="r1")
    story.owned("m2", 1, "t/1", worker="r2")
    story.owned("m2", 2, "t/0", "t/1", worker="r2")
    assert broken(story) == set()


def test_two_owners_of_a_partition_in_one_generation_are_named() -> None:
    story = Story()
    calls = (story.owned("m1", 1, "t/0", worker="r1"), story.owned("m2", 1, "t/0", worker="r2"))
    (violation,) = violations(story, "two-owners")
    assert violation.calls == calls


def test_owners_that_do_not_know_their_generation_show_nothing() -> None:
    story = Story()
    story.owned("m1", -1, "t/0", worker="r1")
    story.owned("m2", -1, "t/0", worker="r2")
    assert not violations(story, "two-owners")


def test_a_commit_of_an_old_generation_must_be_rejected() -> None:
    for outcome, wrong in ((FAILED, False), (UNKNOWN, False), (OK, True)):
        story = Story()
        story.owned("m1", 1, "t/0", worker="r1")
        story.owned("m2", 2, "t/0", worker="r2")
        story.commit(5, worker="r1", generation=1, outcome=outcome)
        assert bool(violations(story, "fenced-commit")) is wrong


def test_a_commit_that_was_under_way_when_the_generation_changed_passes() -> None:
    story = Story()
    commit = story.begin(CommitCall("g", (location("t/0", 5),), generation=1))
    story.owned("m2", 2, "t/0", worker="r2")
    story.end(commit)
    assert not violations(story, "fenced-commit")


def test_an_offset_that_is_read_as_it_was_committed_passes() -> None:
    story = Story()
    story.committed(-1)
    story.commit(5)
    story.committed(5)
    story.commit(9)
    story.committed(9)
    assert broken(story) == set()


def test_a_commit_that_is_forgotten_is_lost() -> None:
    for read in (-1, 5):
        story = Story()
        story.commit(5)
        later = story.commit(9)
        asked = story.committed(read)
        (violation,) = violations(story, "commit-lost")
        assert violation.calls[-1] == asked
        assert later in violation.calls or read == -1


def test_an_offset_that_nobody_committed_is_reported_as_made_up() -> None:
    story = Story()
    story.commit(5)
    story.committed(7)
    (violation,) = violations(story, "commit-lost")
    assert "nobody had committed that" in violation.message


def test_a_rejected_commit_has_no_effect() -> None:
    story = Story()
    story.commit(5)
    story.commit(9, outcome=FAILED)
    story.committed(9)
    assert violations(story, "commit-lost")


def test_an_unknown_commit_may_have_any_effect() -> None:
    for read in (5, 9):
        story = Story()
        story.commit(5)
        story.commit(9, outcome=UNKNOWN)
        story.committed(read)
        assert broken(story) == set()


def test_a_question_during_a_commit_may_be_answered_either_way() -> None:
    for read in (5, 9):
        story = Story()
        story.commit(5)
        asked = story.begin(CommittedCall("g"))
        story.commit(9)
        story.end(asked, locations=(location("t/0", read),))
        assert broken(story) == set()


def test_an_offset_that_falls_between_two_reads_is_named() -> None:
    story = Story()
    first = story.begin(CommitCall("g", (location("t/0", 5),)), worker="w1")
    second = story.begin(CommitCall("g", (location("t/0", 9),)), worker="w2")
    story.end(first)
    story.end(second)
    reads = (story.committed(9), story.committed(5))
    assert not violations(story, "commit-lost")
    (violation,) = violations(story, "committed-back")
    assert violation.calls == reads


def test_a_reset_may_move_an_offset_back() -> None:
    story = Story()
    story.commit(9)
    story.committed(9)
    story.commit(0, reset=True)
    story.committed(0)
    story.commit(3)
    story.committed(3)
    assert broken(story) == set()


def test_a_commit_that_is_no_reset_may_not() -> None:
    story = Story()
    calls = (story.commit(9, worker="w1"), story.commit(3, worker="w2"))
    (violation,) = violations(story, "commit-back")
    assert violation.calls == calls


def test_the_offsets_of_a_transaction_count_as_a_commit() -> None:
    for read, wrong in ((7, False), (5, True)):
        story = Story()
        story.commit(5)
        story.transaction("a@t/0:0", group="g", offsets=(location("t/0", 7),))
        story.committed(read)
        assert bool(violations(story, "commit-lost")) is wrong
