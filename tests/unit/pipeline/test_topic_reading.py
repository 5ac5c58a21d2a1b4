"""Ranges of offsets: nothing is left out and nothing is read twice, however they are limited and shared out."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipeline.topic_reading import OffsetRange, limited, ranges_between, split

offsets = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 500)), min_size=1, max_size=4)
)


def test_what_lies_between_is_read_once() -> None:
    found = list(ranges_between({"a": [3, 5]}, {"a": [3, 9, 4], "b": [1]}))
    assert found == [OffsetRange("a", 1, 5, 9), OffsetRange("a", 2, 0, 4), OffsetRange("b", 0, 0, 1)]


@given(offsets, st.integers(1, 300))
def test_a_limit_takes_no_more_than_it_says_and_always_moves_on(given: dict[str, list[tuple[int, int]]], most: int) -> None:
    start = {topic: [at for at, _ in each] for topic, each in given.items()}
    end = {topic: [at + size for at, size in each] for topic, each in given.items()}
    short = limited(start, end, most)
    taken = sum(each.end - each.start for each in ranges_between(start, short))
    waiting = sum(size for each in given.values() for _, size in each)
    assert taken <= most
    assert taken == waiting if waiting <= most else taken > 0
    for topic, ends in short.items():
        assert all(low <= at <= high for low, at, high in zip(start[topic], ends, end[topic], strict=True))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 500)), min_size=1, max_size=6), st.integers(1, 40))
def test_split_ranges_hold_the_same_offsets_in_the_same_order(sizes: list[tuple[int, int]], tasks: int) -> None:
    ranges = [OffsetRange("t", number, at, at + size) for number, (at, size) in enumerate(sizes)]
    pieces = split(ranges, tasks)
    read = [(each.partition, at) for each in pieces for at in range(each.start, each.end)]
    assert read == [(each.partition, at) for each in ranges for at in range(each.start, each.end)]
    assert all(each.end > each.start for each in pieces)


def test_one_large_partition_is_shared_by_several_tasks() -> None:
    assert [(each.start, each.end) for each in split([OffsetRange("t", 0, 100, 200)], 4)] == [
        (100, 125),
        (125, 150),
        (150, 175),
        (175, 200),
    ]
