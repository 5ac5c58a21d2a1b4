"""Connections of a client: kept as long as they are of use, bounded in time, and led through a proxy where there is one."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.client import TailraceError, TimeoutError
from tailrace.client._sync.connection import Connection
from tailrace.client.config import RetryConfig
from tests.support.proxy import FaultyProxy

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[int]]]:
    """A server that gives these answers, and the number of the connection that each request came by."""
    came_by: list[int] = []
    left = list(answers)

    def serve(connection: socket.socket, number: int) -> None:
        with connection:
            while left and connection.recv(65536):
                came_by.append(number)
                answer = left.pop(0)
                connection.sendall(answer)
                if b"connection: close" in answer:
                    return

    def accept(listener: socket.socket) -> None:
        for number in range(len(answers)):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection, number), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", came_by
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (OK, [0, 0]),
        (OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), [0, 1]),
        (OK + OK, [0, 1]),
    ],
    ids=["kept", "closed by the server", "one answer too many"],
)
def test_a_connection_is_kept_as_long_as_it_is_of_use(first: bytes, expected: list[int]) -> None:
    with answering(first, OK) as (url, came_by):
        connection = Connection(url, RetryConfig())
        assert [connection.send_once("GET", "/health", None) for _ in range(2)] == [b"{}", b"{}"]
        connection.close()
    assert came_by == expected


def test_the_answer_of_a_server_that_closes_before_it_has_read_all_is_heard() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 9\r\n\r\ntoo large"
    with answering(refusal) as (url, _):
        connection = Connection(url, RetryConfig())
        with pytest.raises(TailraceError, match="HTTP 413: too large"):
            connection.send_once("POST", "/api/topics/publish", bytes(20_000_000))
        connection.close()


def test_a_request_takes_no_longer_than_it_may(proxy: FaultyProxy) -> None:
    proxy.is_silent = True
    connection = Connection(proxy.url, RetryConfig())
    with pytest.raises(TimeoutError, match="did not answer in time"):
        connection.send_once("GET", "/health", None, most_seconds=0.1)
    connection.close()


def test_a_proxy_of_the_environment_is_asked_for_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(OK) as (proxy_url, came_by):
        monkeypatch.setenv("http_proxy", proxy_url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        connection = Connection("http://server.example:8080", RetryConfig())
        assert connection.send_once("GET", "/health", None) == b"{}"
        connection.close()
    assert came_by == [0]
