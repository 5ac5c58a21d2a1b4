"""Topics are created, grown, dropped and trimmed."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from tailrace.model.commit import Changes, OffsetBounds
from tailrace.model.errors import OffsetOutOfRangeError, UnknownPartitionError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.topic import Topic, TopicSettings
from tailrace.store.contract import Store
from tests.support.batches import append, values_of
from tests.support.observed import fetch_all, scan_all

A, B = TopicId(1), TopicId(2)
A0, A1, B0 = PartitionId(A, 0), PartitionId(A, 1), PartitionId(B, 0)


def test_a_topic_has_the_partitions_it_was_created_with(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(B, 1), (A, 2)]))
    store = revisit()
    assert sorted(store.partitions()) == [A0, A1, B0]
    assert store.bounds(A1) == OffsetBounds(Offset(0), Offset(0))


def test_creating_a_topic_again_changes_nothing(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)], appends=[append(A0, b"kept")]))
    store.commit(Changes(creates=[(A, 2)]))
    store = revisit()
    assert sorted(store.partitions()) == [A0, A1]
    assert values_of(store.fetch(A0, Offset(0), 100).batches) == [b"kept"]


def test_a_grown_topic_keeps_its_records(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 1)], appends=[append(A0, b"kept")]))
    store.commit(Changes(creates=[(A, 2)], appends=[append(A1, b"new")]))
    store = revisit()
    assert values_of(store.fetch(A0, Offset(0), 100).batches) == [b"kept"]
    assert values_of(store.fetch(A1, Offset(0), 100).batches) == [b"new"]


def test_a_dropped_topic_is_gone_from_every_view(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2), (B, 1)]))
    store.commit(Changes(appends=[append(A0, b"a"), append(B0, b"b"), append(A1, b"c")]))
    store.commit(Changes(drops=[A], puts=[(b"dropped", b"A")]))
    store = revisit()
    assert list(store.partitions()) == [B0]
    for question in (store.bounds, store.next_offset, store.size):
        with pytest.raises(UnknownPartitionError):
            question(A0)
    with pytest.raises(UnknownPartitionError):
        store.fetch(A1, Offset(0), 100)
    with pytest.raises(UnknownPartitionError):
        store.batch_for_time(A0, 0)
    assert [(batch.cursor, batch.partition) for batch in scan_all(store)] == [(1, B0)]
    assert store.end_cursor() == 3


def test_cursors_of_dropped_records_are_never_assigned_again(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 1), (B, 1)], appends=[append(A0, b"a", b"b", b"c")]))
    store.commit(Changes(drops=[A]))
    store = revisit()
    assert store.commit(Changes(appends=[append(B0, b"d")])).cursor == 3


def test_dropping_the_last_topic_leaves_a_usable_store(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 1)], appends=[append(A0, b"a")]))
    store.commit(Changes(drops=[A]))
    store = revisit()
    assert list(store.partitions()) == []
    assert scan_all(store) == []
    assert store.commit(Changes(creates=[(B, 1)], appends=[append(B0, b"b")])).cursor == 1


def test_a_trim_moves_the_start_and_reports_it(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    for value in (b"a", b"b", b"c", b"d"):
        store.commit(Changes(appends=[append(A0, value)]))
    store.commit(Changes(trims=[(A0, Offset(2))]))
    store = revisit()
    assert store.bounds(A0) == OffsetBounds(Offset(2), Offset(4))
    assert values_of(store.fetch(A0, Offset(2), 1_000).batches) == [b"c", b"d"]
    with pytest.raises(OffsetOutOfRangeError) as below:
        store.fetch(A0, Offset(1), 1_000)
    assert (below.value.start, below.value.end) == (2, 4)


def test_a_trim_inside_a_batch_keeps_the_batch_that_holds_the_start(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 1)], appends=[append(A0, b"a", b"b"), append(A0, b"c", b"d", b"e"), append(A0, b"f")]))
    store.commit(Changes(trims=[(A0, Offset(3))]))
    store = revisit()
    assert store.bounds(A0) == OffsetBounds(Offset(3), Offset(6))
    assert [record.offset for record in fetch_all(store, A0)] == [2, 3, 4, 5]
    assert [batch.base_offset for batch in scan_all(store)] == [2, 5]
    with pytest.raises(OffsetOutOfRangeError):
        store.fetch(A0, Offset(2), 1_000)


def test_a_trim_to_the_end_empties_the_partition_and_keeps_its_end(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 1)], appends=[append(A0, b"a", b"b")]))
    store.commit(Changes(trims=[(A0, Offset(2))]))
    store = revisit()
    assert store.bounds(A0) == OffsetBounds(Offset(2), Offset(2))
    assert list(store.fetch(A0, Offset(2), 100).batches) == []
    assert store.size(A0) == 0
    assert list(store.commit(Changes(appends=[append(A0, b"c")])).offsets) == [2]


def test_a_trim_below_the_start_changes_nothing(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 1)], appends=[append(A0, b"a"), append(A0, b"b"), append(A0, b"c")]))
    store.commit(Changes(trims=[(A0, Offset(2))]))
    store.commit(Changes(trims=[(A0, Offset(1))]))
    assert revisit().bounds(A0) == OffsetBounds(Offset(2), Offset(3))


def test_a_trim_and_an_append_in_one_commit_both_count(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 1)], appends=[append(A0, b"a"), append(A0, b"b")]))
    store.commit(Changes(trims=[(A0, Offset(2))], appends=[append(A0, b"c")]))
    store = revisit()
    assert store.bounds(A0) == OffsetBounds(Offset(2), Offset(3))
    assert values_of(store.fetch(A0, Offset(2), 100).batches) == [b"c"]


def test_trims_touch_only_their_own_partition(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)], appends=[append(A0, b"a", b"b"), append(A1, b"c", b"d")]))
    store.commit(Changes(trims=[(A1, Offset(1))]))
    store = revisit()
    assert store.bounds(A0) == OffsetBounds(Offset(0), Offset(2))
    assert store.bounds(A1) == OffsetBounds(Offset(1), Offset(2))


def test_an_unknown_partition_is_named_in_the_error(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    for question in (store.bounds, store.next_offset, store.size):
        with pytest.raises(UnknownPartitionError, match="there is no partition 5"):
            question(PartitionId(A, 5))
    with pytest.raises(UnknownPartitionError, match="there is no partition 0 of a deleted topic"):
        store.fetch(PartitionId(TopicId(7), 0), Offset(0), 100)


def test_an_offset_out_of_range_is_refused_with_the_name_of_the_topic(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    settings = TopicSettings()
    topic = Topic(id=A, uuid=uuid4(), name="orders", alias=None, partitions=1, settings=settings, created_ms=0)
    store.topic_names.learn(topic)
    with pytest.raises(OffsetOutOfRangeError, match="partition 0 of 'orders' holds offsets 0 to 0, not 9"):
        store.fetch(PartitionId(A, 0), Offset(9), 1)
    store.topic_names.forget(topic)
    with pytest.raises(OffsetOutOfRangeError, match="partition 0 of a deleted topic holds"):
        store.fetch(PartitionId(A, 0), Offset(9), 1)
