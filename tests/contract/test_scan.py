"""Reading the whole log in its global order."""

from collections.abc import Callable

import pytest

from tailrace.model.commit import Changes
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.store.contract import Store
from tests.support.batches import append, values_of
from tests.support.observed import scan_all

A, B, C = TopicId(1), TopicId(2), TopicId(3)
A0, B0, B1, C0 = PartitionId(A, 0), PartitionId(B, 0), PartitionId(B, 1), PartitionId(C, 0)


def _filled(store: Store) -> None:
    """Write ten commits of three batches with 1, 2 and 3 records: commit n begins at cursor 6 n."""
    store.commit(Changes(creates=[(A, 1), (B, 2), (C, 1)]))
    for number in range(10):
        tag = b"%d" % number * 30
        store.commit(
            Changes(appends=[append(A0, b"a" + tag), append(B0, b"b" + tag, b"c" + tag), append(B1, *[b"d" + tag] * 3)])
        )


def test_scan_gives_all_topics_in_commit_order(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    batches = scan_all(revisit())
    assert [(batch.cursor, batch.partition, batch.base_offset) for batch in batches] == [
        place for n in range(10) for place in ((6 * n, A0, n), (6 * n + 1, B0, 2 * n), (6 * n + 3, B1, 3 * n))
    ]
    assert values_of([batch.batch for batch in batches[:3]])[0] == b"a" + b"0" * 30


@pytest.mark.parametrize("max_bytes", [0, 1, 200, 1_000, 5_000])
def test_scans_of_any_size_add_up_to_the_same_log(store: Store, revisit: Callable[[], Store], max_bytes: int) -> None:
    _filled(store)
    store = revisit()
    pieces = scan_all(store, read_bytes=max_bytes)
    assert [(batch.cursor, bytes(batch.batch)) for batch in pieces] == [
        (batch.cursor, bytes(batch.batch)) for batch in scan_all(store, read_bytes=1 << 20)
    ]


def test_a_scan_keeps_to_max_bytes_but_gives_at_least_one_batch(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store = revisit()
    one = store.scan(Cursor(0), 1)
    assert (len(one.batches), one.next_cursor) == (1, 1)
    some = store.scan(Cursor(0), 700)
    assert 1 < len(some.batches) < 30
    assert sum(len(batch.batch) for batch in some.batches) <= 700


def test_a_scan_from_inside_a_batch_begins_with_that_batch(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store = revisit()
    for cursor, first in [(4, 3), (5, 3), (6, 6), (8, 7), (59, 57)]:
        assert store.scan(Cursor(cursor), 1).batches[0].cursor == first


def test_a_scan_at_the_end_gives_nothing_and_stays(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store = revisit()
    assert store.scan(Cursor(60), 1_000) == ([], 60)
    assert store.scan(Cursor(61), 1_000) == ([], 61)


def test_a_reader_at_the_end_continues_where_it_was(store: Store) -> None:
    _filled(store)
    place = store.scan(store.end_cursor(), 1_000).next_cursor
    store.commit(Changes(appends=[append(C0, b"new")]))
    batches, next_cursor = store.scan(place, 1_000)
    assert [(batch.cursor, batch.partition) for batch in batches] == [(60, C0)]
    assert next_cursor == 61


def test_a_scan_skips_what_was_trimmed(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store.commit(Changes(trims=[(B0, Offset(9)), (A0, Offset(10))]))
    seen = scan_all(revisit(), read_bytes=300)
    assert [batch.cursor for batch in seen if batch.partition == A0] == []
    assert [batch.base_offset for batch in seen if batch.partition == B0] == [8, 10, 12, 14, 16, 18]
    assert [batch.base_offset for batch in seen if batch.partition == B1] == list(range(0, 30, 3))


def test_a_scan_skips_dropped_topics(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store.commit(Changes(drops=[B]))
    store = revisit()
    assert [(batch.cursor, batch.partition) for batch in scan_all(store)] == [(6 * n, A0) for n in range(10)]
    assert scan_all(store, start=55) == []


def test_a_scan_over_nothing_but_dead_records_reaches_the_end(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store.commit(Changes(drops=[A, B]))
    store = revisit()
    assert scan_all(store, read_bytes=1) == []
    store.commit(Changes(appends=[append(C0, b"alive")]))
    assert [batch.cursor for batch in scan_all(store, read_bytes=1)] == [60]


def test_scan_and_fetch_serve_the_same_bytes(store: Store, revisit: Callable[[], Store]) -> None:
    _filled(store)
    store = revisit()
    for partition in (A0, B0, B1):
        scanned = [bytes(batch.batch) for batch in scan_all(store) if batch.partition == partition]
        assert scanned == [bytes(batch) for batch in store.fetch(partition, Offset(0), 1 << 20).batches]


def test_all_batches_of_a_commit_carry_its_timestamp(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 1), (B, 1)]))
    stamps = [store.commit(Changes(appends=[append(A0, b"x"), append(B0, b"y")])).hlc for _ in range(5)]
    assert [batch.hlc for batch in scan_all(revisit())] == [stamp for stamp in stamps for _ in range(2)]
