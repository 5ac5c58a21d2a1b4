"""`GET /health`: is it up, which version, how durable, how far."""

from typing import Literal

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency

from tailrace import __version__
from tailrace.broker.broker import Broker
from tailrace.http.status import ServerStatus


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
