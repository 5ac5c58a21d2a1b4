"""A connection to the server for asyncio, which carries one request at a time. `_sync/line.py` has the same for threads.

A request leaves in one piece and its answer is parsed as it comes, so an exchange costs about a tenth of what a library that
can do more takes for it.
"""

import asyncio
import os
import ssl
import time
from contextlib import suppress
from types import TracebackType
from typing import Self, cast

from websockets.asyncio.client import ClientConnection, connect

from tailrace.client.http11 import (
    CLOSE_SECONDS,
    MAX_WEBSOCKET_MESSAGE_BYTES,
    READ_BYTES,
    HttpResponse,
    InvalidResponseError,
    NotConnectedError,
    ResponseReader,
    is_readable,
)


class AsyncHttpConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = ResponseReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._early: HttpResponse | None = None
        """Of a server that refuses the connection: it came before anything was asked."""
        self._is_fresh = True
        self._is_usable = False
        self.idle_since = 0.0

    @classmethod
    async def open(cls, host: str, port: int, seconds: float) -> Self:
        """`NotConnectedError` if there is no connection within this time."""
        try:
            async with asyncio.timeout(seconds):
                _, line = await asyncio.get_running_loop().create_connection(cls, host, port)
        except TimeoutError as error:
            raise NotConnectedError(f"no connection within {seconds} s") from error
        except (OSError, UnicodeError) as error:
            raise NotConnectedError(str(error)) from error
        return line

    async def exchange(self, request: bytes, seconds: float) -> HttpResponse:
        """The whole answer, within this time. After anything else than that the line can't be used again."""
        self._is_fresh = False
        if self._early is not None:
            self._is_usable = False
            return self._early
        if self._transport is None or self._transport.is_closing():
            raise NotConnectedError("the connection is closed")
        loop = asyncio.get_running_loop()
        self._is_usable = False
        waiting: asyncio.Future[HttpResponse] = loop.create_future()
        self._waiting = waiting
        timer = loop.call_later(seconds, self._give_up, seconds)
        try:
            self._transport.write(request)
            answer = await waiting
        finally:
            timer.cancel()
            self._waiting = None
        is_sent = not self._transport.get_write_buffer_size()
        self._is_usable = is_sent and not (answer.is_last or self._reader.has_surplus or self._transport.is_closing())
        self.idle_since = time.monotonic()
        return answer

    @property
    def is_usable(self) -> bool:
        """Whether it can carry the next request: the last was answered, and nothing has come since, nor an end."""
        return (
            self._is_usable
            and self._transport is not None
            and not self._transport.is_closing()
            and not is_readable(self._transport.get_extra_info("socket").fileno())
        )

    def close(self) -> None:
        self._is_usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._is_usable = True
        self.idle_since = time.monotonic()

    def data_received(self, data: bytes) -> None:
        if self._waiting is None and not self._is_fresh:
            self._is_usable = False  # nothing was asked
            return
        try:
            answer = self._reader.feed(data)
        except InvalidResponseError as error:
            self._fail(error)
        else:
            if self._waiting is None:
                self._early = self._early or answer
            elif answer is not None and not self._waiting.done():
                self._waiting.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_usable = False
        if error is not None:
            self._read_rest()
            self._fail(error)
        elif self._waiting is not None and not self._waiting.done():
            try:
                self._waiting.set_result(self._reader.feed_end())
            except InvalidResponseError as cut:
                self._fail(cut)

    def _read_rest(self) -> None:
        """What came before a send failed: one that refuses a request may close before it has read all of it, and its answer
        says why. The connection is gone, so there is no more than the system holds, and nothing to wait for."""
        if self._transport is not None:
            descriptor = self._transport.get_extra_info("socket").fileno()
            with suppress(OSError):
                while data := os.read(descriptor, READ_BYTES):
                    self.data_received(data)

    def _give_up(self, seconds: float) -> None:
        self._fail(TimeoutError(f"there was no answer within {seconds} s"))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


class AsyncWebSocket:
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
            max_size=MAX_WEBSOCKET_MESSAGE_BYTES,
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
