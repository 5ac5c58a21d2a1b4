"""What the process knows about itself and the broker does not, for those who ask by HTTP."""

from collections.abc import Callable
from typing import Literal

import msgspec

from tailrace import __version__
from tailrace.broker.broker import Broker
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


class Health(msgspec.Struct, omit_defaults=True):
    status: Literal["ok", "full", "failed"]
    """Full: there is no room on the disk, so records are refused and all else goes on."""
    version: str
    durability: str
    uptime_seconds: float
    end_cursor: int
    """The cursor that the next record of the log will get."""
    failure: str = ""
    tables: str = ""
    """Why tables can't be read or written: they lack changes that are in the log, or their file is made again."""


def health_of(broker: Broker, status: ServerStatus) -> Health:
    failure = status.failure()
    return Health(
        status="failed" if failure else "full" if broker.is_full() else "ok",
        version=__version__,
        durability=status.durability,
        uptime_seconds=round(status.uptime_seconds, 3),
        end_cursor=broker.end_cursor(),
        failure=str(failure or ""),
        tables=broker.changes.stats.behind,
    )


def http_status_of(health: Health) -> int:
    return 503 if health.failure else 200
