"""Only that is committed below which everything is marked."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.progress import Progress


def test_marking_in_order_moves_the_safe_offset() -> None:
    progress = Progress(10)
    assert (progress.safe_offset, progress.is_ahead) == (10, False)
    progress.mark(10)
    progress.mark(11)
    assert (progress.safe_offset, progress.is_ahead) == (12, True)


def test_a_gap_holds_it_back_until_it_is_filled() -> None:
    progress = Progress(0)
    progress.mark(1)
    progress.mark(2)
    progress.mark(4)
    assert progress.safe_offset == 0
    progress.mark(0)
    assert progress.safe_offset == 3
    progress.mark(3)
    assert progress.safe_offset == 5


def test_marking_twice_or_below_changes_nothing() -> None:
    progress = Progress(5)
    for offset in (3, 5, 5, 8, 8):
        progress.mark(offset)
    assert (progress.safe_offset, progress.held_ranges) == (6, 1)


def test_a_commit_is_remembered_and_never_goes_back() -> None:
    progress = Progress(0)
    progress.mark(0)
    progress.mark(1)
    progress.committed(2)
    progress.committed(1)
    assert (progress.committed_offset, progress.is_ahead) == (2, False)


def test_neighbouring_marks_take_the_room_of_one() -> None:
    progress = Progress(0)
    for offset in range(1000, 1, -1):
        progress.mark(offset)
    assert progress.held_ranges == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6))))
def test_the_safe_offset_is_the_first_that_was_not_marked(ranges: list[tuple[int, int]]) -> None:
    progress = Progress(3)
    marked: set[int] = set()
    for start, size in ranges:
        progress.mark_range(start, start + size)
        marked.update(range(start, start + size))
        expected = next(offset for offset in range(3, 100) if offset not in marked)
        assert progress.safe_offset == expected
