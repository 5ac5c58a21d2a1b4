"""A connection to the server for threads, one request at a time. Written by hand, as its twin `_async/line.py`."""

import contextlib
import socket
import ssl
import time
from types import TracebackType
from typing import Self

from websockets.sync.client import ClientConnection, connect

from tailrace.client.http11 import (
    CLOSE_SECONDS,
    MAX_WEBSOCKET_MESSAGE_BYTES,
    READ_BYTES,
    HttpResponse,
    NotConnectedError,
    ResponseReader,
    is_readable,
    wait_readable_or_writable,
)


class HttpConnection:
    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._reader = ResponseReader()
        self._data = memoryview(bytearray(READ_BYTES))
        self._is_usable = True
        self.idle_since = time.monotonic()

    @classmethod
    def open(cls, host: str, port: int, seconds: float) -> Self:
        """`NotConnectedError` if there is no connection within this time."""
        try:
            return cls(socket.create_connection((host, port), seconds))
        except TimeoutError as error:
            raise NotConnectedError(f"no connection within {seconds} s") from error
        except (OSError, UnicodeError) as error:
            raise NotConnectedError(str(error)) from error

    def exchange(self, request: bytes, seconds: float) -> HttpResponse:
        """The whole answer, within this time. After anything else than that the line can't be used again."""
        deadline = time.monotonic() + seconds
        self._is_usable = False
        self._socket.settimeout(seconds)
        rest = self._send(memoryview(request))
        answer: HttpResponse | None = None
        while answer is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"there was no answer within {seconds} s")
            self._socket.settimeout(left)
            if rest and not wait_readable_or_writable(self._socket.fileno(), left):
                rest = self._send(rest)
            else:
                size = self._socket.recv_into(self._data)
                answer = self._reader.feed(self._data[:size]) if size else self._reader.feed_end()
        self._is_usable = not (rest or answer.is_last or self._reader.has_surplus)
        self.idle_since = time.monotonic()
        return answer

    @property
    def is_usable(self) -> bool:
        """Whether it can carry the next request: the last was answered, and nothing has come since, nor an end."""
        return self._is_usable and not is_readable(self._socket.fileno())

    def close(self) -> None:
        self._is_usable = False
        # Whoever waits for an answer learns at once that none will come.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send(self, data: memoryview) -> memoryview:
        """What is left to be sent."""
        try:
            return data[self._socket.send(data) :]
        except (BrokenPipeError, ConnectionResetError):
            # One that refuses a request may close before it has read all of it, and its answer says why.
            return data[:0]


class WebSocket:
    def __init__(self, url: str, trust: ssl.SSLContext | None, open_seconds: float) -> None:
        self._url = url
        self._trust = trust
        self._open_seconds = open_seconds
        self._connection: ClientConnection | None = None

    def __enter__(self) -> Self:
        self._connection = connect(
            self._url,
            ssl=self._trust,
            open_timeout=self._open_seconds,
            close_timeout=CLOSE_SECONDS,
            max_size=MAX_WEBSOCKET_MESSAGE_BYTES,
        ).__enter__()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._connection is not None:
            self._connection.close()

    def receive(self, seconds: float) -> bytes:
        """The next message. `TimeoutError` if none comes within this time."""
        if self._connection is None:
            raise RuntimeError("the socket is not open")
        return bytes(self._connection.recv(timeout=seconds, decode=False))
