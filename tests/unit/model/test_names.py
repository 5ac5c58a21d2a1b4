import pytest

from tailrace.model.errors import InvalidGroupNameError, InvalidTopicNameError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import check_group_name, check_topic_name


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
def test_illegal_topic_names_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopicNameError, match=reason):
        check_topic_name(name, DEFAULT_LIMITS)


@pytest.mark.parametrize("name", ["g", "группа", "a b/c", "x" * 255])
def test_legal_group_names_pass(name: str) -> None:
    check_group_name(name, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "can't be empty"), ("x" * 256, "group_name_length"), ("ä" * 128, "group_name_length"), ("\udcff", "Unicode")],
)
def test_illegal_group_names_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidGroupNameError, match=reason):
        check_group_name(name, DEFAULT_LIMITS)
