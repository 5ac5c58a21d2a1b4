"""The fast path of a fetch gives what the general one gives, from the page cache, or nothing."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tailrace.log import segment
from tailrace.log.chunk_cache import ChunkCache
from tailrace.log.options import DEFAULT_OPTIONS, LogOptions
from tailrace.log.page_cache import new_buffer, read_cached
from tailrace.log.state import StateDb
from tailrace.model.commit import Changes
from tailrace.model.errors import CorruptionError, UnknownPartitionError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, MIB, Limits
from tailrace.store.embedded import EmbeddedStore
from tests.support.batches import append, values_of
from tests.support.folders import segment_files
from tests.support.observed import fetch_both_ways
from tests.support.stores import SMALL_PIECES

TOPIC = TopicId(1)
HERE, OTHER = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
NO_CACHE = Limits(tail_cache_bytes=0)


def read_plainly(fd: int, at: int, buffer: memoryview) -> bool:
    return os.preadv(fd, (buffer,), at) == len(buffer)


@pytest.fixture(autouse=True)
def everything_is_in_the_page_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever file system the tests run on."""
    monkeypatch.setattr(segment, "read_cached", read_plainly)


def opened(folder: Path, options: LogOptions = DEFAULT_OPTIONS, limits: Limits = NO_CACHE) -> EmbeddedStore:
    return EmbeddedStore.open(folder, limits=limits, options=options, durability="relaxed")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    made = opened(tmp_path)
    made.commit(Changes(creates=[(TOPIC, 2)]))
    yield made
    made.close()


def fill(store: EmbeddedStore, count: int, size: int = 100) -> None:
    for number in range(count):
        store.commit(Changes(appends=[append(HERE, b"%d" % number + bytes(size)), append(OTHER, b"x")]))
    store.fetch(HERE, Offset(0), 1)  # opens the segment


@pytest.mark.parametrize("options", [DEFAULT_OPTIONS, SMALL_PIECES], ids=["as it comes", "small pieces"])
def test_both_ways_give_the_same_from_every_offset(tmp_path: Path, options: LogOptions) -> None:
    random = Random(7)
    store = opened(tmp_path, options)
    store.commit(Changes(creates=[(TOPIC, 2)]))
    for _ in range(300):
        values = [bytes(random.choice((0, 10, 300, 3_000))) for _ in range(random.randint(1, 3))]
        store.commit(Changes(appends=[append(random.choice((HERE, OTHER)), *values)]))
    fast = 0
    for _ in range(2):
        for partition in (HERE, OTHER):
            for offset in range(store.bounds(partition).end):
                for max_bytes in (0, 1, 400, 5_000, 40_000):
                    fetch_both_ways(store, partition, Offset(offset), max_bytes)
                    fast += store.fetch_cached(partition, Offset(offset), max_bytes) is not None
        store.checkpoint()
        store.close()
        store = opened(tmp_path, options)
    store.close()
    assert fast > 2_000


def test_a_reader_of_old_records_finds_the_next_ones_without_the_saved_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = LogOptions(index_chunk_batches=16)
    store = opened(tmp_path, options)
    store.commit(Changes(creates=[(TOPIC, 2)]))
    fill(store, 200)
    store.checkpoint()
    store.close()
    store = opened(tmp_path, options)
    assert store.fetch_cached(HERE, Offset(0), 1_000) is None, "nothing is known of where it is"
    offset = Offset(len(store.fetch(HERE, Offset(0), 1_000).batches))
    looked_up: list[bytes] = []
    at_or_before = StateDb.at_or_before

    def noted(self: StateDb, prefix: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        looked_up.append(key)
        return at_or_before(self, prefix, key)

    monkeypatch.setattr(StateDb, "at_or_before", noted)
    before = store.stats().fetches_from_page_cache
    fetches = 0
    while offset < 60:
        found = store.fetch_cached(HERE, offset, 1_000)
        assert found is not None
        offset = Offset(offset + len(found.batches))
        fetches += 1
    assert not looked_up
    assert store.stats().fetches_from_page_cache == before + fetches
    store.close()


def test_damaged_bytes_are_left_to_the_path_that_reports_them(store: EmbeddedStore, tmp_path: Path) -> None:
    fill(store, 10)
    assert store.fetch_cached(HERE, Offset(0), MIB) is not None
    (file,) = segment_files(tmp_path)
    data = bytearray(file.read_bytes())
    data[data.index(b"7" + bytes(100)) + 50] ^= 1
    with file.open("r+b") as written:
        written.write(data)
    assert store.fetch_cached(HERE, Offset(0), MIB) is None
    with pytest.raises(CorruptionError, match="the checksum of the batch at offset 7 does not match"):
        store.fetch(HERE, Offset(0), MIB)
    found = store.fetch_cached(HERE, Offset(8), MIB)
    assert found is not None
    assert len(found.batches) == 2, "what is whole is served"


def test_what_is_not_in_the_page_cache_is_not_waited_for(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 10, 40 * KIB)
    missing: set[int] = set()

    def read_the_rest(fd: int, at: int, buffer: memoryview) -> bool:
        return not any(at <= byte < at + len(buffer) for byte in missing) and read_plainly(fd, at, buffer)

    monkeypatch.setattr(segment, "read_cached", read_the_rest)
    assert store.fetch_cached(HERE, Offset(0), MIB) is not None
    for byte in (1_000, 200 * KIB, 399 * KIB):
        missing = {byte}
        assert store.fetch_cached(HERE, Offset(0), MIB) is None
    missing = {399 * KIB}
    assert store.fetch_cached(HERE, Offset(0), 300 * KIB) is not None


def test_where_the_system_can_not_read_without_waiting_it_is_not_asked_again(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    calls = []

    def refuse(fd: int, at: int, buffer: memoryview) -> bool:
        calls.append(at)
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(segment, "read_cached", refuse)
    assert [store.fetch_cached(HERE, Offset(0), MIB) for _ in range(3)] == [None] * 3
    assert len(calls) == 1


def test_an_error_of_the_disk_is_left_to_the_path_that_reports_it(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)

    def fail(fd: int, at: int, buffer: memoryview) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(segment, "read_cached", fail)
    assert store.fetch_cached(HERE, Offset(0), MIB) is None
    monkeypatch.setattr(segment, "read_cached", read_plainly)
    assert store.fetch_cached(HERE, Offset(0), MIB) is not None


def test_many_small_batches_and_large_ones_are_left_to_a_thread(store: EmbeddedStore) -> None:
    fill(store, 200)
    assert store.fetch_cached(HERE, Offset(0), MIB) is None
    assert store.fetch_cached(HERE, Offset(0), 10_000) is not None
    store.commit(Changes(appends=[append(HERE, bytes(5 * MIB))]))
    assert store.fetch_cached(HERE, Offset(200), MIB) is None


def test_nothing_is_read_beyond_the_bounds_of_a_partition_or_after_it_was_dropped(store: EmbeddedStore) -> None:
    fill(store, 10)
    for offset in (10, 11):
        assert store.fetch_cached(HERE, Offset(offset), MIB) is None
    store.commit(Changes(trims=[(HERE, Offset(5))]))
    assert store.fetch_cached(HERE, Offset(4), MIB) is None
    found = store.fetch_cached(HERE, Offset(5), MIB)
    assert found is not None
    assert found.bounds == (5, 10)
    store.commit(Changes(drops=[TOPIC]))
    with pytest.raises(UnknownPartitionError):
        store.fetch_cached(HERE, Offset(5), MIB)


def test_what_was_kept_of_the_index_counts_until_batches_are_moved(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=4 * KIB, index_chunk_batches=16, clean_dead_ratio=0.1)
    store = opened(tmp_path, options)
    store.commit(Changes(creates=[(TOPIC, 1), (TopicId(2), 1)]))
    for number in range(100):
        store.commit(Changes(appends=[append(HERE, b"%d" % number), append(PartitionId(TopicId(2), 0), bytes(90))]))
    store.checkpoint()
    store.close()
    store = opened(tmp_path, options)
    read = len(store.fetch(HERE, Offset(10), 500).batches)
    after = Offset(10 + read)
    assert store.fetch_cached(HERE, after, 100) is not None
    store.commit(Changes(drops=[TopicId(2)]))
    store.clean()
    assert store.stats().segments_rewritten
    assert store.fetch_cached(HERE, after, 100) is None
    for offset in range(100):
        found = fetch_both_ways(store, HERE, Offset(offset), 500)
        assert values_of(found.batches)[0] == b"%d" % offset
    store.close()


def test_a_move_in_the_middle_of_a_read_is_noticed(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 10)

    def read_and_move(fd: int, at: int, buffer: memoryview) -> bool:
        store._log.segments.moves += 2
        return read_plainly(fd, at, buffer)

    monkeypatch.setattr(segment, "read_cached", read_and_move)
    assert store.fetch_cached(HERE, Offset(0), MIB) is None


def test_readers_of_one_partition_far_from_each_other_keep_their_places(tmp_path: Path) -> None:
    options = LogOptions(index_chunk_batches=4)
    store = opened(tmp_path, options)
    store.commit(Changes(creates=[(TOPIC, 2)]))
    fill(store, 200)
    store.checkpoint()
    store.close()
    store = opened(tmp_path, options)
    places = [0, 50, 100, 150]
    for place in places:
        store.fetch(HERE, Offset(place), 1)
    assert all(store.fetch_cached(HERE, Offset(place + 1), 1) for place in places)
    store.close()


def test_little_is_kept_of_the_index(tmp_path: Path) -> None:
    store = opened(tmp_path)
    partitions = [PartitionId(TOPIC, number) for number in range(100)]
    store.commit(Changes(creates=[(TOPIC, len(partitions))]))
    for _ in range(2):
        store.commit(Changes(appends=[append(partition, b"v") for partition in partitions]))
    store.checkpoint()
    store.close()
    store = opened(tmp_path)
    for partition in partitions:
        store.fetch(partition, Offset(0), 1)
    known = [partition for partition in partitions if store.fetch_cached(partition, Offset(1), 1) is not None]
    assert known == partitions[-len(known) :]
    assert len(known) == ChunkCache.PARTS
    store.close()


def test_the_kernel_is_asked_for_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "file"
    data = os.urandom(MIB)
    file.write_bytes(data)
    fd = os.open(file, os.O_RDONLY)
    try:
        buffer = new_buffer(MIB)
        try:
            assert read_cached(fd, 0, buffer)
        except OSError as error:
            assert error.errno == errno.EOPNOTSUPP, "this file system can't read without waiting, and says so"
            return
        assert buffer == data
        assert not read_cached(fd, 1, buffer), "the last byte is beyond the end"
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = new_buffer(MIB)
        if read_cached(fd, 0, buffer):  # a file system without a disk keeps what it has
            assert buffer == data
    finally:
        os.close(fd)
