"""Quotas of requests over HTTP (`broker/security/quotas.py`).

A request of a user that has used more than its quota is refused with 429 and `Retry-After`. Bodies of requests are counted as
published bytes, those of answers as consumed ones. Answers that go on, such as those to subscribers, are slowed down instead:
each part of one waits until the quota allows it, but not so long that the client would count as one that reads nothing. The
time of a request to `/api/sql`, or one that writes rows of a COPY, counts as seconds of SQL, from its begin to the end of its
answer, but for these pauses.

Nothing here is asked while there are no quotas, and `GET /health` never.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import current_principal
from tailrace.http.problems import MEDIA_TYPE, error_body, error_headers
from tailrace.http.responses import ASGIScope, ASGISend
from tailrace.model.errors import QuotaExceededError
from tailrace.model.quota import QuotaKind
from tailrace.model.security import ANONYMOUS, Principal

_FREE = "/health"
_PUBLISH = "/api/topics/publish"
_LONGEST_PAUSE_SECONDS = 5.0
"""How long one part of an answer waits at most. Clients are disconnected after `unsent_seconds`."""
_SQL = ["api", "sql"]
_TABLES = ["api", "tables"]
_WRITING = ("POST", "PUT", "PATCH")

ASGIReceive = Callable[[], Awaitable[Any]]
ASGIApp = Callable[[Any, Any, ASGISend], Awaitable[None]]


class HttpQuotas:
    """Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._quotas = broker.quotas
        self._is_secured = broker.permissions.is_on

    @property
    def is_on(self) -> bool:
        return bool(self._quotas.kinds)

    async def serve(self, app: ASGIApp, scope: Any, receive: ASGIReceive, send: ASGISend) -> None:
        """Let the application answer a request, unless the principal of the task has used up a quota."""
        if scope["type"] not in ("http", "websocket") or scope["path"] == _FREE:
            await app(scope, receive, send)
            return
        principal = current_principal() if self._is_secured else ANONYMOUS
        is_websocket = scope["type"] == "websocket"
        release = None
        try:
            self._quotas.require(principal, None, _kinds(scope))
            if is_websocket:
                release = self._quotas.hold(principal, None, "connections")
        except QuotaExceededError as error:
            await _refuse(error, receive, send, is_websocket=is_websocket)
            return
        self._quotas.charge(principal, None, "requests", 1)
        meter = _Meter(self, principal, receive, send)
        is_sql = _is_sql(scope)
        began = time.monotonic()
        try:
            await app(scope, meter.receive, meter.send)
        finally:
            if release is not None:
                release()
            if is_sql:
                seconds = time.monotonic() - began - meter.all_paused_seconds
                self._quotas.charge(principal, None, "sql_seconds", seconds)

    def charge(self, principal: Principal, kind: QuotaKind, amount: int) -> float:
        return self._quotas.charge(principal, None, kind, amount)


class _Meter:
    """Counts the bytes of one request and its answer."""

    def __init__(self, quotas: HttpQuotas, principal: Principal, receive: ASGIReceive, send: ASGISend) -> None:
        self._quotas = quotas
        self._principal = principal
        self._receive = receive
        self._send = send
        self._paused_seconds = 0.0
        """How long the next part has waited already. Whoever sends it may stop to wait, and try again."""
        self.all_paused_seconds = 0.0
        self._has_sent = False

    async def receive(self) -> Any:
        message = await self._receive()
        self._count("publish_bytes", message)
        return message

    async def send(self, message: Any) -> None:
        size = _size(message)
        if size and self._has_sent:
            await self._pause()
        await self._send(message)
        self._paused_seconds = 0.0
        self._has_sent = self._has_sent or bool(size)
        self._count("consume_bytes", message)

    async def _pause(self) -> None:
        wait = self._quotas.charge(self._principal, "consume_bytes", 0)
        wait = min(wait, _LONGEST_PAUSE_SECONDS - self._paused_seconds)
        if wait > 0:
            began = time.monotonic()
            try:
                await asyncio.sleep(wait)
            finally:
                paused = time.monotonic() - began
                self._paused_seconds += paused
                self.all_paused_seconds += paused

    def _count(self, kind: QuotaKind, message: Any) -> None:
        size = _size(message)
        if size:
            self._quotas.charge(self._principal, kind, size)


def _kinds(scope: ASGIScope) -> tuple[QuotaKind, ...]:
    """Return what a request is refused for. A client that publishes too much may read, and the other way round."""
    if scope["type"] == "http" and scope["path"] == _PUBLISH:
        return ("requests", "publish_bytes")
    if _is_sql(scope):
        return ("requests", "publish_bytes", "consume_bytes", "sql_seconds")
    if scope["type"] == "http" and scope["method"] in _WRITING:
        return ("requests", "publish_bytes", "consume_bytes")
    return ("requests", "consume_bytes")


def _is_sql(scope: ASGIScope) -> bool:
    """Return whether a request runs SQL, however many slashes its path has."""
    parts = [part for part in scope["path"].split("/") if part]
    return parts == _SQL or (parts[:2] == _TABLES and parts[3:] == ["rows"])


def _size(message: Any) -> int:
    """Return the bytes of a message of ASGI, of HTTP or of a WebSocket."""
    return len(message.get("body") or message.get("bytes") or message.get("text") or b"")


async def _refuse(error: QuotaExceededError, receive: ASGIReceive, send: ASGISend, *, is_websocket: bool) -> None:
    body = error_body(error)
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    headers += [(name.encode(), value.encode()) for name, value in error_headers(error).items()]
    prefix = ""
    if is_websocket:
        # The handshake is answered as any other request.
        await receive()
        prefix = "websocket."
    await send({"type": f"{prefix}http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": body, "more_body": False})
