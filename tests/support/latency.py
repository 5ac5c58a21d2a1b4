"""How long small requests take while a server is under load: measured by real clients, one request after the other."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import httpx
import psutil
from confluent_kafka import Producer

from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

_PAUSE_SECONDS = 0.005


class Latencies(NamedTuple):
    seconds: Sequence[float]

    def at(self, share: float) -> float:
        """The latency that this share of the requests stayed within."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def __str__(self) -> str:
        return f"{len(self.seconds)} requests, p50 {self.at(0.5):.3f} s, p99 {self.at(0.99):.3f} s, max {self.at(1):.3f} s"


Clock = Callable[[], float]


def measured(requests: Mapping[str, Callable[[], object]], count: int, clock: Clock = time.monotonic) -> dict[str, Latencies]:
    """Send each request so many times, one after the other, but all of them side by side."""

    def repeated(request: Callable[[], object]) -> Latencies:
        seconds = []
        for _ in range(count):
            begin = clock()
            request()
            seconds.append(clock() - begin)
            time.sleep(_PAUSE_SECONDS)
        return Latencies(seconds)

    with ThreadPoolExecutor(len(requests)) as threads:
        running = {name: threads.submit(repeated, request) for name, request in requests.items()}
        return {name: each.result() for name, each in running.items()}


def cpu_clock(server: ServerProcess) -> Clock:
    """Counts the CPU time of the server: what it does until a request is answered, however busy the machine is."""
    process = psutil.Process(server.pid)

    def seconds() -> float:
        times = process.cpu_times()
        return times.user + times.system

    return seconds


@contextmanager
def producing(server: ServerProcess, topic: str) -> Iterator[Callable[[], None]]:
    """One record by a Kafka client, acknowledged, for each call."""
    producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 0, "acks": "all"})

    def produce() -> None:
        producer.produce(topic, b"a small record")
        assert producer.flush(PATIENCE_SECONDS) == 0

    produce()
    yield produce


@contextmanager
def publishing(server: ServerProcess, topic: str) -> Iterator[Callable[[], None]]:
    """One message by HTTP for each call."""
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:

        def publish() -> None:
            client.post("/api/topics/publish", json={"messages": [{"topic": topic, "value": 1}]}).raise_for_status()

        publish()
        yield publish
