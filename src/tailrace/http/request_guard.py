"""What is refused before any endpoint sees it: pages of other sites in the browser of somebody who runs a server.

A page can send requests to a server that its reader can reach. What it may not do without being asked first is to send JSON, so
every body must say that it is JSON. It may open a WebSocket anywhere; so the origin, where one is named, must be this
server. And it may give its own name the address of this machine; so a server that listens on the loopback answers only
to the names of the loopback. For that, there must be one name and nothing beside it: two of them, or one such as
`evil.example@localhost`, mean one thing to this server and another to what stands before it.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tailrace.http.problems import RequestRefusedError

JSON = "application/json"
TAKES = "takes"
"""The option of a handler that takes another type of body than JSON."""

_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,}\]|[A-Za-z0-9._-]*)(?::[0-9]{0,5})?")
"""A name or an address, and a port. What else RFC 3986 allows in a name, no server is called by."""
_SHOWN = 100
_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class RequestGuard:
    """Before every request, and before a WebSocket is accepted. Raises `RequestRefusedError`."""

    def __init__(self, on_loopback: bool) -> None:
        self._on_loopback = on_loopback

    def check(self, scope: Mapping[str, Any], takes: str) -> None:
        """A request, to where bodies of this type are taken."""
        self._check_host(scope)
        if scope["method"] in _WITH_BODY:
            _check_type(scope, takes)

    def check_socket(self, scope: Mapping[str, Any]) -> None:
        self._check_host(scope)
        origin = _header(scope, b"origin")
        if origin and _split(origin).netloc.lower() != _header(scope, b"host").lower():
            raise RequestRefusedError(403, f"pages of {origin!r} may not open a WebSocket here")

    def _check_host(self, scope: Mapping[str, Any]) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1 or (not hosts and scope["http_version"] != "1.0"):
            raise RequestRefusedError(400, f"the request has {len(hosts)} Host headers; it must have one")
        host = hosts[0] if hosts else ""
        if not _HOST.fullmatch(host):
            raise RequestRefusedError(400, f"the Host header is {host[:_SHOWN]!r}; it must be a name or an address, and a port")
        if self._on_loopback and _split(f"//{host}").hostname not in _LOOPBACK_NAMES:
            raise RequestRefusedError(
                403,
                f"this server listens on the loopback only and was asked as {host!r}; ask it as localhost, or bind it"
                " elsewhere",
            )


def _check_type(scope: Mapping[str, Any], takes: str) -> None:
    kind = _header(scope, b"content-type")
    if kind != takes and kind.partition(";")[0].strip().lower() != takes:
        raise RequestRefusedError(415, f"the body is {kind or 'of no type'!r}; send content-type: {takes}")


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
