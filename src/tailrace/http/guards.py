"""What is refused before any endpoint sees it: pages of other sites in the browser of somebody who runs a server.

A page can send requests to a server that its reader can reach. What it may not do without being asked first is to send JSON, so
every body must say that it is JSON. It may open a WebSocket anywhere; so the origin, where one is named, must be this
server. And it may give its own name the address of this machine; so a server that listens on the loopback answers only
to the names of the loopback.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from litestar import Request, Response, WebSocket
from litestar.exceptions import HTTPException, PermissionDeniedException

JSON = "application/json"
TAKES = "takes"
"""The option of a handler that takes another type of body than JSON."""

_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class FirstLook:
    """Called before every request, and by endpoints of WebSockets before they accept one.

    Not a guard in the framework's sense, because those cost a copy of the handler each time.
    """

    def __init__(self, on_loopback: bool) -> None:
        self._on_loopback = on_loopback

    async def __call__(self, request: Request[Any, Any, Any]) -> Response[None] | None:
        method = request.scope["method"]
        if method in _WITH_BODY:
            self.check_post(request.scope, request.route_handler.opt.get(TAKES, JSON))
        else:
            self._check_host(request.scope)
        return _allowed(request) if method == "OPTIONS" else None

    def check_post(self, scope: Mapping[str, Any], takes: str) -> None:
        """A request with a body, where one of this type is taken."""
        self._check_host(scope)
        _check_type(scope, takes)

    def check_socket(self, socket: WebSocket[Any, Any, Any]) -> None:
        self._check_host(socket.scope)
        origin = _header(socket.scope, b"origin")
        if origin and _split(origin).netloc.lower() != _header(socket.scope, b"host").lower():
            raise PermissionDeniedException(f"pages of {origin!r} may not open a WebSocket here")

    def _check_host(self, scope: Mapping[str, Any]) -> None:
        if self._on_loopback:
            host = _header(scope, b"host")
            if _split(f"//{host}").hostname not in _LOOPBACK_NAMES:
                raise PermissionDeniedException(
                    f"this server listens on the loopback only and was asked as {host!r}; ask it as localhost, or bind it"
                    " elsewhere"
                )


def _check_type(scope: Mapping[str, Any], takes: str) -> None:
    kind = _header(scope, b"content-type")
    if kind != takes and kind.partition(";")[0].strip().lower() != takes:
        raise HTTPException(status_code=415, detail=f"the body is {kind or 'of no type'!r}; send content-type: {takes}")


def _allowed(request: Request[Any, Any, Any]) -> Response[None]:
    """The answer to OPTIONS, which the framework gives for one handler of an address only."""
    template = request.scope["path_template"]
    methods = {method for route in request.app.routes if route.path_format == template for method in route.methods}
    return Response(None, status_code=204, headers={"allow": ", ".join(sorted(methods))})


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
