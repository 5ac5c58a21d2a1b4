"""Reading one partition: whole batches, at least one, never outside the bounds."""

from collections.abc import Callable

import pytest

from tailrace.model.commit import Changes, OffsetBounds
from tailrace.model.errors import OffsetOutOfRangeError
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.store.contract import Store
from tests.support.batches import append, decode_batch, values_of
from tests.support.observed import fetch_all

A = TopicId(1)
A0, A1 = PartitionId(A, 0), PartitionId(A, 1)


def _filled(store: Store) -> list[int]:
    """Write six batches of three records, with another partition's in between. Return the sizes of the batches."""
    store.commit(Changes(creates=[(A, 2)]))
    batches = [append(A0, *[b"%d" % record * 20 for record in range(first, first + 3)]) for first in range(0, 18, 3)]
    for batch in batches:
        store.commit(Changes(appends=[batch, append(A1, b"between" * 30)]))
    return [len(batch.batch) for batch in batches]


def test_fetch_gives_whole_batches_up_to_max_bytes(store: Store, revisit: Callable[[], Store]) -> None:
    sizes = _filled(store)
    store = revisit()
    for count in range(1, 7):
        exact = sum(sizes[:count])
        assert [len(batch) for batch in store.fetch(A0, Offset(0), exact).batches] == sizes[:count]
        assert len(store.fetch(A0, Offset(0), exact - 1).batches) == max(1, count - 1)


def test_fetch_gives_at_least_one_batch_however_small_max_bytes_is(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store = revisit()
    for max_bytes in (0, 1, 50):
        assert len(store.fetch(A0, Offset(0), max_bytes).batches) == 1


def test_fetch_from_inside_a_batch_begins_with_the_batch_that_holds_the_offset(
    store: Store, revisit: Callable[[], Store]
) -> None:
    _filled(store)
    store = revisit()
    for offset in range(18):
        first = decode_batch(store.fetch(A0, Offset(offset), 1).batches[0])
        assert [record.offset for record in first] == [offset - offset % 3 + index for index in range(3)]


def test_fetch_tells_the_cursor_of_each_batch(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store = revisit()
    scanned = {batch.base_offset: batch.cursor for batch in store.scan(Cursor(0), 1 << 20).batches if batch.partition == A0}
    assert scanned == {offset: offset // 3 * 4 for offset in range(0, 18, 3)}
    for offset in range(18):
        fetched = store.fetch(A0, Offset(offset), 1 << 20)
        assert list(fetched.cursors) == [scanned[Offset(first)] for first in range(offset - offset % 3, 18, 3)]


def test_fetch_at_the_end_gives_nothing_and_the_bounds(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store.commit(Changes(trims=[(A0, Offset(3))]))
    fetched = revisit().fetch(A0, Offset(18), 1_000)
    assert list(fetched.batches) == []
    assert fetched.bounds == OffsetBounds(Offset(3), Offset(18))


@pytest.mark.parametrize("offset", [-1, 0, 2, 19, 1 << 40])
def test_fetch_outside_the_bounds_is_an_error_that_names_them(store: Store, revisit: Callable[[], Store], offset: int) -> None:
    _filled(store)
    store.commit(Changes(trims=[(A0, Offset(3))]))
    with pytest.raises(OffsetOutOfRangeError, match=str(offset)) as refusal:
        revisit().fetch(A0, Offset(offset), 1_000)
    assert (refusal.value.start, refusal.value.end) == (3, 18)


def test_an_empty_partition_is_read_at_zero_only(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    store = revisit()
    fetched = store.fetch(A0, Offset(0), 100)
    assert (list(fetched.batches), fetched.bounds) == ([], (0, 0))
    with pytest.raises(OffsetOutOfRangeError):
        store.fetch(A0, Offset(1), 100)


def test_fetch_never_mixes_in_another_partition(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store = revisit()
    assert values_of(store.fetch(A1, Offset(0), 1 << 20).batches) == [b"between" * 30] * 6
    assert [record.offset for record in fetch_all(store, A0)] == list(range(18))


def test_a_batch_larger_than_max_bytes_is_served_alone(store: Store, revisit: Callable[[], Store]) -> None:
    large = b"x" * 500_000
    store.commit(Changes(creates=[(A, 1)], appends=[append(A0, b"small"), append(A0, large), append(A0, b"small")]))
    store = revisit()
    assert values_of(store.fetch(A0, Offset(0), 1_000).batches) == [b"small"]
    assert values_of(store.fetch(A0, Offset(1), 1_000).batches) == [large]


def test_what_is_hot_can_be_fetched(store: Store) -> None:
    _filled(store)
    hot = [offset for offset in range(18) if store.is_hot(A0, Offset(offset))]
    assert hot, "what was just written is served from memory"
    for offset in hot:
        assert store.fetch(A0, Offset(offset), 1).batches


def test_a_reader_of_a_batch_is_not_disturbed_by_later_commits(store: Store) -> None:
    _filled(store)
    held = store.fetch(A0, Offset(0), 1 << 20).batches
    before = [bytes(batch) for batch in held]
    for _ in range(40):
        store.commit(Changes(appends=[append(A0, b"later" * 100)]))
    store.commit(Changes(trims=[(A0, Offset(18))]))
    assert [bytes(batch) for batch in held] == before
