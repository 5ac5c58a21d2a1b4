"""The numbers of the Kafka listener as Prometheus families."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.kafka.traffic import Traffic

_PREFIX = "tailrace_kafka_"


class KafkaCollector(Collector):
    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        traffic = self._traffic
        requests = CounterMetricFamily(_PREFIX + "requests", "Kafka requests taken, by API.", labels=("api",))
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
        yield CounterMetricFamily(_PREFIX + "bytes_out", "Bytes of answers to Kafka clients.", value=traffic.bytes_out)
        yield CounterMetricFamily(
            _PREFIX + "unexpected_errors",
            "Kafka requests that failed in a way that nobody foresaw.",
            value=traffic.handler_faults,
        )
        yield GaugeMetricFamily(_PREFIX + "connections", "Kafka connections that are open.", value=traffic.open)
        yield GaugeMetricFamily(
            _PREFIX + "held_request_bytes",
            "Bytes of Kafka requests that are being received or answered.",
            value=traffic.held_bytes,
        )
