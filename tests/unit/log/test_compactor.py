"""The compactor at its limits: memory for keys, segments that can't be read or would grow, and a store that is closed."""

import random
import threading
from pathlib import Path

import pytest

from tailrace.log import segment as segment_module
from tailrace.log.fsck import run_fsck
from tailrace.log.options import LogOptions
from tailrace.model.commit import Append, Changes
from tailrace.model.compaction import CompactionResult, CompactionRule
from tailrace.model.errors import StoreClosedError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, Limits
from tailrace.model.record import Record
from tailrace.store.embedded import EmbeddedStore
from tailrace.wire.batch import HEADER_BYTES, assemble_batch, read_header
from tailrace.wire.compression import Compression, compress, compress_hard
from tailrace.wire.records import encode_batch
from tests.support.batches import TIMESTAMP
from tests.support.compaction import compacted, fetched, keyed
from tests.support.folders import segment_files

TOPIC = TopicId(1)
A, B = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
OPTIONS = LogOptions(segment_bytes=16 * KIB, checkpoint_bytes=32 * KIB, index_chunk_batches=8, compaction_share=1.0)


def opened(folder: Path, **limits: int) -> EmbeddedStore:
    return EmbeddedStore.open(folder, options=OPTIONS, limits=Limits(tail_cache_bytes=0, min_free_bytes=0, **limits))


def fill(store: EmbeddedStore, batches: int, keys: int, *, partitions: tuple[PartitionId, ...] = (A, B)) -> None:
    store.commit(Changes(creates=[(TOPIC, 2)]))
    for number in range(batches):
        records = [(b"key %d" % (at * 7 % keys), b"%d" % at * 10) for at in range(8 * number, 8 * number + 8)]
        store.commit(Changes(appends=[keyed(partition, *records) for partition in partitions]))


def compact(store: EmbeddedStore, *partitions: PartitionId) -> list[CompactionResult]:
    rules = [CompactionRule(each, Offset(0), Offset(1 << 40), Offset(0), rolls=True) for each in partitions]
    return list(store.compact(rules))


def test_more_keys_than_fit_take_several_rounds(tmp_path: Path) -> None:
    store = opened(tmp_path, compaction_key_bytes=1)
    fill(store, 400, 2_000)
    written = {partition: fetched(store, partition, max_bytes=1 << 20) for partition in (A, B)}
    for result in compact(store, A, B):
        assert result.clean_end == 8 * 399
        left = fetched(store, result.partition, max_bytes=1 << 20)
        assert result.removed_records == 3_200 - len(left)
        assert left == compacted(written[result.partition], result.clean_end)
    store.close()
    assert not run_fsck(tmp_path).findings


def test_a_segment_with_a_flipped_bit_is_left_and_its_partitions_are_not_clean(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 40, 20, partitions=(A,))
    for number in range(40):
        store.commit(Changes(appends=[keyed(B, (b"key %d" % (number % 5), b"x" * 1_000))]))
    store.checkpoint()
    damaged = segment_files(tmp_path)[0]
    data = bytearray(damaged.read_bytes())
    data[-5] ^= 1
    damaged.write_bytes(data)
    of_a, of_b = compact(store, A, B)
    assert of_a.clean_end < 8 * 39
    assert (of_b.clean_end, of_b.removed_records) == (39, 34)
    store.close()


def test_a_store_that_is_closed_breaks_a_compaction_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    fill(store, 400, 20)
    written = fetched(store, A, max_bytes=1 << 20)
    switched = threading.Event()
    monkeypatch.setattr(segment_module, "killpoint", lambda name: switched.set() if name == "clean.after" else None)
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(compact(store, A, B))
        except StoreClosedError as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert switched.wait(60)
    store.close()
    thread.join(60)
    monkeypatch.undo()
    assert len(outcomes) == 1
    assert not run_fsck(tmp_path).findings
    store = opened(tmp_path)
    (result,) = compact(store, A)
    assert fetched(store, A, max_bytes=1 << 20) == compacted(written, result.clean_end)
    store.close()


def test_whoever_asked_can_break_it_off(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 100, 20)
    with pytest.raises(StoreClosedError, match="broken off"):
        store.compact([CompactionRule(A, Offset(0), Offset(1 << 40), Offset(0), rolls=True)], lambda: True)
    assert compact(store, A)[0].removed_records > 0
    store.close()


def test_a_batch_that_its_producer_compressed_hard_does_not_make_its_segment_grow(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit(Changes(creates=[(TOPIC, 1)]))
    words = random.Random(1).choices([b"alpha", b"beta", b"gamma", b"delta", b"epsilon"], k=400)
    for number in range(30):
        records = [(b"k%d" % (number if at == 3 else 1_000 * number + at), b" ".join(words[at:])) for at in range(40)]
        plain = keyed(A, (b"k%d" % (number - 1), b"old"), *records).batch
        head = read_header(plain)
        body = compress_hard(Compression.ZSTD, memoryview(plain)[HEADER_BYTES:])
        assert len(body) <= len(compress(Compression.ZSTD, memoryview(plain)[HEADER_BYTES:]))
        hard = assemble_batch(body, 41, head.base_timestamp, head.max_timestamp, attributes=Compression.ZSTD)
        store.commit(Changes(appends=[Append(A, bytes(hard), 41, head.max_timestamp)]))
    written = fetched(store, A, max_bytes=1 << 20)
    (result,) = compact(store, A)
    assert result.clean_end == 41 * 29
    assert fetched(store, A, max_bytes=1 << 20) == compacted(written, result.clean_end)
    store.close()
    assert not run_fsck(tmp_path).findings


def test_records_without_timestamps_keep_the_time_of_their_append(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit(Changes(creates=[(TOPIC, 1)]))
    for number in range(10):
        batch = encode_batch([Record(b"a", b"%d" % number, (), -1), Record(b"b%d" % number, b"x", (), -1)])
        store.commit(Changes(appends=[Append(A, bytes(batch), 2, TIMESTAMP + number)]))
    compact(store, A)
    assert [store.batch_for_time(A, TIMESTAMP + number) for number in range(10)] == list(range(0, 20, 2))
    store.close()
    assert not run_fsck(tmp_path).findings
