"""Ends requests that wait or stream when their login ends: its user or token was dropped, its password changed, or it expired.

Only requests that take long are watched, while they do: those that write are finished. A request learns of it within a second,
as an `AuthenticationError` that leaves `until_login_ends`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from tailrace.broker.security.authentication import Login
from tailrace.model.errors import AuthenticationError

_CHECK_SECONDS = 0.4
_CHECKS_AFTER_A_CHANGE = 2
"""A request that has itself changed a password or dropped a user has until the second check to be answered."""


class RequestLogin(msgspec.Struct, frozen=True):
    """The login that a request was sent with."""

    login: Login
    password_version: int | None = None
    """The version of its user, if it was a password, or a session that began with one: it ends when the password changes."""


class LoginWatch:
    """Checks the logins of waiting requests while there are any. Used on the event loop."""

    def __init__(self, is_current: Callable[[RequestLogin], bool]) -> None:
        self._is_current = is_current
        self._waiting: set[_Waiting] = set()
        self._checks_left = 0
        self._timer: asyncio.TimerHandle | None = None

    def users_changed(self) -> None:
        """Check all logins soon, not only those that expire."""
        self._checks_left = self._checks_left or _CHECKS_AFTER_A_CHANGE

    @contextmanager
    def watching(self, login: RequestLogin) -> Iterator[None]:
        """Leave the block with an `AuthenticationError` when the login ends."""
        task = asyncio.current_task()
        if task is None:
            yield
            return
        if not self._is_current(login):
            raise login_ended()
        one = _Waiting(login, task)
        self._waiting.add(one)
        self._check_later()
        try:
            yield
        except asyncio.CancelledError:
            if not one.has_ended:
                raise
            task.uncancel()
            raise login_ended() from None
        finally:
            self._waiting.discard(one)

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._timer = None
        have_users_changed = self._checks_left == 1
        self._checks_left = max(0, self._checks_left - 1)
        for one in self._waiting:
            may_have_ended = have_users_changed or one.login.login.expires_ms is not None
            if may_have_ended and not one.has_ended and not self._is_current(one.login):
                one.has_ended = True
                one.task.cancel()
        if self._waiting:
            self._check_later()


class _Waiting:
    __slots__ = ("has_ended", "login", "task")

    def __init__(self, login: RequestLogin, task: asyncio.Task[object]) -> None:
        self.login = login
        self.task = task
        self.has_ended = False


_watched: ContextVar[tuple[LoginWatch, RequestLogin] | None] = ContextVar("watched_login", default=None)


@contextmanager
def watch_with(watch: LoginWatch, login: RequestLogin) -> Iterator[None]:
    """Let `until_login_ends` watch this login inside of the block."""
    before = _watched.set((watch, login))
    try:
        yield
    finally:
        _watched.reset(before)


@contextmanager
def until_login_ends() -> Iterator[None]:
    """Leave the block with an `AuthenticationError` when the login of the request ends. Without one nothing happens."""
    watched = _watched.get()
    if watched is None:
        yield
        return
    watch, login = watched
    with watch.watching(login):
        yield


def login_ended() -> AuthenticationError:
    error = AuthenticationError(
        "the login has ended: it has expired, or its user, its token or its password was changed or dropped. Log in again. What"
        " the request asked for may have been done"
    )
    vars(error)["outcome"] = "unknown"
    return error
