"""One queue and one timer for all deadlines."""

from collections.abc import Callable

from tailrace.broker.deadlines import Deadlines
from tests.support.clocks import ManualClock


class FakeTimer:
    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.seconds = seconds
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers: list[FakeTimer] = []
        self.woken: list[str] = []
        self.deadlines = Deadlines(self.clock, self._call_later, self.woken.append)

    @property
    def armed(self) -> list[float]:
        return [timer.seconds for timer in self.timers if not timer.cancelled]

    def fire(self) -> None:
        """Fire the timer as the event loop does: it is no longer set afterwards."""
        (timer,) = (timer for timer in self.timers if not timer.cancelled)
        timer.cancelled = True
        timer.callback()

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(seconds, callback))
        return self.timers[-1]


def test_names_are_due_in_the_order_of_their_deadlines() -> None:
    bench = Bench()
    for name, due in (("c", 300), ("a", 100), ("b", 200)):
        bench.deadlines.set(name, due)
    bench.clock.advance(250)
    bench.deadlines.run_due()
    assert bench.woken == ["a", "b"]


def test_one_timer_is_set_for_the_earliest_deadline() -> None:
    bench = Bench()
    for name, due in (("c", 300), ("a", 100), ("b", 200)):
        bench.deadlines.set(name, due)
    assert bench.armed == [0.101]
    bench.deadlines.set("a", None)
    assert bench.armed == [0.201]
    bench.deadlines.close()
    assert bench.armed == []


def test_a_changed_or_removed_deadline_is_not_due() -> None:
    bench = Bench()
    bench.deadlines.set("a", 100)
    bench.deadlines.set("a", 500)
    bench.deadlines.set("b", 100)
    bench.deadlines.set("b", None)
    bench.clock.advance(200)
    bench.deadlines.run_due()
    assert bench.woken == []
    bench.clock.advance(300)
    bench.deadlines.run_due()
    assert bench.woken == ["a"]


def test_a_late_timer_waits_before_anything_is_due() -> None:
    bench = Bench()
    bench.deadlines.set("a", 100)
    bench.clock.advance(1_000)
    bench.fire()
    assert bench.woken == []
    bench.fire()
    assert bench.woken == ["a"]


def test_a_timer_in_time_runs_at_once() -> None:
    bench = Bench()
    bench.deadlines.set("a", 100)
    bench.clock.advance(101)
    bench.fire()
    assert bench.woken == ["a"]
    assert bench.armed == []


def test_the_queue_stays_as_small_as_the_number_of_names() -> None:
    bench = Bench()
    for due in range(10_000, 0, -1):
        bench.deadlines.set("a", due)
    assert len(bench.deadlines._queue) < 100
