"""Reading: the tail from memory, the rest in large spans, lookups from the index alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.options import LogOptions
from tailrace.log.state import StateDb
from tailrace.model.commit import Changes
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append, values_of
from tests.support.eventually import eventually

TOPIC = TopicId(1)
NO_CACHE = Limits(tail_cache_bytes=0)


def _store(folder: Path, partitions: int, limits: Limits, options: LogOptions | None = None) -> EmbeddedStore:
    store = EmbeddedStore.open(folder, limits=limits, options=options or LogOptions(), durability="relaxed")
    store.commit(Changes(creates=[(TOPIC, partitions)]))
    return store


def test_the_tail_is_served_without_touching_the_disk(tmp_path: Path) -> None:
    store = _store(tmp_path, 1, Limits())
    partition = PartitionId(TOPIC, 0)
    for number in range(100):
        store.commit(Changes(appends=[append(partition, b"%d" % number)]))
    assert store.is_hot(partition, Offset(0))
    assert values_of(store.fetch(partition, Offset(40), MIB).batches) == [b"%d" % number for number in range(40, 100)]
    assert store.stats().disk_reads == 0
    store.close()


def test_old_batches_leave_memory_and_are_read_from_disk(tmp_path: Path) -> None:
    store = _store(tmp_path, 2, Limits(), LogOptions(cache_seconds=0.1))
    first, second = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
    for number in range(3_000):
        store.commit(Changes(appends=[append(first, b"%d" % number), append(second, b"%d" % number)]))
    eventually(lambda: store.stats().cached_bytes == 0, "the cache is empty")
    assert not store.is_hot(first, Offset(2_999))
    for partition in (first, second):
        assert values_of(store.fetch(partition, Offset(0), MIB).batches) == [b"%d" % number for number in range(3_000)]
    store.close()


def test_small_batches_of_many_partitions_are_read_in_large_spans(tmp_path: Path) -> None:
    partitions, rounds = 50, 200
    store = _store(tmp_path, partitions, NO_CACHE)
    for number in range(rounds):
        store.commit(Changes(appends=[append(PartitionId(TOPIC, p), b"%d-%d" % (p, number)) for p in range(partitions)]))
    assert not store.is_hot(PartitionId(TOPIC, 7), Offset(0))
    fetched = store.fetch(PartitionId(TOPIC, 7), Offset(0), MIB)
    assert values_of(fetched.batches) == [b"7-%d" % number for number in range(rounds)]
    stats = store.stats()
    assert stats.disk_reads == 1, "200 batches, each some kilobytes from the next, come with one read"
    assert sum(map(len, fetched.batches)) < stats.disk_read_bytes < 4 * MIB
    assert all(isinstance(batch, bytes) for batch in fetched.batches), "the piece itself is not kept for 2 % of its bytes"
    store.close()


def test_batches_far_from_each_other_are_not_read_together(tmp_path: Path) -> None:
    store = _store(tmp_path, 2, NO_CACHE)
    rare, busy = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
    for number in range(5):
        store.commit(Changes(appends=[append(rare, b"%d" % number), append(busy, bytes(200 * KIB))]))
    assert values_of(store.fetch(rare, Offset(0), MIB).batches) == [b"%d" % number for number in range(5)]
    assert store.stats().disk_read_bytes < 10 * KIB
    store.close()


def test_a_lookup_by_time_reads_neither_the_log_nor_the_whole_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = LogOptions(index_chunk_batches=16)
    store = _store(tmp_path, 1, NO_CACHE, options)
    partition = PartitionId(TOPIC, 0)
    for first in range(0, 10_000, 100):
        store.commit(Changes(appends=[append(partition, b"x", timestamp=number) for number in range(first, first + 100)]))
    store.checkpoint()
    looked_at = 0
    at_or_before = StateDb.at_or_before
    items = StateDb.items

    def counted(self: StateDb, prefix: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        nonlocal looked_at
        looked_at += 1
        return at_or_before(self, prefix, key)

    def each_counted(self: StateDb, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        nonlocal looked_at
        for item in items(self, prefix, start):
            looked_at += 1
            yield item

    monkeypatch.setattr(StateDb, "at_or_before", counted)
    monkeypatch.setattr(StateDb, "items", each_counted)
    for timestamp in (0, 1, 4_999, 9_999):
        assert store.batch_for_time(partition, timestamp) == timestamp
    assert store.batch_for_time(partition, 10_000) is None
    assert looked_at <= 5 * 2 * 10, "of 625 chunks a binary search looks at ten, give or take"
    assert store.stats().disk_reads == 0
    store.close()


def test_locations_leave_memory_with_their_batches(tmp_path: Path) -> None:
    store = _store(tmp_path, 2, Limits(), LogOptions(cache_seconds=0.1))
    partition = PartitionId(TOPIC, 0)
    store.commit(Changes(appends=[append(partition, b"%d" % number) for number in range(100)]))
    store.checkpoint()
    index = store._catalog.partitions[partition]
    eventually(lambda: not index.locations, "all locations are on disk only")
    assert values_of(store.fetch(partition, Offset(0), MIB).batches) == [b"%d" % number for number in range(100)]
    store.close()


def test_the_index_in_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    store = _store(tmp_path, 1, Limits(tail_cache_bytes=64 * KIB), LogOptions(checkpoint_batches=500))
    partition = PartitionId(TOPIC, 0)
    for _ in range(100):
        store.commit(Changes(appends=[append(partition, b"x") for _ in range(100)]))
    store.checkpoint()
    held = store._catalog.partitions[partition].locations
    assert len(held) < 500
    assert len(store.fetch(partition, Offset(0), 100 * MIB).batches) == 10_000
    store.close()
