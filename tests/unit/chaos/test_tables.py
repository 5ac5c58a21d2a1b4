"""I14 and I15: tables, their change topics and routed topics."""

import pytest

from chaos.history import ChangeCall, RowsCall
from tests.unit.chaos.histories import FAILED, UNKNOWN, Story, broken, violations

OWN = "orders.changes"
ROUTED = "shipping"


def new_story() -> Story:
    story = Story()
    story.declare(OWN, table="orders")
    return story


def with_route() -> Story:
    story = new_story()
    story.declare(ROUTED, table="orders", routed=True)
    return story


def test_a_table_and_topics_that_say_what_was_written_pass() -> None:
    story = with_route()
    story.change(k="v1", j="v2")
    story.change(k="v3")
    story.change(j=None)
    story.rows(k="v3")
    for topic in (OWN, ROUTED):
        story.events("k=v1@0 j=v2@1 k=v3@2 j=@3", where=f"{topic}/0")
    assert broken(story) == set()


@pytest.mark.parametrize("applied", [True, False])
def test_an_unknown_change_may_be_there_or_not(applied: bool) -> None:
    story = new_story()
    story.change(k="v1")
    story.change(UNKNOWN, k="v2", j="v3")
    rows = {"k": "v2", "j": "v3"} if applied else {"k": "v1"}
    story.rows(final=True, **rows)
    story.events("k=v1@0 k=v2@1 j=v3@2" if applied else "k=v1@0")
    assert broken(story) == set()


def test_a_row_that_an_acked_change_replaced_is_stale() -> None:
    story = Story()
    story.change(k="v1")
    later = story.change(k="v2")
    read = story.rows(k="v1")
    (violation,) = violations(story, "stale-row")
    assert violation.calls == (later, read)


def test_an_acked_row_that_is_missing_and_a_deleted_one_that_is_there_are_stale() -> None:
    story = Story()
    story.change(k="v1", j="v2")
    story.change(j=None)
    story.rows(j="v2")
    messages = sorted(violation.message for violation in violations(story, "stale-row"))
    assert messages == [
        "the row 'j' of orders was 'v2', but it had been deleted since",
        "the row 'k' of orders was missing, but 'v1' had been written since",
    ]


def test_a_row_that_nobody_wrote_is_reported_as_made_up() -> None:
    story = Story()
    story.change(k="v1")
    story.rows(k="v1", x="v9")
    (violation,) = violations(story, "stale-row")
    assert "nobody had written that" in violation.message


def test_within_a_transaction_the_last_change_of_a_row_counts() -> None:
    for value, wrong in (("v2", False), ("v1", True)):
        story = Story()
        story.call(ChangeCall((("orders", "k", "v1"), ("orders", "k", "v2"))))
        story.rows(k=value)
        assert bool(violations(story, "stale-row")) is wrong


def test_a_read_during_a_change_may_show_either() -> None:
    for value in ("v1", "v2"):
        story = Story()
        story.change(k="v1")
        asked = story.begin(RowsCall("orders"))
        story.change(k="v2")
        story.end(asked, rows=(("k", value),))
        assert not violations(story, "stale-row")


def test_a_rejected_change_in_the_table_or_in_a_topic_is_named() -> None:
    story = new_story()
    story.change(FAILED, k="v1")
    story.rows(k="v1")
    story.events("k=v1@0")
    assert len(violations(story, "failed-change")) == 2


def test_a_table_that_is_not_what_its_topic_says_is_named() -> None:
    story = new_story()
    story.change(UNKNOWN, k="v1")
    story.rows(k="v1")
    story.events("")
    (violation,) = violations(story, "rebuilt-table")
    assert violation.message == "the row 'k' of orders is 'v1', but by orders.changes it is not there"


def test_an_acked_change_that_is_in_no_topic_is_lost() -> None:
    story = new_story()
    story.change(k="v1")
    story.change(k="v2")
    story.events("k=v2@0")
    (violation,) = violations(story, "lost-change")
    assert violation.about == {"v1"}


def test_a_change_with_two_events_is_a_duplicate() -> None:
    story = new_story()
    story.change(k="v1")
    story.events("k=v1@0 k=v1@1")
    assert violations(story, "duplicate-change")


def test_more_deletes_than_were_asked_for_are_duplicates_and_fewer_are_not() -> None:
    for events, wrong in (("k=v1@0", False), ("k=v1@0 k=@1", False), ("k=v1@0 k=@1 k=@2", True)):
        story = new_story()
        story.change(k="v1")
        story.change(UNKNOWN, k=None)
        story.events(events)
        assert bool(violations(story, "duplicate-change")) is wrong


def test_an_event_that_nobody_asked_for_or_of_another_key_is_reported_as_made_up() -> None:
    for events, wrong in (("k=v1@0", False), ("k=v9@0", True), ("j=v1@0", True)):
        story = new_story()
        story.change(k="v1")
        story.events(events)
        assert bool(violations(story, "made-up-change")) is wrong


def test_changes_of_a_key_out_of_order_are_named() -> None:
    for events, wrong in (("k=v1@0 k=v2@1", False), ("k=v2@0 k=v1@1", True)):
        story = new_story()
        story.change(k="v1")
        story.change(k="v2")
        story.events(events)
        assert bool(violations(story, "change-order")) is wrong


def test_changes_of_two_keys_or_at_one_time_have_no_order() -> None:
    story = new_story()
    story.change(k="v1")
    first = story.begin(ChangeCall((("orders", "j", "v2"),)))
    second = story.begin(ChangeCall((("orders", "j", "v3"),)))
    story.end(first)
    story.end(second)
    story.events("j=v3@0 j=v2@1 k=v1@2")
    assert not violations(story, "change-order")


def test_a_transaction_of_which_one_event_is_missing_is_torn() -> None:
    story = new_story()
    story.change(UNKNOWN, k="v1", j="v2")
    story.events("k=v1@0")
    (violation,) = violations(story, "torn-change")
    assert violation.about == {"v1", "v2"}


def test_a_transaction_over_two_tables_is_torn_like_one_of_one() -> None:
    story = new_story()
    story.declare("customers.changes", table="customers")
    story.call(ChangeCall((("orders", "k", "v1"), ("customers", "k", "v2"))), UNKNOWN)
    story.events("k=v1@0")
    assert violations(story, "torn-change")
    story.events("k=v2@0", where="customers.changes/0")
    assert not violations(story, "torn-change")


@pytest.mark.parametrize(
    ("routed", "says"),
    [
        ("k=v1@0 k=v2@1 j=v3@2", None),
        ("j=v3@0 k=v1@1 k=v2@2", None),
        ("k=v1@0 j=v3@1", "changes did not come: 'v2'"),
        ("k=v1@0 k=v2@1 k=v2@2 j=v3@3", "changes came more often than they were made: 'v2'"),
        ("k=v2@0 k=v1@1 j=v3@2", "changes came in another order than they were made"),
    ],
)
def test_a_routed_topic_has_the_changes_of_each_key_in_their_order(routed: str, says: str | None) -> None:
    story = with_route()
    story.change(k="v1")
    story.change(k="v2")
    story.change(j="v3")
    story.events("k=v1@0 k=v2@1 j=v3@2")
    story.events(routed, where=f"{ROUTED}/0")
    messages = [violation.message for violation in violations(story, "routed-otherwise")]
    assert messages == ([f"'k' in shipping: {says}"] if says else [])
