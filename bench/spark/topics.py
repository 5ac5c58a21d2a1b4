"""Topics read, written and routed by Spark: Tailrace's source and sink beside Spark's own connector for Kafka."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.audit import AuditFailure
from bench.figures import Bar, Figure, Samples, Section, take_turns
from bench.http.server import HttpServer, load_topic, serving
from bench.peers.servers import MakePeer, Peer
from bench.spark import connector
from bench.spark.connector import WARM_UP_ROUNDS, ConnectorRoute, compare_routing
from bench.spark.job import Answer, Found, ReadTopic, Side, SparkJob, WriteTopic
from bench.workspace import Workspace, settle_disk

Made = TypeVar("Made", bound=Answer)

_VALUE_BYTES = 200
_LEAST_RATIO = 1.5
_MOST_GROWTH = 1.25
_LOOK_SECONDS = 0.2
_FLAT_SHARE = 8


class _Passed(NamedTuple):
    written: float
    """Rows per second."""
    read: float


class _Store(NamedTuple):
    """A server with its own Spark process."""

    job: SparkJob
    name: str

    def pass_through(self, topic: str, rows: int) -> _Passed:
        settle_disk()
        written = _said(Found, self.job.ask(WriteTopic(topic, rows, _VALUE_BYTES)))
        read = _said(Found, self.job.ask(ReadTopic(topic)))
        if (read.records, read.value_bytes) != (rows, rows * _VALUE_BYTES):
            raise AuditFailure(
                f"{self.name}: {topic} has {read.records} records of {read.value_bytes} B, and {rows} were written"
            )
        return _Passed(rows / written.seconds, rows / read.seconds)


def run(workspace: Workspace, make_kafka: MakePeer, jars: Path) -> Section:
    scale = workspace.scale.spark
    with ExitStack() as stack:
        server = stack.enter_context(serving(workspace, "relaxed"))
        kafka = stack.enter_context(_running(workspace, make_kafka))
        ours = _Store(stack.enter_context(SparkJob(_tailrace(server), workspace.root / "spark")), "Tailrace")
        theirs = _Store(stack.enter_context(SparkJob(_kafka(kafka, jars), workspace.root / "spark")), kafka.name)
        workspace.say("topics written and read by Spark")
        passed = take_turns(
            {"ours": _Turns(server, ours).tailrace, "theirs": _Turns(kafka, theirs).kafka}, scale.topic_rows, scale.rounds
        )
        workspace.say(f"{scale.flat_bytes / 1e9:.1f} GB read whole")
        growth = _growth(server, ours.job, scale.flat_bytes)
        routed = compare_routing(workspace, server, ConnectorRoute(workspace, kafka, theirs.job))
    peer = f"{kafka.name}, Spark's connector"

    def figure(name: str, unit: str, mine: list[float], its: list[float], bar: Bar | None = None) -> Figure:
        return Figure(name=name, ours=Samples(tuple(mine)), unit=unit, peer=peer, peers=Samples(tuple(its)), bar=bar)

    def rates(side: str, share: float) -> tuple[list[float], list[float]]:
        return [each.written * share for each in passed[side]], [each.read * share for each in passed[side]]

    megabytes = _VALUE_BYTES / 1e6
    our_rows, their_rows = rates("ours", 1), rates("theirs", 1)
    our_bytes, their_bytes = rates("ours", megabytes), rates("theirs", megabytes)
    return Section(
        title="The pipeline: beside Spark's Kafka connector",
        text=f"Rows with values of {_VALUE_BYTES} B, written by one batch job and read by another that counts them and adds up"
        ' their sizes: `format("tailrace")` and `format("kafka")` in the same Spark, each in a process of its own.'
        " Both servers leave syncing to a later time. Routed: the same change events and the same filter; the connector's query"
        " reads them from a topic of two partitions, parses them, and writes the rows that meet the condition to another"
        " topic, at least once; the pipeline does it exactly once, with headers, dead letters and marks. A round has"
        f" {scale.changes:,} changes, of which the first {scale.changes_a_batch:,} do not count; both sides take turns, after"
        f" {WARM_UP_ROUNDS} rounds of each for Java to get warm, and the router is held up while it is the connector's turn.",
        figures=[
            figure("write", "rows/s", our_rows[0], their_rows[0]),
            figure("write", "MB/s", our_bytes[0], their_bytes[0]),
            figure("read", "rows/s", our_rows[1], their_rows[1]),
            figure("read", "MB/s", our_bytes[1], their_bytes[1]),
            figure("routed", "changes/s", routed["ours"], routed["theirs"], Bar("at least", _LEAST_RATIO)),
            Figure(
                name=f"memory of the server and of Spark's largest Python worker, {scale.flat_bytes / 1e9:.1f} GB read",
                ours=Samples((growth[1],)),
                unit="MB",
                peer=f"{scale.flat_bytes / _FLAT_SHARE / 1e9:.1f} GB read",
                peers=Samples((growth[0],)),
                bar=Bar("at most", _MOST_GROWTH),
            ),
        ],
    )


class _Turns:
    """Writes a new topic in each round."""

    def __init__(self, server: HttpServer | Peer, store: _Store) -> None:
        self._server = server
        self._store = store
        self._topics = (f"bench.spark_{number}" for number in count())

    def tailrace(self, rows: int) -> _Passed:
        assert isinstance(self._server, HttpServer)
        topic = next(self._topics)
        self._server.create_topic(topic, connector.PARTITIONS)
        return self._store.pass_through(topic, rows)

    def kafka(self, rows: int) -> _Passed:
        assert not isinstance(self._server, HttpServer)
        topic = next(self._topics)
        connector.create_topic(self._server.address, topic)
        return self._store.pass_through(topic, rows)


def _growth(server: HttpServer, job: SparkJob, size: int) -> tuple[float, float]:
    """Return the peak memory while an eighth of a topic is read, and while all of it is read."""
    found = []
    for number, wanted in enumerate((size // _FLAT_SHARE, size)):
        topic = f"bench.flat_{number}"
        # Values have half of these bytes on average.
        loaded = load_topic(server, topic, 2 * wanted // _VALUE_BYTES, _VALUE_BYTES)
        with _watching(server, job) as seen:
            read = _said(Found, job.ask(ReadTopic(topic)))
        if (read.records, read.value_bytes) != loaded:
            raise AuditFailure(f"Spark read {read.records} records of {read.value_bytes} B where {loaded} were written")
        found.append(max(seen))
    return found[0], found[1]


@contextmanager
def _watching(server: HttpServer, job: SparkJob) -> Iterator[list[float]]:
    seen = [server.memory_megabytes + job.worker_megabytes]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            seen.append(server.memory_megabytes + job.worker_megabytes)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


@contextmanager
def _running(workspace: Workspace, make: MakePeer) -> Iterator[Peer]:
    with workspace.folder() as folder:
        peer = make(folder, "relaxed")
        try:
            peer.start()
            yield peer
        finally:
            peer.stop()


def _tailrace(server: HttpServer) -> Side:
    return Side("tailrace", {"server": server.url})


def _kafka(kafka: Peer, jars: Path) -> Side:
    return Side("kafka", {"kafka.bootstrap.servers": str(kafka.address)}, tuple(map(str, sorted(jars.glob("*.jar")))))


def _said(kind: type[Made], answer: Answer) -> Made:
    assert isinstance(answer, kind), answer
    return answer
