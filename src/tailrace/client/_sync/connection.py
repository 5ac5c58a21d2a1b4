"""An HTTP connection and a WebSocket for threads. Written by hand, like its asyncio twin `_async/connection.py`."""

import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

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

_websocket_log = logging.getLogger("tailrace.client.websocket")
# Its lines for debugging have all headers, and so passwords and tokens.
_websocket_log.setLevel(logging.INFO)

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection


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
        """Open a connection. Raises `NotConnectedError` if there is none within this time."""
        try:
            return cls(socket.create_connection((host, port), seconds))
        except TimeoutError as error:
            raise NotConnectedError(f"no connection within {seconds} s") from error
        except (OSError, UnicodeError) as error:
            raise NotConnectedError(str(error)) from error

    def exchange(self, request: bytes, seconds: float) -> HttpResponse:
        """Send a request and return the complete response, within this time. After an error the connection is not usable."""
        deadline = time.monotonic() + seconds
        self._is_usable = False
        self._socket.settimeout(seconds)
        unsent = self._send(memoryview(request))
        response: HttpResponse | None = None
        while response is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no response within {seconds} s")
            self._socket.settimeout(left)
            if unsent and not wait_readable_or_writable(self._socket.fileno(), left):
                unsent = self._send(unsent)
            else:
                size = self._socket.recv_into(self._data)
                response = self._reader.feed(self._data[:size]) if size else self._reader.feed_end()
        self._is_usable = not (unsent or response.is_last or self._reader.has_surplus)
        self.idle_since = time.monotonic()
        return response

    @property
    def is_usable(self) -> bool:
        """Whether it can carry another request: the last one was answered, and nothing was received since, nor the end."""
        return self._is_usable and not is_readable(self._socket.fileno())

    def close(self) -> None:
        self._is_usable = False
        # The shutdown wakes a thread that waits for a response.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send(self, data: memoryview) -> memoryview:
        """Send what the socket takes and return the rest."""
        try:
            return data[self._socket.send(data) :]
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a request may close before it has read all of it, and its response says why.
            return data[:0]


class WebSocket:
    def __init__(self, url: str, tls: ssl.SSLContext | None, headers: Mapping[str, str], open_seconds: float) -> None:
        self._url = url
        self._headers = headers
        self._tls = tls
        self._open_seconds = open_seconds
        self._connection: ClientConnection | None = None

    def __enter__(self) -> Self:
        from websockets.sync.client import connect

        self._connection = connect(
            self._url,
            ssl=self._tls,
            additional_headers=self._headers,
            logger=_websocket_log,
            open_timeout=self._open_seconds,
            close_timeout=CLOSE_SECONDS,
            max_size=MAX_WEBSOCKET_MESSAGE_BYTES,
        ).__enter__()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._connection is not None:
            self._connection.close()

    def receive(self, seconds: float) -> bytes:
        """Return the next message. Raises `TimeoutError` if there is none within this time."""
        if self._connection is None:
            raise RuntimeError("the WebSocket is not open")
        return bytes(self._connection.recv(timeout=seconds, decode=False))
