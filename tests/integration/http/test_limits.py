"""HTTP clients that send endlessly or too much, or disconnect, do no harm."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.topics import create, metric
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

SECONDS = PATIENCE_SECONDS


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("server")
    config = folder / "tailrace.toml"
    config.write_text("[limits]\nrequest_seconds = 1\nconnections = 8\n")
    with ServerProcess(folder / "data", "--config", str(config)) as server:
        create(server.url, "t")
        yield server.url


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def end_cursor(url: str) -> int:
    return int(httpx.get(f"{url}/health", timeout=SECONDS).json()["end_cursor"])


def answer_to(connection: socket.socket) -> bytes:
    received = b""
    while part := connection.recv(65_536):
        received += part
    return received


HEAD = b"POST /api/topics/consume HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@pytest.mark.parametrize(
    "sent", [b"", b"GET /health HTTP/1.1\r\nhost: loc", HEAD % 9 + b"{"], ids=["nothing", "half a head", "half a body"]
)
def test_a_request_must_come_in_time(url: str, sent: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(sent)
        answer = answer_to(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request_seconds (1)" in answer


def test_a_request_that_was_rejected_before_its_end_gets_one_answer(url: str) -> None:
    with connected(url) as connection:
        connection.sendall((HEAD % 9).replace(b"application/json", b"text/plain") + b"{")
        answer = answer_to(connection)
    assert answer.startswith(b"HTTP/1.1 415 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_head_has_a_bound(url: str) -> None:
    answer = httpx.get(f"{url}/health", headers={"x-large": "x" * 70_000}, timeout=SECONDS)
    assert (answer.status_code, answer.headers["content-type"]) == (431, "application/problem+json")
    assert "request_head_bytes" in answer.json()["detail"]


def test_an_endless_header_is_rejected(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nx-endless: ")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(1_000):
                connection.sendall(b"x" * 65_536)


def test_a_request_with_a_too_large_head_is_not_executed(url: str) -> None:
    body = b'{"messages": [{"topic": "t", "value": 1}]}'
    end = end_cursor(url)
    with connected(url) as connection:
        head = (HEAD % len(body)).replace(b"consume", b"publish").replace(b"host:", b"x-large: %b\r\nhost:" % (b"x" * 70_000))
        connection.sendall(head + body)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 431 ")
    assert end_cursor(url) == end


def test_invalid_http_is_answered_with_a_problem(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"what is this\r\n\r\n")
        answer = answer_to(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


def test_a_kafka_request_is_answered_with_where_to_go(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"\x00\x00\x00\x12\x00\x12\x00\x03\x00\x00\x00\x01\x00\x07rdkafka\x00")
        answer = answer_to(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"this is the HTTP listener; use the Kafka address" in answer


def test_the_number_of_connections_is_bounded(url: str) -> None:
    held = [connected(url) for _ in range(8)]
    try:
        with connected(url) as one_more:
            answer = answer_to(one_more)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"retriable":true' in answer
    finally:
        for connection in held:
            connection.close()
    eventually(lambda: httpx.get(f"{url}/health", timeout=SECONDS).status_code == 200, "there is room again", SECONDS)


def test_a_long_poll_ends_when_its_client_disconnects(url: str) -> None:
    body = b'{"topic": "t", "start": "latest", "timeout_ms": 30000}'
    with connected(url) as connection:
        connection.sendall(HEAD % len(body) + body)
        wait_for(url, "tailrace_fetch_waiters", 1)
    wait_for(url, "tailrace_fetch_waiters", 0)


def wait_for(url: str, sample: str, value: float) -> None:
    eventually(lambda: metric(url, sample) == value, f"{sample} is {value}", SECONDS)


PUBLISH = b'{"messages":[{"topic":"t","value":1}]}'
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(PUBLISH), PUBLISH)
SIZE = b"content-length: %d\r\n" % len(PUBLISH)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"host: localhost\r\nhost: localhost\r\n" + SIZE, PUBLISH),
        (b"host: localhost\r\nhost: evil.example\r\n" + SIZE, PUBLISH),
        (b"host: evil.example\r\nHost: localhost\r\n" + SIZE, PUBLISH),
        (b"host: evil.example@localhost\r\n" + SIZE, PUBLISH),
        (b"host: evil.example#@localhost\r\n" + SIZE, PUBLISH),
        (b"host: localhost/path\r\n" + SIZE, PUBLISH),
        (b"host: localhost, evil.example\r\n" + SIZE, PUBLISH),
        (b"host: localhost:80:80\r\n" + SIZE, PUBLISH),
        (b"host: local host\r\n" + SIZE, PUBLISH),
        (SIZE, PUBLISH),
        (b"host: localhost\r\n" + SIZE + SIZE, PUBLISH),
        (b"host: localhost\r\ncontent-length: 1\r\n" + SIZE, PUBLISH),
        (b"host: localhost\r\ncontent-length: 38, 38\r\n", PUBLISH),
        (b"host: localhost\r\ncontent-length: +38\r\n", PUBLISH),
        (b"host: localhost\r\ncontent-length: 0x26\r\n", PUBLISH),
        (b"host: localhost\r\n" + SIZE + b"transfer-encoding: chunked\r\n", CHUNKED),
        (b"host: localhost\r\ntransfer-encoding: chunked\r\n" + SIZE, CHUNKED),
        (b"host: localhost\r\ntransfer-encoding: chunked, identity\r\n", CHUNKED),
        (b"host: localhost\r\ntransfer-encoding: identity\r\n" + SIZE, PUBLISH),
        (b"host: localhost\r\ntransfer-encoding: xchunked\r\n", CHUNKED),
        (b"host: localhost\r\ntransfer-encoding : chunked\r\n", CHUNKED),
        (b"host: localhost\r\n" + SIZE + b" folded: header\r\n", PUBLISH),
    ],
)
def test_a_head_that_two_readers_could_read_differently_is_rejected(url: str, headers: bytes, body: bytes) -> None:
    before = end_cursor(url)
    head = b"POST /api/topics/publish HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    with connected(url) as connection:
        connection.sendall(head + headers + b"\r\n" + body)
        assert answer_to(connection).startswith(b"HTTP/1.1 400 ")
    assert end_cursor(url) == before


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:8080", b"127.0.0.1:1", b"[::1]:8080"])
@pytest.mark.parametrize("head", [b"GET /health HTTP/1.1", b"GET /api/topics HTTP/1.1"])
def test_the_names_of_the_loopback_are_answered(url: str, head: bytes, host: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(head + b"\r\nconnection: close\r\nhost: " + host + b"\r\n\r\n")
        assert answer_to(connection).startswith(b"HTTP/1.1 200 ")


def test_a_websocket_with_two_hosts_is_rejected(url: str) -> None:
    head = b"GET /api/subscribe?pattern=t HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nupgrade: websocket\r\n"
    with connected(url) as connection:
        connection.sendall(
            head + b"connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert b"400" in connection.recv(65_536).split(b"\r\n")[0]
