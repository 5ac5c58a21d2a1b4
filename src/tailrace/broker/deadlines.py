"""Deadlines of many names, such as those of groups and of deliveries, with one queue and one timer for all.

Each name has one deadline. An entry of the queue whose name has another deadline by now is skipped. When most of the queue
is such entries it is rebuilt, so that it stays as small as the number of names.

A timer that fires late means that this process was suspended or busy. Heartbeats may be waiting in the sockets then, and no
session may end before they are read. Everything that is due therefore waits a little longer.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from tailrace.model.clock import Clock

_SLACK = 64
_LATE_MS = 250
_GRACE_SECONDS = 0.1


Name = TypeVar("Name", bound=Any)
"""A string, or a tuple that can be sorted."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Deadlines(Generic[Name]):
    """`call_later(seconds, callback)` is that of the event loop; `on_due` is called there with each name that is due."""

    def __init__(
        self, clock: Clock, call_later: Callable[[float, Callable[[], None]], Timer], on_due: Callable[[Name], None]
    ) -> None:
        self._clock = clock
        self._call_later = call_later
        self._on_due = on_due
        self._due_ms: dict[Name, int] = {}
        self._queue: list[tuple[int, Name]] = []
        self._timer: Timer | None = None
        self._timer_ms = 0

    def set(self, name: Name, due_ms: int | None) -> None:
        if due_ms is None:
            self._due_ms.pop(name, None)
        elif self._due_ms.get(name) != due_ms:
            self._due_ms[name] = due_ms
            heappush(self._queue, (due_ms, name))
            if len(self._queue) > 2 * len(self._due_ms) + _SLACK:
                self._queue = [(at, each) for each, at in self._due_ms.items()]
                heapify(self._queue)
        self._arm()

    def fire(self) -> None:
        """Run what is due; called by the timer."""
        self._timer = None
        if self._now_ms() - self._timer_ms > _LATE_MS:
            self._timer = self._call_later(_GRACE_SECONDS, self.run_due)
        else:
            self.run_due()

    def run_due(self) -> None:
        self._disarm()
        now = self._now_ms()
        while self._queue and self._queue[0][0] <= now:
            due_ms, name = heappop(self._queue)
            if self._due_ms.get(name) == due_ms:
                del self._due_ms[name]
                self._on_due(name)
        self._arm()

    def close(self) -> None:
        self._due_ms.clear()
        self._queue.clear()
        self._disarm()

    def _arm(self) -> None:
        while self._queue and self._due_ms.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        if not self._queue:
            self._disarm()
            return
        first_ms = self._queue[0][0]
        if self._timer is None or self._timer_ms != first_ms:
            self._disarm()
            self._timer_ms = first_ms
            # One millisecond late rather than early: a timer that fires early would find nothing due and start again.
            self._timer = self._call_later(max(0.0, (first_ms + 1) / 1000 - self._clock.monotonic()), self.fire)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
