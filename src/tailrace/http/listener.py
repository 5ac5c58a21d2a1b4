"""Runs an ASGI application on a socket with uvicorn, from `start` to `stop`. Signals and the socket belong to the process."""

import asyncio
import contextlib
from collections.abc import Iterator
from socket import socket
from typing import Any

import uvicorn

from tailrace.http.connection import connection_class
from tailrace.http.fast_requests import FastRequests
from tailrace.model.limits import KIB, Limits

_IDLE_SECONDS = 60
_MESSAGE_BYTES = 4 * KIB
"""The largest message that a client may send over a WebSocket. None is expected."""


class HttpListener:
    def __init__(
        self, app: Any, bound: socket, limits: Limits, stop_seconds: int, fast_requests: FastRequests | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            http=connection_class(limits, fast_requests),
            ws="none",  # `HttpConnection` loads it with the first WebSocket
            ws_max_size=_MESSAGE_BYTES,
            ws_ping_interval=limits.subscriber_silence_seconds,
            # Longer than a slow reader is tolerated, so that it is disconnected for that reason, which it is told.
            ws_ping_timeout=2 * limits.subscriber_stall_seconds + limits.subscriber_silence_seconds,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=stop_seconds,
        )
        self._bound = bound
        self._uvicorn = _UvicornServer(config)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when requests are accepted."""
        self._serving = asyncio.create_task(self._uvicorn.serve([self._bound]), name="http-listener")
        started = asyncio.create_task(self._uvicorn.is_listening.wait())
        await asyncio.wait((self._serving, started), return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            started.cancel()
            await self._serving

    async def stop(self) -> None:
        """Accept no new request and finish those that run; after `stop_seconds` they are cancelled."""
        self._uvicorn.should_exit = True
        if self._serving is not None:
            await self._serving


class _UvicornServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the process and reports when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
