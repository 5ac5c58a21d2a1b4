"""A SELECT of one row by its key is answered alike on the fast path of a connection and on the general one."""

import re
import socket
from collections.abc import Iterator

import pytest

from tests.support.server import ServerProcess

pytestmark = pytest.mark.timeout(120)

SELECT = b'{"sql": "SELECT v FROM t WHERE id = ?", "params": [%d]}'
GENERAL = b"x-general: 1\r\n"
"""A header that the fast path does not know, so that the request takes the general one."""


class RawConnection:
    def __init__(self, server: ServerProcess) -> None:
        host, _, port = server.url.removeprefix("http://").partition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._host = f"{host}:{port}".encode()
        self._data = b""

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def request(self, body: bytes, headers: bytes = b"", *, length: int | None = None) -> bytes:
        return b"POST /api/sql HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
            self._host,
            headers,
            len(body) if length is None else length,
            body,
        )

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def response(self) -> bytes:
        """Return the next response, without its date."""
        while True:
            head, end, rest = self._data.partition(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head)
            if end and found is not None and len(rest) >= int(found[1]):
                self._data = rest[int(found[1]) :]
                return re.sub(rb"date: [^\r]*\r\n", b"", head) + end + rest[: int(found[1])]
            part = self._socket.recv(1 << 16)
            assert part, "the connection was closed"
            self._data += part

    def ask(self, body: bytes, headers: bytes = b"") -> bytes:
        self.send(self.request(body, headers))
        return self.response()


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[RawConnection]:
    with RawConnection(server) as connection:
        connection.ask(b'{"sql": "CREATE TABLE t (id bigint PRIMARY KEY, v text)"}')
        connection.ask(b'{"sql": "INSERT INTO t VALUES (1, \'one\'), (2, NULL)"}')
        connection.ask(SELECT % 1)
        yield connection


@pytest.mark.parametrize("headers", [b"", b"tailrace-request: 17\r\n", b"accept: */*\r\nuser-agent: x y\r\n"])
@pytest.mark.parametrize("id", [1, 2, 3])
def test_both_ways_answer_alike(connection: RawConnection, headers: bytes, id: int) -> None:
    fast = connection.ask(SELECT % id, headers)
    assert fast == connection.ask(SELECT % id, headers + GENERAL)
    assert fast.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (b"tailrace-request: 17\r\n" in fast) == (b"tailrace-request" in headers)


def test_requests_that_come_in_pieces_or_together_are_answered_in_order(connection: RawConnection) -> None:
    whole = connection.request(SELECT % 1, b"tailrace-request: 1\r\n")
    others = connection.request(SELECT % 2, b"tailrace-request: 2\r\n") + connection.request(
        b'{"sql": "SELECT count(*) FROM t"}', b"tailrace-request: 3\r\n"
    )
    for at in (5, 30, len(whole) - 10):
        connection.send(whole[:at])
        connection.send(whole[at:] + others + whole)
        named = [re.search(rb"tailrace-request: (\d)", connection.response()) for _ in range(4)]
        assert [found and found[1] for found in named] == [b"1", b"2", b"3", b"1"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"accept: text/csv\r\n", 200),
        (b"host: elsewhere.example\r\n", 400),
        (b"content-type: text/plain\r\n", 200),
        (b"tailrace-request: a\nb\r\n", 400),
        (b"transfer-encoding: identity\r\n", 400),
    ],
)
def test_other_requests_take_the_general_way(
    server: ServerProcess, connection: RawConnection, headers: bytes, status: int
) -> None:
    connection.send(connection.request(SELECT % 1, headers))
    head = connection._socket.recv(1 << 16)
    assert head.startswith(b"HTTP/1.1 %d " % status), head


def test_errors_are_those_of_the_general_way(connection: RawConnection) -> None:
    for body in (
        b'{"sql": "SELECT v FROM t WHERE id = ?", "params": []}',
        b'{"sql": 1}',
        b"{",
        b'{"sql": "SELECT v FROM nowhere"}',
    ):
        fast = connection.ask(body)
        assert fast == connection.ask(body, GENERAL)
        assert not fast.startswith(b"HTTP/1.1 200")
