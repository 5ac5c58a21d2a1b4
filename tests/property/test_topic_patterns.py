"""Two patterns overlap if there is a name that both match."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.names import parse_pattern

_WORDS = ("a", "b", "_changes")
_NAMES = [".".join(parts) for length in range(1, 5) for parts in product(_WORDS, repeat=length)]
_PARTS = st.lists(st.sampled_from((*_WORDS, "*")), min_size=0, max_size=3)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    parts = draw(_PARTS)
    if not parts or draw(st.booleans()):
        parts.append(">")
    return ".".join(parts)


@given(patterns(), patterns())
def test_patterns_overlap_if_and_only_if_a_name_matches_both(first: str, second: str) -> None:
    one, another = parse_pattern(first, DEFAULT_LIMITS), parse_pattern(second, DEFAULT_LIMITS)
    both = [name for name in _NAMES if one.matches(name) and another.matches(name)]
    assert one.overlaps(another) == another.overlaps(one) == bool(both), both[:3]
