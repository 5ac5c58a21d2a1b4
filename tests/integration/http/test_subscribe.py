"""Subscribers of a running server: what they get, how they resume, and how slow ones are disconnected."""

import json
import socket as sockets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.integration.http.streams import SECONDS, SocketStream, sse, subscribed
from tests.integration.topics import create, metric, publish
from tests.support.eventually import eventually
from tests.support.server import ServerProcess

BOTH = pytest.mark.parametrize("protocol", ["sse", "websocket"])
_NUMBERS = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("server")
    config = folder / "tailrace.toml"
    config.write_text("[limits]\nsubscriber_silence_seconds = 1\nsubscriber_stall_seconds = 1\n")
    with ServerProcess(folder / "data", "--config", str(config)) as running:
        yield running


@pytest.fixture
def url(server: ServerProcess) -> str:
    return server.url


@pytest.fixture
def root() -> str:
    """Return a prefix of topic names that no other test uses."""
    return f"root{next(_NUMBERS)}"


def await_subscribers(url: str, count: int) -> None:
    eventually(lambda: metric(url, "tailrace_subscribers") == count, f"{count} subscribers", SECONDS)


def values(events: list[dict[str, Any]]) -> list[Any]:
    return [event["value"] for event in events]


@BOTH
def test_a_pattern_is_read_from_the_beginning_and_goes_on_with_what_comes(protocol: str, url: str, root: str) -> None:
    for name in ("us", "eu", "us.late"):
        create(url, f"{root}.{name}", partitions=2)
    for number in range(6):
        publish(url, f"{root}.{('us', 'eu', 'us.late')[number % 3]}", number)
    with subscribed(protocol, url, f"{root}.*", cursor="beginning") as stream:
        events = stream.take(4)
        create(url, f"{root}.new")
        publish(url, f"{root}.new", "new")
        publish(url, f"{root}.us", "last")
        events += stream.take(2)
    assert values(events) == [0, 1, 3, 4, "new", "last"]
    cursors = [event["cursor"] for event in events]
    assert cursors == sorted(cursors)
    assert [event["topic_name"].removeprefix(root) for event in events] == [".us", ".eu", ".us", ".eu", ".new", ".us"]


@BOTH
def test_a_subscription_resumes_after_the_last_cursor_that_was_seen(protocol: str, url: str, root: str) -> None:
    create(url, root)
    publish(url, root, *range(10))
    with subscribed(protocol, url, f"{root}.>", cursor="beginning") as stream:
        last = stream.take(4)[-1]["cursor"]
    with subscribed(protocol, url, f"{root}.>", after=last) as stream:
        assert values(stream.take(6)) == list(range(4, 10))
    with subscribed(protocol, url, f"{root}.>", after=last - 1) as stream:
        assert values(stream.take(7)) == list(range(3, 10))


@BOTH
def test_after_minus_one_is_the_beginning(protocol: str, url: str, root: str) -> None:
    create(url, root)
    publish(url, root, *range(3))
    with subscribed(protocol, url, root, after=-1) as stream:
        assert values(stream.take(3)) == [0, 1, 2]


def test_a_number_as_cursor_is_rejected_with_what_to_say_instead(url: str) -> None:
    refused = httpx.get(f"{url}/api/subscribe?pattern=a&cursor=4711", timeout=SECONDS)
    assert refused.status_code == 400
    assert (
        "use after=4711 to start with the next event, or after=4710 to start with the event at this cursor"
        in refused.json()["detail"]
    )


def test_the_id_of_the_last_event_resumes_and_wins_over_the_start(url: str, root: str) -> None:
    create(url, root)
    publish(url, root, *range(5))
    with sse(url, root, cursor="beginning") as stream:
        stream.take(2)
        seen = stream.last_id
    assert seen is not None
    with sse(url, root, headers={"Last-Event-ID": seen}, cursor="beginning") as stream:
        assert values(stream.take(3)) == [2, 3, 4]


@BOTH
def test_a_subscriber_without_a_start_gets_only_what_is_new(protocol: str, url: str, root: str) -> None:
    create(url, root)
    publish(url, root, "old")
    with subscribed(protocol, url, root) as stream:
        publish(url, root, "new")
        assert values(stream.take(1)) == ["new"]


def test_values_with_line_breaks_arrive_whole(url: str, root: str) -> None:
    create(url, root)
    body = b'{"messages": [{"topic": "%s", "value": {\r\n"a":\r1,\n\n"b": "x\\ny"}}]}' % root.encode()
    httpx.post(
        f"{url}/api/topics/publish", content=body, headers={"content-type": "application/json"}, timeout=SECONDS
    ).raise_for_status()
    with sse(url, root, cursor="beginning") as stream:
        assert stream.next()["value"] == {"a": 1, "b": "x\ny"}


def test_keepalives_move_the_cursor_to_resume_from(url: str, root: str) -> None:
    create(url, root)
    create(url, f"{root}other")
    with httpx.stream("GET", f"{url}/api/subscribe", params={"pattern": root}, timeout=SECONDS) as response:
        publish(url, f"{root}other", 1, 2, 3)
        end = httpx.get(f"{url}/health", timeout=SECONDS).json()["end_cursor"]
        lines = response.iter_lines()
        assert next(line for line in lines if line == f"id: {end - 1}")


def test_a_quiet_websocket_gets_keepalives(url: str, root: str) -> None:
    create(url, root)
    publish(url, root, 1)
    end = httpx.get(f"{url}/health", timeout=SECONDS).json()["end_cursor"]
    with subscribed("websocket", url, root) as stream:
        assert isinstance(stream, SocketStream)
        assert json.loads(stream.socket.recv(timeout=SECONDS)) == {"type": "alive", "cursor": end - 1}


def test_a_thousand_records_of_a_batch_come_once_each_to_all(url: str, root: str) -> None:
    create(url, root)
    with sse(url, root) as one, sse(url, f"{root}.>") as other, subscribed("websocket", url, root) as third:
        publish(url, root, *range(1000))
        for stream in (one, other, third):
            assert values(stream.take(1000)) == list(range(1000))


@contextmanager
def until_cut(url: str, root: str) -> Iterator[None]:
    """Fill all buffers on the way, and enter the block when a subscriber is disconnected. It has five seconds to read why."""
    cut = metric(url, "tailrace_subscribers_cut_total")
    stop = threading.Event()

    def fill() -> None:
        while not stop.is_set():
            publish(url, root, *("x" * 100_000 for _ in range(20)))

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        eventually(lambda: metric(url, "tailrace_subscribers_cut_total") == cut + 1, "the slow one is cut off", SECONDS)
        stop.set()
        yield
    finally:
        stop.set()
        filling.join()


def test_a_subscriber_that_reads_nothing_gets_the_reason_and_is_disconnected(url: str, root: str) -> None:
    create(url, root)
    host, _, port = url.removeprefix("http://").rpartition(":")
    with sockets.create_connection((host, int(port)), SECONDS) as slow:
        slow.sendall(f"GET /api/subscribe?pattern={root}&cursor=beginning HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        received = bytearray()
        with until_cut(url, root):
            while part := slow.recv(1 << 20):
                received += part
    assert b"event: error" in received[-2_000:]
    assert b"slow-subscriber" in received[-2_000:]


def test_a_websocket_that_reads_nothing_gets_the_reason_and_is_disconnected(tmp_path: Path, root: str) -> None:
    config = tmp_path / "tailrace.toml"
    # No pings: unanswered pings would close the connection too.
    config.write_text("[limits]\nsubscriber_silence_seconds = 600\nsubscriber_stall_seconds = 1\n")
    with ServerProcess(tmp_path / "data", "--config", str(config)) as server:
        url = server.url
        create(url, root)
        with (
            connect(f"{url.replace('http', 'ws', 1)}/api/subscribe?pattern={root}", max_queue=1) as slow,
            until_cut(url, root),
            pytest.raises(ConnectionClosedError) as closed,
        ):
            # What the client sends meanwhile, such as an answer to a ping, does no harm.
            slow.pong()
            while True:
                slow.recv(timeout=SECONDS)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013
    assert "read nothing for 1 s" in closed.value.rcvd.reason


def test_a_subscriber_that_disconnects_is_forgotten(url: str, root: str) -> None:
    create(url, root)
    await_subscribers(url, 0)
    with sse(url, root), subscribed("websocket", url, root):
        assert metric(url, "tailrace_subscribers") == 2
    await_subscribers(url, 0)


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("pattern=a..b", 400, "invalid-pattern"),
        ("pattern=>.a", 400, "invalid-pattern"),
        ("pattern=a&cursor=soon", 400, "invalid-request"),
        ("pattern=a&cursor=-1", 400, "invalid-request"),
        (f"pattern=a&cursor={'9' * 5_000}", 400, "invalid-request"),
        (f"pattern=a&after={'9' * 5_000}", 400, "invalid-request"),
        ("pattern=a&cursor=999999999", 400, "invalid-request"),
        ("pattern=a&cursor=0", 400, "invalid-request"),
        ("pattern=a&cursor=beginning&after=0", 400, "invalid-request"),
        ("pattern=a&after=-2", 400, "invalid-request"),
        ("pattern=a&after=999999999", 416, "cursor-out-of-range"),
    ],
)
def test_an_invalid_subscription_is_rejected_before_it_starts(url: str, query: str, status: int, kind: str) -> None:
    answer = httpx.get(f"{url}/api/subscribe?{query}", timeout=SECONDS)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:tailrace:error:{kind}")
    with pytest.raises(InvalidStatus) as refused, connect(f"{url.replace('http', 'ws', 1)}/api/subscribe?{query}"):
        pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["type"] == f"urn:tailrace:error:{kind}"


def test_pages_of_other_sites_get_no_websocket(url: str) -> None:
    address = f"{url.replace('http', 'ws', 1)}/api/subscribe?pattern=a"
    with pytest.raises(InvalidStatus) as refused, connect(address, origin=Origin("https://elsewhere.example")):
        pass
    assert refused.value.response.status_code == 403
    with connect(address, origin=Origin(url)):
        pass


def test_a_server_on_the_loopback_does_not_answer_to_other_names(url: str) -> None:
    answer = httpx.get(f"{url}/api/topics", headers={"host": "rebound.example:8080"}, timeout=SECONDS)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert "rebound.example" in answer.json()["detail"]


def test_a_stop_tells_subscribers_and_does_not_wait_for_them(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        create(server.url, "a")
        ends: list[Any] = []

        def listen() -> None:
            with sse(server.url, "a") as stream:
                ends.append(stream.next_of_any_kind())

        listening = threading.Thread(target=listen)
        listening.start()
        with subscribed("websocket", server.url, "a") as stream:
            await_subscribers(server.url, 2)
            assert server.terminate() == 0
            with pytest.raises(ConnectionClosedError):
                stream.take(1)
        listening.join()
    ((kind, problem),) = ends
    assert (kind, problem["retriable"]) == ("error", True)
