"""`GET /health`: is it up, which version, how durable, how far."""

from typing import Literal

import msgspec

from tailrace import __version__
from tailrace.broker.broker import Broker
from tailrace.http.status import ServerStatus


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
