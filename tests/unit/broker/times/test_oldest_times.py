"""Known timestamps exclude only records that are certainly too late, however they were learned and however many there are."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.reading.scan import ScanRange
from tailrace.broker.times.oldest_times import LearnedTimes, OldestTimes, TimeRun
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.store.memory import MemoryStore

A, B, C = (PartitionId(TopicId(number), 0) for number in (1, 2, 3))


def span(start: int, end: int) -> ScanRange:
    return ScanRange(Offset(start), Offset(end))


def a_run(start: int, end: int, oldest_ms: int) -> TimeRun:
    return TimeRun(Offset(start), Offset(end), oldest_ms)


def left(known: LearnedTimes, time: int, start: int = 0, end: int = 100) -> list[tuple[int, int]]:
    return [(part.start, part.end) for part in known.not_after(time, span(start, end))]


def of_runs(*runs: tuple[int, int, int], most: int = 100) -> LearnedTimes:
    known = LearnedTimes(most)
    for run in runs:
        known.learn(a_run(*run))
    return known


def test_what_is_not_known_is_left() -> None:
    known = OldestTimes(MemoryStore(), 10)
    assert known.not_after(5, A, span(3, 9)) == [span(3, 9)]
    known.learn(A, span(0, 10), 7)
    assert known.not_after(5, B, span(3, 9)) == [span(3, 9)]
    assert known.not_after(5, A, span(3, 9)) == []


def test_only_runs_that_are_later_are_left_out() -> None:
    known = of_runs((0, 10, 5), (10, 20, 7), (30, 40, 6))
    assert left(known, 4) == [(20, 30), (40, 100)]
    assert left(known, 5) == [(0, 10), (20, 30), (40, 100)]
    assert left(known, 6) == [(0, 10), (20, 100)]
    assert left(known, 7) == [(0, 100)]
    assert left(known, 4, 12, 35) == [(20, 30)]
    assert left(known, 4, 12, 20) == []


def test_what_is_learned_again_fills_the_gaps_alone() -> None:
    known = of_runs((10, 20, 9), (30, 40, 3))
    known.learn(a_run(5, 50, 4))
    assert left(known, 3, 0, 60) == [(0, 5), (30, 40), (50, 60)]
    assert left(known, 8, 0, 60) == [(0, 10), (20, 60)]
    assert len(known) == 5


def test_runs_that_touch_are_joined_when_there_are_too_many() -> None:
    known = of_runs(*((start, start + 1, start) for start in range(1000)), most=100)
    assert len(known) <= 100
    assert left(known, 500, 0, 1000)[0][0] == 0
    assert 501 <= left(known, 500, 0, 1000)[0][1] <= 501 + 1000 * 4 // 100


def test_a_growing_tail_does_not_blur_what_lies_before_it() -> None:
    known = of_runs((0, 1000, 1), (1000, 2000, 2), most=20)
    for offset in range(2000, 4000):
        known.learn(a_run(offset, offset + 1, 3))
    assert left(known, 1, 0, 4000) == [(0, 1000)]


def test_what_is_saved_by_now_is_forgotten() -> None:
    known = OldestTimes(MemoryStore(), 2)
    known.learn(A, span(0, 10), 5)
    known.learn(A, span(10, 20), 6)
    known.forget_learned(A, Offset(10))
    assert known.learned(A, Offset(5)) is None
    assert known.learned(A, Offset(12)) == a_run(12, 20, 6)
    known.learn(B, span(0, 10), 5)
    assert known.not_after(1, A, span(0, 20)) == [span(0, 10)], "there is room for both"
    known.forget_learned(A, Offset(20))
    known.forget_learned(C, Offset(20))
    assert known.learned(A, Offset(12)) is None


def test_what_is_learned_is_told_from_any_offset_in_it() -> None:
    known = of_runs((10, 20, 9), (30, 40, 3))
    for offset, told in [
        (9, None),
        (10, a_run(10, 20, 9)),
        (19, a_run(19, 20, 9)),
        (20, None),
        (30, a_run(30, 40, 3)),
        (40, None),
    ]:
        assert known.holding(Offset(offset)) == told


def test_too_many_gaps_are_forgotten_with_all_that_lies_between() -> None:
    known = of_runs(*((2 * start, 2 * start + 1, 5) for start in range(11)), most=10)
    assert left(known, 0) == [(0, 100)]
    assert len(known) == 0


def test_the_partitions_that_were_asked_least_lately_are_forgotten_first() -> None:
    known = OldestTimes(MemoryStore(), 2)
    known.learn(A, span(0, 10), 5)
    known.learn(B, span(0, 10), 5)
    known.not_after(1, A, span(0, 10))
    known.learn(C, span(0, 10), 5)
    assert [known.not_after(1, partition, span(0, 10)) for partition in (A, B, C)] == [[], [span(0, 10)], []]


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12),
    st.integers(0, 20),
    st.sampled_from([2, 5, 100]),
)
def test_no_record_that_is_old_enough_is_ever_left_out(
    times: list[int], looked_at: list[tuple[int, int]], bound: int, most: int
) -> None:
    known = LearnedTimes(most)
    for start, end in looked_at:
        if start < min(end, len(times)):
            known.learn(a_run(start, min(end, len(times)), min(times[start:end])))
        assert len(known) <= most
    parts = left(known, bound, 0, len(times))
    offsets = [offset for start, end in parts for offset in range(start, end)]
    assert offsets == sorted(set(offsets))
    assert {offset for offset, time in enumerate(times) if time <= bound} <= set(offsets)
