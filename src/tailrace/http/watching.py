"""For those who watch the server: `GET /health`, and `GET /metrics` in Prometheus' text format."""

from collections.abc import Iterator

from litestar import Response, get
from litestar.di import NamedDependency
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace import __version__
from tailrace.broker.broker import Broker
from tailrace.http.description import described
from tailrace.http.health import Health, health_of, http_status_of
from tailrace.http.problems import UnexpectedErrors
from tailrace.http.status import ServerStatus

_TEXT_FORMAT = "text/plain; version=0.0.4"


class ServerCollector(Collector):
    """What the process knows about itself and the broker does not."""

    def __init__(self, status: ServerStatus, unexpected: UnexpectedErrors) -> None:
        self._status = status
        self._unexpected = unexpected

    def collect(self) -> Iterator[Metric]:
        server = GaugeMetricFamily("tailrace_server", "Always 1; the labels say what runs.", labels=("version", "durability"))
        server.add_metric((__version__, self._status.durability), 1)
        yield server
        yield GaugeMetricFamily("tailrace_uptime_seconds", "Since the server was ready.", value=self._status.uptime_seconds)
        yield CounterMetricFamily(
            "tailrace_unexpected_errors", "Requests that failed in a way that nobody foresaw.", value=self._unexpected.count
        )


def registry_of(*collectors: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


@get("/health")
async def health(broker: NamedDependency[Broker], status: NamedDependency[ServerStatus]) -> Response[Health]:
    """Whether the server works, and how far its log goes."""
    found = health_of(broker, status)
    return Response(found, status_code=http_status_of(found))


@get("/metrics", opt=described(answer_types={"text/plain": str}))
async def metrics(registry: NamedDependency[CollectorRegistry]) -> Response[bytes]:
    """What broker, store and process have done, for Prometheus."""
    return Response(generate_latest(registry), media_type=_TEXT_FORMAT)
