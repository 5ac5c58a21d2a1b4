"""Looking up offsets by time, and by the bytes from there to the end."""

from collections.abc import Callable

import pytest

from tailrace.model.commit import UNKNOWN_TIMESTAMP, Changes, OffsetBounds
from tailrace.model.errors import UnknownPartitionError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.store.contract import Store
from tests.support.batches import append, append_timed

A = TopicId(1)
A0, A1 = PartitionId(A, 0), PartitionId(A, 1)


def _write(store: Store, *newest: int) -> None:
    """Write one batch of two records for each time, with another partition's records in between."""
    store.commit(Changes(creates=[(A, 2)]))
    for timestamp in newest:
        store.commit(Changes(appends=[append_timed(A0, [(timestamp - 1, b"x"), (timestamp, b"y")]), append(A1, b"z")]))


def _first_at_or_after(newest: list[int], timestamp: int) -> int | None:
    return next((2 * index for index, time in enumerate(newest) if time >= timestamp), None)


@pytest.mark.parametrize(
    "newest",
    [[100, 200, 300, 400], [300, 100, 200, 50, 400, 10], [100, 100, 100], [500], [400, 300, 200, 100]],
    ids=["rising", "mixed", "equal", "one", "falling"],
)
def test_a_time_is_found_in_the_first_batch_that_reaches_it(
    store: Store, revisit: Callable[[], Store], newest: list[int]
) -> None:
    _write(store, *newest)
    store = revisit()
    for timestamp in sorted({time + step for time in newest for step in (-1, 0, 1)} | {-1, 0, 1 << 60}):
        assert store.batch_for_time(A0, timestamp) == _first_at_or_after(newest, timestamp), f"time {timestamp}"


def test_a_time_is_found_among_many_batches(store: Store, revisit: Callable[[], Store]) -> None:
    newest = [(number * 7919) % 1_000 + number for number in range(400)]
    store.commit(Changes(creates=[(A, 2)]))
    for first in range(0, 400, 20):
        batches = [append_timed(A0, [(time - 1, b"x"), (time, b"y")]) for time in newest[first : first + 20]]
        store.commit(Changes(appends=batches))
    store = revisit()
    for timestamp in range(0, 1_500, 13):
        assert store.batch_for_time(A0, timestamp) == _first_at_or_after(newest, timestamp), f"time {timestamp}"


def test_a_time_is_found_only_in_what_a_trim_left(store: Store, revisit: Callable[[], Store]) -> None:
    _write(store, 900, 100, 200, 300)
    store.commit(Changes(trims=[(A0, Offset(2))]))
    store = revisit()
    assert store.batch_for_time(A0, 50) == 2
    assert store.batch_for_time(A0, 150) == 4
    assert store.batch_for_time(A0, 301) is None


def test_a_time_before_a_trim_inside_a_batch_is_found_in_that_batch(store: Store, revisit: Callable[[], Store]) -> None:
    _write(store, 100, 200, 300)
    store.commit(Changes(trims=[(A0, Offset(3))]))
    assert revisit().batch_for_time(A0, 150) == 2


def test_no_time_is_found_in_an_empty_partition(store: Store, revisit: Callable[[], Store]) -> None:
    _write(store, 100)
    store.commit(Changes(trims=[(A0, Offset(2))]))
    store = revisit()
    assert store.batch_for_time(A0, 0) is None
    with pytest.raises(UnknownPartitionError):
        store.batch_for_time(PartitionId(A, 9), 0)


def test_batches_that_may_be_old_enough_are_found(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    oldest = [(number * 7919) % 100 for number in range(100)]
    for time in oldest:
        store.commit(Changes(appends=[append_timed(A0, [(time + 50, b"x"), (time, b"y")]), append(A1, b"z")]))
    store.commit(Changes(trims=[(A0, Offset(7))]))
    store = revisit()
    for timestamp in (-1, 0, 1, 50, 98, 99, 1 << 60):
        for within in (OffsetBounds(Offset(7), Offset(200)), OffsetBounds(Offset(20), Offset(41))):
            found = store.batches_not_after(A0, timestamp, within)
            offsets = {offset for start, end in found for offset in range(start, end)}
            assert all(within.start <= start < end <= within.end for start, end in found)
            assert offsets >= {at for at in range(*within) if oldest[at // 2] <= timestamp}
            assert bool(found) == any(oldest[at // 2] <= timestamp for at in range(*within))
    with pytest.raises(UnknownPartitionError):
        store.batches_not_after(PartitionId(A, 9), 0, OffsetBounds(Offset(0), Offset(1)))


def test_a_batch_whose_timestamps_are_not_known_is_always_found(store: Store, revisit: Callable[[], Store]) -> None:
    unknown = append_timed(A0, [(500, b"x")])._replace(oldest_timestamp=UNKNOWN_TIMESTAMP)
    store.commit(Changes(creates=[(A, 1)], appends=[unknown]))
    assert revisit().batches_not_after(A0, -(1 << 63), OffsetBounds(Offset(0), Offset(1))) == [(0, 1)]


def _write_sizes(store: Store, *values: int) -> list[int]:
    store.commit(Changes(creates=[(A, 2)]))
    batches = [append(A0, b"x" * size, b"") for size in values]
    for batch in batches:
        store.commit(Changes(appends=[batch, append(A1, b"between")]))
    return [len(batch.batch) for batch in batches]


def test_size_counts_the_bytes_of_the_batches(store: Store, revisit: Callable[[], Store]) -> None:
    sizes = _write_sizes(store, 10, 200, 3_000)
    store = revisit()
    assert store.size(A0) == sum(sizes)
    store.commit(Changes(trims=[(A0, Offset(2))]))
    assert store.size(A0) == sum(sizes[1:])
    store.commit(Changes(trims=[(A0, Offset(5))]))
    assert store.size(A0) == sizes[2]
    store.commit(Changes(trims=[(A0, Offset(6))]))
    assert store.size(A0) == 0


def test_size_is_the_same_after_trims_and_reopening(store: Store, revisit: Callable[[], Store]) -> None:
    sizes = _write_sizes(store, 10, 200, 3_000, 40)
    store.commit(Changes(trims=[(A0, Offset(3))]))
    assert revisit().size(A0) == sum(sizes[1:])


def test_size_can_be_counted_from_any_offset(store: Store, revisit: Callable[[], Store]) -> None:
    sizes = _write_sizes(store, *range(50, 550, 23))
    store = revisit()
    for offset in range(2 * len(sizes) + 1):
        assert store.size(A0, Offset(offset)) == sum(sizes[offset // 2 :])
    store.commit(Changes(trims=[(A0, Offset(5))]))
    assert [store.size(A0, Offset(offset)) for offset in (0, 4, 5, 6)] == [sum(sizes[2:])] * 3 + [sum(sizes[3:])]
    with pytest.raises(UnknownPartitionError):
        store.size(PartitionId(A, 9), Offset(0))


def test_the_batches_that_make_up_a_size_are_found_from_the_end(store: Store, revisit: Callable[[], Store]) -> None:
    sizes = _write_sizes(store, 10, 200, 3_000, 40, 7)
    store = revisit()
    for kept in range(1, 6):
        room = sum(sizes[5 - kept :])
        assert store.batch_for_size(A0, room) == 10 - 2 * kept, f"{kept} batches are just enough"
        if kept < 5:
            assert store.batch_for_size(A0, room + 1) == 8 - 2 * kept, f"one byte more than {kept} batches have"
    assert store.batch_for_size(A0, 1 << 40) == 0
    assert store.batch_for_size(A0, 1) == 8
    assert store.batch_for_size(A0, 0) == 10


def test_the_batches_that_make_up_a_size_are_found_after_a_trim(store: Store, revisit: Callable[[], Store]) -> None:
    sizes = _write_sizes(store, 10, 200, 3_000)
    store.commit(Changes(trims=[(A0, Offset(2))]))
    store = revisit()
    assert store.batch_for_size(A0, 1 << 40) == 2
    assert store.batch_for_size(A0, sizes[2]) == 4
    assert store.batch_for_size(A0, sizes[2] + 1) == 2


def test_trimming_to_a_size_leaves_that_much_and_less_than_one_batch_more(store: Store, revisit: Callable[[], Store]) -> None:
    sizes = _write_sizes(store, *range(50, 550, 7))
    for keep_bytes in (20_000, 9_999, 5_000, 100):
        store.commit(Changes(trims=[(A0, store.batch_for_size(A0, keep_bytes))]))
        assert keep_bytes <= store.size(A0) < keep_bytes + max(sizes)
    store.commit(Changes(trims=[(A0, store.batch_for_size(A0, 0))]))
    assert revisit().size(A0) == 0
