"""The saved index: counters of partitions in few values, and chunks in which times are found."""

from itertools import pairwise
from pathlib import Path
from struct import Struct
from uuid import uuid4

import pytest

from tailrace.log.batch_location import last_location
from tailrace.log.data_folder import STATE_FOLDER
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
from tests.support.batches import append, values_of

TOPIC, OTHER = TopicId(1), TopicId(2)
PARTITIONS = [PartitionId(TOPIC, number) for number in range(4)]
OPTIONS = LogOptions(index_chunk_batches=3)
STAMP = META + b"stamp"
COUNTER_BYTES = 48


def _open(folder: Path) -> EmbeddedStore:
    return EmbeddedStore.open(folder, options=OPTIONS, durability="relaxed")


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
    batch.put(STAMP, (3).to_bytes(2, "big") + stamp[2:])
    state.write(batch)
    state.flush()
    state.close()
    with pytest.raises(FormatError, match="format 3"):
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
    at = len(first) - 16
    batch.put(key, first[:at] + (99).to_bytes(8, "big") + first[at + 8 :])
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
