"""Connections of a client: kept as long as they are of use, bounded in time, and led through a proxy where there is one."""

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest
import uvloop

from tailrace.client import ConnectionLostError, ServerUnreachableError, TailraceError, TimeoutError
from tailrace.client._async.connection import AsyncHttpConnection
from tailrace.client._sync.connection import HttpConnection
from tailrace.client._sync.transport import Transport
from tailrace.client.config import ConnectionConfig
from tailrace.client.http11 import HttpResponse
from tests.support.patience import PATIENCE_SECONDS
from tests.support.proxy import FaultyProxy

ADDRESS = "127.0.0.1"
REFUSAL = b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 9\r\n\r\ntoo large"
REFUSED = HttpResponse(413, b"too large", None, True)
LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def _received_request(connection: socket.socket) -> bool:
    """Read one whole request: whoever closes with bytes unread resets the connection. Return false at its end."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            return False
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0:
        part = connection.recv(missing)
        if not part:
            return False
        missing -= len(part)
    return True


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[int]]]:
    """A server that gives these answers, and the number of the connection that each request came by."""
    came_by: list[int] = []
    left = list(answers)

    def serve(connection: socket.socket, number: int) -> None:
        with connection:
            while left and _received_request(connection):
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
        connection = Transport(url, ConnectionConfig())
        assert [connection.send_once("GET", "/health", None) for _ in range(2)] == [b"{}", b"{}"]
        connection.close()
    assert came_by == expected


def test_the_answer_of_a_server_that_closes_before_it_has_read_all_is_heard() -> None:
    with answering(REFUSAL) as (url, _):
        connection = Transport(url, ConnectionConfig())
        with pytest.raises(TailraceError, match="HTTP 413: too large"):
            connection.send_once("POST", "/api/topics/publish", bytes(20_000_000))
        connection.close()


@contextmanager
def refusing(*, stays: bool) -> Iterator[tuple[int, Callable[[], None]]]:
    """A port, and the server that rejects connections to it: it answers before a request, then resets or does not read."""
    with socket.create_server((ADDRESS, 0)) as listener, ExitStack() as connections:

        def refuse() -> None:
            connection = connections.enter_context(listener.accept()[0])
            connection.sendall(REFUSAL)
            if not stays:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

        yield listener.getsockname()[1], refuse


@pytest.mark.parametrize("stays", [False, True], ids=["reset", "unread"])
@pytest.mark.parametrize("size", [100, 20_000_000])
def test_an_answer_that_was_there_before_the_request_is_heard(size: int, stays: bool) -> None:
    with refusing(stays=stays) as (port, refuse):
        line = HttpConnection.open(ADDRESS, port, PATIENCE_SECONDS)
        refuse()
        assert line.exchange(bytes(size), PATIENCE_SECONDS) == REFUSED
        assert not line.is_usable
        line.close()


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("stays", [False, True], ids=["reset", "unread"])
@pytest.mark.parametrize("size", [100, 20_000_000])
@pytest.mark.parametrize("turns", [0, 5], ids=["at once", "after some turns of the loop"])
def test_an_answer_that_was_there_before_the_request_is_heard_by_coroutines(
    loop: Callable[[], asyncio.AbstractEventLoop], stays: bool, size: int, turns: int
) -> None:
    async def ask(port: int, refuse: Callable[[], None]) -> None:
        line = await AsyncHttpConnection.open(ADDRESS, port, PATIENCE_SECONDS)
        refuse()
        for _ in range(turns):
            await asyncio.sleep(0)
        try:
            assert await line.exchange(bytes(size), PATIENCE_SECONDS) == REFUSED
            assert not line.is_usable
        finally:
            line.close()

    with refusing(stays=stays) as (port, refuse), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask(port, refuse))


@pytest.mark.parametrize("status", [b"502 Bad Gateway", b"503 Full", b"504 Gateway Timeout"])
def test_who_stands_before_a_server_or_can_take_no_more_is_quoted_though_it_names_no_request(status: bytes) -> None:
    named = OK.replace(b"\r\n\r\n", b"\r\ntailrace-request: 1\r\nconnection: close\r\n\r\n")
    busy = b"HTTP/1.1 %b\r\ncontent-length: 4\r\n\r\nbusy" % status
    with answering(named, busy) as (url, came_by):
        connection = Transport(url, ConnectionConfig())
        assert connection.send_once("GET", "/health", None) == b"{}"
        with pytest.raises(TailraceError, match=f"HTTP {status[:3].decode()}: busy") as caught:
            connection.send_once("GET", "/health", None)
        assert (caught.value.retriable, caught.value.outcome) == (True, "unknown")
        connection.close()
    assert came_by == [0, 1]


def test_a_request_takes_no_longer_than_it_may(proxy: FaultyProxy) -> None:
    proxy.is_silent = True
    connection = Transport(proxy.url, ConnectionConfig())
    with pytest.raises(TimeoutError, match="did not answer in time"):
        connection.send_once("GET", "/health", None, max_seconds=0.1)
    connection.close()


def test_a_proxy_of_the_environment_is_asked_for_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(OK) as (proxy_url, came_by):
        monkeypatch.setenv("http_proxy", proxy_url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        connection = Transport("http://server.example:8080", ConnectionConfig())
        assert connection.send_once("GET", "/health", None) == b"{}"
        connection.close()
    assert came_by == [0]


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\none\r\n3\r\ntwo\r\n"


def test_a_streamed_response_comes_in_chunks_and_ends_when_it_is_complete() -> None:
    with answering(CHUNKED + b"0\r\n\r\n") as (url, _):
        transport = Transport(url)
        with transport.stream("GET", "/api/subscribe", idle_seconds=PATIENCE_SECONDS) as chunks:
            assert b"".join(chunks) == b"onetwo"
        transport.close()


def test_a_streamed_response_that_is_cut_off_raises_after_what_was_received() -> None:
    received: list[bytes] = []
    with answering(CHUNKED) as (url, _):
        transport = Transport(url)
        with (
            transport.stream("GET", "/api/subscribe", idle_seconds=PATIENCE_SECONDS) as chunks,
            pytest.raises(ConnectionLostError),
        ):
            received.extend(chunks)
        transport.close()
    assert b"".join(received) == b"onetwo"


def test_a_rejected_stream_raises_the_error_of_the_server() -> None:
    with answering(REFUSAL) as (url, _):
        transport = Transport(url)
        with (
            pytest.raises(TailraceError, match="HTTP 413: too large"),
            transport.stream("POST", "/api/sql", b"{}", idle_seconds=PATIENCE_SECONDS),
        ):
            pass
        transport.close()


def test_a_stream_of_a_server_that_is_not_there_says_so() -> None:
    transport = Transport("http://127.0.0.1:9")
    with (
        pytest.raises(ServerUnreachableError),
        transport.stream("GET", "/api/subscribe", idle_seconds=PATIENCE_SECONDS),
    ):
        pass
    transport.close()


def outcome_of(url: str) -> object:
    transport = Transport(url, ConnectionConfig(request_timeout=timedelta(seconds=2)))
    try:
        return transport.send_once("POST", "/api/topics/consume", b"{}")
    except TailraceError as error:
        return type(error), error.outcome, error.retriable
    finally:
        transport.close()


@pytest.mark.parametrize(
    "response",
    [
        OK,
        OK.replace(b"200 OK", b"201 Created"),
        CHUNKED + b"0\r\n\r\n",
        CHUNKED,
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nwithout a length",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\nhalf",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone",
        b"SSH-2.0-OpenSSH_9.6\r\nconnection: close\r\n",
        REFUSAL,
        b"",
    ],
)
def test_the_fast_pool_gives_what_httpx_gives(response: bytes) -> None:
    """An address with a password goes through httpx, one without takes plain sockets."""
    with answering(response) as (url, _):
        fast = outcome_of(url)
    with answering(response) as (url, _):
        general = outcome_of(url.replace("http://", "http://me:secret@"))
    assert fast == general
