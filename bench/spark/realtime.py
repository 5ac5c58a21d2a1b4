"""The delay of routed changes in real time, at a few rates and for a long time, and that each is routed once."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Samples, Section
from bench.http.rates import percentile
from bench.http.server import HttpServer, serving
from bench.spark.router import PROGRAM, RouterProcess
from bench.spark.sender import TABLES, SendRows, SentRows, live_table
from bench.worker_process import WorkerProcess
from bench.workspace import Workspace

_ROUTES = 20
_OUTLIER_MS = 1_000
_START_SECONDS = 120.0
_ARRIVE_SECONDS = 30.0
_WARM_UP_SECONDS = 10
_STATEMENTS_A_SECOND = 80
"""Of all senders; at higher rates a statement inserts more rows."""
_FIRST_ID = 1 << 40
"""The id of the row that shows that the pipeline routes."""
_SENDER_IDS = 1 << 32
"""The ids of a sender."""
_LONG_BATCH = "4 minutes"
"""How long a batch of Spark lasts in the long run. By default it is longer than the run."""
_START_LONG = (
    "import tailrace.pipeline.realtime as realtime, tailrace.cli.main as cli;"
    f" realtime.BATCH_DURATION = {_LONG_BATCH!r}; cli.main()"
)


class _Load(NamedTuple):
    per_second: int
    senders: int
    most_p99_ms: int


_LOADS = (_Load(1_000, 1, 50), _Load(10_000, 4, 100))
_MOST_P50_MS = 10


class _Delays(NamedTuple):
    seconds: Sequence[float]
    """From the request that inserts a row to its message at a consumer."""
    commits: Sequence[float]
    """Of the requests themselves."""
    rate: float

    @property
    def outliers(self) -> int:
        return sum(1e3 * each > _OUTLIER_MS for each in self.seconds)


def run(workspace: Workspace, jars: Path) -> Section:
    found: dict[_Load, _Delays] = {}
    with _routed(workspace, jars) as (server, receiver):
        for load in _LOADS:
            workspace.say(f"{load.per_second:,} changes a second")
            found[load] = _measure(server, receiver, load, workspace.scale.spark.steady_seconds)
    figures = []
    for load, delays in found.items():
        p50 = Bar("at most", _MOST_P50_MS) if load is _LOADS[0] else None
        at = f"at {load.per_second:,} changes/s"
        figures += [
            Figure(name=f"delay {at}, p50", ours=_ms(delays.seconds, 0.5), unit="ms", bar=p50),
            Figure(name=f"delay {at}, p99", ours=_ms(delays.seconds, 0.99), unit="ms", bar=Bar("at most", load.most_p99_ms)),
            Figure(name=f"delay {at}, longest", ours=_ms(delays.seconds, 1.0), unit="ms"),
            Figure(name=f"INSERT alone {at}, p50", ours=_ms(delays.commits, 0.5), unit="ms"),
        ]
    return Section(
        title="The pipeline: delay in real time",
        text=f"{_ROUTES} routes from {TABLES} tables to {_ROUTES} topics, each with a condition that takes half of the changes"
        f" of its table. {_LOADS[0].senders} and {_LOADS[1].senders} clients insert rows by the SDK at a steady rate,"
        f" in {_STATEMENTS_A_SECOND} statements a second together; a Kafka"
        " client waits at all topics. The delay is that from the request which inserts a row to its message at the Kafka"
        " client, so it includes the INSERT with its sync. `tailrace pipeline --latency realtime` runs on the same cores."
        " Afterwards each row has arrived once.",
        figures=figures,
        remarks=[f"Longer than {_OUTLIER_MS:,} ms at {load.per_second:,} changes/s: {found[load].outliers}." for load in found]
        + [f"Reached {found[load].rate:,.0f} of {load.per_second:,} changes/s." for load in found],
    )


def run_long(workspace: Workspace, jars: Path) -> Section:
    """Run for ten minutes, over the ends of two batches of Spark, and as long without Spark."""
    load, seconds = _LOADS[0], workspace.scale.spark.long_seconds
    with _routed(workspace, jars, "-c", _START_LONG) as (server, receiver):
        workspace.say(f"{load.per_second:,} changes a second, routed, for {seconds:g} s")
        routed = _measure(server, receiver, load, seconds)
    with serving(workspace) as server:
        _create_tables(server)
        topics = [f"_changes.{live_table(number)}" for number in range(TABLES)]
        with _Receiver(str(server.kafka), topics, _read_change) as receiver:
            workspace.say("the same without Spark")
            alone = _measure(server, receiver, load, seconds)
    figures = [
        Figure(name=name, ours=_ms(routed.seconds, share), unit="ms", peer="without Spark", peers=_ms(alone.seconds, share))
        for name, share in (("delay, p50", 0.5), ("delay, p99", 0.99), ("delay, p99.9", 0.999), ("delay, longest", 1.0))
    ]
    return Section(
        title="The pipeline: real time for ten minutes",
        text=f"The load of the subject before, {load.per_second:,} changes/s for {seconds:g} s, over the ends of Spark's own"
        f" batches, which last {_LONG_BATCH} here and an hour by default. Without Spark the Kafka client waits at the topics of"
        " the changes themselves.",
        figures=figures,
        remarks=[
            f"Longer than {_OUTLIER_MS:,} ms: {routed.outliers} of {len(routed.seconds):,}, without Spark {alone.outliers}."
        ],
    )


@contextmanager
def _routed(workspace: Workspace, jars: Path, *program: str) -> "Iterator[tuple[HttpServer, _Receiver]]":
    """Run a server and a pipeline that routes in real time. `program` is what Python runs instead of `tailrace`."""
    with serving(workspace) as server:
        _create_tables(server)
        topics = _create_routes(server)
        flags = ("--latency", "realtime", "--jars", str(jars))
        router = RouterProcess(server, 200_000, workspace.root / "pipeline", *flags, program=program or PROGRAM)
        try:
            with _Receiver(str(server.kafka), topics, _read_row) as receiver:
                workspace.say("the pipeline starts in real time")
                server.sql(f"INSERT INTO {live_table(0)} (id, sent, body) VALUES ({_FIRST_ID}, {time.time_ns()}, '')")
                receiver.await_messages(1, _START_SECONDS)
                yield server, receiver
        finally:
            router.stop()


def _create_tables(server: HttpServer) -> None:
    for number in range(TABLES):
        server.sql(f"CREATE TABLE {live_table(number)} (id BIGINT, sent BIGINT, body TEXT, PRIMARY KEY (id))")


def _create_routes(server: HttpServer) -> list[str]:
    topics = [f"bench.live_routed_{number}" for number in range(_ROUTES)]
    for number, topic in enumerate(topics):
        server.create_topic(topic)
        where = f"id % 2 = {number // TABLES}"
        server.sql(f"ALTER TOPIC {topic} ADD SOURCE {live_table(number)} ON INSERT WHERE ({where}) WITH (payload = 'full')")
    return topics


def _measure(server: HttpServer, receiver: "_Receiver", load: _Load, seconds: float) -> _Delays:
    each = load.per_second / load.senders
    rows = round(load.per_second / _STATEMENTS_A_SECOND)
    with ExitStack() as stack:
        senders = [stack.enter_context(_sender(server, receiver.next_sender + number)) for number in range(load.senders)]
        _send(senders, each, rows, _WARM_UP_SECONDS, receiver)
        receiver.clear()
        sent = _send(senders, each, rows, seconds, receiver)
    receiver.next_sender += load.senders
    arrived = receiver.take()
    wanted = sum(len(sender.ids) for sender in sent)
    if len(arrived) != len({id for id, _ in arrived}):
        raise AuditFailure("a change was routed twice")
    if len(arrived) != wanted or any(id not in sent[id // _SENDER_IDS - sent[0].number].ids for id, _ in arrived):
        raise AuditFailure(f"{len(arrived)} changes were routed, and {wanted} were written")
    commits = sorted(took for sender in sent for took in sender.rows.commits)
    rate = sum(len(sender.ids) / sender.rows.seconds for sender in sent)
    return _Delays(sorted(delay for _, delay in arrived), commits, rate)


class _Sender:
    def __init__(self, worker: "WorkerProcess[SendRows, SentRows]", number: int) -> None:
        self.worker = worker
        self.number = number
        self.next_id = number * _SENDER_IDS


class _Sent(NamedTuple):
    number: int
    ids: range
    rows: SentRows


@contextmanager
def _sender(server: HttpServer, number: int) -> Iterator[_Sender]:
    worker: WorkerProcess[SendRows, SentRows] = WorkerProcess("sender", "bench.spark.sender", server.url, answers=SentRows)
    with worker:
        yield _Sender(worker, number)


def _send(senders: Sequence[_Sender], per_second: float, rows: int, seconds: float, receiver: "_Receiver") -> list[_Sent]:
    """Let all senders send at this rate, and wait until everything has arrived."""
    before = receiver.count
    for sender in senders:
        sender.worker.begin(SendRows(first_id=sender.next_id, per_second=per_second, rows=rows, seconds=seconds))
    sent = []
    for sender in senders:
        done = sender.worker.receive()
        sent.append(_Sent(sender.number, range(sender.next_id, done.next_id), done))
        sender.next_id = done.next_id
    receiver.await_messages(before + sum(len(each.ids) for each in sent), _ARRIVE_SECONDS)
    return sent


def _ms(seconds: Sequence[float], share: float) -> Samples:
    return Samples((percentile(list(seconds), share),))


def _read_row(value: bytes) -> tuple[int, int]:
    row = json.loads(value)
    return row["id"], row["sent"]


def _read_change(value: bytes) -> tuple[int, int]:
    row = json.loads(value)["new"]
    return row["id"], row["sent"]


class _Receiver:
    """Reads all topics in a thread, and notes when messages arrive."""

    def __init__(self, kafka: str, topics: Sequence[str], read: Callable[[bytes], tuple[int, int]]) -> None:
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench", "fetch.wait.max.ms": 500})
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        self._read_value = read
        self._arrived: list[tuple[int, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.next_sender = 0

    def __enter__(self) -> "_Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    @property
    def count(self) -> int:
        return len(self._arrived)

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
                id, sent = self._read_value(message.value() or b"{}")
                self._arrived.append((id, (now - sent) / 1e9))
