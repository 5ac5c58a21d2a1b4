"""I10: transactions and atomic sends."""

from chaos.checker.transactions import find_cycles
from chaos.history import SendCall
from tests.unit.chaos.histories import UNKNOWN, Story, broken, location, violations


def test_a_transaction_of_which_all_is_seen_or_nothing_passes() -> None:
    for seen in ("a@t/0:0 b@u/0:0 c@t/0:2", "c@t/0:2"):
        story = Story()
        story.transaction("a@t/0:0 b@u/0:0", outcome=UNKNOWN)
        story.send("c", at=2)
        story.final(seen)
        assert broken(story) == set()


def test_a_transaction_of_which_a_part_is_seen_is_torn() -> None:
    story = Story()
    wrote = story.transaction("a@t/0:0 b@u/0:0", outcome=UNKNOWN)
    read = story.final("a@t/0:0")
    (violation,) = violations(story, "torn-transaction")
    assert violation.calls == (wrote, read)
    assert violation.about == {"a", "b"}


def test_a_part_that_readers_of_open_transactions_saw_does_not_count() -> None:
    story = Story()
    story.transaction("a@t/0:0 b@u/0:0", outcome=UNKNOWN)
    story.poll("a@t/0:0", committed=False)
    story.final("")
    assert not violations(story, "torn-transaction")


def test_a_part_that_has_left_by_retention_is_not_missing() -> None:
    story = Story()
    story.declare("t", kept=False)
    story.transaction("a@t/0:0 b@u/0:0")
    story.bounds(2, 2)
    story.final("b@u/0:0")
    assert broken(story) == set()


def test_an_atomic_send_is_torn_like_a_transaction() -> None:
    for atomic in (True, False):
        story = Story()
        story.call(SendCall(((location("t/0"), "a"), (location("u/0"), "b")), atomic=atomic), UNKNOWN)
        story.final("a@t/0:0")
        assert bool(violations(story, "torn-transaction")) is atomic


def test_offsets_without_the_records_of_their_transaction_are_torn() -> None:
    for seen, wrong in (("a@t/0:0", False), ("x@u/0:0", True)):
        story = Story()
        story.transaction("a@t/0:0", outcome=UNKNOWN, group="g", offsets=(location("t/0", 7),))
        story.committed(7)
        story.final(seen)
        assert bool(violations(story, "torn-offsets")) is wrong


def test_offsets_that_a_plain_commit_explains_are_not_torn() -> None:
    story = Story()
    story.transaction("a@t/0:0", outcome=UNKNOWN, group="g", offsets=(location("t/0", 7),))
    story.commit(7)
    story.committed(7)
    story.final("")
    assert not violations(story, "torn-offsets")


def test_an_input_of_two_committed_transactions_was_processed_twice() -> None:
    for seen, wrong in (("a@0", False), ("a@0 b@2", True)):
        story = Story()
        story.transaction("a@t/0:0", reads=("x",), group="g")
        story.transaction("b@t/0:2", outcome=UNKNOWN, reads=("x",), group="g", worker="w2")
        story.final(seen)
        assert bool(violations(story, "processed-twice")) is wrong


def test_an_input_may_be_processed_by_each_group() -> None:
    story = Story()
    story.transaction("a@t/0:0", reads=("x",), group="g")
    story.transaction("b@t/0:2", reads=("x",), group="h")
    assert not violations(story, "processed-twice")


def test_transactions_that_read_each_other_are_a_circle() -> None:
    story = Story()
    one = story.transaction("a@t/0:0", reads=("c",))
    two = story.transaction("b@t/0:2", reads=("a",), worker="w2")
    three = story.transaction("c@t/0:4", reads=("b",), worker="w3")
    story.transaction("d@t/0:6", reads=("c",), worker="w4")
    (violation,) = violations(story, "g1c")
    assert violation.calls == (one, two, three)


def test_a_chain_of_transactions_is_no_circle_and_one_that_did_not_commit_breaks_it() -> None:
    story = Story()
    story.transaction("a@t/0:0", reads=("b",), aborted=True)
    story.transaction("b@t/0:2", reads=("a",))
    story.transaction("c@t/0:4", reads=("b",))
    assert not violations(story, "g1c")


def test_a_transaction_that_read_its_own_open_writes_is_a_circle() -> None:
    story = Story()
    story.transaction("a@t/0:0", reads=("a",))
    assert violations(story, "g1c")


def test_cycles_are_found_in_long_chains_and_apart_from_each_other() -> None:
    chain: dict[int, list[int]] = {node: [node + 1] for node in range(5000)}
    assert list(find_cycles(chain)) == []
    chain[5000] = [4000]
    chain[9001], chain[9002] = [9002], [9001]
    assert sorted(map(sorted, find_cycles(chain))) == [list(range(4000, 5001)), [9001, 9002]]
