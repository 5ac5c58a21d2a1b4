"""Readers during cleaning, at the worst moments: they get the right records or a clear error."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tailrace.log import reader
from tailrace.log.batch_location import BatchLocation
from tailrace.log.checkpoint import Checkpoints
from tailrace.log.frame import BatchEntry
from tailrace.log.fsck import run_fsck
from tailrace.log.index import IndexReader, PartitionIndex
from tailrace.log.options import LogOptions
from tailrace.log.reader import LogReader
from tailrace.model.commit import Changes, OffsetBounds
from tailrace.model.errors import OffsetOutOfRangeError, UnknownPartitionError
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append, decode_batch, values_of
from tests.support.folders import copy_as_killed, frames_of, segment_files
from tests.support.observed import scan_all
from tests.support.patience import PATIENCE_SECONDS

TOPIC = TopicId(1)
A, B = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
ROUNDS = 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Fill two partitions alternately with batches of equal size; segments are closed and the tail cache is empty."""
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
    """Calls a function the first time only."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


def clean_after_lookup(monkeypatch: pytest.MonkeyPatch, action: Once) -> None:
    """Run something after a fetch has looked up its locations and before it reads them."""
    walk = IndexReader.walk

    def walk_then(self: IndexReader, index: PartitionIndex, offset: int) -> Iterator[BatchLocation]:
        places = list(walk(self, index, offset))
        action()
        return iter(places)

    monkeypatch.setattr(IndexReader, "walk", walk_then)


def first_of_second_segment(folder: Path) -> BatchEntry:
    frames = frames_of(segment_files(folder)[1])
    return next(frame.entries[0] for frame in frames if frame.entries and frame.entries[0].partition == A)


def test_a_fetch_gets_its_own_records_when_the_cleaner_moves_them(
    store: EmbeddedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first batch removed, each batch of A has moved to where one of B with the same offset was."""
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

    def walk_after(self: IndexReader, index: PartitionIndex, offset: int) -> Iterator[BatchLocation]:
        before_lookup()
        return walk(self, index, offset)

    monkeypatch.setattr(IndexReader, "walk", walk_after)
    try:
        batches = store.fetch(A, Offset(3), 1 << 20).batches
    except OffsetOutOfRangeError as error:
        assert (error.start, error.end) == (30, ROUNDS)
    else:
        assert values_of(batches)[0] == b"A0003", "never a silent jump"


def test_a_fetch_from_a_partition_that_is_dropped_and_cleaned_meanwhile_says_so(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locations are still in the index that the fetch holds, and lead into segments that were rewritten."""
    bounds = LogReader.bounds

    def drop() -> None:
        store.commit(Changes(drops=[A.topic_id]))
        store.clean()
        assert store.stats().segments_rewritten or store.stats().segments_deleted

    after_lookup = Once(drop)

    def bounds_then(self: LogReader, index: PartitionIndex) -> OffsetBounds:
        found = bounds(self, index)
        after_lookup()
        return found

    monkeypatch.setattr(LogReader, "bounds", bounds_then)
    with pytest.raises(UnknownPartitionError):
        store.fetch(A, Offset(ROUNDS // 2), 1 << 20)


def test_a_scan_misses_nothing_when_the_cleaner_moves_its_start(
    store: EmbeddedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Checkpoints.cursor_entry_before
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

    monkeypatch.setattr(Checkpoints, "cursor_entry_before", find_then)
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


class Traffic:
    """Run writers, retention, the cleaner and readers at once; every record holds its own partition and offset."""

    PARTITIONS = 4
    KEPT_RECORDS = 60

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._stop = threading.Event()
        self._topics = 0
        self.faults: list[str] = []
        self.reads = 0

    def run(self, seconds: float, enough: Callable[[], bool]) -> None:
        """Repeat for a while, and until it happened often enough."""
        jobs: list[Callable[[], None]] = [self._trim, self._store.clean, self._make_and_drop, self._scan]
        jobs += [partial(self._write, number) for number in range(self.PARTITIONS)]
        jobs += [partial(self._fetch, number) for number in range(2)]
        threads = [threading.Thread(target=self._repeat, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not enough() and not self.faults and time.monotonic() < deadline:
            time.sleep(0.1)
        self._stop.set()
        for thread in threads:
            thread.join()

    def _repeat(self, job: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                job()
        except Exception as error:  # noqa: BLE001  whatever it is, the test must see it
            self.faults.append(f"{type(error).__name__}: {error}")
            self._stop.set()

    def _write(self, number: int) -> None:
        partition = PartitionId(TOPIC, number)
        first = self._store.next_offset(partition)
        self._store.commit(Changes(appends=[append(partition, *[_label(partition, first + step) for step in range(2)])]))

    def _make_and_drop(self) -> None:
        self._topics += 1
        topic = TopicId(TOPIC + self._topics)
        first, second = PartitionId(topic, 0), PartitionId(topic, 1)
        self._store.commit(Changes(creates=[(topic, 2)]))
        for offset in range(0, 10, 2):
            labels = {partition: [_label(partition, offset), _label(partition, offset + 1)] for partition in (first, second)}
            self._store.commit(Changes(appends=[append(partition, *values) for partition, values in labels.items()]))
        self._store.commit(Changes(drops=[topic]))

    def _trim(self) -> None:
        ends = {
            PartitionId(TOPIC, number): self._store.bounds(PartitionId(TOPIC, number)).end for number in range(self.PARTITIONS)
        }
        self._store.commit(Changes(trims=[(p, Offset(max(0, end - self.KEPT_RECORDS))) for p, end in ends.items()]))

    def _fetch(self, number: int) -> None:
        self.reads += 1
        partitions = self._store.partitions()
        partition = partitions[self.reads % len(partitions)]
        offset = Offset(-1)
        try:
            start, end = self._store.bounds(partition)
            offset = Offset(start + (self.reads * 7 + number) % (end - start + 1))
            batches = self._store.fetch(partition, offset, 700).batches
        except OffsetOutOfRangeError as error:
            if offset >= error.start:
                self.faults.append(f"{partition}: {error} for offset {offset}")
            return
        except UnknownPartitionError:
            if partition.topic_id == TOPIC:
                self.faults.append(f"{partition} is gone")
            return
        expected = offset - offset % 2
        for record in (record for batch in batches for record in decode_batch(batch)):
            if record.offset != expected or record.value != _label(partition, record.offset):
                self.faults.append(f"{partition}: {record} where offset {expected} should be")
            expected += 1

    def _scan(self) -> None:
        cursor = max(0, self._store.end_cursor() - self.reads % 300)
        last = -1
        for batch in self._store.scan(Cursor(cursor), 5_000).batches:
            if batch.cursor <= last:
                self.faults.append(f"cursor {batch.cursor} after {last}")
            last = batch.cursor + batch.records - 1
            for record in decode_batch(batch.batch):
                if record.value != _label(batch.partition, record.offset):
                    self.faults.append(f"cursor {batch.cursor} of {batch.partition}: {record}")


def test_readers_get_their_own_records_while_all_is_in_motion(tmp_path: Path) -> None:
    options = LogOptions(
        segment_bytes=4 * KIB, checkpoint_batches=50, clean_dead_ratio=0.01, cursor_stride_bytes=100, index_chunk_batches=4
    )
    store = EmbeddedStore.open(tmp_path / "data", durability="relaxed", limits=Limits(tail_cache_bytes=0), options=options)
    store.commit(Changes(creates=[(TOPIC, Traffic.PARTITIONS)]))
    traffic = Traffic(store)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        traffic.run(seconds=3.0, enough=lambda: traffic.reads > 100 and store.stats().segments_rewritten > 10)
    finally:
        sys.setswitchinterval(interval)
    cleaned = store.stats().segments_rewritten
    store.close()
    assert traffic.faults[:5] == []
    assert traffic.reads > 100
    assert cleaned > 10
    assert run_fsck(tmp_path / "data").findings == []


def _label(partition: PartitionId, offset: int) -> bytes:
    return b"%06d/%d/%08d" % (partition.topic_id, partition.number, offset)


def test_a_power_cut_behind_a_cleaned_segment_is_no_damage(store: EmbeddedStore, tmp_path: Path) -> None:
    """The cleaner begins a new segment and rewrites the one before it. The header of the new one was never synced: the file is
    empty, and the log ends where it would have begun, not where the shorter segment before it ends."""
    store.commit(Changes(trims=[(A, Offset(ROUNDS - 1)), (B, Offset(ROUNDS - 1))]))
    store.clean()
    cut = tmp_path / "cut"
    copy_as_killed(tmp_path / "data", cut)
    before, newest = segment_files(cut)[-2:]
    assert int(before.name[:20]) + before.stat().st_size < int(newest.name[:20]), "the one before was rewritten"
    assert all(frame.is_seal for frame in frames_of(newest))
    os.truncate(newest, 0)
    report = run_fsck(cut)
    assert report.findings == []
    assert newest.name in " ".join(report.notes)
    reopened = EmbeddedStore.open(cut)
    try:
        assert values_of(reopened.fetch(A, Offset(ROUNDS - 1), 1).batches) == [b"A%04d" % (ROUNDS - 1)]
        assert list(reopened.commit(Changes(appends=[append(A, b"next")])).offsets) == [ROUNDS]
    finally:
        reopened.close()
    assert run_fsck(cut).findings == []


def test_dead_records_before_others_that_are_gone_are_no_damage(tmp_path: Path) -> None:
    """All of A is trimmed. Its first record is among live ones of B and stays; the segment with the rest of A is deleted.
    So the log's last record of A is an old one, which is right."""
    options = LogOptions(segment_bytes=4 * KIB, clean_dead_ratio=0.9)
    store = EmbeddedStore.open(tmp_path / "data", options=options)
    store.commit(Changes(creates=[(TOPIC, 2)], appends=[append(A, b"first"), append(B, b"b" * 5000)]))
    for number in range(3):
        store.commit(Changes(appends=[append(A, b"%d" % number * 5000)]))
    store.commit(Changes(trims=[(A, Offset(4))]))
    store.clean()
    store.close()
    frames = [frame for segment in segment_files(tmp_path / "data") for frame in frames_of(segment)]
    assert [len(frame.entries) for frame in frames if frame.entries] == [2]
    assert run_fsck(tmp_path / "data").findings == []
