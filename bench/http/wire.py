"""A minimal HTTP client: CPU time that the client uses, the server lacks.

It understands what the server sends: bodies with a length, or chunks for streams. Requests are encoded beforehand.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from tailrace.model.address import Address

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_GOOD = b"HTTP/1.1 2"
_EVENT = b"\ndata: "


class BadAnswer(Exception):
    """The response is not the expected one."""


def request(address: Address, method: str, path: str, body: bytes = b"", accept: str = "application/json") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


class Connection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._wanted = 0
        self._body_at = 0
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._wanted:
            end = self._received.find(_HEAD_END)
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            self._body_at = end + len(_HEAD_END)
            self._wanted = self._body_at + _length(head)
        if len(self._received) >= self._wanted and self._answer is not None:
            answer, self._answer = self._answer, None
            received, self._received, self._wanted = self._received, bytearray(), 0
            if received.startswith(_GOOD):
                answer.set_result(bytes(received[self._body_at :]))
            else:
                answer.set_exception(BadAnswer(bytes(received[:1_000]).decode(errors="replace")))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BadAnswer("the server closed the connection"))

    async def ask(self, asked: bytes) -> bytes:
        """Return the body of the response."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(asked)
        return await self._answer

    def close(self) -> None:
        self._transport.abort()


async def connect(address: Address) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, *address)
    return connection


async def ask_all(address: Address, connections: int, requests: Iterable[bytes]) -> tuple[float, float, Sequence[bytes]]:
    """Send requests over all connections, one at a time on each. Returns when it began and ended, and the responses."""
    waiting = iter(list(requests))
    answers: list[bytes] = []
    opened = [await connect(address) for _ in range(connections)]

    async def work(connection: Connection) -> None:
        # Not a comprehension: each connection takes the next request when it is free.
        for asked in waiting:
            answers.append(await connection.ask(asked))  # noqa: PERF401

    began = time.monotonic()
    await asyncio.gather(*map(work, opened))
    ended = time.monotonic()
    for connection in opened:
        connection.close()
    return began, ended, answers


class Follower(asyncio.Protocol):
    """Reads a stream without end and keeps each event with its time of arrival, to be checked later."""

    def __init__(self, asked: bytes, on_event: Callable[[int], None]) -> None:
        self._asked = asked
        self._on_event = on_event
        self._transport: asyncio.Transport
        self._tail = b""
        self.pieces: list[tuple[float, bytes]] = []
        self.is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._transport.write(self._asked)

    def data_received(self, data: bytes) -> None:
        self.pieces.append((time.monotonic(), data))
        if not self.is_open.done() and b"still here" in data:
            self.is_open.set_result(None)
        # An event may arrive in two pieces.
        joined = self._tail + data
        self._on_event(joined.count(_EVENT))
        self._tail = joined[1 - len(_EVENT) :]

    def close(self) -> None:
        self._transport.abort()


def _length(head: bytes) -> int:
    at = head.find(_LENGTH)
    return int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
