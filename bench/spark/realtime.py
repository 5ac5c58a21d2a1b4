"""The delay of routed changes in real time, at a few rates, and that each is routed once."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Samples, Section
from bench.http.rates import percentile
from bench.http.server import HttpServer, serving
from bench.spark.router import RouterProcess
from bench.workspace import Workspace
from tailrace.api.sql import SqlResponse
from tailrace.client._sync.transport import Transport

_TABLES = 10
_ROUTES = 20
_BODY = "x" * 150
_RATES = (1_000, 10_000)
_STATEMENTS_A_SECOND = 80
"""At higher rates a statement inserts several rows."""
_WARM_UP_SECONDS = 10
_MOST_P50_MS = 10
_MOST_P99_MS = (50, 100)
_OUTLIER_MS = 1_000
_START_SECONDS = 120.0
_ARRIVE_SECONDS = 30.0
_FIRST_ID = 1 << 40
"""The id of the row that shows that the pipeline routes."""


class _Delays(NamedTuple):
    seconds: Sequence[float]
    """From the request that inserts a row to its message at a consumer."""
    commits: Sequence[float]
    """Of the requests themselves."""
    rate: float


def run(workspace: Workspace, jars: Path) -> Section:
    found: dict[int, _Delays] = {}
    with serving(workspace) as server:
        topics = _create(server)
        with (
            _routing(server, jars, workspace.root / "pipeline"),
            _Receiver(str(server.kafka), topics) as receiver,
            _Sender(server.url) as sender,
        ):
            workspace.say("the pipeline starts in real time")
            sender.send([(_FIRST_ID, time.time_ns())])
            receiver.await_messages(1, _START_SECONDS)
            for rate in _RATES:
                workspace.say(f"{rate:,} changes a second")
                found[rate] = _measure(sender, receiver, rate, workspace.scale.spark.steady_seconds)
        for each in found.values():
            _check(each)
    figures = []
    for (rate, delays), most_p99 in zip(found.items(), _MOST_P99_MS, strict=True):
        p50 = Bar("at most", _MOST_P50_MS) if rate == _RATES[0] else None
        figures += [
            Figure(name=f"delay at {rate:,} changes/s, p50", ours=_ms(delays.seconds, 0.5), unit="ms", bar=p50),
            Figure(
                name=f"delay at {rate:,} changes/s, p99",
                ours=_ms(delays.seconds, 0.99),
                unit="ms",
                bar=Bar("at most", most_p99),
            ),
            Figure(name=f"delay at {rate:,} changes/s, longest", ours=_ms(delays.seconds, 1.0), unit="ms"),
            Figure(name=f"INSERT alone at {rate:,} changes/s, p50", ours=_ms(delays.commits, 0.5), unit="ms"),
        ]
    outliers = {rate: sum(1e3 * each > _OUTLIER_MS for each in delays.seconds) for rate, delays in found.items()}
    return Section(
        title="The pipeline: delay in real time",
        text=f"{_ROUTES} routes from {_TABLES} tables to {_ROUTES} topics, each with a condition that takes half of the changes"
        " of its table. One client inserts rows by the SDK at a steady rate; a Kafka client waits at all topics. The delay is"
        " that from the request which inserts a row to its message at the Kafka client, so it includes the INSERT with its"
        " sync. `tailrace pipeline --latency realtime` runs on the same cores. Afterwards each row has arrived once.",
        figures=figures,
        remarks=[f"Longer than {_OUTLIER_MS:,} ms at {rate:,} changes/s: {count}." for rate, count in outliers.items()]
        + [f"Reached {delays.rate:,.0f} of {rate:,} changes/s." for rate, delays in found.items()],
    )


def _create(server: HttpServer) -> list[str]:
    for number in range(_TABLES):
        server.sql(f"CREATE TABLE bench.live_{number} (id BIGINT, sent BIGINT, body TEXT, PRIMARY KEY (id))")
    topics = [f"bench.live_routed_{number}" for number in range(_ROUTES)]
    for number, topic in enumerate(topics):
        server.create_topic(topic)
        table, half = f"bench.live_{number % _TABLES}", number // _TABLES
        server.sql(f"ALTER TOPIC {topic} ADD SOURCE {table} ON INSERT WHERE (id % 2 = {half}) WITH (payload = 'full')")
    return topics


@contextmanager
def _routing(server: HttpServer, jars: Path, said: Path) -> Iterator[None]:
    router = RouterProcess(server, 200_000, said, "--latency", "realtime", "--jars", str(jars))
    try:
        yield
    finally:
        router.stop()


def _measure(sender: "_Sender", receiver: "_Receiver", rate: int, seconds: float) -> _Delays:
    rows = max(1, rate // _STATEMENTS_A_SECOND)
    receiver.clear()
    sent: set[int] = set()
    commits: list[float] = []
    began = time.monotonic()
    end = began + _WARM_UP_SECONDS + seconds
    while (now := time.monotonic()) < end:
        ids = range(sender.next_id, sender.next_id + rows)
        took = sender.send([(id, time.time_ns()) for id in ids])
        if now - began > _WARM_UP_SECONDS:
            sent.update(ids)
            commits.append(took)
        due = began + (ids.stop - receiver.first_id) / rate
        time.sleep(max(0.0, due - time.monotonic()))
    reached = (sender.next_id - receiver.first_id) / (time.monotonic() - began)
    receiver.await_messages(sender.next_id - receiver.first_id, _ARRIVE_SECONDS)
    arrived = receiver.take()
    if len(arrived) != len({id for id, _ in arrived}):
        raise AuditFailure("a change was routed twice")
    found = {id: delay for id, delay in arrived if id in sent}
    if found.keys() != sent:
        raise AuditFailure(f"{len(sent - found.keys())} of {len(sent)} changes were not routed")
    receiver.first_id = sender.next_id
    return _Delays(sorted(found.values()), sorted(commits), reached)


def _check(delays: _Delays) -> None:
    if not delays.seconds:
        raise AuditFailure("no delay was measured")


def _ms(seconds: Sequence[float], share: float) -> Samples:
    return Samples((percentile(list(seconds), share),))


class _Sender:
    """Inserts rows, into one table after the other."""

    def __init__(self, url: str) -> None:
        self._transport = Transport(url)
        self._turn = 0
        self.next_id = 0

    def __enter__(self) -> "_Sender":
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def send(self, rows: Sequence[tuple[int, int]]) -> float:
        """Insert rows of an id and a time. Return how long that took."""
        text = f"INSERT INTO bench.live_{self._turn % _TABLES} (id, sent, body) VALUES (?, ?, ?)"
        values = [[id, at, _BODY] for id, at in rows]
        began = time.perf_counter()
        self._transport.ask("/api/sql", {"sql": text, "params": values[0] if len(values) == 1 else values}, SqlResponse)
        self._turn += 1
        if rows[-1][0] != _FIRST_ID:
            self.next_id = rows[-1][0] + 1
        return time.perf_counter() - began


class _Receiver:
    """Reads all topics in a thread, and notes when messages arrive."""

    def __init__(self, kafka: str, topics: Sequence[str]) -> None:
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench", "fetch.wait.max.ms": 500})
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        self._arrived: list[tuple[int, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.first_id = 0

    def __enter__(self) -> "_Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def clear(self) -> None:
        self._arrived = []

    def take(self) -> list[tuple[int, float]]:
        return self._arrived

    def await_messages(self, count: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while len(self._arrived) < count:
            if time.monotonic() > end:
                raise AuditFailure(f"{len(self._arrived)} of {count} changes were routed within {seconds:g} s")
            time.sleep(0.01)

    def _read(self) -> None:
        while not self._is_over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                now = time.time_ns()
                row = json.loads(message.value() or b"{}")
                self._arrived.append((row["id"], (now - row["sent"]) / 1e9))
