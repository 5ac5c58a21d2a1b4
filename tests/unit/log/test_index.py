"""The saved index: counters of partitions in few values, and chunks in which times are found."""

import shutil
from itertools import pairwise
from pathlib import Path
from struct import Struct
from uuid import uuid4

import msgspec
import pytest

from tailrace.log.batch_location import last_location, pack_chunk, pack_location, unpack_chunk
from tailrace.log.data_folder import LOG_FOLDER, STATE_FOLDER
from tailrace.log.fsck import run_fsck
from tailrace.log.index import SavedCounters, SavedIndex, describe_partition, partition_key
from tailrace.log.options import LogOptions
from tailrace.log.state import CHUNK, COUNTERS, META, OLD_COUNTER, OLD_TIME, StateDb
from tailrace.model.commit import Changes, OffsetBounds
from tailrace.model.errors import FormatError, StorageFullError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import MIB
from tailrace.model.topic import Topic, TopicNames, TopicSettings
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append, append_timed, values_of

TOPIC, OTHER = TopicId(1), TopicId(2)
PARTITIONS = [PartitionId(TOPIC, number) for number in range(4)]
OPTIONS = LogOptions(index_chunk_batches=3)
STAMP = META + b"stamp"
COUNTER_BYTES = 48


def _open(folder: Path, gap_bytes: int = OPTIONS.gap_bytes) -> EmbeddedStore:
    options = msgspec.structs.replace(OPTIONS, gap_bytes=gap_bytes)
    return EmbeddedStore.open(folder, options=options, durability="relaxed")


def _filled(folder: Path) -> EmbeddedStore:
    """Make partitions with 0, 10, 20 and 30 batches, whose timestamps are their numbers; the last is trimmed by 5."""
    store = _open(folder)
    store.commit(Changes(creates=[(TOPIC, len(PARTITIONS))]))
    for partition in PARTITIONS:
        for number in range(10 * partition.number):
            store.commit(Changes(appends=[append(partition, b"%d" % number, timestamp=number)]))
            if number % 7 == 0:
                store.checkpoint()
    store.commit(Changes(trims=[(PARTITIONS[3], Offset(5))]))
    return store


def _assert_whole(store: EmbeddedStore) -> None:
    assert [store.bounds(partition) for partition in PARTITIONS] == [(0, 0), (0, 10), (0, 20), (5, 30)]
    for partition in PARTITIONS:
        start, end = store.bounds(partition)
        found = store.fetch(partition, start, MIB).batches
        assert values_of(found) == [b"%d" % number for number in range(start, end)]
        assert [store.batch_for_time(partition, time) for time in range(start, end)] == list(range(start, end))
        assert store.batch_for_time(partition, end) is None


def _to_format_1(folder: Path) -> None:
    """Turn the state into format 1: a key for each partition, and one for the newest timestamp of each chunk."""
    _to_format_2(folder)
    state = StateDb(folder / STATE_FOLDER)
    batch = state.batch()
    for partition, counters in SavedCounters(state).load().items():
        batch.put(OLD_COUNTER + partition_key(partition), Struct(">QQQQq").pack(*counters))
    for key, _ in state.items(COUNTERS):
        batch.delete(key)
    for key, packed in state.items(CHUNK):
        newest = last_location(packed).running_timestamp + 2**63
        batch.put(OLD_TIME + key[1:9] + newest.to_bytes(8, "big") + key[9:], b"")
    stamp = state.get(STAMP)
    assert stamp is not None
    batch.put(STAMP, (1).to_bytes(2, "big") + stamp[2:])
    state.write(batch)
    state.flush()
    state.close()


def _values(folder: Path, kind: bytes) -> list[bytes]:
    state = StateDb(folder / STATE_FOLDER, read_only=True)
    try:
        return [packed for _, packed in state.items(kind)]
    finally:
        state.close()


def test_a_folder_of_format_1_is_served_and_has_format_2_after_the_next_change(tmp_path: Path) -> None:
    _filled(tmp_path).close()
    _to_format_1(tmp_path)
    assert len(_values(tmp_path, OLD_COUNTER)) == 4
    assert run_fsck(tmp_path).findings == []

    unchanged = _open(tmp_path)
    _assert_whole(unchanged)
    unchanged.close()
    assert run_fsck(tmp_path).findings == []

    store = _open(tmp_path)
    _assert_whole(store)
    store.commit(Changes(appends=[append(PARTITIONS[0], b"new")]))
    store.close()
    assert _values(tmp_path, OLD_COUNTER) == _values(tmp_path, OLD_TIME) == []
    assert run_fsck(tmp_path).findings == []
    store = _open(tmp_path)
    assert [store.bounds(partition) for partition in PARTITIONS] == [(0, 1), (0, 10), (0, 20), (5, 30)]
    store.close()


def test_a_topic_of_format_1_that_is_deleted_does_not_come_back(tmp_path: Path) -> None:
    store = _filled(tmp_path)
    store.commit(Changes(creates=[(OTHER, 1)], appends=[append(PartitionId(OTHER, 0), b"x")]))
    store.close()
    _to_format_1(tmp_path)
    store = _open(tmp_path)
    store.commit(Changes(drops=[OTHER]))
    store.close()
    store = _open(tmp_path)
    assert set(store.partitions()) == set(PARTITIONS)
    _assert_whole(store)
    store.close()


def test_a_state_of_a_later_format_is_refused(tmp_path: Path) -> None:
    _filled(tmp_path).close()
    state = StateDb(tmp_path / STATE_FOLDER)
    batch = state.batch()
    stamp = state.get(STAMP)
    assert stamp is not None
    batch.put(STAMP, (4).to_bytes(2, "big") + stamp[2:])
    state.write(batch)
    state.flush()
    state.close()
    with pytest.raises(FormatError, match="format 4"):
        _open(tmp_path)


def test_the_last_counters_count_and_obsolete_ones_are_deleted(tmp_path: Path) -> None:
    _filled(tmp_path).close()
    store = _open(tmp_path)
    for _ in range(50):
        store.commit(Changes(appends=[append(PARTITIONS[0], b"x")]))
        store.checkpoint()
    store.close()
    saved = sum(map(len, _values(tmp_path, COUNTERS))) // COUNTER_BYTES
    assert len(PARTITIONS) <= saved <= 2 * len(PARTITIONS)
    store = _open(tmp_path)
    assert [store.bounds(partition) for partition in PARTITIONS] == [(0, 50), (0, 10), (0, 20), (5, 30)]
    store.close()
    assert run_fsck(tmp_path).findings == []


def test_counters_of_more_partitions_than_share_a_value_are_all_found(tmp_path: Path) -> None:
    count = 9_000
    store = _open(tmp_path)
    store.commit(Changes(creates=[(TOPIC, count)]))
    store.commit(Changes(appends=[append(PartitionId(TOPIC, number), b"x") for number in range(0, count, 1000)]))
    store.close()
    assert len(_values(tmp_path, COUNTERS)) == 3
    store = _open(tmp_path)
    ends = [store.bounds(PartitionId(TOPIC, number)).end for number in range(count)]
    assert ends == [int(number % 1000 == 0) for number in range(count)]
    store.close()


@pytest.mark.parametrize("step", ["write", "flush"])
def test_the_next_checkpoint_saves_what_a_full_disk_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    store = _filled(tmp_path)
    store.commit(Changes(creates=[(OTHER, 1)]))
    store.checkpoint()
    store.commit(Changes(drops=[OTHER], appends=[append(PARTITIONS[0], b"x")]))

    def no_room(*_: object) -> None:
        raise StorageFullError("no room")

    with monkeypatch.context() as full:
        full.setattr(StateDb, step, no_room)
        with pytest.raises(StorageFullError):
            store.checkpoint()
    store.checkpoint()
    assert store.bounds(PARTITIONS[0]) == OffsetBounds(Offset(0), Offset(1))
    ends = SavedIndex(store._log.state, 1).load()
    assert {partition: index.end for partition, index in ends.items()} == dict(zip(PARTITIONS, (1, 10, 20, 30), strict=True))
    store.close()
    assert run_fsck(tmp_path).findings == []


def test_fsck_finds_a_running_timestamp_that_falls(tmp_path: Path) -> None:
    _filled(tmp_path).close()
    state = StateDb(tmp_path / STATE_FOLDER)
    (key, first), (_, second) = next(pairwise(state.items(CHUNK + partition_key(PARTITIONS[2]))))
    assert last_location(first).running_timestamp < last_location(second).running_timestamp
    batch = state.batch()
    locations = list(unpack_chunk(first))
    locations[-1] = locations[-1]._replace(running_timestamp=99)
    batch.put(key, pack_chunk([pack_location(*location) for location in locations]))
    state.write(batch)
    state.flush()
    state.close()
    found = [finding.what for finding in run_fsck(tmp_path).findings]
    assert any("the newest timestamp" in what for what in found), found


def test_a_partition_is_named_by_its_topic_or_else_by_the_id_of_the_topic() -> None:
    names = TopicNames()
    names.learn(Topic(id=TOPIC, uuid=uuid4(), name="orders", alias=None, partitions=4, settings=TopicSettings(), created_ms=0))
    assert describe_partition(PARTITIONS[2], names) == "partition 2 of 'orders'"
    assert describe_partition(PartitionId(OTHER, 0), names) == "partition 0 of the topic with id 2"
    assert describe_partition(PARTITIONS[2]) == "partition 2 of the topic with id 1"


def _filled_by_time(folder: Path) -> tuple[EmbeddedStore, list[int]]:
    """Batches of two records in no order of time, most of them in the saved index. Return the oldest time of each, too."""
    store = _open(folder, gap_bytes=0)
    store.commit(Changes(creates=[(TOPIC, 1)]))
    oldest = [number * 7919 % 101 for number in range(60)]
    for number, time in enumerate(oldest):
        store.commit(Changes(appends=[append_timed(PARTITIONS[0], [(time + number % 5, b"x"), (time, b"y")])]))
        if number == 50:
            store.checkpoint()
    return store, oldest


def _assert_found_by_time(store: EmbeddedStore, oldest: list[int]) -> None:
    for time in range(-1, 102):
        for start, end in ((0, 120), (1, 119), (40, 43), (100, 110), (120, 120)):
            found = store.batches_not_after(PARTITIONS[0], time, OffsetBounds(Offset(start), Offset(end)))
            offsets = [offset for part in found for offset in range(part.start, part.end)]
            assert offsets == [offset for offset in range(start, end) if oldest[offset // 2] <= time]
            assert all(before.end < after.start for before, after in pairwise(found))


def test_batches_that_are_old_enough_are_found_in_memory_and_on_disk_and_after_a_crash(tmp_path: Path) -> None:
    store, oldest = _filled_by_time(tmp_path / "first")
    _assert_found_by_time(store, oldest)
    shutil.copytree(tmp_path / "first", tmp_path / "killed")
    shutil.copytree(tmp_path / "first" / LOG_FOLDER, tmp_path / "without state" / LOG_FOLDER)
    store.close()
    for folder in ("first", "killed", "without state"):
        store = _open(tmp_path / folder, gap_bytes=0)
        _assert_found_by_time(store, oldest)
        store.close()
        assert run_fsck(tmp_path / folder).findings == []


def test_ranges_that_are_close_together_are_one(tmp_path: Path) -> None:
    store, oldest = _filled_by_time(tmp_path)
    store.close()
    store = _open(tmp_path, gap_bytes=MIB)
    first, last = (scan(number for number, time in enumerate(oldest) if time <= 50) for scan in (min, max))
    wanted = OffsetBounds(Offset(0), Offset(120))
    assert store.batches_not_after(PARTITIONS[0], 50, wanted) == [(2 * first, 2 * last + 2)]
    assert store.batches_not_after(PARTITIONS[0], -1, wanted) == []
    store.close()


def test_a_saved_index_without_oldest_timestamps_has_all_batches_read(tmp_path: Path) -> None:
    store, _ = _filled_by_time(tmp_path)
    store.close()
    _to_format_2(tmp_path)
    assert run_fsck(tmp_path).findings == []
    store = _open(tmp_path, gap_bytes=0)
    assert store.batches_not_after(PARTITIONS[0], -1, OffsetBounds(Offset(3), Offset(120))) == [(3, 120)]
    store.commit(Changes(appends=[append(PARTITIONS[0], b"new", timestamp=500)]))
    store.checkpoint()
    assert store.batches_not_after(PARTITIONS[0], 499, OffsetBounds(Offset(3), Offset(121))) == [(3, 120)]
    assert [store.batch_for_time(PARTITIONS[0], time) for time in (0, 500)] == [0, 120]
    store.close()
    assert run_fsck(tmp_path).findings == []


def test_fsck_finds_an_oldest_timestamp_that_is_not_that_of_the_log(tmp_path: Path) -> None:
    store, _ = _filled_by_time(tmp_path)
    store.close()
    state = StateDb(tmp_path / STATE_FOLDER)
    batch = state.batch()
    key, chunk = next(state.items(CHUNK))
    locations = [pack_location(*location._replace(oldest_timestamp=77)) for location in unpack_chunk(chunk)]
    batch.put(key, pack_chunk(locations))
    state.write(batch)
    state.flush()
    state.close()
    findings = run_fsck(tmp_path).findings
    assert findings
    assert all("the index has the oldest timestamp 77" in finding.what for finding in findings)


def test_fsck_finds_a_record_that_is_older_than_its_frame_says(tmp_path: Path) -> None:
    store = _open(tmp_path)
    batch = append_timed(PARTITIONS[0], [(9, b"x"), (5, b"y")])
    store.commit(Changes(creates=[(TOPIC, 1)], appends=[batch._replace(oldest_timestamp=6)]))
    store.close()
    (finding,) = run_fsck(tmp_path).findings
    assert "a record has the timestamp 5, but according to its frame none is before 6" in finding.what


def _to_format_2(folder: Path) -> None:
    """Turn the state into format 2, whose index has no oldest timestamps."""
    state = StateDb(folder / STATE_FOLDER)
    batch = state.batch()
    for key, chunk in state.items(CHUNK):
        batch.put(key, b"".join(Struct(">QIIQqQqQ").pack(*location[:-1]) for location in unpack_chunk(chunk)))
    stamp = state.get(STAMP)
    assert stamp is not None
    batch.put(STAMP, (2).to_bytes(2, "big") + stamp[2:])
    state.write(batch)
    state.flush()
    state.close()
