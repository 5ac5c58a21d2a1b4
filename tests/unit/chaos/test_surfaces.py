"""I12: all surfaces show the same log."""

from tests.unit.chaos.histories import Story, broken, violations


def test_surfaces_that_show_the_same_pass() -> None:
    story = Story()
    story.send("a b", at=0)
    for surface in ("kafka", "http", "sql"):
        story.final("a@0 b@1", surface=surface, worker=surface, key="k")
    assert broken(story) == set()


def test_another_value_on_another_surface_is_named() -> None:
    story = Story()
    story.final("a@0", surface="kafka", worker="f1")
    story.final("b@0", surface="sql", worker="f2")
    (violation,) = violations(story, "surfaces-disagree")
    assert "kafka" in violation.message
    assert "sql" in violation.message


def test_another_key_or_cursor_is_named_and_one_that_is_left_out_is_not() -> None:
    for told, wrong in ({"key": "k"}, False), ({"key": "x"}, True), ({"cursor": 3}, False), ({"cursor": 4}, True), ({}, False):
        story = Story()
        story.final("a@0", surface="http", worker="f1", key="k", cursor=3)
        story.final("a@0", surface="sql", worker="f2", **told)
        assert bool(violations(story, "surfaces-disagree")) is wrong


def test_a_cursor_of_two_records_is_named() -> None:
    story = Story()
    story.poll("a@0", where="t/0", cursor=3)
    story.poll("b@0", where="t/1", cursor=3)
    (violation,) = violations(story, "cursor-order")
    assert violation.about == {"a", "b"}


def test_cursors_rise_with_offsets() -> None:
    for cursor, wrong in ((4, False), (2, True)):
        story = Story()
        story.poll("b@1", cursor=cursor)
        story.poll("a@0", cursor=3, worker="r2")
        assert bool(violations(story, "cursor-order")) is wrong


def test_a_record_that_one_surface_passes_is_hidden() -> None:
    story = Story()
    story.final("a@0 b@1 c@2", surface="kafka", worker="f1")
    story.final("a@0 c@2", surface="http", worker="f2")
    (violation,) = violations(story, "hidden-on-surface")
    assert violation.about == {"b"}


def test_a_surface_that_began_or_ended_elsewhere_hides_nothing() -> None:
    story = Story()
    story.final("a@0 b@1 c@2 d@3", surface="kafka", worker="f1")
    story.final("b@1 c@2", surface="http", worker="f2")
    assert not violations(story, "hidden-on-surface")
