"""Opening, closing, and opening again."""

import contextlib
from collections.abc import Callable

import pytest

from tailrace.model.commit import Changes
from tailrace.model.errors import StoreClosedError
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.store.contract import Store, StoreCommit
from tests.contract.conftest import Reopen
from tests.support.batches import append
from tests.support.clocks import ManualClock
from tests.support.observed import fetch_all, observe

A = TopicId(1)
A0 = PartitionId(A, 0)


def test_closing_again_does_nothing(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    store.close()
    store.close()


def test_a_store_that_was_never_written_to_can_be_closed(store: Store) -> None:
    store.close()


def test_a_closed_store_takes_nothing_new(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    store.close()
    answers: list[StoreCommit] = []
    with pytest.raises(StoreClosedError):
        store.submit(Changes(appends=[append(A0, b"late")]), answers.append)
    with pytest.raises(StoreClosedError):
        store.commit(Changes(puts=[(b"key", b"late")]))
    assert answers == []


def test_a_closed_store_answers_reads_or_says_that_it_is_closed(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)], appends=[append(A0, b"x")], puts=[(b"key", b"value")]))
    store.close()
    reads: list[Callable[[], object]] = [
        lambda: store.fetch(A0, Offset(0), 100),
        lambda: store.scan(Cursor(0), 100),
        lambda: store.get(b"key"),
        lambda: store.latest(b"key"),
        lambda: store.range(b""),
        lambda: store.batch_for_time(A0, 0),
        lambda: store.batch_for_size(A0, 100),
    ]
    for read in reads:
        with contextlib.suppress(StoreClosedError):
            assert read() is not None


def test_close_finishes_what_is_in_flight(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    answers: list[StoreCommit] = []
    for number in range(100):
        store.submit(Changes(appends=[append(A0, b"%d" % number)]), answers.append)
    store.close()
    assert [commit.receipt.offsets[0] for commit in answers if commit.error is None] == list(range(100))


def test_an_empty_store_is_empty_when_opened_again(reopen: Reopen) -> None:
    reopen()
    seen = observe(reopen())
    assert (seen.partitions, seen.scanned, seen.end_cursor, seen.state) == ({}, [], 0, {})


def test_what_was_in_flight_at_close_is_there_when_opened_again(store: Store, reopen: Reopen) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    for number in range(100):
        store.submit(Changes(appends=[append(A0, b"%d" % number)]), lambda _: None)
    assert [record.value for record in fetch_all(reopen(), A0)] == [b"%d" % number for number in range(100)]


def test_a_store_opened_many_times_loses_and_repeats_nothing(reopen: Reopen) -> None:
    store = reopen()
    store.commit(Changes(creates=[(A, 1)]))
    for number in range(12):
        receipt = store.commit(Changes(appends=[append(A0, b"%d" % number)], puts=[(b"n", b"%d" % number)]))
        assert (receipt.cursor, list(receipt.offsets)) == (number, [number])
        before = observe(store)
        store = reopen()
        assert observe(store) == before


def test_timestamps_rise_across_reopening_even_when_the_clock_stepped_back(reopen: Reopen) -> None:
    clock = ManualClock()
    last = reopen(clock).commit(Changes(creates=[(A, 1)])).hlc
    clock.step_back(3_600_000)
    assert reopen(clock).commit(Changes(appends=[append(A0, b"x")])).hlc > last
