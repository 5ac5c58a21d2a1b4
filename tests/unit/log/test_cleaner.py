"""The cleaner: what retention and deletion leave on the disk."""

import threading
from contextlib import suppress
from pathlib import Path

from tailrace.log.fsck import run_fsck
from tailrace.log.options import LogOptions
from tailrace.model.commit import Changes
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append, values_of

KEPT, DELETED = PartitionId(TopicId(1), 0), PartitionId(TopicId(2), 0)
OPTIONS = LogOptions(segment_bytes=8 * KIB, checkpoint_bytes=16 * KIB, index_chunk_batches=4, cursor_stride_bytes=KIB)
LIMITS = Limits(tail_cache_bytes=0)
SECRET = b"the secret of the deleted topic"


def _open(folder: Path) -> EmbeddedStore:
    return EmbeddedStore.open(folder, options=OPTIONS, limits=LIMITS)


def _files_with(folder: Path, needle: bytes) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # RocksDB removes files of its own meanwhile
            if path.is_file() and needle in path.read_bytes():
                found.append(path.name)
    return found


def test_a_deleted_topic_is_gone_from_the_disk(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.commit(Changes(creates=[(KEPT.topic_id, 1), (DELETED.topic_id, 1)]))
    for number in range(200):
        store.commit(Changes(appends=[append(KEPT, b"kept %d" % number), append(DELETED, SECRET)]))
    assert _files_with(tmp_path, SECRET)
    store.commit(Changes(drops=[DELETED.topic_id]))
    store.clean()
    assert _files_with(tmp_path, SECRET) == []
    assert values_of(store.fetch(KEPT, Offset(0), MIB).batches) == [b"kept %d" % number for number in range(200)]
    store.close()
    assert run_fsck(tmp_path).findings == []


def test_segments_that_retention_has_passed_are_deleted(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.commit(Changes(creates=[(KEPT.topic_id, 1)]))
    for number in range(200):
        store.commit(Changes(appends=[append(KEPT, b"%d" % number * 100)]))
    before = store.stats().log_bytes
    store.commit(Changes(trims=[(KEPT, Offset(190))]))
    store.clean()
    stats = store.stats()
    assert stats.segments_deleted > 0
    assert stats.log_bytes < before / 4
    assert values_of(store.fetch(KEPT, Offset(190), MIB).batches) == [b"%d" % number * 100 for number in range(190, 200)]
    store.close()
    assert run_fsck(tmp_path).findings == []


def test_a_segment_is_rewritten_again_and_again_as_more_of_it_dies(tmp_path: Path) -> None:
    partitions = [PartitionId(KEPT.topic_id, number) for number in range(8)]
    store = _open(tmp_path)
    store.commit(Changes(creates=[(KEPT.topic_id, 8)]))
    for number in range(50):
        store.commit(Changes(appends=[append(partition, b"%d" % number) for partition in partitions]))
    for dead in partitions[:-1]:
        store.commit(Changes(trims=[(dead, Offset(50))]))
        store.clean()
        assert values_of(store.fetch(partitions[-1], Offset(0), MIB).batches) == [b"%d" % number for number in range(50)]
        assert store.batch_for_time(dead, 0) is None
    assert store.stats().segments_rewritten > 0
    store.close()
    assert run_fsck(tmp_path).findings == []
    store = _open(tmp_path)
    assert values_of(store.fetch(partitions[-1], Offset(0), MIB).batches) == [b"%d" % number for number in range(50)]
    store.close()


def test_readers_and_the_cleaner_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.commit(Changes(creates=[(KEPT.topic_id, 1), (DELETED.topic_id, 1)]))
    expected: list[bytes] = []
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                count = len(expected)
                assert values_of(store.fetch(KEPT, Offset(0), 10 * MIB).batches)[:count] == expected[:count]
                cursor, seen = Cursor(0), 0
                while (scanned := store.scan(cursor, MIB)).next_cursor > cursor:
                    cursor = scanned.next_cursor
                    seen += sum(batch.records for batch in scanned.batches if batch.partition == KEPT)
                assert seen >= count
        except BaseException as error:  # noqa: BLE001  checked below
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(10):
        for number in range(20):
            value = b"%d-%d" % (turn, number)
            store.commit(Changes(appends=[append(KEPT, value), append(DELETED, SECRET * 5)]))
            expected.append(value)
        store.commit(Changes(trims=[(DELETED, Offset(20 * turn + 15))]))
        store.clean()
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert store.stats().segments_rewritten > 0
    store.close()
