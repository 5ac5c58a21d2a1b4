"""SELECT over a long topic, and its effect on the latency of concurrent publishes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Samples, Section, alternate, repeat
from bench.http.client import HttpClient
from bench.http.rates import percentile
from bench.http.server import HttpServer, Loaded, load_topic, serving
from bench.http.tasks import PublishSteadily
from bench.kafka.tasks import Delays
from bench.worker_process import expect
from bench.workspace import Workspace

_TOPIC = "bench.long"
_VALUE_BYTES = 100
_PER_SECOND = 200
_COUNT = f"SELECT count(*) FROM {_TOPIC}"
_ADD_UP = f"SELECT sum(length(value)) FROM {_TOPIC}"
_MOST_SECONDS = 5
"""Limits a count of all records, which needs only the headers of the batches."""


def run(workspace: Workspace) -> Section:
    scale = workspace.scale.http
    with serving(workspace) as server, HttpClient(server) as client:
        workspace.say(f"{scale.queried_records:,} records to query")
        loaded = load_topic(server, _TOPIC, scale.queried_records, _VALUE_BYTES)
        workspace.say("SELECT over all of them")
        counts = repeat(lambda _: _query(server, _COUNT, loaded.records), 1, scale.rounds)
        sums = repeat(lambda _: _query(server, _ADD_UP, loaded.value_bytes), 1, scale.rounds)
        workspace.say("publish beside a SELECT")
        publisher = _Publisher(server, client)
        delays = alternate(
            {"alone": publisher.delay, "beside": lambda messages: _beside_query(server, loaded, publisher, messages)},
            round(_PER_SECOND * scale.fed_seconds),
            scale.rounds,
        )
        memory = server.memory_megabytes
    return Section(
        title="SQL: queries over a topic",
        text=f"A topic of {loaded.records:,} records with values of up to {_VALUE_BYTES} B in one partition. `count(*)` needs"
        " the heads of the batches only, `sum(length(value))` every value. The answers are compared with what was written. Then"
        f" {_PER_SECOND} messages a second are published one by one, with and without somebody who asks for the sum again and"
        " again; the delay is that from a request to its acknowledgement, after the sync.",
        figures=[
            Figure(name="`count(*)`", ours=counts, unit="s", bar=Bar("at most", _MOST_SECONDS)),
            Figure(name="`sum(length(value))`", ours=sums, unit="s"),
            Figure(
                name="publish beside the query, p99", ours=delays["beside"], unit="ms", peer="without it", peers=delays["alone"]
            ),
        ],
        remarks=[
            f"That is {_millions(loaded, counts)} and {_millions(loaded, sums)} million records a second.",
            f"The server had {memory:.0f} MB resident at the end.",
        ],
    )


class _Publisher:
    """Publishes to a new topic each time."""

    def __init__(self, server: HttpServer, client: HttpClient) -> None:
        self._server = server
        self._client = client
        self._topics = 0

    def delay(self, messages: int) -> float:
        """Return the 99th percentile, in milliseconds."""
        topic = f"bench.beside_{self._topics}"
        self._topics += 1
        self._server.create_topic(topic)
        task = PublishSteadily(topic=topic, messages=messages, per_second=_PER_SECOND)
        delays = expect(Delays, self._client.ask(task)).seconds
        if self._server.records_in(topic) != messages:
            raise AuditFailure(f"{topic} has {self._server.records_in(topic)} records, and {messages} were acknowledged")
        return percentile(delays, 0.99)


def _millions(loaded: Loaded, seconds: Samples) -> str:
    return f"{loaded.records / seconds.median / 1e6:.1f}"


def _query(server: HttpServer, text: str, expected: int) -> float:
    began = time.monotonic()
    rows = server.sql(text)
    seconds = time.monotonic() - began
    if rows != [[expected]]:
        raise AuditFailure(f"{text} gave {rows}, and {expected} was written")
    return seconds


def _beside_query(server: HttpServer, loaded: Loaded, publisher: _Publisher, messages: int) -> float:
    with _querying(server, loaded):
        return publisher.delay(messages)


@contextmanager
def _querying(server: HttpServer, loaded: Loaded) -> Iterator[None]:
    """Run a query repeatedly until the block ends."""
    ended = threading.Event()
    failures: list[Exception] = []

    def query() -> None:
        try:
            while not ended.is_set():
                _query(server, _ADD_UP, loaded.value_bytes)
        except Exception as failure:  # noqa: BLE001  raised by whoever waits for the thread
            failures.append(failure)

    thread = threading.Thread(target=query)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]
