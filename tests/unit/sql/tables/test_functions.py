"""LIKE by our own code means what it means everywhere, and takes no longer for a wicked pattern."""

import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import SqlError
from tailrace.sql.tables.functions import glob_of_like, is_like


def as_regex(pattern: str) -> re.Pattern[str]:
    """The meaning of LIKE, written down in the simplest way."""
    parts = {"%": ".*", "_": "."}
    return re.compile("".join(parts.get(character, re.escape(character)) for character in pattern), re.DOTALL)


@given(st.text("ab\n.*", max_size=12), st.text("ab%_.*\n", max_size=8))
def test_like_is_what_a_regular_expression_says(text: str, pattern: str) -> None:
    assert is_like(text, pattern, "\\") == (as_regex(pattern).fullmatch(text) is not None)


@pytest.mark.parametrize(
    ("pattern", "escape", "glob"),
    [("a%_", "\\", "a*?"), ("50\\%", "\\", "50%"), ("[*?]", "\\", "[[][*][?]]"), ("!%!!%", "!", "%!*")],
)
def test_a_pattern_as_glob(pattern: str, escape: str, glob: str) -> None:
    assert glob_of_like(pattern, escape) == glob


def test_an_escape_without_its_character_is_refused() -> None:
    for match in (lambda: is_like("a", "a\\", "\\"), lambda: glob_of_like("a\\", "\\")):
        with pytest.raises(SqlError, match="escape"):
            match()


def test_a_wicked_pattern_takes_no_time() -> None:
    began = time.process_time()
    assert not is_like("a" * 5_000, "%a" * 50 + "%b", "\\")
    assert time.process_time() - began < 1


def test_a_long_search_lets_others_have_the_interpreter() -> None:
    text = "a" * 100_000 + "b"
    searched = threading.Thread(target=is_like, args=(text, "%" + "_a" * 1_000 + "z%", "\\"))
    searched.start()
    longest, before = 0.0, time.monotonic()
    while searched.is_alive():
        time.sleep(0.001)
        now = time.monotonic()
        longest, before = max(longest, now - before), now
    assert longest < 0.5, "in one piece it takes a second, and longer on a busy machine"
    assert is_like(text, "%" + "_a" * 1_000 + "b", "\\")
    assert is_like(text, "a%" + "_" * 1_000 + "%b", "\\")
    assert not is_like(text, "%" + "_a" * 1_000 + "bz", "\\")


def test_a_search_without_end_is_refused() -> None:
    with pytest.raises(SqlError, match="too long for a text"):
        is_like("a" * 1_000_000, "%" + "_" * 10_000 + "z%", "\\")
