"""Runs an ASGI application on a socket with uvicorn, from `start` to `stop`. Signals and the socket belong to the process.

A listener that speaks TLS gets its connections from a `TlsAcceptor`, when their handshakes have succeeded.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from socket import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from tailrace.http.connection import SECURITY_HEADERS, TLS_HEADERS, connection_class
from tailrace.http.fast_requests import FastRequests
from tailrace.model.limits import KIB, Limits

if TYPE_CHECKING:
    from tailrace.tls.acceptor import TlsAcceptor

_log = logging.getLogger("tailrace.http")

_WARNING_SECONDS = 1.0
_IDLE_SECONDS = 60
_MESSAGE_BYTES = 4 * KIB
"""The largest message that a client may send over a WebSocket. None is expected."""


class HttpListener:
    def __init__(
        self,
        app: Any,
        bound: socket,
        limits: Limits,
        stop_seconds: int,
        fast_requests: FastRequests | None = None,
        tls: "TlsAcceptor | None" = None,
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
            headers=[*SECURITY_HEADERS, *(() if tls is None else TLS_HEADERS)],
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=stop_seconds,
        )
        self._bound = bound
        self._uvicorn = _UvicornServer(config, tls)
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

    def __init__(self, config: uvicorn.Config, tls: "TlsAcceptor | None") -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()
        self._tls = tls
        self._next_warning_at: dict[str, float] = {}

    async def startup(self, sockets: list[socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self._tls.start(
                self._create_protocol,
                open_connections=lambda: len(self.server_state.connections),
                admits=lambda host, now: True,
                refused=self._refused,
            )
            # It is closed as uvicorn closes servers of its own.
            self.servers.append(self._tls)  # type: ignore[arg-type]
        self.is_listening.set()

    def _create_protocol(self) -> asyncio.BaseProtocol:
        create: Any = self.config.http_protocol_class
        made: asyncio.BaseProtocol = create(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=None
        )
        return made

    def _refused(self, reason: str, message: str) -> None:
        # Once in a while for each reason: a client that is closed again and again must not fill the disk with log lines.
        now = asyncio.get_running_loop().time()
        if now >= self._next_warning_at.get(reason, 0.0):
            self._next_warning_at[reason] = now + _WARNING_SECONDS
            _log.warning("closing an HTTP connection: %s", message)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
