"""Regular expressions of Kafka's clients mean what RE2 says, or are rejected."""

import re

import pytest

from tailrace.kafka.regular_expressions import Re2Pattern
from tailrace.model.errors import InvalidRegularExpressionError

NAMES = (
    "",
    "a",
    "ab",
    "abab",
    "orders-1",
    "orders-12",
    "ORDERS-1",
    "x.y",
    "xzy",
    "a\nb",
    "a-b",
    "[a]",
    "a\\b",
    "é",
    "_x9",
    "a b",
    "{2}",
)


@pytest.mark.parametrize(
    "pattern",
    [
        "a",
        "orders-.*",
        "orders-[0-9]+",
        "(ab)+",
        "(?:ab){2}",
        "a|ab|",
        "^a$",
        "x.y",
        r"x\.y",
        ".*",
        r"\w+",
        r"\W*",
        r"[\w-]+",
        r"[^\s]*",
        r"\d\D*|\S+",
        "[]a]+",
        r"[\[\]a]+",
        "[^a]",
        "[a-c-]+",
        "a.?b",
        "o.*?1",
        "a{0,1}?b",
        r"a\\b",
        r"a\nb",
        r"\{2\}",
        "(a|b)*",
        r"_\w+",
    ],
)
def test_what_is_supported_matches_whole_names_as_python_does(pattern: str) -> None:
    # For this part of the language Python and RE2 agree; RE2's classes are those of ASCII.
    expected = [name for name in NAMES if re.fullmatch(pattern, name, re.ASCII)]
    expression = Re2Pattern(pattern)
    assert [name for name in NAMES if expression.matches(name)] == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?i)a", "(?P<n>a)", "(?=a)", "[[:alpha:]]", r"\bword", r"\p{L}", r"\Qa\E", r"\x41", r"\1", r"[\D]"),
        *("(", "a)", "[a", "[]", "*", "a|*", "a**", "a{2", "x}", "]", "\\", "a{256}", "a{2,1}", "***=a", "(*)", "[b-a]"),
        *("(a{200}){200}", "(a|b)*a(a|b){250}", "a" * 1_001),
    ],
)
def test_what_is_wrong_or_not_supported_is_rejected(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        Re2Pattern(pattern)


def test_matches_that_take_too_long_together_are_ended() -> None:
    ticks = iter(range(100))
    expression = Re2Pattern("a*", clock=lambda: next(ticks) * 0.4)
    assert expression.matches("a")
    assert expression.matches("b") is False
    with pytest.raises(InvalidRegularExpressionError, match="takes too long"):
        expression.matches("a")
