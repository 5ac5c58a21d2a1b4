import asyncio
import gc
import threading
import weakref

import pytest

from tailrace.broker.commits import Change, Committer, StillInFlight
from tailrace.model.commit import Changes
from tailrace.model.errors import InvalidRequestError, OverloadedError, SequencingError, StorageFullError, StoreClosedError
from tailrace.model.limits import Limits
from tests.support.aio import on_loop, turns, until
from tests.support.brokers import GatedStore


def put(key: bytes, value: bytes = b"1", held: list[bytes] | None = None) -> Change[bytes]:
    """Return a proposal that puts a key and answers with it. `held` collects the keys in the order of their answers."""

    def settled(_: object) -> bytes:
        if held is not None:
            held.append(key)
        return key

    return Change(lambda: Changes(puts=((key, value),)), settled)


class Sized(Change[bytes]):
    __slots__ = ("size",)
    size: int

    @property
    def held_bytes(self) -> int:
        return self.size


def sized(size: int) -> Sized:
    proposal = Sized(lambda: Changes(puts=((b"k", b"v"),)), lambda _: b"k")
    proposal.size = size
    return proposal


def committer_on(store: GatedStore, **limits: int) -> Committer:
    committer = Committer(store, Limits(**limits))
    committer.start()
    return committer


@on_loop
async def test_an_answer_comes_only_after_the_commit_is_settled() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    answer = committer.submit(put(b"k"))
    await turns()
    assert not answer.done()
    store.settle()
    assert await answer == b"k"
    assert store.get(b"k") == b"1"


@on_loop
async def test_many_commits_are_answered_in_order_by_one_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    held: list[bytes] = []
    answers = [committer.submit(put(b"%03d" % number, held=held)) for number in range(100)]
    wake_ups = 0
    wake = committer.loop.call_soon_threadsafe

    def counted(*args: object) -> object:
        nonlocal wake_ups
        wake_ups += 1
        return wake(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(committer.loop, "call_soon_threadsafe", counted)
    settling = threading.Thread(target=store.settle)
    settling.start()
    settling.join()
    await asyncio.gather(*answers)
    assert held == [b"%03d" % number for number in range(100)]
    assert wake_ups == 1


@on_loop
async def test_a_rejected_decision_fails_its_own_future_only() -> None:
    committer = committer_on(GatedStore())

    def refuse() -> Changes:
        raise InvalidRequestError("no")

    with pytest.raises(InvalidRequestError):
        await committer.submit(Change(refuse, lambda _: None))
    assert await committer.submit(put(b"next")) == b"next"


@on_loop
async def test_a_fault_in_one_answer_does_not_keep_others_from_theirs() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()

    def fault(_: object) -> None:
        raise ZeroDivisionError

    broken = committer.submit(Change(lambda: Changes(puts=((b"a", b""),)), fault))
    whole = committer.submit(put(b"b"))
    store.settle()
    with pytest.raises(ZeroDivisionError):
        await broken
    assert await whole == b"b"


@on_loop
async def test_nothing_to_change_is_answered_without_a_commit() -> None:
    store = GatedStore()
    committer = committer_on(store)
    assert await committer.submit(Change(lambda: None, lambda receipt: receipt)) is None
    assert store.stats().commits == 0


@on_loop
async def test_a_failed_commit_fails_its_proposal_and_takes_back_what_was_done_ahead() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    taken_back: list[str] = []
    answer = committer.submit(
        Change(lambda: Changes(puts=((b"k", b"v"),)), lambda _: None, failed=lambda: taken_back.append("yes"))
    )
    store.fail()
    with pytest.raises(StorageFullError):
        await answer
    assert taken_back == ["yes"]
    assert committer.in_flight == 0


@on_loop
async def test_a_cancelled_caller_does_not_affect_others() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    first = committer.submit(put(b"a"))
    second = committer.submit(put(b"b"))
    first.cancel()
    store.settle()
    assert await second == b"b"
    assert store.get(b"a") == b"1"
    assert committer.in_flight == 0


@on_loop
async def test_when_the_store_is_full_proposals_wait_in_order() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    store.room = 1
    held: list[bytes] = []
    answers = [committer.submit(put(b"%d" % number, held=held)) for number in range(5)]
    assert len(store.in_flight) == 1
    assert committer.waiting == 4
    while not all(answer.done() for answer in answers):
        store.settle(1)
        await turns()
    assert held == [b"0", b"1", b"2", b"3", b"4"]
    assert committer.waiting == 0


@on_loop
async def test_a_later_proposal_does_not_overtake_waiting_ones() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    store.room = 1
    held: list[bytes] = []
    first, second = (committer.submit(put(name, held=held)) for name in (b"first", b"second"))
    store.room = 10
    third = committer.submit(put(b"third", held=held))
    store.open_gate()
    await asyncio.gather(first, second, third)
    assert held == [b"first", b"second", b"third"]


@on_loop
async def test_a_proposal_that_waits_too_long_is_rejected_as_overloaded() -> None:
    store = GatedStore()
    committer = committer_on(store, publish_wait_ms=20)
    store.close_gate()
    store.room = 0
    with pytest.raises(OverloadedError, match="publish_wait_ms"):
        await committer.submit(put(b"k"))
    assert committer.waiting == 0
    assert committer.waiting_bytes == 0
    store.open_gate()
    assert await committer.submit(put(b"later")) == b"later"


@on_loop
async def test_room_that_no_commit_in_flight_announces_is_found_all_the_same() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.room = 0
    answer = committer.submit(put(b"k"))
    store.room = 1
    assert await answer == b"k"


@on_loop
async def test_the_number_that_waits_is_bounded() -> None:
    store = GatedStore()
    committer = committer_on(store, waiting_publishes=2)
    store.close_gate()
    store.room = 0
    waiting = [committer.submit(put(b"%d" % number)) for number in range(2)]
    with pytest.raises(OverloadedError, match="waiting_publishes"):
        await committer.submit(put(b"one too many"))
    store.open_gate()
    assert await asyncio.gather(*waiting) == [b"0", b"1"]


@on_loop
async def test_the_bytes_that_wait_are_bounded_and_given_back() -> None:
    store = GatedStore()
    committer = committer_on(store, waiting_publish_bytes=100)
    store.close_gate()
    store.room = 0
    waiting = committer.submit(sized(80))
    with pytest.raises(OverloadedError, match="waiting_publish_bytes"):
        await committer.submit(sized(21))
    assert committer.waiting_bytes == 80
    store.open_gate()
    await waiting
    assert committer.waiting_bytes == 0


@on_loop
async def test_one_who_gave_up_waiting_leaves_room_for_others() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    store.room = 0
    gone = committer.submit(sized(80))
    stays = committer.submit(put(b"k"))
    gone.cancel()
    store.open_gate()
    assert await stays == b"k"
    assert committer.waiting_bytes == 0
    assert store.stats().commits == 1


@on_loop
async def test_a_commit_built_on_offsets_of_a_failed_one_is_decided_again() -> None:
    attempts = 0

    class Moving(GatedStore):
        def submit(self, changes, done):  # type: ignore[no-untyped-def]
            nonlocal attempts
            attempts += 1
            if attempts < 3:
                raise SequencingError("moved")
            return super().submit(changes, done)

    committer = committer_on(Moving())
    assert await committer.submit(put(b"k")) == b"k"
    assert attempts == 3


@on_loop
async def test_a_log_that_never_stands_still_is_reported() -> None:
    class Moving(GatedStore):
        def submit(self, changes, done):  # type: ignore[no-untyped-def]
            raise SequencingError("moved")

    with pytest.raises(SequencingError, match="failed during all 4 attempts"):
        await committer_on(Moving()).submit(put(b"k"))


def follower(store: GatedStore, key: bytes) -> Change[bytes | None]:
    """Return a proposal that answers with the settled value of a key that is in flight."""

    def decide() -> None:
        if store.latest(key) != store.get(key):
            raise StillInFlight

    return Change(decide, lambda _: store.get(key))


@on_loop
async def test_what_leans_on_a_commit_in_flight_is_decided_again_when_that_is_settled() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    committer.submit(put(b"k"))
    answer = committer.submit(follower(store, b"k"))
    await turns()
    assert not answer.done()
    store.settle()
    assert await answer == b"1"


@on_loop
async def test_what_leans_on_a_commit_in_flight_is_decided_again_when_that_fails() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    failing = committer.submit(put(b"k"))
    answer = committer.submit(follower(store, b"k"))
    store.fail()
    assert await answer is None
    with pytest.raises(StorageFullError):
        await failing


@on_loop
async def test_those_who_wait_for_commits_in_flight_are_bounded() -> None:
    store = GatedStore()
    committer = committer_on(store, waiting_publishes=1)
    store.close_gate()
    committer.submit(put(b"k"))
    answer = committer.submit(follower(store, b"k"))
    with pytest.raises(OverloadedError, match="waiting_publishes"):
        await committer.submit(follower(store, b"k"))
    store.settle()
    assert await answer == b"1"
    committer.submit(put(b"k", b"2"))
    again = committer.submit(follower(store, b"k"))
    store.settle()
    assert await again == b"2"


@on_loop
async def test_one_who_gave_up_waiting_for_a_commit_in_flight_changes_nothing() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    decisions = 0

    def decide() -> Changes:
        nonlocal decisions
        decisions += 1
        if decisions == 1:
            raise StillInFlight
        return Changes(puts=((b"given up", b""),))

    committer.submit(put(b"k"))
    committer.submit(Change(decide, lambda _: None)).cancel()
    store.open_gate()
    await turns()
    assert decisions == 1


@on_loop
async def test_closing_waits_for_commits_in_flight_and_rejects_the_rest() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    store.room = 1
    in_flight = committer.submit(put(b"in flight"))
    waiting = committer.submit(put(b"waiting"))
    closing = asyncio.ensure_future(committer.close())
    with pytest.raises(StoreClosedError):
        await waiting
    with pytest.raises(StoreClosedError):
        await committer.submit(put(b"late"))
    await turns()
    assert not closing.done()
    store.settle()
    await closing
    assert await in_flight == b"in flight"


def test_a_store_that_outlives_the_loop_is_not_disturbed() -> None:
    store = GatedStore()

    async def leave_in_flight() -> None:
        store.close_gate()
        committer_on(store).submit(put(b"k"))

    asyncio.run(leave_in_flight())
    store.settle()
    assert store.get(b"k") == b"1"


@on_loop
async def test_commits_settled_by_another_thread_are_answered_on_the_loop() -> None:
    store = GatedStore()
    committer = committer_on(store)
    store.close_gate()
    answers = [committer.submit(put(b"%d" % number)) for number in range(50)]
    settling = asyncio.ensure_future(asyncio.to_thread(store.settle))
    await until(lambda: all(answer.done() for answer in answers))
    await settling
    assert committer.in_flight == 0


@on_loop
async def test_an_answered_commit_leaves_nothing_to_the_garbage_collector() -> None:
    """A commit may hold megabytes. If only the garbage collector freed them, memory would grow with every commit."""

    class Held:
        pass

    held = Held()
    seen = weakref.ref(held)

    def settled(_: object, held: Held = held) -> bytes:
        return b"k"

    committer = committer_on(GatedStore())
    gc.disable()
    try:
        await committer.submit(Change(lambda: Changes(puts=((b"k", b"v"),)), settled))
        await turns(1)
        del held, settled
        assert seen() is None
    finally:
        gc.enable()
