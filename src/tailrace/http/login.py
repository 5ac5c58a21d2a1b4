"""`POST /api/login` and `POST /api/logout`, the login of browsers by a cookie, and `GET /api/whoami`."""

from typing import Any

from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import RawBody, SkipValidation

from tailrace.api.server import LoginBody, WhoAmI
from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import current_principal
from tailrace.http.authentication import LOGIN_PATH, HttpAuthentication
from tailrace.http.openapi import describe_endpoint
from tailrace.http.request_guard import check_origin
from tailrace.http.requests import read_body
from tailrace.model.errors import SecurityDisabledError
from tailrace.model.security import EVERYBODY, Principal

_SET_COOKIE = "set-cookie"


@post(LOGIN_PATH, status_code=200, tags=["login"], opt=describe_endpoint(LoginBody, response=WhoAmI))
async def log_in(
    request: Request[Any, Any, Any],
    body: RawBody,
    broker: NamedDependency[Broker],
    authentication: NamedDependency[SkipValidation[HttpAuthentication | None]],
) -> Response[WhoAmI]:
    """Log in with a name and a password. The answer sets a cookie that stands for them in later requests of this browser."""
    check_origin(request.scope)
    parsed = read_body(body, LoginBody)
    if authentication is None:
        raise SecurityDisabledError("authentication is off on this server, so nobody needs to log in")
    cookie = await authentication.log_in(parsed.name, parsed.password, request.client.host if request.client else "")
    return Response(_described(broker, Principal(parsed.name)), headers={_SET_COOKIE: cookie, "cache-control": "no-store"})


@post("/api/logout", status_code=204, tags=["login"])
async def log_out(
    request: Request[Any, Any, Any], authentication: NamedDependency[SkipValidation[HttpAuthentication | None]]
) -> Response[None]:
    """End the session of this browser."""
    if authentication is None:
        return Response(None, status_code=204)
    return Response(
        None, status_code=204, headers={_SET_COOKIE: authentication.sessions.end(request.headers.get("cookie", ""))}
    )


@get("/api/whoami", tags=["login"])
async def whoami(broker: NamedDependency[Broker]) -> Response[WhoAmI]:
    """Return who the request comes from, as the server sees it."""
    if not broker.permissions.is_on:
        return Response(WhoAmI(authentication="off"))
    return Response(_described(broker, current_principal()), headers={"cache-control": "no-store"})


def _described(broker: Broker, principal: Principal) -> WhoAmI:
    roles = broker.users.names_of(principal) - {principal.name, EVERYBODY}
    return WhoAmI("required", principal.name, sorted(roles))
