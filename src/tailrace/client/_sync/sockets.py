"""A WebSocket for threads. Written by hand, as its twin `_async/sockets.py`."""

import ssl
from types import TracebackType
from typing import Self

from websockets.sync.client import ClientConnection, connect

from tailrace.client.socket_options import CLOSE_SECONDS, LARGEST_MESSAGE_BYTES


class Socket:
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
            max_size=LARGEST_MESSAGE_BYTES,
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
