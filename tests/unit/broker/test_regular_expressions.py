"""Regular expressions of Kafka's clients mean what RE2 says, or are rejected."""

import re

import pytest

from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.regular_expressions import RegularExpressions, expanded_size
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
    [("(?i)orders-1", {"orders-1", "ORDERS-1"}), ("[[:alpha:]]", {"a"}), (r"\Qx.y\E", {"x.y"})],
)
@on_loop
async def test_what_only_re2_knows_is_known(pattern: str, expected: set[str]) -> None:
    assert await matching(pattern) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?=a)", r"(a)\1", "(", "a)", "a)|(b", "[a", "[]", "*", "a**", "\\", "[b-a]", "a{1001}"),
        # Unicode, and more than is allowed once it is written out.
        *(r"\p{L}", "é", "(a{100}){20}"),
        "a" * (DEFAULT_LIMITS.topic_pattern_bytes + 1),
    ],
)
@on_loop
async def test_what_is_wrong_or_too_large_is_rejected(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        await matching(pattern)


@on_loop
async def test_an_expression_that_makes_others_backtrack_takes_no_time() -> None:
    names = ["a" * 5_000 + "b"] * 20
    assert await RegularExpressions(ReadThreads(Limits()), Limits()).match(["(a*)*c"], names) == {"(a*)*c": frozenset()}


@pytest.mark.parametrize(
    ("pattern", "written_out"),
    [
        ("orders", "orders"),
        ("a{3}", "aaa"),
        ("ba{3}", "baaa"),
        ("a{2,}", "aa"),
        ("a{1,4}", "aaaa"),
        ("a{0}", "a"),
        ("(ab){3}", "(ab)(ab)(ab)"),
        ("(a{2}){3}", "(aa)(aa)(aa)"),
        ("[a-c]{2}x", "[a-c][a-c]x"),
        ("[]a]{2}", "[]a][]a]"),
        ("[^]a]{2}", "[^]a][^]a]"),
        ("[[:alpha:]]{2}", "[[:alpha:]][[:alpha:]]"),
        (r"[\]a]{2}", r"[\]a][\]a]"),
        (r"\d{2}", r"\d\d"),
        (r"\x{41}{2}", r"\x{41}\x{41}"),
        (r"\{2}", r"\{2}"),
        ("a{,2}", "a{,2}"),
        ("a*{2}", "a*a*"),
        ("(a{2", "(a{2"),
        ("a){2}", "a))"),
        ("", ""),
    ],
)
def test_counted_repetitions_are_written_out(pattern: str, written_out: str) -> None:
    assert expanded_size(pattern) == len(written_out)


@pytest.mark.parametrize("between", [r"\Q\E", "(?i)", "(?-s)", "*(?i)", "+?(?i)", "{2}(?i)"])
def test_a_count_reaches_the_group_before_what_matches_nothing(between: str) -> None:
    assert expanded_size(f"(?:abc){between}{{100}}") >= 100 * len("(?:abc)")


@on_loop
async def test_what_would_take_long_is_refused_with_the_limit() -> None:
    expressions = RegularExpressions(ReadThreads(DEFAULT_LIMITS), Limits(topic_pattern_bytes=20))
    expressions.check("(ab){3}")
    for pattern in ("a" * 21, "(?:(?:a?b?){500}){2}", "(ab){6}"):
        with pytest.raises(InvalidRegularExpressionError, match="topic_pattern_bytes allows \\(20\\)"):
            expressions.check(pattern)
    for pattern in ("é", r"\\\pL"):
        with pytest.raises(InvalidRegularExpressionError, match="Unicode"):
            expressions.check(pattern)


async def matching(pattern: str) -> frozenset[str]:
    threads = ReadThreads(DEFAULT_LIMITS)
    try:
        return (await RegularExpressions(threads, DEFAULT_LIMITS).match([pattern], NAMES))[pattern]
    finally:
        threads.close()
