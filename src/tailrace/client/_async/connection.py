"""An HTTP connection and a WebSocket for asyncio. `_sync/connection.py` has the same for threads.

An HTTP connection carries one request at a time. The request leaves in one piece and the response is parsed as it arrives.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

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

_websocket_log = logging.getLogger("tailrace.client.websocket")
# Its lines for debugging have all headers, and so passwords and tokens.
_websocket_log.setLevel(logging.INFO)

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


class AsyncHttpConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = ResponseReader()
        self._transport: asyncio.Transport | None = None
        self._pending: asyncio.Future[HttpResponse] | None = None
        self._early: HttpResponse | None = None
        """A response that was received before any request: the server refuses the connection."""
        self._is_fresh = True
        self._is_usable = False
        self.idle_since = 0.0

    @classmethod
    async def open(cls, host: str, port: int, seconds: float) -> Self:
        """Open a connection. Raises `NotConnectedError` if there is none within this time."""
        try:
            async with asyncio.timeout(seconds):
                _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        except TimeoutError as error:
            raise NotConnectedError(f"no connection within {seconds} s") from error
        except (OSError, UnicodeError) as error:
            raise NotConnectedError(str(error)) from error
        return connection

    async def exchange(self, request: bytes, seconds: float) -> HttpResponse:
        """Send a request and return the complete response, within this time. After an error the connection is not usable."""
        self._is_fresh = False
        if self._early is not None:
            self._is_usable = False
            return self._early
        if self._transport is None or self._transport.is_closing():
            raise NotConnectedError("the connection is closed")
        loop = asyncio.get_running_loop()
        self._is_usable = False
        pending: asyncio.Future[HttpResponse] = loop.create_future()
        self._pending = pending
        timer = loop.call_later(seconds, self._time_out, seconds)
        try:
            self._transport.write(request)
            response = await pending
        finally:
            timer.cancel()
            self._pending = None
        is_sent = not self._transport.get_write_buffer_size()
        self._is_usable = is_sent and not (response.is_last or self._reader.has_surplus or self._transport.is_closing())
        self.idle_since = time.monotonic()
        return response

    @property
    def is_usable(self) -> bool:
        """Whether it can carry another request: the last one was answered, and nothing was received since, nor the end."""
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
        if self._pending is None and not self._is_fresh:
            self._is_usable = False  # no request is pending
            return
        try:
            response = self._reader.feed(data)
        except InvalidResponseError as error:
            self._fail(error)
        else:
            if self._pending is None:
                self._early = self._early or response
            elif response is not None and not self._pending.done():
                self._pending.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_usable = False
        if error is not None:
            self._read_rest()
            self._fail(error)
        elif self._pending is not None and not self._pending.done():
            try:
                self._pending.set_result(self._reader.feed_end())
            except InvalidResponseError as invalid:
                self._fail(invalid)

    def _read_rest(self) -> None:
        """Read what was received before a send failed.

        A server that refuses a request may close before it has read all of it, and its response says why. The connection is
        gone, so the socket's buffer holds everything there is.
        """
        if self._transport is not None:
            descriptor = self._transport.get_extra_info("socket").fileno()
            with suppress(OSError):
                while data := os.read(descriptor, READ_BYTES):
                    self.data_received(data)

    def _time_out(self, seconds: float) -> None:
        self._fail(TimeoutError(f"no response within {seconds} s"))

    def _fail(self, error: Exception) -> None:
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(error)


class AsyncWebSocket:
    def __init__(self, url: str, tls: ssl.SSLContext | None, headers: Mapping[str, str], open_seconds: float) -> None:
        self._url = url
        self._headers = headers
        self._tls = tls
        self._open_seconds = open_seconds
        self._connection: ClientConnection | None = None

    async def __aenter__(self) -> Self:
        from websockets.asyncio.client import connect

        self._connection = await connect(
            self._url,
            ssl=self._tls,
            additional_headers=self._headers,
            logger=_websocket_log,
            open_timeout=self._open_seconds,
            close_timeout=CLOSE_SECONDS,
            max_size=MAX_WEBSOCKET_MESSAGE_BYTES,
        )
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def receive(self, seconds: float) -> bytes:
        """Return the next message. Raises `TimeoutError` if there is none within this time."""
        if self._connection is None:
            raise RuntimeError("the WebSocket is not open")
        async with asyncio.timeout(seconds):
            message = await self._connection.recv(decode=False)
        return bytes(message)
