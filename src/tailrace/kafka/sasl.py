"""Who a Kafka connection has shown to be: logins by SASL and by client certificates, for how long they count, and what may be
asked before there is one.

A client names a mechanism (`SaslHandshake`) and exchanges messages of it (`SaslAuthenticate`): one for PLAIN and OAUTHBEARER,
two for SCRAM. It does so again before its session ends (KIP-368), as the same user. A login that has failed costs the
connection.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from struct import Struct
from typing import NamedTuple, Protocol

from tailrace.broker.security.audit import Audit
from tailrace.broker.security.authentication import Authenticator, Login
from tailrace.broker.security.passwords import MECHANISMS
from tailrace.broker.security.principals import come_by
from tailrace.broker.security.settings import Mechanism, SecuritySettings
from tailrace.broker.security.users import Users
from tailrace.kafka.scram import ScramExchange
from tailrace.model.clock import Clock
from tailrace.model.errors import AuthenticationError, IllegalSaslStateError, TailraceError, UnsupportedMechanismError
from tailrace.model.limits import Limits
from tailrace.model.security import ANONYMOUS, Principal, User
from tailrace.wire.messages.authentication import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from tailrace.wire.messages.cluster import API_VERSIONS_API

ByBearer = Callable[[str, str], Awaitable[Login]]
"""Returns the login of a token that a client at an address sends. Raises `AuthenticationError`."""
NameOfCertificate = Callable[[Mapping[str, object]], str | None]
"""Returns the name of the user of a verified certificate, as `ssl.SSLSocket.getpeercert` describes it."""

_API_KEY = Struct(">h")
_ASKED_FIRST = (API_VERSIONS_API.key, SASL_HANDSHAKE_API.key, SASL_AUTHENTICATE_API.key)
"""What is answered without a login."""
_SENDS_SECRETS = ("PLAIN", "OAUTHBEARER")
_WITHOUT_PASSWORD = ("OAUTHBEARER",)
_NONCE_BYTES = 24
_NEVER = float("inf")
_MALFORMED = "the message is not one of the mechanism"


class SaslAnswer(NamedTuple):
    message: bytes
    lifetime_ms: int = 0
    """How long the session lasts that begins with it; 0 if it does not end, or has not begun."""


class SessionEnd(NamedTuple):
    """Why the server closes a connection."""

    reason: str
    """The label of the metric `connections_closed`."""
    message: str


class KafkaAuthentication:
    """What the connections of a listener need to authenticate."""

    def __init__(
        self,
        authenticator: Authenticator,
        users: Users,
        audit: Audit,
        settings: SecuritySettings,
        clock: Clock,
        limits: Limits,
        by_bearer: ByBearer,
        name_of_certificate: NameOfCertificate | None = None,
    ) -> None:
        """`by_bearer` decides on what OAUTHBEARER sends."""
        self.authenticator = authenticator
        self.users = users
        self.audit = audit
        self.settings = settings
        self.clock = clock
        self.limits = limits
        self.by_bearer = by_bearer
        self.name_of_certificate = name_of_certificate

    def mechanisms(self, *, is_encrypted: bool) -> tuple[Mechanism, ...]:
        """Return the mechanisms that a connection may use: secrets are not sent where others can read them."""
        may_send_secrets = is_encrypted or self.settings.plain_without_tls
        return tuple(one for one in self.settings.sasl_mechanisms if may_send_secrets or one not in _SENDS_SECRETS)

    def by_certificate(self, certificate: Mapping[str, object] | None, host: str) -> Login | None:
        """Return the login of the certificate that a client has shown, if it has, and it names anybody."""
        if self.settings.client_certificates == "off" or self.name_of_certificate is None or not certificate:
            return None
        name = self.name_of_certificate(certificate)
        if not name:
            return None
        login = self.authenticator.by_certificate(name, host)
        come_by("kafka")
        self.audit.logged_in(login, "certificate")
        return login


class KafkaSession:
    """The login of one connection, and the exchange by which it logs in."""

    def __init__(
        self,
        authentication: KafkaAuthentication,
        host: str,
        *,
        is_encrypted: bool,
        certificate: Mapping[str, object] | None = None,
        on_login: Callable[[Login], None],
    ) -> None:
        """`on_login` is called with each login but that of a certificate, which is there from the beginning."""
        self._authentication = authentication
        self._host = host
        self._on_login = on_login
        self._exchange: _Exchange | None = None
        self._mechanism = ""
        self._ends_at = _NEVER
        self._by_sasl = False
        self._password_version: int | None = None
        """The version of the user whose password the client had. With another password the login ends."""
        self.mechanisms = authentication.mechanisms(is_encrypted=is_encrypted)
        self.login = authentication.by_certificate(certificate, host)
        self.is_open = self.login is not None
        """Whether requests of all kinds are answered."""
        self.failure = ""
        """Why the connection is to be closed when its requests are answered."""

    @property
    def principal(self) -> Principal:
        return Principal(ANONYMOUS.name, self._host) if self.login is None else self.login.principal

    def close(self) -> None:
        """Let go of the connection."""
        self._on_login = _ignore
        self.is_open = False

    def refusal(self, request: bytearray) -> SessionEnd | None:
        """Return why a request is not answered now."""
        (key,) = _API_KEY.unpack_from(request)
        if self.is_open or (key in _ASKED_FIRST and not self.failure):
            return None
        if self.login is None:
            return SessionEnd("unauthenticated", f"{self._host} sent a request of API {key} before it authenticated")
        return SessionEnd(
            "session_over", f"the session of {self.login.principal.name!r} at {self._host} is over, and it did not log in again"
        )

    def inspect(self, open_seconds: float) -> SessionEnd | None:
        """Return why the connection can't stay, if it can't. It has been open for this long."""
        login = self.login
        if login is None:
            if open_seconds > self._authentication.limits.request_seconds:
                return SessionEnd(
                    "unauthenticated",
                    f"{self._host} did not authenticate within {self._authentication.limits.request_seconds} s",
                )
        elif not self._is_current(login):
            return SessionEnd(
                "login_revoked",
                f"the login of {login.principal.name!r} at {self._host} counts no more: its user or token was dropped or"
                " has expired, or its password was changed",
            )
        elif self.is_open and self._authentication.clock.monotonic() >= self._ends_at:
            self.is_open = False
        return None

    def handshake(self, mechanism: str) -> None:
        """Begin an exchange. Whatever this raises, the connection is to be closed."""
        try:
            self._exchange = self._exchange_of(mechanism)
            self._mechanism = mechanism
        except TailraceError as error:
            self._fail(error)
            raise

    async def authenticate(self, message: bytes) -> SaslAnswer:
        """Answer a message of the exchange. Whatever this raises, the connection is to be closed."""
        exchange = self._exchange
        try:
            if exchange is None:
                raise IllegalSaslStateError("no exchange has begun; begin one with SaslHandshake")
            if len(message) > self._authentication.limits.unauthenticated_request_bytes:
                raise AuthenticationError(_MALFORMED)
            await self._authentication.audit.room()
            answer, login = await exchange.step(message)
            if login is None:
                return SaslAnswer(answer)
            self._exchange = None
            lifetime_ms = self._begin(login)
            self._authentication.audit.logged_in(login, self._mechanism)
            return SaslAnswer(answer, lifetime_ms)
        except BaseException as error:
            self._fail(error)
            raise

    def _is_current(self, login: Login) -> bool:
        if not self._authentication.authenticator.is_current(login):
            return False
        user = self._authentication.users.find(login.principal.name)
        return self._password_version is None or (user is not None and user.version == self._password_version)

    def _exchange_of(self, mechanism: str) -> "_Exchange":
        if self._exchange is not None:
            raise IllegalSaslStateError("the exchange of a mechanism has begun; go on with SaslAuthenticate")
        if mechanism not in self.mechanisms:
            raise UnsupportedMechanismError(
                f"the mechanism {mechanism[:32]!r} is not offered here; use {' or '.join(self.mechanisms) or 'TLS'}"
            )
        if mechanism in MECHANISMS:
            return _Scram(self._authentication, self._host, mechanism)
        if mechanism == "PLAIN":
            return _Plain(self._authentication.authenticator, self._host)
        return _Bearer(self._authentication.by_bearer, self._host)

    def _fail(self, error: BaseException) -> None:
        self.failure = str(error) or type(error).__name__
        self.is_open = False

    def _begin(self, login: Login) -> int:
        """Begin a session, and return its milliseconds."""
        before = self.login
        if self._by_sasl and before is not None and before.principal.name != login.principal.name:
            raise AuthenticationError("a client that logs in again has to do so as the same user")
        user = self._authentication.users.find(login.principal.name)
        has_password = self._mechanism not in _WITHOUT_PASSWORD and user is not None and user.id == login.user_id
        self._password_version = user.version if has_password and user is not None else None
        clock = self._authentication.clock
        lifetimes = [self._authentication.settings.session_seconds * 1000]
        if login.expires_ms is not None:
            lifetimes.append(login.expires_ms - clock.now_ms())
            if lifetimes[-1] <= 0:
                raise AuthenticationError("the login has expired")
        lifetime_ms = min((each for each in lifetimes if each > 0), default=0)
        self._ends_at = clock.monotonic() + lifetime_ms / 1000 if lifetime_ms else _NEVER
        self._by_sasl = True
        self.login = login
        self.is_open = True
        self._on_login(login)
        return lifetime_ms


class _Exchange(Protocol):
    async def step(self, message: bytes) -> tuple[bytes, Login | None]:
        """Return what is answered to a message, and the login if it was the last one. Raises `AuthenticationError`."""


class _Plain:
    """RFC 4616."""

    def __init__(self, authenticator: Authenticator, host: str) -> None:
        self._authenticator = authenticator
        self._host = host

    async def step(self, message: bytes) -> tuple[bytes, Login | None]:
        try:
            authorized, name, password = message.decode().split("\0")
        except ValueError:
            raise AuthenticationError(_MALFORMED) from None
        if authorized not in ("", name):
            raise AuthenticationError("the client wants to act as another user than the one whose password it has")
        return b"", await self._authenticator.by_password(name, password, self._host)


class _Scram:
    """RFC 5802 and RFC 7677."""

    def __init__(self, authentication: KafkaAuthentication, host: str, mechanism: str) -> None:
        self._authenticator = authentication.authenticator
        self._users = authentication.users
        self._host = host
        self._mechanism = mechanism
        self._scram = ScramExchange(mechanism, self._authenticator.verifier, secrets.token_urlsafe(_NONCE_BYTES))
        self._has_begun = False

    async def step(self, message: bytes) -> tuple[bytes, Login | None]:
        if not self._has_begun:
            self._has_begun = True
            return self._scram.first(message), None
        answer = self._scram.final(message)
        user = self._scram.user
        if answer is None or user is None or self._has_changed(user):
            raise await self._failure()
        return answer, self._authenticator.by_verifier(user, self._host)

    async def _failure(self) -> AuthenticationError:
        """Return the error of a wrong password, after the pause that its address has earned."""
        error = self._authenticator.failure(self._scram.name, self._host, self._mechanism)
        await asyncio.sleep(self._authenticator.pause_seconds(self._host))
        return error

    def _has_changed(self, user: User) -> bool:
        """Return whether the user was dropped, or got another password, since the exchange began."""
        now = self._users.find(user.name)
        return bool(user.id) and (now is None or (now.id, now.version) != (user.id, user.version))


class _Bearer:
    """RFC 7628."""

    def __init__(self, by_bearer: ByBearer, host: str) -> None:
        self._by_bearer = by_bearer
        self._host = host

    async def step(self, message: bytes) -> tuple[bytes, Login | None]:
        try:
            header, *pairs, last, end = message.decode().split("\x01")
        except ValueError:
            raise AuthenticationError(_MALFORMED) from None
        values = dict(pair.partition("=")[::2] for pair in pairs)
        scheme, _, token = values.get("auth", "").partition(" ")
        if last or end or not header.startswith(("n,", "y,")) or scheme.lower() != "bearer" or not token:
            raise AuthenticationError(_MALFORMED)
        return b"", await self._by_bearer(token.strip(), self._host)


def _ignore(login: Login) -> None:
    pass
