"""Readers meet the cleaner at its work, at the worst moments: they get their own records or a clear error."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.log import reader
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.frame import Entry
from tailrace.log.index import IndexReader, PartitionIndex, Place
from tailrace.log.options import LogOptions
from tailrace.model.changes import Changes
from tailrace.model.errors import OffsetOutOfRangeError
from tailrace.model.ids import Cursor, Offset, Partition, TopicId
from tailrace.model.limits import KIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append, values_of
from tests.support.folders import frames_of, segment_files
from tests.support.observed import scan_all

TOPIC = TopicId(1)
A, B = Partition(TOPIC, 0), Partition(TOPIC, 1)
ROUNDS = 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Two partitions in step with batches of equal size, closed segments, nothing in the tail cache."""
    options = LogOptions(segment_bytes=4 * KIB, clean_dead_ratio=0.01, cursor_stride_bytes=100, index_chunk_batches=4)
    store = EmbeddedStore.open(tmp_path / "data", limits=Limits(tail_cache_bytes=0), options=options)
    store.commit(Changes(creates=[(TOPIC, 2)]))
    for number in range(ROUNDS):
        store.commit(Changes(appends=[append(A, b"A%04d" % number)]))
        store.commit(Changes(appends=[append(B, b"B%04d" % number)]))
    store.checkpoint()
    yield store
    store.close()


class Once:
    """Does something at the first call only."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


def clean_after_lookup(monkeypatch: pytest.MonkeyPatch, action: Once) -> None:
    """A fetch has looked up where its batches are; before it reads them, this happens."""
    walk = IndexReader.walk

    def walk_then(self: IndexReader, index: PartitionIndex, offset: int) -> Iterator[Place]:
        places = list(walk(self, index, offset))
        action()
        return iter(places)

    monkeypatch.setattr(IndexReader, "walk", walk_then)


def first_of_second_segment(folder: Path) -> Entry:
    frames = frames_of(segment_files(folder)[1])
    return next(frame.entries[0] for frame in frames if frame.entries and frame.entries[0].partition == A)


def test_a_fetch_gets_its_own_records_when_the_cleaner_moves_them(
    store: EmbeddedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first batch gone, each batch of A has moved to where one of B with the same offset was."""
    start = first_of_second_segment(tmp_path / "data").base_offset + 1

    def clean() -> None:
        store.commit(Changes(trims=[(A, Offset(start))]))
        store.clean()
        assert store.stats().segments_rewritten

    clean_after_lookup(monkeypatch, Once(clean))
    assert values_of(store.fetch(A, Offset(start), 1).batches) == [b"A%04d" % start]


def test_a_fetch_of_what_retention_took_meanwhile_is_out_of_range(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clean() -> None:
        store.commit(Changes(trims=[(A, Offset(30)), (B, Offset(30))]))
        store.clean()
        assert store.stats().segments_deleted

    clean_after_lookup(monkeypatch, Once(clean))
    try:
        batches = store.fetch(A, Offset(3), 1 << 20).batches
    except OffsetOutOfRangeError as error:
        assert (error.start, error.end) == (30, ROUNDS)
    else:
        assert values_of(batches)[0] == b"A0003", "never a silent jump"


def test_a_fetch_that_looks_up_after_retention_is_out_of_range(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = IndexReader.walk

    def clean() -> None:
        store.commit(Changes(trims=[(A, Offset(30)), (B, Offset(30))]))
        store.clean()

    before_lookup = Once(clean)

    def walk_after(self: IndexReader, index: PartitionIndex, offset: int) -> Iterator[Place]:
        before_lookup()
        return walk(self, index, offset)

    monkeypatch.setattr(IndexReader, "walk", walk_after)
    try:
        batches = store.fetch(A, Offset(3), 1 << 20).batches
    except OffsetOutOfRangeError as error:
        assert (error.start, error.end) == (30, ROUNDS)
    else:
        assert values_of(batches)[0] == b"A0003", "never a silent jump"


def test_a_scan_misses_nothing_when_the_cleaner_moves_its_start(
    store: EmbeddedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Checkpoints.mark_before
    dead = first_of_second_segment(tmp_path / "data")

    def clean() -> None:
        store.commit(Changes(trims=[(A, Offset(dead.base_offset + 1))]))
        store.clean()
        assert store.stats().segments_rewritten

    after_lookup = Once(clean)

    def find_then(self: Checkpoints, cursor: int) -> tuple[int, int] | None:
        mark = find(self, cursor)
        after_lookup()
        return mark

    monkeypatch.setattr(Checkpoints, "mark_before", find_then)
    start = dead.cursor + 4
    cursors = [batch.cursor for batch in store.scan(Cursor(start), 1 << 20).batches]
    assert cursors == list(range(start, 2 * ROUNDS))


def test_scans_in_pieces_give_each_batch_of_a_cleaned_log_once(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(ROUNDS):
        store.commit(Changes(appends=[append(A, b"1", b"2"), append(B, b"3", b"4", b"5"), append(A, b"6", b"7")]))
    store.commit(Changes(trims=[(B, store.bounds(B).end)]))
    store.clean()
    whole = [batch.cursor for batch in scan_all(store, read_bytes=1 << 20)]
    assert [batch.cursor for batch in scan_all(store, read_bytes=1)] == whole
    assert len(set(whole)) == len(whole) == 3 * ROUNDS
    monkeypatch.setattr(reader, "_SCAN_LIMIT_BYTES", 1)
    assert [batch.cursor for batch in scan_all(store, read_bytes=1 << 20)] == whole
