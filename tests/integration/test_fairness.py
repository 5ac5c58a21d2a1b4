"""Nobody who does something large holds up those who do something small: real clients beside a real server under load.

The bounds here leave room for a busy machine; `make bench` is where figures are measured.
"""

import selectors
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from confluent_kafka import Producer

from tests.integration.topics import create
from tests.support.latency import Latencies, cpu_clock, measured, producing, publishing
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

SMALL_SECONDS = 1.0
"""What a small request may take at most, beside whatever load, on a machine that runs other tests too."""
WORK_SECONDS = 0.5
"""What the server may work for others, in CPU time, before it has answered a small request."""
STARTED_SECONDS = 5.0
"""What a small query may take that has to wait for a process to start."""


def test_publishers_do_not_wait_for_subscribers_far_behind(tmp_path: Path) -> None:
    # While a sync waits for the disk the subscribers go on, and their work would count.
    with ServerProcess(tmp_path / "data", "--durability", "relaxed") as server:
        create(server.url, "far.behind")
        create(server.url, "small")
        producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 0, "batch.num.messages": 1})
        for number in range(10_000):
            producer.produce("far.behind", b"%d" % number)
        assert producer.flush(PATIENCE_SECONDS) == 0
        with (
            producing(server, "small") as produce,
            publishing(server, "small") as publish,
            following(server, "far.*", subscribers=100),
        ):
            assert_small(measured({"produce": produce, "publish": publish}, 100, cpu_clock(server)), WORK_SECONDS)


def test_publishers_do_not_wait_for_long_statements(server: ServerProcess, client: httpx.Client) -> None:
    numbered_tables(client)
    create(server.url, "published")
    is_over = threading.Event()

    def ask(number: int) -> set[int]:
        text = "SELECT n FROM heavy WHERE " + " OR ".join(["id = 1"] * 11_000) + f" OR id = {number}"
        found = set()
        while not is_over.is_set():
            found.add(sql(client, text).status_code)
        return found

    with (
        producing(server, "published") as produce,
        publishing(server, "published") as publish,
        ThreadPoolExecutor(4) as threads,
    ):
        asking = [threads.submit(ask, number) for number in range(4)]
        try:
            assert_small(measured({"produce": produce, "publish": publish}, 100))
        finally:
            is_over.set()
        assert all(each.result() == {400} for each in asking), "SQLite takes no expression that is so deep"
    listed = "SELECT count(*) FROM heavy WHERE id IN (" + ", ".join(map(str, range(4_000))) + ")"
    assert rows(client, listed) == [[4_000]]


def test_a_small_write_does_not_wait_for_a_heavy_one(server: ServerProcess, client: httpx.Client) -> None:
    numbered_tables(client)
    heavy = "UPDATE heavy SET n = (SELECT count(*) FROM heavy a, heavy b, heavy c, heavy d)"
    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(sql, client, heavy) for _ in range(4)]
        ids = iter(range(1_000))
        assert_small(measured({"insert": lambda: done(client, "INSERT INTO small VALUES (?, 0)", [next(ids)])}, 20))
        while not all(each.done() for each in running):
            # The heavy ones make room only while others write.
            done(client, "INSERT INTO small VALUES (?, 0)", [next(ids)])
    for each in running:
        assert each.result().status_code == 422
        assert "write_turn_ms" in each.result().json()["detail"]
    assert rows(client, "SELECT count(*) FROM heavy WHERE n = id") == [[ROWS]], "nothing of the heavy ones was written"
    assert rows(client, "SELECT count(*) FROM small") == [[next(ids)]]


def test_large_updates_succeed_beside_each_other(tmp_path: Path) -> None:
    config = tmp_path / "tailrace.toml"
    config.write_text("[limits]\nwrite_turn_ms = 20\n")
    with (
        ServerProcess(tmp_path / "data", "--config", str(config)) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client,
    ):
        numbered_tables(client)
        with ThreadPoolExecutor(3) as threads:
            for each in [threads.submit(sql, client, "UPDATE heavy SET n = n + 1") for _ in range(3)]:
                assert each.result().json()["affected"] == ROWS
        assert rows(client, "SELECT count(*) FROM heavy WHERE n = id + 3") == [[ROWS]]


def test_a_small_query_does_not_wait_for_heavy_ones(server: ServerProcess, client: httpx.Client) -> None:
    numbered_tables(client)
    heavy = "SELECT count(*) FROM heavy a, heavy b, heavy c, heavy d WHERE a.n + b.n + c.n + d.n < ?"
    with ThreadPoolExecutor(16) as threads:
        running = [threads.submit(sql, client, heavy, [number]) for number in range(16)]
        assert_small(measured({"select": lambda: done(client, "SELECT n FROM heavy WHERE id = 7")}, 20))
        assert not any(each.done() for each in running)
        server.kill()
        for each in running:
            assert isinstance(each.exception(), httpx.HTTPError)


def test_a_small_query_of_a_topic_does_not_wait_for_heavy_ones(server: ServerProcess, client: httpx.Client) -> None:
    create(server.url, "n")
    messages = [{"topic": "n", "value": number} for number in range(3_000)]
    client.post("/api/topics/publish", json={"messages": messages}).raise_for_status()
    heavy = "SELECT count(*) FROM n a, n b, n c, n d WHERE a.cursor + b.cursor + c.cursor + d.cursor < ?"
    # What the first one loads is not what is measured.
    assert rows(client, "SELECT count(*) FROM n") == [[3_000]]
    with ThreadPoolExecutor(16) as threads:
        running = [threads.submit(sql, client, heavy, [number]) for number in range(16)]
        # The first may have to wait for a process that starts beside the heavy ones; those after it find it running.
        first = measured({"select": lambda: done(client, "SELECT count(*) FROM n")}, 1)["select"]
        assert first.at(1) < STARTED_SECONDS, str(first)
        assert_small(measured({"select": lambda: done(client, "SELECT count(*) FROM n")}, 20))
        assert not any(each.done() for each in running)
        server.kill()
        for each in running:
            assert isinstance(each.exception(), httpx.HTTPError)


ROWS = 5_000


def numbered_tables(client: httpx.Client) -> None:
    done(client, "CREATE TABLE heavy (id bigint PRIMARY KEY, n bigint)")
    done(client, "CREATE TABLE small (id bigint PRIMARY KEY, n bigint)")
    done(client, "INSERT INTO heavy VALUES (?, ?)", [[number, number] for number in range(ROWS)])


def sql(client: httpx.Client, text: str, params: Sequence[object] = ()) -> httpx.Response:
    return client.post("/api/sql", json={"sql": text, "params": params})


def done(client: httpx.Client, text: str, params: Sequence[object] = ()) -> Any:
    answer = sql(client, text, params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def rows(client: httpx.Client, text: str) -> list[list[Any]]:
    return list(done(client, text)["rows"])


def assert_small(latencies: Mapping[str, Latencies], most_seconds: float = SMALL_SECONDS) -> None:
    for name, found in latencies.items():
        assert found.at(0.99) < most_seconds, f"{name}: {found}"


@contextmanager
def following(server: ServerProcess, pattern: str, subscribers: int) -> Iterator[None]:
    """Subscribers from the beginning of the log, which take all that they are sent until the block ends."""
    address = urlsplit(server.url)
    head = f"GET /api/subscribe?pattern={pattern}&cursor=beginning HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n"
    is_over = threading.Event()

    def take(selector: selectors.BaseSelector) -> None:
        while not is_over.is_set():
            for key, _ in selector.select(0.1):
                key.fileobj.recv(65536)  # type: ignore[union-attr]

    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(subscribers):
            each = stack.enter_context(socket.create_connection((address.hostname, address.port)))
            each.sendall(head.encode())
            selector.register(each, selectors.EVENT_READ)
        thread = threading.Thread(target=take, args=(selector,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(PATIENCE_SECONDS)
