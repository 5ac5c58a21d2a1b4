"""Logins of browsers: a cookie stands for a login that was made with a password.

Sessions are in memory only, so a restart of the server ends all of them. What is kept is a hash of each cookie. A page of
another site can't use the cookie, because browsers do not send it there (SameSite=Strict); a page of another port of this
machine, which browsers take for the same site, is refused by its Origin (`request_guard.py`).
"""

import hashlib
import secrets
from collections import OrderedDict
from typing import NamedTuple

from tailrace.http.login_watch import RequestLogin
from tailrace.model.clock import Clock
from tailrace.model.limits import Limits

_COOKIE_BYTES = 32
_PLAIN_NAME = "tailrace_session"
_TLS_NAME = "__Host-tailrace_session"
"""A browser takes a cookie of such a name over TLS only, and from no other host of the domain."""


class Sessions:
    """Used on the event loop."""

    def __init__(self, clock: Clock, limits: Limits, *, is_tls: bool) -> None:
        self._clock = clock
        self._limits = limits
        self._is_tls = is_tls
        self._name = _TLS_NAME if is_tls else _PLAIN_NAME
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        """By the hash of the cookie, in the order in which they began, which is that in which they end."""

    def begin(self, login: RequestLogin) -> str:
        """Begin a session and return the header `Set-Cookie` for it."""
        self._forget_ended()
        name = login.login.principal.name
        own = [key for key, session in self._sessions.items() if session.login.login.principal.name == name]
        if len(own) >= self._limits.sessions_of_user:
            del self._sessions[own[0]]
        if len(self._sessions) >= self._limits.sessions:
            self._sessions.popitem(last=False)
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        seconds = self._limits.session_seconds
        self._sessions[_hash(cookie)] = _Session(login, self._clock.monotonic() + seconds)
        return self._cookie(cookie, seconds)

    def find(self, cookies: str) -> RequestLogin | None:
        """Return the login of the session in a header `Cookie`."""
        cookie = self._cookie_in(cookies)
        session = None if cookie is None else self._sessions.get(_hash(cookie))
        return None if session is None or session.ends_at <= self._clock.monotonic() else session.login

    def end(self, cookies: str) -> str:
        """End the session in a header `Cookie`, and return the header `Set-Cookie` that removes it."""
        cookie = self._cookie_in(cookies)
        if cookie is not None:
            self._sessions.pop(_hash(cookie), None)
        return self._cookie("", 0)

    def __len__(self) -> int:
        return len(self._sessions)

    def _cookie(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self._is_tls else ""
        return f"{self._name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def _cookie_in(self, cookies: str) -> str | None:
        for pair in cookies.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self._name and value:
                return value
        return None

    def _forget_ended(self) -> None:
        now = self._clock.monotonic()
        while self._sessions and next(iter(self._sessions.values())).ends_at <= now:
            self._sessions.popitem(last=False)


class _Session(NamedTuple):
    login: RequestLogin
    ends_at: float


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
