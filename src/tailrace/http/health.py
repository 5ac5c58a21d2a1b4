"""The health of the server, without Litestar: a probe is often the first request of all."""

from collections.abc import Callable

from tailrace import __version__
from tailrace.api.server import Health
from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import current_principal
from tailrace.model.clock import Clock
from tailrace.model.errors import TailraceError
from tailrace.model.security import ANONYMOUS


class ServerStatus:
    """What the process knows about itself and the broker does not."""

    def __init__(self, durability: str, clock: Clock, failure: Callable[[], TailraceError | None], kafka: str = "") -> None:
        self.kafka = kafka
        """The address that Kafka clients use."""
        self.durability = durability
        self.failure = failure
        self.clock = clock
        self._started_at = clock.monotonic()

    @property
    def uptime_seconds(self) -> float:
        return self.clock.monotonic() - self._started_at


def health_of(broker: Broker, status: ServerStatus) -> Health:
    """Return the state of the server. Who has not logged in where that is demanded learns only whether it works."""
    failure = status.failure()
    if broker.permissions.is_on and current_principal().name == ANONYMOUS.name:
        return Health("failed" if failure else "ok")
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
    return 503 if health.status == "failed" else 200
