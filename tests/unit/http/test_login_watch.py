"""Requests that wait end with their login, and others go on."""

import asyncio

import pytest

from tailrace.broker.security.authentication import Login
from tailrace.http.login_watch import LoginWatch, RequestLogin, until_login_ends, watch_with
from tailrace.model.errors import AuthenticationError
from tailrace.model.security import Principal
from tests.support.aio import on_loop

ALICE = RequestLogin(Login(Principal("alice"), 1))
BRIEF = RequestLogin(Login(Principal("bob"), 2, expires_ms=1))


class Watched:
    """A watch, and which logins have ended."""

    def __init__(self) -> None:
        self.ended: set[RequestLogin] = set()
        self.asked = 0
        self.watch = LoginWatch(self._is_current)

    def _is_current(self, login: RequestLogin) -> bool:
        self.asked += 1
        return login not in self.ended

    async def wait(self, login: RequestLogin, seconds: float = 5.0) -> str:
        """What became of a request that waits so long."""
        try:
            with watch_with(self.watch, login), until_login_ends():
                await asyncio.sleep(seconds)
        except AuthenticationError as error:
            assert error.outcome == "unknown"
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()
            return "ended"
        return "done"


@on_loop
async def test_a_request_ends_when_its_login_was_taken_away() -> None:
    watched = Watched()
    alice, bob = asyncio.create_task(watched.wait(ALICE)), asyncio.create_task(watched.wait(BRIEF))
    await asyncio.sleep(0.1)
    watched.ended.add(ALICE)
    watched.watch.users_changed()
    async with asyncio.timeout(1.5):
        assert await alice == "ended"
    assert not bob.done()
    bob.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bob


@on_loop
async def test_a_request_ends_when_its_login_expires_and_nobody_changes_anything() -> None:
    watched = Watched()
    waiting = asyncio.create_task(watched.wait(BRIEF))
    await asyncio.sleep(0.1)
    watched.ended.add(BRIEF)
    async with asyncio.timeout(1.5):
        assert await waiting == "ended"


@on_loop
async def test_a_login_that_has_ended_before_is_not_waited_with() -> None:
    watched = Watched()
    watched.ended.add(ALICE)
    assert await watched.wait(ALICE) == "ended"


@on_loop
async def test_what_ends_its_own_login_is_still_answered() -> None:
    watched = Watched()
    with watch_with(watched.watch, ALICE), until_login_ends():
        watched.ended.add(ALICE)
        watched.watch.users_changed()
        await asyncio.sleep(0.2)


@on_loop
async def test_logins_that_do_not_expire_are_only_checked_after_a_change() -> None:
    watched = Watched()
    waiting = [asyncio.create_task(watched.wait(ALICE, 1.0)) for _ in range(10)]
    assert await asyncio.gather(*waiting) == ["done"] * 10
    assert watched.asked == len(waiting)


@on_loop
async def test_a_request_without_a_login_is_not_watched() -> None:
    with until_login_ends():
        await asyncio.sleep(0)
