"""Who sends a request: found before anything else is done with it, by its password, its token, its certificate or its cookie.

- `Authorization: Basic` has a name and a password, `Authorization: Bearer` a token: one of ours, or one that `by_bearer` knows,
  such as a JWT.
- The certificate of a client counts if the request has no such header, and the cookie of a session if it has no certificate.

The rest of the task acts as the principal that was found. `/health` and `/api/login` are open; every other request without a
login is answered with 401.

Logins are remembered by the header that they were made with, until users change, so that a client that sends it with every
request costs a lookup. `fast_requests.py` knows only those.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.security.authentication import Login
from tailrace.broker.security.principals import act_as, come_by, stop_acting
from tailrace.http.connection import CERTIFICATE, EXTENSION
from tailrace.http.login_watch import LoginWatch, RequestLogin, watch_with
from tailrace.http.problems import BEARER_CHALLENGE, MEDIA_TYPE, RequestRefusedError, error_body, problem_body
from tailrace.http.request_guard import check_origin
from tailrace.http.responses import ASGIScope, ASGISend
from tailrace.http.sessions import Sessions
from tailrace.model.clock import Clock
from tailrace.model.errors import AuthenticationError, TailraceError
from tailrace.model.limits import Limits
from tailrace.model.security import ANONYMOUS, Principal

LOGIN_PATH = "/api/login"
_BASIC_CHALLENGE = 'Basic realm="tailrace", charset="UTF-8"'
_OPEN = frozenset((("GET", "/health"), ("HEAD", "/health"), ("OPTIONS", "/health"), ("POST", LOGIN_PATH)))
_OUR_TOKENS = "tlr_"
_MAX_REMEMBERED = 10_000

ByBearer = Callable[[str, str], Awaitable[Login]]
"""Returns the login of a token that is none of ours, sent from an address. Raises `AuthenticationError`."""
NameOfCertificate = Callable[[Mapping[str, Any]], str | None]
"""Returns the name of the user that a verified certificate is for, which is given as by `SSLSocket.getpeercert`."""
ASGIApp = Callable[[Any, Any, ASGISend], Awaitable[None]]


class HttpAuthentication:
    """Used on the event loop."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        limits: Limits,
        *,
        is_tls: bool,
        by_bearer: ByBearer | None = None,
        name_of_certificate: NameOfCertificate | None = None,
    ) -> None:
        self.sessions = Sessions(clock, limits, is_tls=is_tls)
        self._users = broker.users
        self._authenticator = broker.authenticator
        self._audit = broker.audit
        self._by_bearer = by_bearer or broker.oidc.by_bearer
        self._name_of_certificate = name_of_certificate
        self._watch = LoginWatch(self.is_current)
        self._remembered: dict[tuple[bytes, str], RequestLogin] = {}
        broker.users.observers.append(self._users_changed)

    async def serve(self, app: ASGIApp, scope: Any, receive: Any, send: ASGISend) -> None:
        """Let the application answer a request as the principal that sends it, or answer it with 401."""
        host = _host_of(scope)
        come_by("http")
        try:
            found = await self._login_of(scope, host)
            if found is None and not _is_open(scope):
                raise AuthenticationError(
                    "this server demands authentication, and the request has none; send a name and a password, or a token, in"
                    " the header Authorization"
                )
        except TailraceError as error:
            # Mostly an `AuthenticationError`; too much may wait for the threads or for the audit.
            await _refuse(scope, receive, send, error.http_status, error_body(error))
            return
        except RequestRefusedError as error:
            await _refuse(scope, receive, send, error.status, problem_body(error.status, error.detail))
            return
        before = act_as(Principal(ANONYMOUS.name, host) if found is None else found.login.principal)
        try:
            if found is None:
                await app(scope, receive, send)
            else:
                with watch_with(self._watch, found):
                    await app(scope, receive, send)
        finally:
            stop_acting(before)

    async def log_in(self, name: str, password: str, host: str) -> str:
        """Begin the session of a browser, and return the header `Set-Cookie` for it. Raises `AuthenticationError`."""
        await self._audit.room()
        login = await self._authenticator.by_password(name, password, host)
        self._audit.logged_in(login, "session")
        return self.sessions.begin(self._with_version(login))

    def is_current(self, found: RequestLogin) -> bool:
        """Return whether a login still counts."""
        if not self._authenticator.is_current(found.login):
            return False
        if found.password_version is None:
            return True
        user = self._users.find(found.login.principal.name)
        return user is not None and user.version == found.password_version

    def remembered(self, authorization: bytes, host: str) -> Principal | None:
        """Return whose header `Authorization` this is, if it was right before."""
        found = self._remembered.get((authorization, host))
        return found.login.principal if found is not None and self.is_current(found) else None

    async def _login_of(self, scope: ASGIScope, host: str) -> RequestLogin | None:
        """Return the login that a request is sent with, or `None` if it has none. Raises `AuthenticationError`."""
        given, cookies = [], []
        for name, value in scope["headers"]:
            if name == b"authorization":
                given.append(value)
            elif name == b"cookie":
                cookies.append(value)
        if len(given) > 1:
            raise RequestRefusedError(400, f"the request has {len(given)} Authorization headers; send one")
        if given:
            return await self._by_header(given[0], host)
        certificate = self._by_certificate(scope, host)
        if certificate is not None:
            return certificate
        session = self.sessions.find("; ".join(cookie.decode("latin-1") for cookie in cookies)) if cookies else None
        if session is None or not self.is_current(session):
            return None
        check_origin(scope)
        return session

    async def _by_header(self, header: bytes, host: str) -> RequestLogin:
        known = self._remembered.get((header, host))
        if known is not None and self.is_current(known):
            return known
        await self._audit.room()
        scheme, _, value = header.decode("latin-1").partition(" ")
        value = value.strip()
        if scheme.lower() == "basic":
            name, password = self._read_basic(value, host)
            found = self._with_version(await self._authenticator.by_password(name, password, host))
        elif scheme.lower() == "bearer":
            try:
                found = RequestLogin(await self._by_token(value, host))
            except AuthenticationError:
                await asyncio.sleep(self._authenticator.pause_seconds(host))
                raise
        else:
            raise AuthenticationError("the header Authorization has another scheme than Basic and Bearer; use one of these")
        self._audit.logged_in(found.login, "password" if scheme.lower() == "basic" else "token", each_request=True)
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[header, host] = found
        return found

    async def _by_token(self, token: str, host: str) -> Login:
        if token.startswith(_OUR_TOKENS):
            return self._authenticator.by_token(token, host)
        return await self._by_bearer(token, host)

    def _read_basic(self, value: str, host: str) -> tuple[str, str]:
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise self._authenticator.failure("", host, "password")
        return name, password

    def _by_certificate(self, scope: ASGIScope, host: str) -> RequestLogin | None:
        if self._name_of_certificate is None:
            return None
        certificate = (scope.get("extensions") or {}).get(EXTENSION, {}).get(CERTIFICATE, dict)()
        name = self._name_of_certificate(certificate) if certificate else None
        if not name:
            return None
        login = self._authenticator.by_certificate(name, host)
        self._audit.logged_in(login, "certificate", each_request=True)
        return RequestLogin(login)

    def _with_version(self, login: Login) -> RequestLogin:
        user = self._users.find(login.principal.name)
        return RequestLogin(login, None if user is None else user.version)

    def _users_changed(self) -> None:
        self._remembered.clear()
        self._watch.users_changed()


def _host_of(scope: ASGIScope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _is_open(scope: ASGIScope) -> bool:
    return scope["type"] == "http" and (scope["method"], scope["path"].rstrip("/")) in _OPEN


def _challenges(scope: ASGIScope) -> list[tuple[bytes, bytes]]:
    """Return how the client may authenticate. A page's own requests do not make the browser ask for a password."""
    modes = [value for name, value in scope["headers"] if name == b"sec-fetch-mode"]
    offered = [BEARER_CHALLENGE] if modes and modes[0] != b"navigate" else [_BASIC_CHALLENGE, BEARER_CHALLENGE]
    return [(b"www-authenticate", challenge.encode()) for challenge in offered]


async def _refuse(scope: ASGIScope, receive: Any, send: ASGISend, status: int, body: bytes) -> None:
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers += _challenges(scope)
    prefix = ""
    if scope["type"] == "websocket":
        # The handshake is answered as any other request.
        await receive()
        prefix = "websocket."
    await send({"type": f"{prefix}http.response.start", "status": status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": body, "more_body": False})
