"""Group commit, with a writer that only counts, and with one that does as the test says."""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from queue import SimpleQueue

import pytest

from tailrace.model.clock import HybridClock, SystemClock
from tailrace.model.commit import Changes
from tailrace.model.errors import (
    OverloadedError,
    SequencingError,
    StorageFailedError,
    StorageFullError,
    StoreClosedError,
    TailraceError,
)
from tailrace.model.ids import Cursor, Offset, PartitionId, TopicId
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.stats import StoreStats
from tailrace.store.contract import StoreCommit
from tailrace.store.group_commit import GroupCommit
from tailrace.store.sequencer import PendingCommit, Sequencer
from tests.support.batches import append
from tests.support.clocks import ManualClock
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS

_ROUNDS = 1000


class CountingWriter:
    def __init__(self) -> None:
        self.groups: list[int] = []
        self.may_write = threading.Event()
        self.may_write.set()

    def writes_at_once(self, commit: PendingCommit) -> bool:
        return False

    def write(self, group: Sequence[PendingCommit]) -> None:
        self.may_write.wait()
        self.groups.append(len(group))

    def seal(self) -> None:
        pass

    def settled_ends(self) -> tuple[Mapping[PartitionId, Offset], Cursor]:
        return {}, Cursor(0)


def put(size: int = 1) -> Changes:
    return Changes(puts=[(b"key", bytes(size))])


def new_commits(writer: CountingWriter, group_bytes: int = 1 << 20) -> GroupCommit:
    clock = SystemClock()
    sequencer = Sequencer(HybridClock(clock), DEFAULT_LIMITS, {}, Cursor(0))
    commits = GroupCommit(writer, sequencer, DEFAULT_LIMITS, clock, StoreStats(), lambda _: None, group_bytes)
    commits.start()
    return commits


def _tell(event: threading.Event, _: PendingCommit) -> None:
    event.set()


def _note(order: list[int], number: int, _: PendingCommit) -> None:
    order.append(number)


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Switch threads all the time, to provoke races."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hurried_threads")
def test_commits_taken_before_close_are_answered() -> None:
    for _ in range(_ROUNDS):
        commits = new_commits(CountingWriter())
        first, last = threading.Event(), threading.Event()
        commits.submit(put(), partial(_tell, first))
        first.wait()  # the thread is looking for more right now
        commits.submit(put(), partial(_tell, last))
        commits.close()
        assert last.is_set()


def test_commits_that_come_while_one_is_written_share_a_group_in_their_order() -> None:
    writer = CountingWriter()
    commits = new_commits(writer)
    order: list[int] = []
    writer.may_write.clear()
    for number in range(6):
        commits.submit(put(), partial(_note, order, number))
    writer.may_write.set()
    commits.close()
    assert order == [0, 1, 2, 3, 4, 5]
    assert sum(writer.groups) == 6
    assert len(writer.groups) <= 2


def test_a_group_ends_with_the_commit_that_fills_it() -> None:
    writer = CountingWriter()
    commits = new_commits(writer, group_bytes=3000)
    writer.may_write.clear()
    commits.submit(put(), lambda _: None)
    eventually(lambda: not commits._waiting, "the thread takes the first one")
    for _ in range(5):
        commits.submit(put(1500), lambda _: None)
    writer.may_write.set()
    commits.close()
    assert writer.groups == [1, 2, 2, 1]


A0 = PartitionId(TopicId(1), 0)
ONE = Changes(appends=[append(A0, b"one")])


class ScriptedWriter:
    """Waits before each group until the test decides its outcome."""

    def __init__(self) -> None:
        self.groups: list[list[PendingCommit]] = []
        self.threads: list[threading.Thread] = []
        self.is_quick = False
        self.reached = threading.Semaphore(0)
        self._outcomes: SimpleQueue[Exception | None] = SimpleQueue()
        self._ends = {A0: Offset(0)}
        self._cursor = Cursor(0)

    def let_pass(self, groups: int = 1) -> None:
        for _ in range(groups):
            self._outcomes.put(None)

    def fail(self, error: Exception) -> None:
        self._outcomes.put(error)

    def writes_at_once(self, commit: PendingCommit) -> bool:
        return self.is_quick

    def write(self, group: Sequence[PendingCommit]) -> None:
        self.groups.append(list(group))
        self.threads.append(threading.current_thread())
        self.reached.release()
        outcome = self._outcomes.get(timeout=PATIENCE_SECONDS)
        if outcome is not None:
            raise outcome
        for commit in group:
            records = sum(batch.records for batch in commit.changes.appends)
            self._ends[A0] = Offset(self._ends[A0] + records)
            self._cursor = Cursor(self._cursor + records)

    def seal(self) -> None:
        pass

    def settled_ends(self) -> tuple[Mapping[PartitionId, Offset], Cursor]:
        return self._ends, self._cursor


class Bench:
    def __init__(self, limits: Limits) -> None:
        self.writer = ScriptedWriter()
        self.stats = StoreStats()
        self.failures: list[TailraceError] = []
        self.clock = ManualClock()
        sequencer = Sequencer(HybridClock(self.clock), limits, {A0: Offset(0)}, Cursor(0))
        self.commits = GroupCommit(self.writer, sequencer, limits, self.clock, self.stats, self.failures.append, 1 << 20)
        self.answers: list[StoreCommit] = []
        self.answered = threading.Semaphore(0)
        self.commits.start()

    def submit(self, changes: Changes = ONE) -> PendingCommit:
        return self.commits.submit(changes, self._done)

    def wait_for_group(self) -> list[PendingCommit]:
        assert self.writer.reached.acquire(timeout=PATIENCE_SECONDS)
        return self.writer.groups[-1]

    def wait_for_answers(self, count: int) -> list[StoreCommit]:
        for _ in range(count):
            assert self.answered.acquire(timeout=PATIENCE_SECONDS)
        return self.answers

    def _done(self, commit: StoreCommit) -> None:
        self.answers.append(commit)
        self.answered.release()


@pytest.fixture
def bench() -> Bench:
    return Bench(Limits(pending_commits=10, pending_bytes=100_000))


def test_commits_that_come_while_a_group_is_written_form_the_next_group(bench: Bench) -> None:
    first = bench.submit()
    assert bench.wait_for_group() == [first]
    later = [bench.submit() for _ in range(5)]
    assert bench.answers == []
    bench.writer.let_pass(2)
    assert bench.wait_for_answers(6) == [first, *later]
    assert bench.writer.groups == [[first], later]
    bench.commits.close()


def test_nothing_is_answered_before_its_group_is_durable(bench: Bench) -> None:
    bench.submit()
    bench.wait_for_group()
    assert bench.answers == []
    bench.writer.let_pass()
    bench.wait_for_answers(1)
    bench.commits.close()


def test_a_full_disk_fails_all_in_flight_and_the_next_commit_takes_their_offsets(bench: Bench) -> None:
    bench.submit()
    bench.wait_for_group()
    bench.submit()
    bench.submit(Changes(puts=[(b"key", b"never")]))
    bench.writer.fail(StorageFullError("no room"))
    answers = bench.wait_for_answers(3)
    assert [type(commit.error) for commit in answers] == [StorageFullError] * 3
    assert bench.commits.next_offset(A0) == 0
    assert bench.commits.latest(b"key", lambda _: b"settled") == b"settled"
    assert (bench.stats.pending_commits, bench.stats.pending_bytes, bench.stats.failed_commits) == (0, 0, 3)
    bench.writer.let_pass()
    receipt = bench.submit().receipt
    assert (receipt.cursor, list(receipt.offsets)) == (0, [0])
    assert bench.wait_for_answers(1)[-1].error is None
    assert bench.failures == []
    bench.commits.close()


def test_a_commit_built_on_one_that_failed_must_be_built_again(bench: Bench) -> None:
    bench.submit()
    bench.wait_for_group()
    bench.writer.fail(StorageFullError("no room"))
    bench.wait_for_answers(1)
    with pytest.raises(SequencingError):
        bench.submit(Changes(appends=[append(A0, b"two", base_offset=1)]))
    bench.commits.close()


def test_any_other_failure_is_final_and_reported_once(bench: Bench) -> None:
    bench.submit()
    bench.wait_for_group()
    bench.submit()
    bench.writer.fail(OSError(5, "Input/output error"))
    answers = bench.wait_for_answers(2)
    assert all(isinstance(commit.error, StorageFailedError) for commit in answers)
    assert {commit.error.outcome for commit in answers if commit.error} == {"unknown"}
    with pytest.raises(StorageFailedError, match="Input/output error"):
        bench.submit()
    bench.commits.close()
    with pytest.raises(StorageFailedError):
        bench.submit()
    assert [type(failure) for failure in bench.failures] == [StorageFailedError]
    assert bench.commits.has_failed


def test_a_failure_elsewhere_stops_the_writer(bench: Bench) -> None:
    bench.commits.abort(OSError(5, "Input/output error"))
    with pytest.raises(StorageFailedError):
        bench.submit()
    assert len(bench.failures) == 1
    bench.commits.close()


@pytest.fixture
def quick(bench: Bench) -> Bench:
    """A writer that does not wait for the disk, when nothing has come for a while."""
    bench.writer.is_quick = True
    bench.clock.advance(1)
    return bench


def test_a_commit_that_comes_alone_is_answered_before_submit_returns_if_that_needs_no_disk(quick: Bench) -> None:
    quick.writer.let_pass()
    commit = quick.submit()
    assert quick.answers == [commit]
    assert quick.writer.threads == [threading.current_thread()]
    assert (quick.stats.pending_commits, quick.stats.pending_bytes, quick.stats.commits) == (0, 0, 1)
    quick.commits.close()


def test_a_commit_that_follows_at_once_is_left_to_the_writer(quick: Bench) -> None:
    quick.writer.let_pass(2)
    quick.submit()
    quick.submit()
    quick.wait_for_answers(2)
    assert quick.writer.threads[0] is threading.current_thread()
    assert quick.writer.threads[1] is not threading.current_thread()
    quick.commits.close()


def test_a_commit_that_comes_during_a_fast_write_is_written_after_it(quick: Bench) -> None:
    first = threading.Thread(target=quick.submit)
    first.start()
    quick.wait_for_group()
    quick.clock.advance(1)
    later = quick.submit()
    quick.writer.let_pass(2)
    first.join(PATIENCE_SECONDS)
    quick.wait_for_answers(2)
    assert quick.writer.threads[0] is first
    assert quick.answers[1] is later
    assert list(later.receipt.offsets) == [1]
    quick.commits.close()


def test_a_full_disk_in_a_fast_write_fails_that_commit_only(quick: Bench) -> None:
    quick.writer.fail(StorageFullError("no room"))
    assert isinstance(quick.submit().error, StorageFullError)
    quick.writer.let_pass()
    quick.clock.advance(1)
    assert list(quick.submit().receipt.offsets) == [0]
    assert quick.failures == []
    quick.commits.close()


def test_any_other_failure_in_a_fast_write_is_final_and_may_close_the_store(quick: Bench) -> None:
    quick.writer.fail(OSError(5, "Input/output error"))
    assert isinstance(quick.submit().error, StorageFailedError)
    assert [type(failure) for failure in quick.failures] == [StorageFailedError]
    with pytest.raises(StorageFailedError):
        quick.submit()
    quick.commits.close()


def test_close_waits_for_a_fast_write(quick: Bench) -> None:
    submitting = threading.Thread(target=quick.submit)
    submitting.start()
    quick.wait_for_group()
    closing = threading.Thread(target=quick.commits.close)
    closing.start()
    _until_refused(quick)
    assert closing.is_alive()
    quick.writer.let_pass()
    closing.join(PATIENCE_SECONDS)
    assert not closing.is_alive()
    assert [commit.error for commit in quick.answers] == [None]


def test_what_waits_is_bounded_in_number(bench: Bench) -> None:
    for _ in range(10):
        bench.submit()
    bench.wait_for_group()
    with pytest.raises(OverloadedError, match="pending_commits") as refusal:
        bench.submit()
    assert refusal.value.retriable
    assert bench.commits.next_offset(A0) == 10
    bench.writer.let_pass(2)
    bench.wait_for_answers(10)
    bench.writer.let_pass()
    assert list(bench.submit().receipt.offsets) == [10]
    bench.commits.close()


def test_what_waits_is_bounded_in_bytes(bench: Bench) -> None:
    bench.submit(Changes(appends=[append(A0, b"x" * 60_000)]))
    bench.wait_for_group()
    bench.submit(Changes(appends=[append(A0, b"x" * 60_000)]))
    with pytest.raises(OverloadedError, match="pending_bytes"):
        bench.submit()
    bench.writer.let_pass(2)
    bench.wait_for_answers(2)
    bench.writer.let_pass()
    bench.submit()
    bench.commits.close()


def test_close_waits_for_what_is_in_flight_and_takes_nothing_more(bench: Bench) -> None:
    bench.submit()
    bench.wait_for_group()
    bench.submit()
    closing = threading.Thread(target=bench.commits.close)
    closing.start()
    _until_refused(bench)
    bench.writer.let_pass(2)
    closing.join(PATIENCE_SECONDS)
    assert [commit.error for commit in bench.answers] == [None, None]


def _until_refused(bench: Bench) -> None:
    """Close has begun once a commit is refused; those taken before it must succeed."""
    for _ in range(1_000_000):
        try:
            bench.commits.submit(Changes(appends=[append(A0, b"x", base_offset=99)]), lambda _: None)
        except SequencingError:
            continue
        except StoreClosedError:
            return
    raise AssertionError("the close never began")
