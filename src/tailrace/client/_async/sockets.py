"""A WebSocket for asyncio. `_sync/sockets.py` has the same for threads."""

import asyncio
import ssl
from types import TracebackType
from typing import Self

from websockets.asyncio.client import ClientConnection, connect

from tailrace.client.socket_options import CLOSE_SECONDS, LARGEST_MESSAGE_BYTES


class AsyncSocket:
    def __init__(self, url: str, trust: ssl.SSLContext | None, open_seconds: float) -> None:
        self._url = url
        self._trust = trust
        self._open_seconds = open_seconds
        self._connection: ClientConnection | None = None

    async def __aenter__(self) -> Self:
        self._connection = await connect(
            self._url,
            ssl=self._trust,
            open_timeout=self._open_seconds,
            close_timeout=CLOSE_SECONDS,
            max_size=LARGEST_MESSAGE_BYTES,
        )
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def receive(self, seconds: float) -> bytes:
        """The next message. `TimeoutError` if none comes within this time."""
        if self._connection is None:
            raise RuntimeError("the socket is not open")
        async with asyncio.timeout(seconds):
            message = await self._connection.recv(decode=False)
        return bytes(message)
