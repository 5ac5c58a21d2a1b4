"""A commit of records: its offsets, cursors and receipt, and its bytes as they came."""

from collections.abc import Callable

from tailrace.model.clock import hlc_millis
from tailrace.model.commit import Changes, OffsetBounds
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.store.contract import Store
from tailrace.wire.batch import check_batch
from tests.support.batches import append, decode_batch, values_of
from tests.support.clocks import ManualClock
from tests.support.observed import fetch_all, observe, scan_all
from tests.support.stores import Home

A, B = TopicId(1), TopicId(2)
A0, A1, B0 = PartitionId(A, 0), PartitionId(A, 1), PartitionId(B, 0)
TWO_TOPICS = Changes(creates=[(A, 2), (B, 1)])


def test_offsets_are_dense_from_zero_in_each_partition(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(TWO_TOPICS)
    first = store.commit(Changes(appends=[append(A0, b"a", b"b"), append(A1, b"c")]))
    second = store.commit(Changes(appends=[append(A0, b"d"), append(A1, b"e", b"f", b"g"), append(A0, b"h")]))
    assert list(first.offsets) == [0, 0]
    assert list(second.offsets) == [2, 1, 3]
    store = revisit()
    assert [(record.offset, record.value) for record in fetch_all(store, A0)] == [(0, b"a"), (1, b"b"), (2, b"d"), (3, b"h")]
    assert [(record.offset, record.value) for record in fetch_all(store, A1)] == [(0, b"c"), (1, b"e"), (2, b"f"), (3, b"g")]


def test_cursors_are_dense_over_all_partitions(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(TWO_TOPICS)
    first = store.commit(Changes(appends=[append(A0, b"a", b"b"), append(B0, b"c")]))
    second = store.commit(Changes(appends=[append(A1, b"d"), append(A0, b"e", b"f")]))
    assert (first.cursor, second.cursor) == (0, 3)
    store = revisit()
    assert store.end_cursor() == 6
    assert [(batch.cursor, batch.partition, batch.base_offset, batch.records) for batch in scan_all(store)] == [
        (0, A0, 0, 2),
        (2, B0, 0, 1),
        (3, A1, 0, 1),
        (4, A0, 2, 2),
    ]


def test_a_commit_without_records_takes_no_cursor(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(TWO_TOPICS)
    store.commit(Changes(appends=[append(A0, b"a")]))
    assert store.commit(Changes(puts=[(b"key", b"value")])).cursor == 1
    assert store.commit(Changes()).cursor == 1
    assert store.commit(Changes(appends=[append(A0, b"b")])).cursor == 1
    assert revisit().end_cursor() == 2


def test_a_stored_batch_is_the_batch_that_came_but_for_its_offset_and_epoch(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(TWO_TOPICS)
    store.commit(Changes(appends=[append(A0, b"before")]))
    sent = append(A0, b"one", b"two")
    store.commit(Changes(appends=[sent]))
    (batch,) = revisit().fetch(A0, Offset(1), 1_000).batches
    assert check_batch(batch).base_offset == 1
    assert bytes(batch)[8:12] == bytes(sent.batch)[8:12]
    assert bytes(batch)[16:] == bytes(sent.batch)[16:]


def test_a_batch_may_come_in_any_kind_of_buffer(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(TWO_TOPICS)
    for kind in (bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))):
        sent = append(A0, b"value")
        store.commit(Changes(appends=[sent._replace(batch=kind(bytes(sent.batch)))]))
    records = fetch_all(revisit(), A0)
    assert [(record.offset, record.value) for record in records] == [(number, b"value") for number in range(4)]


def test_a_topic_is_created_and_written_in_one_commit(store: Store, revisit: Callable[[], Store]) -> None:
    receipt = store.commit(Changes(creates=[(A, 2)], appends=[append(A1, b"first")], puts=[(b"topic/1", b"A")]))
    assert list(receipt.offsets) == [0]
    store = revisit()
    assert values_of(store.fetch(A1, Offset(0), 1_000).batches) == [b"first"]
    assert store.bounds(A0) == (0, 0)
    assert store.get(b"topic/1") == b"A"


def test_bounds_and_next_offset_follow_the_appends(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(TWO_TOPICS)
    store.commit(Changes(appends=[append(A0, b"a", b"b"), append(A0, b"c")]))
    store = revisit()
    assert store.bounds(A0) == OffsetBounds(Offset(0), Offset(3))
    assert store.next_offset(A0) == 3
    assert store.next_offset(B0) == 0


def test_an_append_for_the_offset_that_is_next_is_taken(store: Store) -> None:
    store.commit(TWO_TOPICS)
    store.commit(Changes(appends=[append(A0, b"a", base_offset=0)]))
    receipt = store.commit(Changes(appends=[append(A0, b"b", b"c", base_offset=1), append(A0, b"d", base_offset=3)]))
    assert list(receipt.offsets) == [1, 3]


def test_every_commit_has_a_later_timestamp_even_when_the_wall_clock_steps_back(home: Home) -> None:
    clock = ManualClock()
    store = home.open(clock)
    store.commit(TWO_TOPICS)
    stamps = []
    for step in (0, 5, -60_000, 0, 120_000):
        clock.advance(step)
        stamps.append(store.commit(Changes(appends=[append(A0, b"x")])).hlc)
    assert stamps == sorted(set(stamps))
    assert hlc_millis(stamps[-1]) == clock.now_ms()
    assert [batch.hlc for batch in scan_all(store)] == stamps
    store.close()


def test_an_end_cursor_on_an_empty_store_is_zero(store: Store, revisit: Callable[[], Store]) -> None:
    store = revisit()
    assert store.end_cursor() == 0
    assert list(store.partitions()) == []
    assert store.scan(Cursor(0), 1_000) == ([], 0)


def test_many_commits_are_read_back_in_full(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(TWO_TOPICS)
    sent: dict[PartitionId, list[bytes]] = {A0: [], A1: [], B0: []}
    for number in range(120):
        targets = [A0, A1, B0][: 1 + number % 3]
        values = [b"%d/%d" % (number, copy) + b"." * (number % 50) for copy in range(1 + number % 4)]
        store.commit(Changes(appends=[append(partition, *values) for partition in targets], puts=[(b"last", b"%d" % number)]))
        for partition in targets:
            sent[partition] += values
    seen = observe(revisit(), read_bytes=700)
    assert {partition: [record.value for record in records] for partition, records in seen.fetched.items()} == sent
    assert seen.end_cursor == sum(map(len, sent.values()))
    assert seen.state == {b"last": b"119"}
    assert [record for batch in seen.scanned if batch.partition == A1 for record in batch.records] == list(seen.fetched[A1])


def test_the_largest_commit_is_taken_whole(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(TWO_TOPICS)
    megabyte = bytes(range(256)) * 4096
    store.commit(Changes(appends=[append(A0, megabyte) for _ in range(9)] + [append(B0, b"small")]))
    store = revisit()
    assert [record.value == megabyte for record in fetch_all(store, A0)] == [True] * 9
    assert decode_batch(store.fetch(B0, Offset(0), 1).batches[0])[0].value == b"small"
