"""`GET /health`: is it up, which version, how durable, how far."""

from collections.abc import Callable
from typing import Literal

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency

from tailrace import __version__
from tailrace.broker.broker import Broker
from tailrace.model.clock import Clock
from tailrace.model.errors import TailraceError


class ServerStatus:
    """What the process knows about itself and the broker does not."""

    def __init__(self, durability: str, clock: Clock, failure: Callable[[], TailraceError | None]) -> None:
        self.durability = durability
        self.failure = failure
        self._clock = clock
        self._started_at = clock.monotonic()

    @property
    def uptime_seconds(self) -> float:
        return self._clock.monotonic() - self._started_at


class Health(msgspec.Struct, omit_defaults=True):
    status: Literal["ok", "failed"]
    version: str
    durability: str
    uptime_seconds: float
    end_cursor: int
    """The cursor that the next record of the log will get."""
    failure: str = ""


@get("/health")
async def health(broker: NamedDependency[Broker], status: NamedDependency[ServerStatus]) -> Response[Health]:
    """Whether the server works, and how far its log goes."""
    failure = status.failure()
    return Response(
        Health(
            status="failed" if failure else "ok",
            version=__version__,
            durability=status.durability,
            uptime_seconds=round(status.uptime_seconds, 3),
            end_cursor=broker.end_cursor(),
            failure=str(failure or ""),
        ),
        status_code=503 if failure else 200,
    )
