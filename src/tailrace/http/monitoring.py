"""`GET /health`, `GET /metrics` in Prometheus' text format, and `GET /`, a page for people."""

from collections.abc import Iterator
from html import escape
from string import Template
from typing import Any

from litestar import Request, Response, get
from litestar.di import NamedDependency
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace import __version__
from tailrace.api.server import Health
from tailrace.broker.broker import Broker
from tailrace.http.health import ServerStatus, health_of, http_status_of
from tailrace.http.openapi import describe_endpoint
from tailrace.http.problems import UnexpectedErrors

_TEXT_FORMAT = "text/plain; version=0.0.4"
_HTML = "text/html"
_POLICY = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
}
_LINKS = {
    "/api/topics": "topics",
    "/api/tables": "tables",
    "/api/views": "views",
    "/api/routes": "routes",
    "/api/groups": "consumer groups",
    "/api/queues": "queues",
    "/api/pipelines": "pipelines and their status",
    "/health": "health",
    "/metrics": "metrics for Prometheus",
    "/api/openapi.json": "OpenAPI document of all endpoints",
}
_PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tailrace</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }
h1 small { font-weight: normal; opacity: .6; }
pre { padding: .8rem 1rem; border: 1px solid #8884; border-radius: 6px; overflow-x: auto; }
td { padding: .1rem 1.5rem .1rem 0; }
</style>
<h1>Tailrace <small>$version</small></h1>
<p>$state</p>
<pre>tailrace sql --server $address</pre>
<table>$links</table>
</html>
""")


class ServerCollector(Collector):
    """Metrics of the process that the broker does not know."""

    def __init__(self, status: ServerStatus, unexpected: UnexpectedErrors) -> None:
        self._status = status
        self._unexpected = unexpected

    def collect(self) -> Iterator[Metric]:
        server = GaugeMetricFamily(
            "tailrace_server", "Always 1; the labels name the version and the durability.", labels=("version", "durability")
        )
        server.add_metric((__version__, self._status.durability), 1)
        yield server
        yield GaugeMetricFamily(
            "tailrace_uptime_seconds", "Seconds since the server was ready.", value=self._status.uptime_seconds
        )
        yield CounterMetricFamily(
            "tailrace_unexpected_errors",
            "HTTP requests that failed with an unexpected internal error.",
            value=self._unexpected.count,
        )


def create_registry(*collectors: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


@get("/health")
async def health(broker: NamedDependency[Broker], status: NamedDependency[ServerStatus]) -> Response[Health]:
    """Return the state of the server and the end of its log."""
    found = health_of(broker, status)
    return Response(found, status_code=http_status_of(found))


@get("/metrics", opt=describe_endpoint(response_types={"text/plain": str}))
async def metrics(broker: NamedDependency[Broker], registry: NamedDependency[CollectorRegistry]) -> Response[bytes]:
    """Return the metrics of broker, store and process for Prometheus."""
    broker.permissions.require("describe", "cluster")
    return Response(generate_latest(registry), media_type=_TEXT_FORMAT)


@get("/", opt=describe_endpoint(response_types={_HTML: str}))
async def index_page(
    request: Request[Any, Any, Any], broker: NamedDependency[Broker], status: NamedDependency[ServerStatus]
) -> Response[str]:
    """Return a page for people: the state of the server, and links."""
    health = health_of(broker, status)
    page = _PAGE.substitute(
        version=escape(health.version),
        state=escape(_state_sentence(health)),
        address=escape(str(request.base_url).rstrip("/")),
        links="".join(f'<tr><td><a href="{path}">{path}</a><td>{what}' for path, what in _LINKS.items()),
    )
    return Response(page, media_type=_HTML, headers=_POLICY)


def _state_sentence(health: Health) -> str:
    if health.failure:
        return f"The server has failed: {health.failure}"
    if health.status == "full":
        return "The disk is full: records are rejected until there is space."
    return f"The server works. Durability is {health.durability}; the next record gets cursor {health.end_cursor:,}."
