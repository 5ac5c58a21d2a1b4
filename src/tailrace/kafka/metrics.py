"""The counters of the Kafka listener, and their Prometheus metrics."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from tailrace.kafka.client_telemetry import ClientTelemetry

_PREFIX = "tailrace_kafka_"


class Traffic:
    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """By API name."""
        self.closed: Counter[str] = Counter()
        """Connections that the server closed, by reason."""
        self.accepted = 0
        self.open = 0
        self.handler_faults = 0
        """Requests that failed with an unexpected internal error."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.held_bytes = 0
        """Bytes of requests that are being received or answered."""
        self.telemetry: ClientTelemetry | None = None
        """The metrics that clients push, unless that is off."""


class KafkaCollector(Collector):
    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        traffic = self._traffic
        requests = CounterMetricFamily(_PREFIX + "requests", "Kafka requests received, by API.", labels=("api",))
        for api, count in sorted(traffic.requests.items()):
            requests.add_metric((api,), count)
        yield requests
        closed = CounterMetricFamily(
            _PREFIX + "connections_closed", "Kafka connections that the server closed, by reason.", labels=("reason",)
        )
        for reason, count in sorted(traffic.closed.items()):
            closed.add_metric((reason,), count)
        yield closed
        yield CounterMetricFamily(
            _PREFIX + "connections_accepted", "Kafka connections since the start.", value=traffic.accepted
        )
        yield CounterMetricFamily(_PREFIX + "bytes_in", "Bytes received from Kafka clients.", value=traffic.bytes_in)
        yield CounterMetricFamily(_PREFIX + "bytes_out", "Bytes of responses to Kafka clients.", value=traffic.bytes_out)
        yield CounterMetricFamily(
            _PREFIX + "unexpected_errors",
            "Kafka requests that failed with an unexpected internal error.",
            value=traffic.handler_faults,
        )
        yield GaugeMetricFamily(_PREFIX + "connections", "Kafka connections that are open.", value=traffic.open)
        yield GaugeMetricFamily(
            _PREFIX + "held_request_bytes",
            "Bytes of Kafka requests that are being received or answered.",
            value=traffic.held_bytes,
        )
        yield from self._of_clients()

    def _of_clients(self) -> Iterator[Metric]:
        telemetry = self._traffic.telemetry
        shown = GaugeMetricFamily(
            _PREFIX + "client_metric", "Metrics that Kafka clients push, by client and metric.", labels=("client", "metric")
        )
        pushes = CounterMetricFamily(
            _PREFIX + "client_metrics_pushes", "Pushes of metrics by Kafka clients, by outcome.", labels=("outcome",)
        )
        if telemetry is not None:
            for labels, value in sorted(telemetry.shown().items()):
                shown.add_metric(labels, value)
            for outcome, count in sorted(telemetry.pushes.items()):
                pushes.add_metric((outcome,), count)
        yield shown
        yield pushes
        yield GaugeMetricFamily(
            _PREFIX + "client_metrics_clients",
            "Kafka clients whose metrics are shown.",
            value=0 if telemetry is None else telemetry.clients,
        )
        yield CounterMetricFamily(
            _PREFIX + "client_metrics_dropped",
            "Metrics that Kafka clients pushed and that were not kept.",
            value=0 if telemetry is None else telemetry.dropped,
        )
