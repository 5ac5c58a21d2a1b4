"""The connections of the HTTP listener: uvicorn's, with bounds that it lacks.

A client has a bounded number of bytes for the head of a request and a bounded time for all of it. A subscriber that reads
nothing can be told so and disconnected, instead of holding memory until the network gives up: endpoints find callbacks for that
in the extension `tailrace.connection` of the scope.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailrace.http.problems import MEDIA_TYPE, problem_body
from tailrace.model.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from tailrace.http.fast_requests import FastRequests

EXTENSION = "tailrace.connection"
REQUEST_NAME = b"tailrace-request"
"""A header that names a request. The response repeats it, so that a client never takes it for the response to another request.
Not `x-request-id`, which proxies set."""
FAST_BEGIN = b"POST /api/sql HTTP/1.1\r\n"
"""How requests begin that may be answered at once; see `fast_requests.py`."""
DISCONNECT = "disconnect"
ABORT = "abort"
DRAINED = "drained"
CERTIFICATE = "certificate"
"""A callback that returns the verified certificate of the client, as `SSLSocket.getpeercert` does; an empty one without."""
SECURITY_HEADERS = (("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"))
"""Headers of every response. Browsers are not to guess what a body is, nor to tell other sites what was asked here."""
TLS_HEADERS = (("strict-transport-security", "max-age=31536000"),)
"""Those over TLS: browsers are to come back by `https://` only."""
LINGER_SECONDS = 5.0
"""How long a client that is disconnected has to read what was sent before."""


_WARNING_SECONDS = 60.0
_KAFKA_BEGIN = b"\0"
"""The first byte of the size of a Kafka request, unless it has 16 MiB or more. No HTTP request begins with it."""
_TLS_BEGIN = b"\x16\x03"
"""How the handshake of a client begins that speaks TLS."""

_log = logging.getLogger("tailrace.http")


class HttpConnection(HttpToolsProtocol):
    limits: Limits = DEFAULT_LIMITS
    other_clients: "OtherClientWarnings"
    fast_requests: "FastRequests | None" = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._is_in_head = False
        self._is_in_body = False
        self._deadline: asyncio.TimerHandle | None = None
        self._answered_at = 0.0
        """When the last request was answered on the fast path, which leaves the timer of the connection alone."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()
        if len(self.connections) > self.limits.connections:
            self._refuse(503, f"connection limit reached (connections: {self.limits.connections}); try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if data.startswith(FAST_BEGIN) and self._respond_at_once(data):
            return
        if self.cycle is None and data.startswith(_KAFKA_BEGIN):
            self.other_clients.warn(self.client, self.loop.time(), "sent a Kafka request to the HTTP listener")
            self._refuse(400, "this is the HTTP listener; use the Kafka address, which the server prints when it starts")
            return
        if self.cycle is None and data.startswith(_TLS_BEGIN):
            self.other_clients.warn(
                self.client,
                self.loop.time(),
                "sent a TLS handshake to the HTTP listener, which is plain text; use http://, or set tls_certificate here",
            )
            # Clients tell an answer that is no TLS from a server that is gone.
            self._refuse(400, "this listener is plain text; use http://")
            return
        was_in_head = self._is_in_head
        super().data_received(data)
        if was_in_head and self._is_in_head:
            # The parser reports a header only when it has all of it.
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > self.limits.request_head_bytes:
                self._refuse_head()

    def _respond_at_once(self, data: bytes) -> bool:
        """Answer a request on the fast path. Return false if it has to take the general one."""
        is_between = not self._is_in_head and not self._is_in_body and (self.cycle is None or self.cycle.response_complete)
        if self.fast_requests is None or not is_between or self.flow.write_paused or self.transport.is_closing():
            return False
        host = self.client[0] if self.client else ""
        response = self.fast_requests.respond(data, self.server_state.default_headers, host)
        if response is None:
            return False
        self._clear_deadline()
        self.transport.write(response)
        self._answered_at = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._keep_alive_for(self.timeout_keep_alive)
        return True

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless a request was answered at once since the timer was set."""
        left = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._keep_alive_for(left)
        else:
            super().timeout_keep_alive_handler()

    def _keep_alive_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        self._unparsed_bytes = 0
        self.scope["extensions"] = {
            EXTENSION: {DISCONNECT: self.disconnect, ABORT: self.abort, CERTIFICATE: partial(certificate_of, self.transport)}
        }
        self._head_bytes = 0
        if self._deadline is None:
            self._set_deadline()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        self._is_in_head = False
        self._is_in_body = True
        if self.cycle is not before:
            self.cycle.transport = _HeadBufferingTransport(self.transport, self.loop)  # type: ignore[assignment]
            named = [header for header in self.headers if header[0] == REQUEST_NAME]
            if named:
                self.cycle.default_headers = [*self.cycle.default_headers, named[0]]

    def on_message_complete(self) -> None:
        self._clear_deadline()
        self._is_in_body = False
        super().on_message_complete()

    def _should_upgrade_to_ws(self) -> bool:
        return True

    def handle_websocket_upgrade(self) -> None:
        # Loaded with the first WebSocket, because most servers never see one.
        from tailrace.http.websocket_connection import WebSocketConnection

        self.ws_protocol_class = WebSocketConnection
        self._clear_deadline()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid HTTP request")

    def disconnect(self, last: bytes) -> None:
        """End a chunked response with these bytes and close the connection, whether the client reads them or not."""
        if not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
            self.cycle.disconnected = True
            close_soon(self.transport)

    def abort(self) -> None:
        """Close the connection at once, in the middle of a response."""
        self.cycle.disconnected = True
        self.transport.abort()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.limits.request_head_bytes:
            self._refuse_head()
            # Stops the parser, so that the rejected request is not executed.
            raise ValueError("the head of the request is too large")

    def _refuse_head(self) -> None:
        self._refuse(431, f"the head of the request is larger than request_head_bytes ({self.limits.request_head_bytes})")

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.limits.request_seconds, self._too_slow)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self._refuse(408, f"the request was not complete within request_seconds ({self.limits.request_seconds})")

    def _refuse(self, status: int, detail: str) -> None:
        if self.transport.is_closing():
            return
        # A request may be answered before all of it has arrived; a second response would be taken for that of the next request.
        if not (self._is_in_body and self.cycle.response_started):
            body = problem_body(status, detail)
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nconnection: close\r\ncontent-type: {MEDIA_TYPE}\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in SECURITY_HEADERS)
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        close_soon(self.transport)


class OtherClientWarnings:
    """Warns about clients that speak another protocol, once a minute: they try again many times a second."""

    def __init__(self) -> None:
        self._next_at: dict[str, float] = {}

    def warn(self, client: tuple[str, int] | None, now: float, what: str) -> None:
        if now >= self._next_at.get(what, 0.0):
            self._next_at[what] = now + _WARNING_SECONDS
            _log.warning("closing an HTTP connection: %s %s", client[0] if client else "a client", what)


class _HeadBufferingTransport:
    """The transport of one response, which sends the head with the first part of the body: one system call less."""

    __slots__ = ("_head", "_is_begun", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._is_begun = False

    def write(self, data: bytes) -> None:
        if self._is_begun:
            self._transport.write(self._head + data if self._head else data)
            self._head = b""
        else:
            self._is_begun = True
            self._head = data
            # The head does not wait for a slow body.
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head and not self._transport.is_closing():
            self._transport.write(self._head)
        self._head = b""


def connection_class(limits: Limits, fast_requests: "FastRequests | None" = None) -> type[HttpConnection]:
    """Return a class of connections with these limits: uvicorn creates connections from a class."""
    attributes = {"limits": limits, "other_clients": OtherClientWarnings(), "fast_requests": fast_requests}
    return type("BoundHttpConnection", (HttpConnection,), attributes)


def certificate_of(transport: asyncio.BaseTransport) -> Mapping[str, Any]:
    """Return the verified certificate of the client of a connection, or an empty one."""
    return transport.get_extra_info("peercert") or {}


def close_soon(transport: asyncio.Transport) -> None:
    """Send what is buffered, as far as the client reads it within `LINGER_SECONDS`, then close."""
    transport.close()
    abort_soon(transport)


def abort_soon(transport: asyncio.Transport) -> None:
    asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)
