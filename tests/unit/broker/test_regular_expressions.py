"""Regular expressions of Kafka's clients mean what RE2 says, or are rejected."""

import re

import pytest

from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.regular_expressions import RegularExpressions
from tailrace.model.errors import InvalidRegularExpressionError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tests.support.aio import on_loop

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
@on_loop
async def test_names_match_as_a_whole(pattern: str) -> None:
    # For this part of the language Python and RE2 agree; RE2's classes are those of ASCII.
    expected = {name for name in NAMES if re.fullmatch(pattern, name, re.ASCII)}
    assert await matching(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("(?i)orders-1", {"orders-1", "ORDERS-1"}), ("[[:alpha:]]", {"a"}), (r"\p{L}", {"a", "é"}), (r"\Qx.y\E", {"x.y"})],
)
@on_loop
async def test_what_only_re2_knows_is_known(pattern: str, expected: set[str]) -> None:
    assert await matching(pattern) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?=a)", r"(a)\1", "(", "a)", "a)|(b", "[a", "[]", "*", "a**", "\\", "[b-a]", "a{1001}"),
        "a" * (DEFAULT_LIMITS.topic_pattern_bytes + 1),
    ],
)
@on_loop
async def test_what_re2_does_not_take_is_rejected(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        await matching(pattern)


@on_loop
async def test_an_expression_that_makes_others_backtrack_takes_no_time() -> None:
    names = ["a" * 5_000 + "b"] * 20
    assert await RegularExpressions(ReadThreads(Limits()), Limits()).match(["(a*)*c"], names) == {"(a*)*c": frozenset()}


async def matching(pattern: str) -> frozenset[str]:
    threads = ReadThreads(DEFAULT_LIMITS)
    try:
        return (await RegularExpressions(threads, DEFAULT_LIMITS).match([pattern], NAMES))[pattern]
    finally:
        threads.close()
