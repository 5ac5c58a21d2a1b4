"""When a real-time query is replaced: by other routes, a backlog, or because it does not move."""

from tailrace.api.pipelines import RealtimeProgress
from tailrace.pipeline.realtime_watch import BACKLOG_CHANGES, RealtimeWatch, RoutedRange


class Watched:
    """A server whose progress the test sets, and a clock."""

    def __init__(self) -> None:
        self.progress = RealtimeProgress(version=7, lag=0, changes=100, records=0, dead_letters=1)
        self.now = 0.0
        self.watch = RealtimeWatch(lambda: self.progress, 7, lambda: self.now)

    def look(self, seconds: float, *, lag: int, changes: int, version: int = 7, dead_letters: int = 1) -> RoutedRange | None:
        self.now += seconds
        self.progress = RealtimeProgress(version, lag, changes, 0, dead_letters)
        return self.watch.look()

    @property
    def is_over(self) -> bool:
        return self.watch.is_over(is_routing=True)


def test_what_was_routed_between_two_looks_is_told() -> None:
    watched = Watched()
    assert watched.look(2, lag=0, changes=110, dead_letters=3) == RoutedRange(10, 2, 2.0)
    assert watched.look(2, lag=0, changes=110, dead_letters=3) is None
    # The server was started again, and counts anew.
    assert watched.look(2, lag=0, changes=5, dead_letters=0) is None
    assert watched.look(1, lag=0, changes=9, dead_letters=1) == RoutedRange(4, 1, 1.0)


def test_a_query_without_changes_goes_on() -> None:
    watched = Watched()
    watched.look(3_600, lag=0, changes=100)
    assert not watched.is_over


def test_a_query_is_over_when_routes_change() -> None:
    watched = Watched()
    watched.look(1, lag=0, changes=100, version=8)
    assert watched.is_over


def test_a_query_is_over_when_it_is_far_behind_for_some_seconds() -> None:
    watched = Watched()
    watched.look(1, lag=BACKLOG_CHANGES + 1, changes=101)
    watched.look(3, lag=BACKLOG_CHANGES, changes=102)
    watched.look(5, lag=BACKLOG_CHANGES + 1, changes=103)
    assert not watched.is_over
    watched.look(1, lag=BACKLOG_CHANGES + 1, changes=104)
    assert watched.is_over


def test_a_query_that_does_not_move_is_over_and_has_longer_for_its_first_changes() -> None:
    watched = Watched()
    watched.look(60, lag=5, changes=100)
    assert not watched.is_over
    watched.look(1, lag=5, changes=100)
    assert watched.is_over
    watched = Watched()
    watched.look(1, lag=5, changes=101)
    watched.look(10, lag=5, changes=101)
    assert not watched.is_over
    watched.look(1, lag=5, changes=101)
    assert watched.is_over
    assert not watched.watch.is_over(is_routing=False)
