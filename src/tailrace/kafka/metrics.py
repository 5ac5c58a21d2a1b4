"""The counters of the Kafka listener, and their Prometheus metrics."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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
