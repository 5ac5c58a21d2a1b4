"""Who sends a request: passwords and tokens become principals, and failed attempts are slowed down.

A wrong password, a user that does not exist and one without a password are the same error, after the same work. Logins that
succeeded are remembered by a keyed hash, so that a client that sends its password with every request costs a lookup.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from tailrace.broker.read_threads import ReadThreads
from tailrace.broker.security import passwords
from tailrace.broker.security.users import Users
from tailrace.model.clock import Clock
from tailrace.model.errors import AuthenticationError, UnacceptableCredentialError
from tailrace.model.limits import Limits
from tailrace.model.security import SERVER, Principal, ScramVerifier, User
from tailrace.model.server_credentials import new_token

_MAX_REMEMBERED = 10_000
_FREE_FAILURES = 3
"""Failed attempts that are answered at once."""
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 8.0
_FORGIVEN_SECONDS = 60.0
"""After how long without another one failed attempts are forgotten."""
_AT_THE_SAME_TIME = 2
"""Passwords that are checked at the same time: each takes a core for some milliseconds."""
_REFUSED = "authentication failed: the name, the password or the token is wrong, or has expired"


class Login(msgspec.Struct, frozen=True):
    """A principal that has authenticated, and for how long that counts."""

    principal: Principal
    user_id: int = 0
    """The id of its user; 0 if it is none of the server's users, such as the owner of a certificate."""
    token_id: str = ""
    expires_ms: int | None = None


class Authenticator:
    """Used on the event loop."""

    def __init__(self, users: Users, threads: ReadThreads, clock: Clock, limits: Limits) -> None:
        self._users = users
        self._threads = threads
        self._clock = clock
        self._limits = limits
        self._key = secrets.token_bytes(32)
        self.decoy_key = self._key
        """Makes verifiers for users that there are not. Set by the broker, which stores it: they are the same after a start."""
        self.server_secret = new_token()
        """What processes that the server has started send as a token or, as the user `SERVER`, as a password. It is known to
        this run of the server only."""
        self._server_verifiers: dict[str, ScramVerifier] = {}
        self._remembered: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        """Keyed hashes of names and passwords that were right, with the id and version of the user then."""
        self._turn = asyncio.Semaphore(_AT_THE_SAME_TIME)
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """How often attempts from an address have failed, and when last."""
        self.on_failure: Callable[[str, str, str], None] = lambda name, host, how: None
        """Called with the name, the address and the kind of each failed attempt."""

    async def by_password(self, name: str, password: str, host: str) -> Login:
        """Return the login of a user with a password. Raises `AuthenticationError`."""
        if name == SERVER.name and self._is_server_secret(password):
            return _server_login(host)
        user = self._users.find(name)
        remembered = self._hash(name, password)
        if user is not None and self._remembered.get(remembered) == (user.id, user.version):
            return Login(Principal(name, host), user.id)
        await self._pause(host)
        if not await self._is_right(name, user, password):
            raise self.failure(name, host, "password")
        now = self._users.find(name)
        if user is None or now is None or (now.id, now.version) != (user.id, user.version):
            raise self.failure(name, host, "password")
        self._remembered[remembered] = (user.id, user.version)
        if len(self._remembered) > _MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        self.succeeded(host)
        return Login(Principal(name, host), user.id)

    def by_token(self, text: str, host: str) -> Login:
        """Return the login of a token's user. Raises `AuthenticationError`. A token can't be guessed, so there is no pause."""
        if self._is_server_secret(text):
            return _server_login(host)
        token = self._users.find_token(text)
        user = None if token is None else self._users.find(token.user)
        if token is None or user is None:
            raise self.failure("", host, "token")
        return Login(Principal(user.name, host), user.id, token.id, token.expires_ms)

    def by_certificate(self, name: str, host: str) -> Login:
        """Return the login of the owner of a certificate that was verified, and that is for this name."""
        user = self._users.find(name)
        return Login(Principal(name, host), 0 if user is None else user.id)

    def by_verifier(self, user: User, host: str) -> Login:
        """Return the login of a user who has shown by SCRAM that it knows its password."""
        if user.name == SERVER.name:
            return _server_login(host)
        self.succeeded(host)
        return Login(Principal(user.name, host), user.id)

    def verifier(self, name: str, mechanism: str) -> tuple[User | None, ScramVerifier]:
        """Return a user and its verifier for a mechanism of SCRAM, or one that nothing matches, if there is none."""
        if name == SERVER.name:
            return User(id=0, name=name), self._server_verifier(mechanism)
        user = self._users.find(name)
        found = [] if user is None else [one for one in user.verifiers if one.mechanism == mechanism]
        return (user, found[0]) if found else (None, passwords.decoy(mechanism, name, self.decoy_key))

    def is_current(self, login: Login) -> bool:
        """Return whether a login still counts: its user was not dropped, its token neither dropped nor expired."""
        if login.expires_ms is not None and login.expires_ms <= self._clock.now_ms():
            return False
        if login.token_id and not self._users.has_token(login.token_id):
            return False
        user = self._users.find(login.principal.name)
        return login.user_id == 0 or (user is not None and user.id == login.user_id)

    def failure(self, name: str, host: str, how: str) -> AuthenticationError:
        """Count a failed attempt, and return its error."""
        failures, _ = self._failures.pop(host, (0, 0.0))
        self._failures[host] = (failures + 1, self._clock.monotonic())
        if len(self._failures) > _MAX_REMEMBERED:
            self._failures.popitem(last=False)
        self.on_failure(name, host, how)
        return AuthenticationError(_REFUSED)

    def succeeded(self, host: str) -> None:
        self._failures.pop(host, None)

    @property
    def failing_addresses(self) -> int:
        """Return from how many addresses failed attempts are remembered."""
        return len(self._failures)

    def pause_seconds(self, host: str) -> float:
        """Return how long the next attempt from an address has to wait for its answer."""
        failures, last = self._failures.get(host, (0, 0.0))
        if failures < _FREE_FAILURES or self._clock.monotonic() - last > _FORGIVEN_SECONDS:
            return 0.0
        return min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(failures - _FREE_FAILURES, 10))

    async def _pause(self, host: str) -> None:
        seconds = self.pause_seconds(host)
        if seconds:
            await asyncio.sleep(seconds)

    async def _is_right(self, name: str, user: User | None, password: str) -> bool:
        try:
            given = passwords.normalized(password, self._limits)
        except UnacceptableCredentialError:
            return False
        if user is None or not user.verifiers:
            _, verifier = self.verifier(name, "SCRAM-SHA-256")
        else:
            verifier = user.verifiers[0]
        async with self._turn:
            return await self._threads.run(passwords.matches, verifier, given)

    def _is_server_secret(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self.server_secret.encode())

    def _server_verifier(self, mechanism: str) -> ScramVerifier:
        if not self._server_verifiers:
            made = passwords.make_verifiers(self.server_secret.encode())
            self._server_verifiers = {verifier.mechanism: verifier for verifier in made}
        return self._server_verifiers[mechanism]

    def _hash(self, name: str, password: str) -> bytes:
        """Return a hash that says nothing to anybody without the key, which is made anew at each start."""
        text = f"{len(name)}:{name}{password}".encode(errors="surrogatepass")
        return hmac.digest(self._key, hashlib.sha256(text).digest(), "sha256")


def _server_login(host: str) -> Login:
    return Login(msgspec.structs.replace(SERVER, host=host))
