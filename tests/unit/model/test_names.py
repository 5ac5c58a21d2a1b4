"""Legal names, and which topics a pattern matches."""

import pytest

from tailrace.model.errors import InvalidGroupNameError, InvalidPatternError, InvalidTopicNameError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.names import check_group_name, check_topic_name, parse_pattern


@pytest.mark.parametrize("name", ["a", "app.new_messages", "A-1_b.c", "x" * 249, ".".join("a" * 16), "__internal"])
def test_legal_topic_names_pass(name: str) -> None:
    check_topic_name(name, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "can't be empty"),
        ("x" * 250, "topic_name_length"),
        ("a b", "characters other than"),
        ("a\n", "characters other than"),
        ("süß", "characters other than"),
        (".", "an empty part"),
        ("..", "an empty part"),
        ("a..b", "an empty part"),
        (".a", "an empty part"),
        ("a.", "an empty part"),
        (".".join("a" * 17), "topic_segments"),
    ],
)
def test_illegal_topic_names_are_rejected_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopicNameError, match=reason):
        check_topic_name(name, DEFAULT_LIMITS)


@pytest.mark.parametrize("name", ["g", "группа", "a b/c", "x" * 255])
def test_legal_group_names_pass(name: str) -> None:
    check_group_name(name, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "can't be empty"), ("x" * 256, "group_name_length"), ("ä" * 128, "group_name_length"), ("\udcff", "Unicode")],
)
def test_illegal_group_names_are_rejected_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidGroupNameError, match=reason):
        check_group_name(name, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders.created", False),
        ("orders", "order", False),
        ("orders.created", "orders.created", True),
        ("orders.created", "ordersXcreated", False),
        ("orders.*", "orders.created", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.us.created", False),
        ("orders.*.created", "orders.us.created", True),
        ("orders.*.created", "orders.created", False),
        ("orders.*.created", "orders.us.deleted", False),
        ("*.created", "orders.created", True),
        ("*.created", "orders.us.created", False),
        ("*", "orders", True),
        ("*", "orders.created", False),
        ("*.*", "orders.created", True),
        ("orders.>", "orders", True),
        ("orders.>", "orders.created", True),
        ("orders.>", "orders.us.created", True),
        ("orders.>", "ordersx", False),
        ("orders.>", "ordersx.created", False),
        ("orders.>", "my.orders.created", False),
        ("*.>", "orders", True),
        ("*.>", "orders.us.created", True),
        ("orders.*.>", "orders", False),
        ("orders.*.>", "orders.us", True),
        ("orders.*.>", "orders.us.created", True),
        (">", "orders", True),
        (">", "orders.us.created", True),
        (">", "_audit.logins", True),
        (">", "_changes.chat.messages", False),
        (">", "_routes", False),
        ("*", "_routes", False),
        ("*.>", "_changes.chat.messages", False),
        ("*.chat.messages", "_changes.chat.messages", False),
        ("_changes.>", "_changes.chat.messages", True),
        ("_changes.chat.*", "_changes.chat.messages", True),
        ("_changes.chat.messages", "_changes.chat.messages", True),
        ("_routes", "_routes", True),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, name: str, is_match: bool) -> None:
    assert parse_pattern(pattern, DEFAULT_LIMITS).matches(name) is is_match


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a.>.b", ">.a", "a*", "a.b*", "a>", "**", "a b", "ü", "a.*\n"])
def test_what_is_no_pattern_is_rejected_with_its_text(text: str) -> None:
    with pytest.raises(InvalidPatternError) as refused:
        parse_pattern(text, DEFAULT_LIMITS)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(("text", "limit"), [("a" * 11, "topic_name_length"), ("a.b.c.d", "topic_segments")])
def test_a_pattern_has_the_bounds_of_a_name(text: str, limit: str) -> None:
    with pytest.raises(InvalidPatternError, match=limit):
        parse_pattern(text, Limits(topic_name_length=10, topic_segments=3))


def test_only_a_pattern_without_wildcards_is_literal() -> None:
    assert [parse_pattern(text, DEFAULT_LIMITS).is_literal for text in ("a.b", "a.*", "a.>", ">")] == [
        True,
        False,
        False,
        False,
    ]
