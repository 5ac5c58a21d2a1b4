"""The health of the server, without Litestar: a probe is often the first request of all."""

from collections.abc import Callable

from tailrace import __version__
from tailrace.api.server import Health
from tailrace.broker.broker import Broker
from tailrace.model.clock import Clock
from tailrace.model.errors import TailraceError


class ServerStatus:
    """What the process knows about itself and the broker does not."""

    def __init__(self, durability: str, clock: Clock, failure: Callable[[], TailraceError | None], kafka: str = "") -> None:
        self.kafka = kafka
        """The address that Kafka clients use."""
        self.durability = durability
        self.failure = failure
        self._clock = clock
        self._started_at = clock.monotonic()

    @property
    def uptime_seconds(self) -> float:
        return self._clock.monotonic() - self._started_at


def health_of(broker: Broker, status: ServerStatus) -> Health:
    failure = status.failure()
    return Health(
        status="failed" if failure else "full" if broker.store.is_full() else "ok",
        version=__version__,
        durability=status.durability,
        uptime_seconds=round(status.uptime_seconds, 3),
        end_cursor=broker.store.end_cursor(),
        kafka=status.kafka,
        failure=str(failure or ""),
        tables=broker.changes.stats.behind,
    )


def http_status_of(health: Health) -> int:
    return 503 if health.failure else 200
