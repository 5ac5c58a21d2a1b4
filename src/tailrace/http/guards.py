"""What is refused before any endpoint sees it: pages of other sites in the browser of somebody who runs a server.

A page can send requests to a server that its reader can reach. What it may not do without being asked first is to send JSON, so
every body must say that it is JSON. It may open a WebSocket anywhere; so the origin, where one is named, must be this
server. And it may give its own name the address of this machine; so a server that listens on the loopback answers only
to the names of the loopback.

Guards are coroutines, because the framework would run plain functions in a thread.
"""

from typing import Any
from urllib.parse import SplitResult, urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

JSON = "application/json"
TAKES = "takes"
"""The option of a handler that takes another type of body than JSON."""

_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))

Connection = ASGIConnection[Any, Any, Any, Any]


async def takes_only_its_type(connection: Connection, handler: BaseRouteHandler) -> None:
    """The body must be of the type that the handler takes, which is JSON unless it says otherwise."""
    if connection.scope.get("method") not in _WITH_BODY:
        return
    takes = handler.opt.get(TAKES, JSON)
    kind = connection.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != takes:
        raise HTTPException(status_code=415, detail=f"the body is {kind or 'of no type'!r}; send content-type: {takes}")


async def is_asked_by_its_name(connection: Connection, _: BaseRouteHandler) -> None:
    """For servers on the loopback: nobody reaches them by a name of the internet."""
    host = connection.headers.get("host", "")
    if _split(f"//{host}").hostname not in _LOOPBACK_NAMES:
        raise PermissionDeniedException(
            f"this server listens on the loopback only and was asked as {host!r}; ask it as localhost, or bind it elsewhere"
        )


async def comes_from_here(connection: Connection, _: BaseRouteHandler) -> None:
    """For WebSockets, which browsers open across sites: an origin, where one is named, must be this server."""
    origin = connection.headers.get("origin")
    if origin is not None and _split(origin).netloc.lower() != connection.headers.get("host", "").lower():
        raise PermissionDeniedException(f"pages of {origin!r} may not open a WebSocket here")


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
