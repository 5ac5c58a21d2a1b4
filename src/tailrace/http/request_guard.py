"""Rejects requests of foreign web pages in the browser of somebody who can reach the server.

- Cross-site requests: a page may send simple requests anywhere, but JSON only after a preflight, so every body must have the
  content type of its endpoint.
- Cross-site WebSockets: a page may open one anywhere, so the origin, if there is one, must be this server.
- Sessions: so must that of a request with the cookie of one. Browsers send it from other ports of the same machine, too.
- DNS rebinding: a page may give its own name the address of this machine, so a server on the loopback interface answers only to
  loopback names. There must be exactly one plain Host: two of them, or `evil.example@localhost`, could mean one thing to this
  server and another to a proxy before it.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tailrace.http.problems import RequestRefusedError

JSON = "application/json"
CONTENT_TYPE = "content_type"
"""The option of a handler whose body has another content type than JSON."""

_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,}\]|[A-Za-z0-9._-]*)(?::[0-9]{0,5})?")
"""A name or an address, and a port. RFC 3986 allows more in a name, which no server uses."""
_SHOWN_CHARACTERS = 100
_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class RequestGuard:
    """Checks every request, and every WebSocket before it is accepted. Raises `RequestRefusedError`."""

    def __init__(self, on_loopback: bool) -> None:
        self._on_loopback = on_loopback
        self.good_host: bytes | None = None
        """The last Host header that was accepted. Almost all requests have the same."""

    def check(self, scope: Mapping[str, Any], content_type: str) -> None:
        """Check a request to an endpoint whose bodies have this content type."""
        self._check_host(scope)
        if scope["method"] in _WITH_BODY:
            _check_type(scope, content_type)

    def check_websocket(self, scope: Mapping[str, Any]) -> None:
        self._check_host(scope)
        check_origin(scope)

    def _check_host(self, scope: Mapping[str, Any]) -> None:
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) == 1 and given[0] == self.good_host:
            return
        hosts = [value.decode("latin-1") for value in given]
        if len(hosts) > 1 or (not hosts and scope["http_version"] != "1.0"):
            raise RequestRefusedError(400, f"the request has {len(hosts)} Host headers; send exactly one")
        host = hosts[0] if hosts else ""
        if not _HOST.fullmatch(host):
            raise RequestRefusedError(
                400, f"invalid Host header {host[:_SHOWN_CHARACTERS]!r}; send a name or an address, and a port"
            )
        if self._on_loopback and _split(f"//{host}").hostname not in _LOOPBACK_NAMES:
            raise RequestRefusedError(
                403,
                f"this server listens on the loopback interface only and does not answer to {host!r}; use localhost, or bind it"
                " to another address",
            )
        self.good_host = given[0] if given else None


def check_origin(scope: Mapping[str, Any]) -> None:
    """Check a request for which a browser answers by itself: a WebSocket, or one with a cookie."""
    origin = _header(scope, b"origin")
    if origin and _split(origin).netloc.lower() != _header(scope, b"host").lower():
        what = "open a WebSocket to this server" if scope["type"] == "websocket" else "use the login of this browser here"
        raise RequestRefusedError(403, f"a page of {origin[:_SHOWN_CHARACTERS]!r} may not {what}")


def _check_type(scope: Mapping[str, Any], expected: str) -> None:
    found = _header(scope, b"content-type")
    if found != expected and found.partition(";")[0].strip().lower() != expected:
        raise RequestRefusedError(415, f"content type {found!r} is not supported; send content-type: {expected}")


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    for found, value in scope["headers"]:
        if found == name:
            text: str = value.decode("latin-1")
            return text
    return ""


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
