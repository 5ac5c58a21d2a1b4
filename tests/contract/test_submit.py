"""Many commits in flight: each is answered once, in the order of the log, whichever thread submits it."""

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tailrace.model.commit import Changes
from tailrace.model.errors import OverloadedError, SequencingError
from tailrace.model.ids import Offset, PartitionId, TopicId
from tailrace.model.limits import KIB, Limits
from tailrace.store.contract import Store, StoreCommit
from tests.support.batches import append
from tests.support.observed import fetch_all, observe, scan_all
from tests.support.patience import PATIENCE_SECONDS
from tests.support.stores import Home

A, B = TopicId(1), TopicId(2)
A0, A1, B0 = PartitionId(A, 0), PartitionId(A, 1), PartitionId(B, 0)


class Answers:
    """Collects the commits that `done` is called with, in order."""

    def __init__(self, expected: int) -> None:
        self.commits: list[StoreCommit] = []
        self._expected = expected
        self._all = threading.Event()

    def __call__(self, commit: StoreCommit) -> None:
        self.commits.append(commit)
        if len(self.commits) == self._expected:
            self._all.set()

    def wait(self) -> list[StoreCommit]:
        assert self._all.wait(PATIENCE_SECONDS), f"{len(self.commits)} of {self._expected} commits were answered"
        return self.commits


def test_done_is_called_once_for_each_commit_in_commit_order(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    answers = Answers(200)
    submitted = [store.submit(Changes(appends=[append(A0, b"%d" % number)]), answers) for number in range(200)]
    assert answers.wait() == submitted
    store.commit(Changes())
    assert len(answers.commits) == 200
    assert [list(commit.receipt.offsets) for commit in submitted] == [[number] for number in range(200)]
    assert all(commit.error is None for commit in submitted)


def test_what_was_answered_can_be_read_inside_done(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    seen: list[tuple[int, int, bytes | None]] = []

    def look(commit: StoreCommit) -> None:
        seen.append((commit.receipt.offsets[0], store.bounds(A0).end, store.get(b"last")))
        answers(commit)

    answers = Answers(20)
    for number in range(20):
        store.submit(Changes(appends=[append(A0, b"x")], puts=[(b"last", b"%d" % number)]), look)
    answers.wait()
    for offset, end, last in seen:
        assert end > offset
        assert last is not None and int(last) >= offset


def test_the_latest_view_is_there_when_submit_returns(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)], puts=[(b"p/gone", b"old"), (b"deleted", b"old")]))
    answers = Answers(40)
    for number in range(40):
        changes = Changes(
            appends=[append(A0, b"x", b"y")],
            drop_prefixes=[b"p/"],
            puts=[(b"count", b"%d" % number), (b"p/%d" % number, b"new"), (b"deleted", None)],
        )
        commit = store.submit(changes, answers)
        assert list(commit.receipt.offsets) == [2 * number]
        assert store.next_offset(A0) == 2 * number + 2
        assert store.latest(b"count") == b"%d" % number
        assert store.latest(b"p/%d" % number) == b"new"
        assert store.latest(b"p/%d" % (number - 1)) is None
        assert store.latest(b"p/gone") is None
        assert store.latest(b"deleted") is None
        assert store.bounds(A0).end <= store.next_offset(A0)
    answers.wait()
    assert store.get(b"count") == b"39"
    assert list(store.range(b"p/")) == [(b"p/39", b"new")]


def test_a_commit_may_build_on_one_that_is_in_flight(store: Store, revisit: Callable[[], Store]) -> None:
    answers = Answers(4)
    store.submit(Changes(creates=[(A, 1)]), answers)
    store.submit(Changes(appends=[append(A0, b"a", b"b", base_offset=0)]), answers)
    store.submit(Changes(creates=[(A, 2)], appends=[append(A1, b"c"), append(A0, b"d", base_offset=2)]), answers)
    with pytest.raises(SequencingError):
        store.submit(Changes(appends=[append(A0, b"late", base_offset=2)]), answers)
    store.submit(Changes(trims=[(A0, Offset(3))]), answers)
    assert [commit.error for commit in answers.wait()] == [None] * 4
    store = revisit()
    assert store.bounds(A0) == (3, 3)
    assert store.bounds(A1) == (0, 1)


def test_commits_of_many_threads_are_all_there_once_and_whole(store: Store, revisit: Callable[[], Store]) -> None:
    threads, commits_each = 8, 40
    store.commit(Changes(creates=[(A, 2), (B, 1)]))
    receipts: list[dict[int, tuple[int, int]]] = [{} for _ in range(threads)]

    def write(thread: int) -> None:
        for number in range(commits_each):
            tag = b"%d/%d" % (thread, number)
            appends = [append(A0, tag), append(PartitionId(A, 1), tag, tag), append(B0, tag)]
            receipt = store.commit(Changes(appends=appends, puts=[(b"last/%d" % thread, b"%d" % number)]))
            receipts[thread][number] = (receipt.cursor, receipt.offsets[0])

    _run_all([threading.Thread(target=write, args=(thread,)) for thread in range(threads)])
    store = revisit()
    batches = scan_all(store)
    assert [batch.cursor for batch in batches] == [4 * commit + place for commit in range(320) for place in (0, 1, 3)]
    tags = [record.value for record in fetch_all(store, A0)]
    assert len(set(tags)) == len(tags) == threads * commits_each
    for thread in range(threads):
        mine = [tag for tag in tags if tag.startswith(b"%d/" % thread)]
        assert mine == [b"%d/%d" % (thread, number) for number in range(commits_each)]
        for number, (cursor, offset) in receipts[thread].items():
            assert tags[offset] == b"%d/%d" % (thread, number)
            assert cursor == 4 * offset
        assert store.get(b"last/%d" % thread) == b"%d" % (commits_each - 1)
    assert [record.value for record in fetch_all(store, B0)] == tags


def test_done_keeps_the_order_of_the_log_when_many_threads_submit(store: Store) -> None:
    store.commit(Changes(creates=[(A, 1)]))
    answers = Answers(8 * 50)

    def write() -> None:
        for _ in range(50):
            store.submit(Changes(appends=[append(A0, b"x")]), answers)

    _run_all([threading.Thread(target=write) for _ in range(8)])
    assert [commit.receipt.offsets[0] for commit in answers.wait()] == list(range(400))


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Switch threads a thousand times more often, to provoke races."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("restless_threads")
def test_readers_see_whole_commits_only_while_others_write(store: Store) -> None:
    store.commit(Changes(creates=[(A, 2)]))
    stop = threading.Event()
    torn: list[tuple[int, ...]] = []

    def read() -> None:
        while not stop.is_set():
            first = store.bounds(A0).end
            second = store.bounds(A1).end
            third = store.bounds(A0).end
            if not first <= second <= third:
                torn.append((first, second, third))
            batches = scan_all(store, start=max(0, store.end_cursor() - 40))
            for one, other in pairwise(batches):
                if one.partition == A0 and (other.partition, other.base_offset) != (A1, one.base_offset):
                    torn.append((one.cursor, other.cursor))
            if batches and batches[-1].partition != A1:
                torn.append((batches[-1].cursor,))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(300):
        store.commit(Changes(appends=[append(A0, b"%d" % number), append(A1, b"%d" % number)]))
    stop.set()
    reader.join(PATIENCE_SECONDS)
    assert torn == []


def test_too_much_in_flight_is_refused_or_made_durable_but_never_dropped(home: Home) -> None:
    store = home.open(limits=Limits(pending_bytes=64 * KIB, pending_commits=50))
    store.commit(Changes(creates=[(A, 1)]))
    answered: list[StoreCommit] = []
    taken = 0
    for _ in range(500):
        try:
            store.submit(Changes(appends=[append(A0, b"x" * KIB)]), answered.append)
        except OverloadedError as refusal:
            assert refusal.retriable and refusal.outcome == "failed"
        else:
            taken += 1
    store.close()
    assert len(answered) == taken
    assert [commit.receipt.offsets[0] for commit in answered] == list(range(taken))


def test_commits_and_reads_continue_while_others_trim_and_drop(store: Store, revisit: Callable[[], Store]) -> None:
    store.commit(Changes(creates=[(A, 2)]))

    def keep_short() -> None:
        for _ in range(60):
            store.commit(Changes(appends=[append(A1, b"x" * 200)]))
            store.commit(Changes(trims=[(A1, store.bounds(A1).end)]))

    def make_and_drop() -> None:
        for number in range(40):
            topic = TopicId(100 + number)
            store.commit(Changes(creates=[(topic, 2)], appends=[append(PartitionId(topic, 1), b"y")]))
            store.commit(Changes(drops=[topic]))

    def write() -> None:
        for number in range(100):
            store.commit(Changes(appends=[append(A0, b"%d" % number)]))
            fetch_all(store, A0)

    _run_all([threading.Thread(target=work) for work in (keep_short, make_and_drop, write)])
    seen = observe(revisit())
    assert [record.value for record in seen.fetched[A0]] == [b"%d" % number for number in range(100)]
    assert seen.partitions[A1] == (60, 60)
    assert sorted(seen.partitions) == [A0, A1]
    assert seen.end_cursor == 200


def _run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "a thread hangs"
