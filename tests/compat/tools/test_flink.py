"""Flink's Kafka source and sink on a real server, in Flink's own cluster within one process, exactly once."""

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.compat.tools import topics
from tests.compat.tools.programs import FLINK_JAR, FLINK_JARS, FLINK_KAFKA, tool
from tests.support.eventually import eventually
from tests.support.logged_process import LoggedProcess
from tests.support.server import ServerProcess

KEYS = 10
GO = 200
KILLED = ("job", "server", "job", "both", "job")
_OPENED = ("java.util", "java.lang", "java.time")
"""Packages of Java that Flink looks into."""


def job(kafka: str, folder: Path) -> list[str]:
    """Return the command that runs the job, from its newest checkpoint."""
    path = f"{FLINK_JAR}:{FLINK_JARS}/*"
    flags = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    flags += ["-Xmx700m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command = ["java", *flags, "-cp", path, "tailrace.compat.flink.Main", kafka, "copy.source", "copy.target", str(folder)]
    complete = sorted(folder.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime_ns)
    return [*command, f"file://{complete[-1].parent}"] if complete else command


@tool(
    FLINK_KAFKA,
    "`KafkaSource` and `KafkaSink` with `EXACTLY_ONCE`: each record copied once and counted once, over kills of the job, which "
    "goes on from its checkpoint, and of the server",
)
@pytest.mark.timeout(1_200)
def test_a_job_copies_and_counts_exactly_once_over_kills(own_server: ServerProcess, tmp_path: Path) -> None:
    topics.create(own_server.kafka, "copy.source", "copy.target", partitions=2)
    numbers = itertools.count()
    is_over = Event()

    def send() -> int:
        """Send records without a pause, and return how many."""
        while not is_over.is_set():
            topics.fill(own_server.kafka, "copy.source", [_record(next(numbers)) for _ in range(GO)])
        return next(numbers)

    def start(number: int) -> LoggedProcess:
        return LoggedProcess(job(own_server.kafka, tmp_path / "checkpoints"), tmp_path / f"job-{number}.log")

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        running = start(0)
        try:
            for number, victim in enumerate(KILLED, start=1):
                reached = len(topics.read(own_server.kafka, "copy.target"))
                eventually(lambda: len(topics.read(own_server.kafka, "copy.target")) > reached + GO, "copies")  # noqa: B023
                if victim in ("job", "both"):
                    running.kill()
                if victim in ("server", "both"):
                    own_server.kill()
                    own_server.start()
                if victim in ("job", "both"):
                    running = start(number)
            is_over.set()
            sent = sending.result(100)
            eventually(lambda: len(topics.read(own_server.kafka, "copy.target")) >= sent, "all copies")
        finally:
            is_over.set()
            running.kill()

    copied = [(record.value or "").split() for record in topics.read(own_server.kafka, "copy.target")]
    assert sorted(int(number) for _, number, _ in copied) == list(range(sent))
    by_key = Counter(key for key, _, _ in copied)
    for key, count in by_key.items():
        counted = [int(before) for found, _, before in copied if found == key]
        assert counted == list(range(count)), key
    assert len(by_key) == KEYS


def _record(number: int) -> tuple[str, str]:
    key = f"k{number % KEYS}"
    return key, f"{key} {number}"
