"""Few stored bytes that decode to many, and many readers of them at once: the server bounds memory and time.

Each way out is attacked on its own: one record of 15 MiB in each of ten batches of 15 KB, as any producer can send them, and
more readers than there is room for.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from tailrace.wire.messages.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic
from tests.integration.topics import create, metric, publish
from tests.support.bad_batches import large_batch, store_in_folder
from tests.support.eventually import eventually
from tests.support.kafka import frame, sized
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

MIB = 1 << 20
GROWTH_MIB = 300
HEALTH_SECONDS = 2.0
READERS = 16
MANY_READERS = 40


class Watched:
    """A server, how much its memory has grown at most, and how long its slowest answer about its health took."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._before = self._status("VmRSS")
        self._slowest = 0.0
        self._is_over = threading.Event()
        self._watching = threading.Thread(target=self._watch)

    def __enter__(self) -> "Watched":
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watching.join()

    @property
    def growth_mib(self) -> float:
        return self._status("VmHWM") - self._before

    @property
    def slowest_seconds(self) -> float:
        return self._slowest

    def _watch(self) -> None:
        with httpx.Client(base_url=self.server.url, timeout=PATIENCE_SECONDS) as client:
            while not self._is_over.wait(0.02):
                began = time.monotonic()
                client.get("/health").raise_for_status()
                self._slowest = max(self._slowest, time.monotonic() - began)

    def _status(self, name: str) -> float:
        lines = Path(f"/proc/{self.server.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":"))


@pytest.fixture(scope="module")
def large_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that no server has open."""
    folder = tmp_path_factory.mktemp("large") / "data"
    server = ServerProcess(folder)
    with server:
        create(server.url, "t")
        server.terminate()
    store_in_folder(folder, [large_batch(15)] * 10)
    return folder


@pytest.fixture
def attacked(large_records: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of its own for each attack: memory that was freed stays with the process for a while."""
    with ServerProcess(Path(copytree(large_records, tmp_path / "data"))) as server:
        yield server


def _ask(server: ServerProcess, path: str, body: dict[str, Any]) -> tuple[int, int]:
    """Status and size of an answer that is read and thrown away."""
    with httpx.stream("POST", server.url + path, json=body, timeout=PATIENCE_SECONDS) as answer:
        return answer.status_code, sum(map(len, answer.iter_raw()))


Ask = Callable[[int], tuple[str, dict[str, Any]]]
WAYS: dict[str, Ask] = {
    "consume": lambda _: ("/api/topics/consume", {"topic": "t", "limit": 10}),
    "CONSUME": lambda _: ("/api/sql", {"sql": "CONSUME FROM t LIMIT 10"}),
    "SELECT": lambda _: ("/api/sql", {"sql": "SELECT value FROM t LIMIT 1"}),
    "receive": lambda number: (f"/api/queues/g{number}/receive", {"pattern": "t", "max": 10}),
    "fetch": lambda _: ("/api/topics/fetch", {"topic": "t", "positions": [{"partition_id": 0, "offset": 0}]}),
}

FIRST = {"CONSUME": "SHOW TOPICS", "SELECT": "SELECT count(*) FROM t"}


@pytest.mark.parametrize("way", WAYS)
def test_many_readers_of_what_decodes_to_much_stay_within_the_bounds(attacked: ServerProcess, way: str) -> None:
    if way in FIRST:
        # What the first statement loads is not what is measured.
        _ask(attacked, "/api/sql", {"sql": FIRST[way]})
    with Watched(attacked) as watched, ThreadPoolExecutor(MANY_READERS) as threads:
        answers = list(threads.map(lambda number: _ask(attacked, *WAYS[way](number)), range(MANY_READERS)))
    statuses = [status for status, _ in answers]
    assert 200 in statuses
    # Who gets no room in time is told to come again.
    assert set(statuses) <= {200, 503}
    # One record, and no second one.
    assert max(size for _, size in answers) < 25 * MIB
    assert watched.growth_mib < GROWTH_MIB
    assert watched.slowest_seconds < HEALTH_SECONDS
    _all_is_given_back(attacked)


@pytest.mark.parametrize("is_websocket", [False, True], ids=["sse", "websocket"])
def test_subscribers_that_take_nothing_hold_no_more_than_there_is_for_all(attacked: ServerProcess, is_websocket: bool) -> None:
    with Watched(attacked) as watched, ExitStack() as opened:
        for _ in range(READERS):
            opened.enter_context(_deaf_subscriber(attacked, is_websocket))
        # Others are served meanwhile: who takes nothing is cut off when its room is wanted.
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (status := _ask(attacked, "/api/topics/consume", {"topic": "t", "limit": 1})[0]) != 200:
            assert status == 503
            assert time.monotonic() < deadline
    assert watched.growth_mib < GROWTH_MIB
    assert watched.slowest_seconds < HEALTH_SECONDS
    _all_is_given_back(attacked)


def test_answers_that_nobody_takes_are_dropped_and_their_room_is_given_back(attacked: ServerProcess) -> None:
    body = b'{"topic":"t","limit":10}'
    head = b"POST /api/topics/consume HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    with Watched(attacked) as watched, ExitStack() as opened:
        for _ in range(READERS):
            opened.enter_context(_deaf_client(attacked.url, head + _host(attacked) + b"\r\n" + body))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _ask(attacked, "/api/topics/consume", {"topic": "t", "limit": 1})[0] != 200:
            assert time.monotonic() < deadline
    assert watched.growth_mib < GROWTH_MIB
    _all_is_given_back(attacked)


@pytest.mark.parametrize("lie", ["beside the log", pytest.param("in the log", marks=pytest.mark.long)])
def test_kafka_consumers_that_take_nothing_hold_no_more_than_there_is_for_all(tmp_path: Path, lie: str) -> None:
    """Each fetch that reads from disk, or puts large values into its batches, has a copy of its own."""
    values = [str(number % 10) * 900_000 for number in range(24)]
    with ServerProcess(tmp_path / "data") as server:
        create(server.url, "t")
        if lie == "beside the log":
            for value in values:
                assert publish(server.url, "t", value)
        else:
            producer = Producer({"bootstrap.servers": server.kafka, "message.max.bytes": 2_000_000})
            for value in values:
                producer.produce("t", value)
            assert producer.flush(PATIENCE_SECONDS) == 0
        server.terminate()
    with ServerProcess(tmp_path / "data") as server:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=50 * MIB,
            topics=(FetchTopic(topic="t", partitions=(wanted,)),),
        )
        with Watched(server) as watched, ExitStack() as opened:
            for _ in range(MANY_READERS):
                opened.enter_context(_deaf_client("http://" + server.kafka, sized(frame(FETCH_API, 4, request))))
            eventually(lambda: metric(server.url, "tailrace_answers_waiting") > 0, "a fetch that waits for room")
            # One that reads gets everything all the same: those that take nothing are cut off when their room is wanted.
            consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "g", "auto.offset.reset": "earliest"})
            consumer.subscribe(["t"])
            got: list[str] = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(got) < len(values):
                assert time.monotonic() < deadline, f"{len(got)} of {len(values)} records came"
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    got.append((message.value() or b"").decode().strip('"'))
            consumer.close()
        assert got == values
        assert watched.growth_mib < GROWTH_MIB
        assert watched.slowest_seconds < HEALTH_SECONDS
        _all_is_given_back(server)


def _all_is_given_back(server: ServerProcess) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while held := metric(server.url, "tailrace_answers_held_bytes"):
        assert time.monotonic() < deadline, f"{held} bytes are still held"
        time.sleep(0.05)


def _host(server: ServerProcess) -> bytes:
    return b"host: " + server.url.removeprefix("http://").encode() + b"\r\n"


def _deaf_subscriber(server: ServerProcess, is_websocket: bool) -> Any:
    upgrade = (
        b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    head = b"GET /api/subscribe?pattern=t&cursor=beginning HTTP/1.1\r\n" + _host(server)
    return _deaf_client(server.url, head + (upgrade if is_websocket else b"") + b"\r\n")


@contextmanager
def _deaf_client(url: str, request: bytes) -> Iterator[socket.socket]:
    """Sends a request and never reads the answer."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((host, int(port)))
        client.sendall(request)
        yield client
