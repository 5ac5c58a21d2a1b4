"""Sets of offsets that are kept as ranges."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.offset_ranges import OffsetRanges, decode_offset_ranges


@given(st.lists(st.integers(0, 60)), st.integers(0, 60))
def test_ranges_are_a_set_of_offsets(offsets: list[int], start: int) -> None:
    ranges = OffsetRanges()
    for offset in offsets:
        ranges.add(offset)
    kept = decode_offset_ranges(ranges.encode())
    assert [offset for offset in range(64) if offset in kept] == sorted(set(offsets))
    assert kept.first_missing(start) == next(offset for offset in range(start, 64) if offset not in set(offsets))
    assert len(kept) == sum(offset - 1 not in set(offsets) for offset in set(offsets))


def test_what_is_below_is_forgotten_whole_ranges_at_a_time() -> None:
    ranges = OffsetRanges()
    for offset in (1, 2, 5, 6, 9):
        ranges.add(offset)
    ranges.forget_below(6)
    assert [offset for offset in range(12) if offset in ranges] == [5, 6, 9]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))))
def test_a_range_is_added_as_all_of_its_offsets(added: list[tuple[int, int]]) -> None:
    ranges, one_by_one = OffsetRanges(), OffsetRanges()
    for start, end in added:
        ranges.add_range(start, end)
        for offset in range(start, end):
            one_by_one.add(offset)
    assert ranges.encode() == one_by_one.encode()
