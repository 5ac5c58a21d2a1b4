"""Compaction: the last record of each key stays, where it was; nothing else below the clean end does."""

from collections.abc import Callable

import pytest

from tailrace.model.commit import Append, Changes
from tailrace.model.compaction import CompactionResult, CompactionRule, EndedTransaction
from tailrace.model.ids import Offset, PartitionId, ProducerId, TopicId
from tailrace.store.contract import Store
from tailrace.wire.batch import read_header
from tailrace.wire.compression import Compression
from tailrace.wire.control import TransactionMarker, encode_marker
from tests.support.batches import TIMESTAMP
from tests.support.compaction import Kept, compacted, fetched, keyed, scanned

A = TopicId(1)
A0, A1 = PartitionId(A, 0), PartitionId(A, 1)
ALL = Offset(1 << 40)


def filled(store: Store, *, keys: int = 10, batches: int = 40, codec: int = 0) -> list[Kept]:
    """Write batches of five records that repeat some keys, with another partition's in between. Return the records."""
    store.commit(Changes(creates=[(A, 2)]))
    for number in range(batches):
        records = [(b"k%d" % (at * at % keys), b"%d" % at * 20) for at in range(5 * number, 5 * number + 5)]
        store.commit(Changes(appends=[keyed(A0, *records, codec=codec, timestamp=TIMESTAMP + 10 * number)]))
        store.commit(Changes(appends=[keyed(A1, (b"k0", b"between" * 10))]))
    return fetched(store, A0)


def compact(store: Store, clean_end: int = 0, stop: int = ALL, expired_end: int = 0, **more: object) -> CompactionResult:
    rule = CompactionRule(A0, Offset(clean_end), Offset(stop), Offset(expired_end), rolls=True, **more)  # type: ignore[arg-type]
    (result,) = store.compact([rule])
    return result


@pytest.mark.parametrize("codec", list(Compression))
def test_the_last_record_of_each_key_stays_where_it_was(store: Store, revisit: Callable[[], Store], codec: int) -> None:
    before = filled(store, codec=codec)
    result = compact(store)
    assert result.clean_end == 195
    store = revisit()
    after = compacted(before, result.clean_end)
    assert fetched(store, A0) == scanned(store, A0) == after
    assert result.removed_records == len(before) - len(after)
    assert len(fetched(store, A1)) == 40


def test_a_fetch_from_any_offset_finds_the_next_record(store: Store, revisit: Callable[[], Store]) -> None:
    filled(store)
    compact(store)
    store = revisit()
    left = fetched(store, A0)
    for offset in range(200):
        assert fetched(store, A0, offset) == [record for record in left if record.offset >= offset]


def test_records_above_the_stop_stay(store: Store, revisit: Callable[[], Store]) -> None:
    before = filled(store)
    assert compact(store, stop=100).clean_end == 100
    store = revisit()
    assert fetched(store, A0) == compacted(before, 100)


def test_later_rounds_remove_what_has_come_since(store: Store, revisit: Callable[[], Store]) -> None:
    before = filled(store)
    clean_end = 0
    for stop in (35, 80, 150, 1000):
        clean_end = compact(store, clean_end, stop).clean_end
        store = revisit()
        assert fetched(store, A0) == scanned(store, A0) == compacted(before, clean_end)
    assert clean_end == 195


def test_sizes_and_times_are_those_of_what_is_left(store: Store, revisit: Callable[[], Store]) -> None:
    before = filled(store)
    result = compact(store)
    store = revisit()
    left = fetched(store, A0)
    batches = store.fetch(A0, Offset(0), 1 << 20).batches
    assert store.size(A0) == sum(map(len, batches))
    for number, batch in enumerate(batches):
        base = Offset(read_header(batch).base_offset)
        rest = sum(map(len, batches[number:]))
        assert store.size(A0, base) == rest
        assert store.size(A0, store.batch_for_size(A0, rest)) == rest
    for record in before:
        at = store.batch_for_time(A0, record.timestamp)
        first = next((each for each in left if each.timestamp >= record.timestamp), None)
        held = fetched(store, A0, at)[0] if at is not None else None
        assert (first is None) == (held is None)
        if first is not None and held is not None:
            assert held.offset <= first.offset <= held.offset + 4
    assert result.removed_bytes > 0


def test_a_tombstone_stays_until_it_has_expired(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    for records in ([(b"a", b"1"), (b"b", b"1")], [(b"a", None), (b"c", b"1")], [(b"d", b"1")]):
        store.commit(Changes(appends=[keyed(A0, *records)]))
    first = compact(store)
    store = revisit()
    assert [(record.key, record.value) for record in fetched(store, A0)] == [
        (b"b", b"1"), (b"a", None), (b"c", b"1"), (b"d", b"1"),
    ]  # fmt: skip
    compact(store, first.clean_end, expired_end=first.clean_end)
    store = revisit()
    assert [record.key for record in fetched(store, A0)] == [b"b", b"c", b"d"]


def test_records_without_a_key_go(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    for records in ([(None, b"1"), (b"a", b"1")], [(None, b"2")], [(b"b", b"1")]):
        store.commit(Changes(appends=[keyed(A0, *records)]))
    compact(store)
    assert [record.key for record in fetched(revisit(), A0)] == [b"a", b"b"]


def marker(kind: TransactionMarker, producer: int) -> Append:
    return Append(A0, encode_marker(kind, producer, 0, TIMESTAMP), 1, TIMESTAMP)


def test_aborted_records_neither_stay_nor_count(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    for each in (
        keyed(A0, (b"a", b"kept")),
        keyed(A0, (b"a", b"aborted"), (b"b", b"aborted"), producer_id=7, transactional=True),
        keyed(A0, (b"c", b"committed"), producer_id=8, transactional=True),
        marker(TransactionMarker.ABORT, 7),
        keyed(A0, (b"d", b"committed"), producer_id=7, transactional=True),
        marker(TransactionMarker.COMMIT, 7),
        marker(TransactionMarker.COMMIT, 8),
        keyed(A0, (b"e", b"last")),
    ):
        store.commit(Changes(appends=[each]))
    aborted = [EndedTransaction(ProducerId(7), Offset(1), Offset(4))]
    first = compact(store, aborted=aborted)
    store = revisit()
    assert [(record.key, record.value) for record in fetched(store, A0)] == [
        (b"a", b"kept"), (b"c", b"committed"), (b"d", b"committed"), (b"e", b"last"),
    ]  # fmt: skip
    assert offsets_of_markers(store) == [4, 6, 7]
    compact(store, first.clean_end, aborted=aborted, expired_end=first.clean_end)
    assert offsets_of_markers(store) == [4]
    compact(store, first.clean_end, expired_end=first.clean_end)
    assert offsets_of_markers(revisit()) == []


def offsets_of_markers(store: Store) -> list[int]:
    heads = map(read_header, store.fetch(A0, Offset(0), 1 << 20).batches)
    return [head.base_offset for head in heads if head.is_control]


def test_a_removed_batch_is_not_held_any_more(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    for value in (b"1", b"2", b"3"):
        store.commit(Changes(appends=[keyed(A0, (b"a", value))]))
    compact(store)
    store = revisit()
    assert [store.has_batch(A0, Offset(offset)) for offset in range(4)] == [False, True, True, False]


def test_records_can_be_trimmed_and_appended_after_a_compaction(store: Store, revisit: Callable[[], Store]) -> None:
    before = filled(store)
    clean_end = compact(store).clean_end
    store = revisit()
    for start in (3, 101, 150, 190):
        store.commit(Changes(trims=[(A0, Offset(start))]))
        assert fetched(store, A0) == [record for record in compacted(before, clean_end) if record.offset >= start]
    store.commit(Changes(appends=[keyed(A0, (b"k0", b"new"))]))
    store = revisit()
    assert fetched(store, A0)[-1].offset == 200
    assert store.size(A0) == sum(map(len, store.fetch(A0, Offset(190), 1 << 20).batches))


def test_a_batch_in_whose_middle_the_partition_begins_is_compacted(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    store.commit(Changes(appends=[keyed(A0, (b"k0", b"a"), (b"k1", b"b"), (b"k1", b"c"))]))
    store.commit(Changes(trims=[(A0, Offset(1))]))
    for _ in range(2):
        store.commit(Changes(appends=[keyed(A0, (b"k2", b"d"))]))
    assert compact(store).clean_end == 4
    assert [(each.offset, each.value) for each in fetched(revisit(), A0)] == [(2, b"c"), (3, b"d"), (4, b"d")]


def test_a_deleted_topic_is_not_compacted(store: Store) -> None:
    filled(store)
    store.commit(Changes(drops=[A]))
    assert compact(store, clean_end=5) == CompactionResult(A0, Offset(5), 0, 0)
