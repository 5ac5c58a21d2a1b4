"""Queues: acked once, never again, nothing forgotten."""

from tests.unit.chaos.histories import UNKNOWN, Story, broken, violations


def test_records_that_are_handed_out_until_they_are_acked_pass() -> None:
    story = Story()
    story.send("a b", at=0)
    story.take("a@0 b@1")
    story.settle("a")
    story.settle("b", acked=False)
    story.take("b@1", worker="r2")
    story.settle("b", worker="r2")
    story.take(final=True)
    story.final("a@0 b@1")
    assert broken(story) == set()


def test_a_record_that_comes_again_after_its_ack_is_named() -> None:
    story = Story()
    story.take("a@0")
    ack = story.settle("a")
    again = story.take("a@0", worker="r2")
    (violation,) = violations(story, "redelivered")
    assert violation.calls == (ack, again)


def test_a_record_may_come_again_after_an_unknown_ack() -> None:
    story = Story()
    story.take("a@0")
    story.settle("a", UNKNOWN)
    story.take("a@0", worker="r2")
    assert not violations(story, "redelivered")


def test_two_acks_of_a_record_are_named() -> None:
    story = Story()
    story.take("a@0")
    calls = (story.settle("a"), story.settle("a", worker="r2"))
    (violation,) = violations(story, "acked-twice")
    assert violation.calls == calls


def test_a_record_that_was_handed_out_and_forgotten_is_named_once_the_queue_is_empty() -> None:
    for emptied in (True, False):
        story = Story()
        story.take("a@0")
        story.settle("a", acked=False)
        if emptied:
            story.take(final=True)
        assert bool(violations(story, "unsettled")) is emptied


def test_a_dead_letter_and_an_unknown_ack_are_ends_too() -> None:
    story = Story()
    story.take("a@0 b@1")
    story.settle("b", UNKNOWN)
    story.take(final=True)
    story.final("a@0", where="t.dead_letters/0")
    assert not violations(story, "unsettled")


def test_a_record_that_was_never_handed_out_is_named() -> None:
    story = Story()
    story.send("a b c", at=0)
    story.take("b@1")
    story.settle("b")
    story.take(final=True)
    (violation,) = violations(story, "undelivered")
    assert violation.about == {"c"}
