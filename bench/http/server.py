"""`tailrace serve` in a process of its own, and requests to it outside the measured time: set-up, loading and checks."""

import http.client
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import psutil

from bench.peers.servers import ClientSettings, PeerFailure, PeerProcess, answers_kafka, free_address
from bench.workspace import Workspace
from tailrace.model.commit import Durability
from tailrace.model.ids import TopicId
from tailrace.model.record import Record
from tailrace.pipeline.connection import ServerAddress, ServerConnection
from tailrace.pipeline.staging import Stager, write
from tailrace.wire.records import encode_batch
from tailrace.wire.staged_chunks import StagedBatch

_ANSWER_SECONDS = 300.0
_LOOK_SECONDS = 0.05


class HttpServer:
    def __init__(self, folder: Path, durability: Durability, config: str = "") -> None:
        self.name = f"Tailrace, `{durability}`"
        self.http = free_address()
        self.kafka = free_address()
        command = [sys.executable, "-m", "tailrace", "serve", "--data", str(folder / "data"), "--durability", durability]
        command += ["--kafka", str(self.kafka), "--http", str(self.http)]
        if config:
            file = folder / "tailrace.toml"
            file.write_text(config)
            command += ["--config", str(file)]
        self._process = PeerProcess(command, folder / "said")

    def start(self) -> None:
        self._process.start(lambda: answers_kafka(self.kafka))

    def stop(self) -> None:
        self._process.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the server and its child processes so far."""
        return cpu_seconds_of(self.pid)

    @property
    def memory_megabytes(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / 1e6

    def ask(self, method: str, path: str, question: object = None) -> Any:
        connection = http.client.HTTPConnection(*self.http, timeout=_ANSWER_SECONDS)
        try:
            body = None if question is None else msgspec.json.encode(question)
            connection.request(method, path, body, {"content-type": "application/json"} if body else {})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise PeerFailure(f"{method} {path} was answered with {answer.status}: {said[:500]!r}")
        return msgspec.json.decode(said) if said else None

    def sql(self, text: str, params: Sequence[object] = ()) -> list[list[Any]]:
        """Run one statement and return its rows."""
        rows: list[list[Any]] = self.ask("POST", "/api/sql", {"sql": text, "params": list(params)})["rows"]
        return rows

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self.ask("POST", "/api/topics", {"name": name, "partitions": partitions})

    def records_in(self, *topics: str) -> int:
        """Count records by the end offsets: nothing is removed during a benchmark."""
        found = self.ask("POST", "/api/batches/offsets", {"topics": list(topics)})
        return sum(sum(topic["partitions"]) for topic in found["topics"])

    def await_records(self, topics: Sequence[str], count: int, within_seconds: float) -> Iterator[tuple[float, int]]:
        """Yield the time and the number of records whenever topics have grown, until they have this many."""
        deadline = time.monotonic() + within_seconds
        seen = -1
        while seen < count:
            found = self.records_in(*topics)
            now = time.monotonic()
            if found != seen:
                seen = found
                yield now, found
            elif now > deadline:
                raise PeerFailure(f"{', '.join(topics[:3])} had {found} of {count} records after {within_seconds:.0f} s")
            time.sleep(_LOOK_SECONDS)


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU time of a process and all its children so far."""
    process = psutil.Process(pid)
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


@contextmanager
def serving(workspace: Workspace, durability: Durability = "fsync", config: str = "") -> Iterator[HttpServer]:
    """Run a server on a new folder, with what a configuration file says, and remove both afterwards."""
    with workspace.folder() as folder:
        server = HttpServer(folder, durability, config)
        try:
            server.start()
            yield server
        finally:
            server.stop()


_TIMESTAMP = 1_700_000_000_000
_BATCH_RECORDS = 5_000
_STAGE_BATCHES = 50
"""As many as fit into one frame."""


class Loaded(NamedTuple):
    records: int
    value_bytes: int
    """The bytes of all values together."""


def load_topic(server: HttpServer, topic: str, records: int, value_bytes: int) -> Loaded:
    """Load a topic with at least this many records, whose values have up to this many bytes."""
    values = [b"%0*d" % (1 + number * value_bytes // _BATCH_RECORDS, number % 10) for number in range(_BATCH_RECORDS)]
    batch = encode_batch([Record(b"%d" % number, value, (), _TIMESTAMP) for number, value in enumerate(values)])
    wanted = -(-records // _BATCH_RECORDS)
    server.create_topic(topic)
    load_batches(server, topic, [(0, bytes(batch), _BATCH_RECORDS)] * wanted)
    return Loaded(wanted * _BATCH_RECORDS, wanted * sum(map(len, values)))


def load_batches(server: HttpServer, topic: str, batches: Sequence[tuple[int, bytes, int]]) -> None:
    """Append batches to a topic: the partition of each, its bytes and the number of its records."""
    with ServerConnection(ServerAddress(server.url)) as connection:
        topic_id = TopicId(connection.offsets([topic]).topic_ids[topic])
        writer = f"loading-{uuid4().hex}"
        for first in range(0, len(batches), _STAGE_BATCHES):
            stager = Stager(connection, writer, f"{writer}-{first}")
            for partition, batch, records in batches[first : first + _STAGE_BATCHES]:
                stager.add([StagedBatch(topic_id, topic, partition, batch)], records)
            write(connection, writer, [stager.finish()], "batches", first)


class KafkaListener:
    def __init__(self, server: HttpServer) -> None:
        self.name = server.name
        self.address = server.kafka
        self.pid = server.pid
        self.client_settings: ClientSettings = {}

    def start(self) -> float:
        """Do nothing: the server runs already."""
        return 0.0

    def stop(self) -> None:
        """Do nothing: whoever started the server stops it."""
