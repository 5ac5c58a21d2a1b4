"""Commits on their way to the writer's thread, with a backend that only counts."""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest

from tailrace.model.clock import HybridClock, SystemClock
from tailrace.model.commit import Changes
from tailrace.model.ids import Cursor, Offset, PartitionId
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.stats import StoreStats
from tailrace.store.group_commit import GroupCommit
from tailrace.store.sequencer import PendingCommit, Sequencer
from tests.support.eventually import eventually

_ROUNDS = 1000


class Backend:
    def __init__(self) -> None:
        self.groups: list[int] = []
        self.may_persist = threading.Event()
        self.may_persist.set()

    def persists_at_once(self, commit: PendingCommit) -> bool:
        return False

    def persist(self, group: Sequence[PendingCommit]) -> None:
        self.may_persist.wait()
        self.groups.append(len(group))

    def idle(self) -> None:
        pass

    def settled_ends(self) -> tuple[Mapping[PartitionId, Offset], Cursor]:
        return {}, Cursor(0)


def put(size: int = 1) -> Changes:
    return Changes(puts=[(b"key", bytes(size))])


def new_commits(backend: Backend, group_bytes: int = 1 << 20) -> GroupCommit:
    clock = SystemClock()
    sequencer = Sequencer(HybridClock(clock), DEFAULT_LIMITS, {}, Cursor(0))
    commits = GroupCommit(backend, sequencer, DEFAULT_LIMITS, clock, StoreStats(), lambda _: None, group_bytes)
    commits.start()
    return commits


def _tell(event: threading.Event, _: PendingCommit) -> None:
    event.set()


def _note(order: list[int], number: int, _: PendingCommit) -> None:
    order.append(number)


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Threads take turns all the time, so that they meet in the narrowest places."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hurried_threads")
def test_what_was_taken_before_the_end_is_answered() -> None:
    for _ in range(_ROUNDS):
        commits = new_commits(Backend())
        first, last = threading.Event(), threading.Event()
        commits.submit(put(), partial(_tell, first))
        first.wait()  # the thread looks for more right now
        commits.submit(put(), partial(_tell, last))
        commits.close()
        assert last.is_set()


def test_commits_that_come_while_one_is_persisted_share_a_group_in_their_order() -> None:
    backend = Backend()
    commits = new_commits(backend)
    order: list[int] = []
    backend.may_persist.clear()
    for number in range(6):
        commits.submit(put(), partial(_note, order, number))
    backend.may_persist.set()
    commits.close()
    assert order == [0, 1, 2, 3, 4, 5]
    assert sum(backend.groups) == 6
    assert len(backend.groups) <= 2


def test_a_group_ends_with_the_commit_that_fills_it() -> None:
    backend = Backend()
    commits = new_commits(backend, group_bytes=3000)
    backend.may_persist.clear()
    commits.submit(put(), lambda _: None)
    eventually(lambda: not commits._waiting, "the thread takes the first one")
    for _ in range(5):
        commits.submit(put(1500), lambda _: None)
    backend.may_persist.set()
    commits.close()
    assert backend.groups == [1, 2, 2, 1]
