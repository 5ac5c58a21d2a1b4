"""The tail cache: the newest batches stay in memory, as many as fit, and not for long."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.catalog import TailCache
from tailrace.model.commit import Buffer
from tailrace.model.stats import StoreStats

BATCH_BYTES = 488
TAKEN_BYTES = 1000
"""With the overhead of a batch."""


def _batches(cursors: Iterable[int]) -> dict[int, Buffer]:
    return {cursor: b"%d" % cursor + bytes(BATCH_BYTES - len(b"%d" % cursor)) for cursor in cursors}


def _kept(cache: TailCache, cursors: Iterable[int]) -> list[int]:
    found = [cursor for cursor in cursors if cursor in cache.run_with(cursor)]
    assert all(bytes(cache.run_with(cursor)[cursor]).startswith(b"%d" % cursor) for cursor in found)
    return found


def test_the_newest_batches_are_kept_and_the_oldest_are_evicted() -> None:
    stats = StoreStats()
    cache = TailCache(100 * TAKEN_BYTES, stats)
    for cursor in range(0, 3000, 3):
        cache.add(_batches([cursor]))
        cache.shrink()
        assert stats.cached_bytes <= 100 * TAKEN_BYTES
    kept = _kept(cache, range(3000))
    assert kept == list(range(3000 - 3 * len(kept), 3000, 3))
    assert len(kept) == stats.cached_bytes / TAKEN_BYTES > 95
    assert cache.oldest() == kept[0]


def test_batches_of_one_group_are_evicted_together() -> None:
    stats = StoreStats()
    cache = TailCache(100 * TAKEN_BYTES, stats)
    for first in range(0, 500, 50):
        cache.add(_batches(range(first, first + 50)))
        cache.shrink()
    assert _kept(cache, range(500)) == list(range(400, 500))
    cache.add(_batches(range(500, 501)))
    cache.shrink()
    assert _kept(cache, range(501)) == list(range(450, 501))


def test_a_group_that_is_larger_than_the_cache_is_not_kept() -> None:
    stats = StoreStats()
    cache = TailCache(10 * TAKEN_BYTES, stats)
    cache.add(_batches(range(11)))
    cache.shrink()
    assert (_kept(cache, range(11)), stats.cached_bytes, cache.oldest()) == ([], 0, None)
    cache.add(_batches([11]))
    cache.shrink()
    assert _kept(cache, range(12)) == [11]


def test_only_runs_that_were_there_at_the_last_aging_are_evicted() -> None:
    stats = StoreStats()
    cache = TailCache(1000 * TAKEN_BYTES, stats)
    for cursor in range(100):
        cache.add(_batches([cursor]))
    assert not cache.evict_aged()
    assert len(_kept(cache, range(100))) == 100
    cache.age()
    cache.add(_batches([100]))
    while cache.evict_aged():
        pass
    assert _kept(cache, range(101)) == [100]
    assert stats.cached_bytes == TAKEN_BYTES
    cache.add(_batches([101]))
    cache.age()
    while cache.evict_aged():
        pass
    assert (_kept(cache, range(102)), stats.cached_bytes) == ([], 0)


@given(steps=st.lists(st.sampled_from(["small", "run", "huge", "age", "evict"]), max_size=30))
def test_new_batches_are_found_after_any_eviction(steps: list[str]) -> None:
    """Add groups that are smaller and larger than the cache, and age and evict runs in between."""
    stats = StoreStats()
    cache = TailCache(64 * TAKEN_BYTES, stats)
    counts = {"small": 1, "run": 2, "huge": 65}
    cursor = 0
    for step in steps:
        if step == "age":
            cache.age()
        elif step == "evict":
            cache.evict_aged()
        else:
            cache.add(_batches(range(cursor, cursor + counts[step])))
            cursor += counts[step]
            assert _kept(cache, [cursor - 1]) == [cursor - 1]
            cache.shrink()
        kept = _kept(cache, range(cursor))
        assert kept == list(range(cursor - len(kept), cursor))
        assert stats.cached_bytes == len(kept) * TAKEN_BYTES


def test_a_reader_keeps_the_run_that_it_has_found() -> None:
    cache = TailCache(10 * TAKEN_BYTES, StoreStats())
    cache.add(_batches([7]))
    found = cache.run_with(7)
    cache.add(_batches(range(8, 30)))
    cache.shrink()
    assert 7 not in cache.run_with(7)
    assert bytes(found[7]).startswith(b"7")
