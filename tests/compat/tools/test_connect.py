"""Kafka Connect in distributed mode, whose three compacted topics are here: files in, files out, and exactly-once sources."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.peers.connect import ConnectPeer
from tests.compat.tools import topics
from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import CONNECT, KAFKA_JARS, tool
from tests.support.eventually import eventually
from tests.support.server import ServerProcess

TEXT = "org.apache.kafka.connect.storage.StringConverter"
MANY = 2_000
StartWorker = Callable[[str], ConnectPeer]


@pytest.fixture
def start_worker(own_server: ServerProcess, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts workers of one cluster, which keep their configs, offsets and states in compacted topics."""

    def start(name: str) -> ConnectPeer:
        folder = tmp_path / name
        folder.mkdir()
        worker = ConnectPeer("ConnectDistributed", [KAFKA_JARS], folder, worker_settings(own_server.kafka))
        started.callback(worker.stop)
        worker.start()
        return worker

    with ExitStack() as started:
        yield start


def worker_settings(kafka: str) -> dict[str, object]:
    settings: dict[str, object] = {
        "bootstrap.servers": kafka,
        "group.id": "workers",
        "exactly.once.source.support": "enabled",
        # A worker that is killed is missed soon, and its tasks are given to others at once.
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        "scheduled.rebalance.max.delay.ms": 0,
        "offset.storage.partitions": 3,
    }
    for topic in ("config", "offset", "status"):
        settings[f"{topic}.storage.topic"] = f"connect.{topic}"
        settings[f"{topic}.storage.replication.factor"] = 1
        settings[f"{topic}.storage.min.cleanable.dirty.ratio"] = 0.01
    return settings


def source(file: Path, topic: str, **settings: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(file),
        "topic": topic,
        "value.converter": TEXT,
        **settings,
    }


def sink(file: Path, topic: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file": str(file),
        "topics": topic,
        "value.converter": TEXT,
    }


def append(file: Path, first: int, count: int) -> None:
    with file.open("a") as lines:
        lines.writelines(f"line {number}\n" for number in range(first, first + count))


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def expected(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


@tool(
    CONNECT,
    "Distributed, with its three compacted topics here: a file to a topic to a file, over the loss of a worker and a start of "
    "all; offsets of connectors shown and reset",
    short=True,
)
@pytest.mark.timeout(900)
def test_files_go_through_a_topic_over_the_loss_of_a_worker(
    own_server: ServerProcess, start_worker: StartWorker, tmp_path: Path
) -> None:
    into, out = tmp_path / "into.txt", tmp_path / "out.txt"
    append(into, 0, MANY)
    one, other = start_worker("one"), start_worker("other")
    one.create("into", source(into, "lines"))
    one.create("out", sink(out, "lines"))
    eventually(lambda: lines_of(out) == expected(MANY), "all lines at the other end")

    one.stop()
    append(into, MANY, MANY)
    eventually(lambda: set(lines_of(out)) == set(expected(2 * MANY)), "the lines that were written after the loss")
    other.check()
    other.stop()

    again = start_worker("again")
    append(into, 2 * MANY, MANY)
    eventually(lambda: set(lines_of(out)) == set(expected(3 * MANY)), "the lines that were written after a start")
    # The source goes on behind the last line that its worker has committed, so it repeats little; the order stays.
    assert list(dict.fromkeys(topics.values(topics.read(own_server.kafka, "lines")))) == expected(3 * MANY)

    again.pause("into")
    (shown,) = again.offsets("into")
    assert shown["partition"] == {"filename": str(into)}
    again.reset_offsets("into")
    assert again.offsets("into") == []
    again.resume("into")
    eventually(lambda: Counter(lines_of(out))["line 0"] == 2, "the lines once more")
    again.pause("out")
    (reached,) = again.offsets("out")
    assert (reached["partition"]["kafka_topic"], reached["offset"]["kafka_offset"] >= 3 * MANY) == ("lines", True)

    described = CommandLine(own_server.kafka).lines("kafka-configs", "--describe", "--entity-type", "topics")
    assert sum("cleanup.policy=compact " in line for line in described) == 3
    eventually(lambda: topics.compacted_records(own_server.url) > 0, "a compaction")


@tool(CONNECT, "Exactly-once source: each line once and in order, over kills of the worker and of the server")
@pytest.mark.timeout(900)
def test_an_exactly_once_source_loses_and_repeats_nothing_over_kills(
    own_server: ServerProcess, start_worker: StartWorker, tmp_path: Path
) -> None:
    into = tmp_path / "into.txt"
    append(into, 0, MANY)
    worker = start_worker("one")
    once = {"exactly.once.support": "required", "transaction.boundary": "poll", "batch.size": "50"}
    worker.create("into", source(into, "lines", **once))

    def reached() -> int:
        return topics.end(own_server.kafka, "lines") if "lines" in topics.names(own_server.kafka) else 0

    for number, victim in enumerate(("worker", "server", "worker", "both", "server"), start=1):
        before = reached()
        append(into, number * MANY, MANY)
        eventually(lambda: reached() > before + 100, "more lines")  # noqa: B023
        if victim in ("worker", "both"):
            worker.stop()
        if victim in ("server", "both"):
            own_server.kill()
            own_server.start()
        if victim in ("worker", "both"):
            worker.start()
    eventually(lambda: len(topics.read(own_server.kafka, "lines")) >= 6 * MANY, "all lines")
    assert topics.values(topics.read(own_server.kafka, "lines")) == expected(6 * MANY)
    worker.check()
