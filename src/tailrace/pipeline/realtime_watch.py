"""Watches a real-time query: how far it has come, and when it has to be replaced.

Spark's Kafka sink reports an error only with the next row, and the server refuses decisions that come from a query which does
not know a new route. So the router looks at the marks instead of the query.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from tailrace.api.pipelines import RealtimeProgress
from tailrace.model.pipeline import ROUTER

REALTIME_PATH = f"/api/pipelines/{ROUTER}/realtime"
BACKLOG_CHANGES = 50_000
"""More changes than this are routed by micro-batches, which take more at a time."""
_BEHIND_SECONDS = 5.0
"""How long the real-time query may be further behind than that."""
_STUCK_SECONDS = 10.0
"""How long changes may wait without any being routed."""
_STARTING_SECONDS = 60.0
"""How long the first changes of a query may wait: until Spark has started its tasks."""


class RoutedRange(NamedTuple):
    """What was routed between two looks."""

    changes: int
    dead_letters: int
    seconds: float


class RealtimeWatch:
    """Looks at how far the real-time query has come, and decides when it is over."""

    def __init__(
        self, ask: Callable[[], RealtimeProgress], version: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`ask` asks the server for the progress, `version` is that of the routes which the query knows."""
        self._ask = ask
        self._version = version
        self._monotonic = monotonic
        self._last = ask()
        self._looked_at = self._moved_at = self._near_at = monotonic()
        self._has_moved = False

    def look(self) -> RoutedRange | None:
        """Return what was routed since the last look, if anything was."""
        now = self._monotonic()
        progress = self._ask()
        before, self._last = self._last, progress
        seconds, self._looked_at = now - self._looked_at, now
        if progress.lag <= BACKLOG_CHANGES:
            self._near_at = now
        if progress.changes > before.changes or not progress.lag:
            self._moved_at = now
        self._has_moved = self._has_moved or progress.changes > before.changes
        if progress.changes <= before.changes:
            return None
        changes = progress.changes - before.changes
        return RoutedRange(changes, max(0, progress.dead_letters - before.dead_letters), max(seconds, 1e-3))

    def is_over(self, *, is_routing: bool) -> bool:
        """Return whether routes were changed, the query does not keep up, or it has stopped to move."""
        most_seconds = _STUCK_SECONDS if self._has_moved else _STARTING_SECONDS
        is_stuck = is_routing and self._looked_at - self._moved_at > most_seconds
        return self._last.version != self._version or self._looked_at - self._near_at > _BEHIND_SECONDS or is_stuck
