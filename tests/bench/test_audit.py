"""The audit passes only if everything that was acknowledged is stored, once and in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.audit import AuditFailure, check_folder, check_streams, new_stream
from bench.batches import KB_16, Stream, ring_of_copies
from bench.writers import PipelinedWriter
from tailrace.log.data_folder import LOG_FOLDER
from tailrace.store.embedded import EmbeddedStore

APPENDS = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[EmbeddedStore]:
    opened = EmbeddedStore.open(folder, durability="relaxed")
    yield opened
    opened.close()


@pytest.fixture
def stream(store: EmbeddedStore) -> Stream:
    return new_stream(store, 1, 3, ring_of_copies(KB_16, 7))


def test_what_was_sent_passes(store: EmbeddedStore, stream: Stream) -> None:
    assert PipelinedWriter(store).send(stream.each(APPENDS)) > 0
    check_streams(store, stream)


def test_a_lost_batch_is_found(store: EmbeddedStore, stream: Stream) -> None:
    PipelinedWriter(store).send(stream.each(APPENDS))
    stream.next()
    with pytest.raises(AuditFailure, match="cursor 320, and 336 records were acknowledged"):
        check_streams(store, stream)


def test_a_doubled_batch_is_found(store: EmbeddedStore, stream: Stream) -> None:
    PipelinedWriter(store).send(stream.each(APPENDS))
    changes = stream.next()
    store.commit(changes)
    store.commit(changes)
    with pytest.raises(AuditFailure, match="cursor 352, and 336 records were acknowledged"):
        check_streams(store, stream)


def test_a_lost_batch_is_found_though_another_one_is_doubled(store: EmbeddedStore, stream: Stream) -> None:
    first, second, third, fourth = (stream.next() for _ in range(4))
    for changes in (first, second, third, first):
        store.commit(changes)
    assert fourth.appends[0].partition == first.appends[0].partition
    with pytest.raises(AuditFailure, match=r"found .* where .* was acknowledged"):
        check_streams(store, stream)


def test_batches_out_of_order_are_found(store: EmbeddedStore, stream: Stream) -> None:
    for changes in reversed([stream.next() for _ in range(6)]):
        store.commit(changes)
    with pytest.raises(AuditFailure, match=r"found .* where .* was acknowledged"):
        check_streams(store, stream)


def test_a_batch_in_the_wrong_partition_is_found(store: EmbeddedStore, stream: Stream) -> None:
    other = Stream(stream.partitions[:1], stream.ring)
    PipelinedWriter(store).send(other.each(APPENDS))
    stream.appended = APPENDS
    with pytest.raises(AuditFailure, match="records were acknowledged"):
        check_streams(store, stream)


def test_a_damaged_folder_is_found(store: EmbeddedStore, stream: Stream, folder: Path) -> None:
    PipelinedWriter(store).send(stream.each(APPENDS))
    store.close()
    check_folder(folder)
    (segment,) = (folder / LOG_FOLDER).iterdir()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(AuditFailure, match="fsck"):
        check_folder(folder)
