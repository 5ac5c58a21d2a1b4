"""What the process knows about itself and the broker does not, for those who ask by HTTP."""

from collections.abc import Callable

from tailrace.model.clock import Clock
from tailrace.model.errors import TailraceError


class ServerStatus:
    def __init__(self, durability: str, clock: Clock, failure: Callable[[], TailraceError | None]) -> None:
        self.durability = durability
        self.failure = failure
        self._clock = clock
        self._started_at = clock.monotonic()

    @property
    def uptime_seconds(self) -> float:
        return self._clock.monotonic() - self._started_at
