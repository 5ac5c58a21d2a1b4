"""Limits of time and memory for what runs on a connection to SQLite."""

from collections.abc import Callable
from typing import NamedTuple

import apsw

from tailrace.model.clock import Clock
from tailrace.model.errors import QueryLimitError
from tailrace.model.limits import Limits

_CHECK_EVERY_STEPS = 20_000


class TimeSlice(NamedTuple):
    """How long a statement may run while others wait."""

    seconds: float
    has_waiting: Callable[[], bool]
    """Returns whether others wait."""


def _never() -> bool:
    return False


_NO_TIME_SLICE = TimeSlice(0.0, _never)


class EventLoopTime:
    """Decides whether a short statement may run on the event loop, which it must not hold up.

    Statements take microseconds there, unless they wait for the disk or are larger than expected. After one that took longer
    than its slice they run elsewhere for ten times as long as it took, so they take a tenth of the loop's time at most.
    """

    SLICE_SECONDS = 0.002
    _PAUSE_FACTOR = 10

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_at = 0.0

    def begin(self) -> float | None:
        """Return when a statement begins now; `None` if it has to run elsewhere."""
        now = self._clock.monotonic()
        return now if now >= self._next_at else None

    def end(self, began: float) -> None:
        """Note that the statement that began then has ended."""
        now = self._clock.monotonic()
        if now - began > self.SLICE_SECONDS:
            self._next_at = now + self._PAUSE_FACTOR * (now - began)


class StatementGuard:
    """Stops a statement that takes too long or too much memory. There is one for each connection."""

    def __init__(self, connection: apsw.Connection, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._deadline: float | None = None
        self._memory = 0
        self._is_cancelled = _never
        self._time_slice = _NO_TIME_SLICE
        self._slice_ends_at = 0.0
        self._now_ms = 0
        self.rejection: QueryLimitError | None = None
        self.was_preempted = False
        """Whether the statement was stopped only because its time slice was over."""
        connection.set_progress_handler(self._must_stop, _CHECK_EVERY_STEPS)

    def start(self, is_cancelled: Callable[[], bool] = _never, time_slice: TimeSlice = _NO_TIME_SLICE) -> None:
        self.rejection = None
        self.was_preempted = False
        self._is_cancelled = is_cancelled
        self._now_ms = self._clock.now_ms()
        now = self._clock.monotonic()
        self._deadline = now + self._limits.query_seconds
        self._time_slice = time_slice
        self._slice_ends_at = now + time_slice.seconds
        self._memory = apsw.memory_used() + self._limits.query_bytes

    def now_ms(self) -> int:
        """Return the value of `now()`, which does not change during a transaction."""
        return self._now_ms

    def stop(self) -> None:
        self._deadline = None

    def check(self) -> None:
        """Raise if the statement must stop. Called between rows."""
        if self._must_stop() and self.rejection is not None:
            raise self.rejection

    def _must_stop(self) -> bool:
        if self._deadline is None:
            return False
        limits = self._limits
        now = self._clock.monotonic()
        if self._is_cancelled():
            self.rejection = QueryLimitError("the query was cancelled")
        elif now > self._slice_ends_at and self._time_slice.has_waiting():
            self.was_preempted = True
            self.rejection = QueryLimitError(
                f"the statement blocked other writers for longer than write_turn_ms allows ({limits.write_turn_ms} ms) each"
                " time it was tried, and nothing of it was written; change fewer rows at a time, and compute what takes long"
                " by a SELECT"
            )
        elif now > self._deadline:
            self.rejection = QueryLimitError(
                f"the statement ran longer than query_seconds allows ({limits.query_seconds} s); read or change fewer rows"
            )
        elif apsw.memory_used() > self._memory:
            self.rejection = QueryLimitError(
                f"the statement needs more memory than query_bytes allows ({limits.query_bytes}); read or change fewer rows"
            )
        return self.rejection is not None
