"""The framework is loaded when it is needed, once; what needs none is answered without."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tailrace.http.app import Application
from tailrace.http.disconnect import ASGIReceive
from tailrace.http.fast_endpoints import FastEndpoints, FastResponse, send_response
from tailrace.http.problems import UnexpectedErrors
from tailrace.http.request_guard import RequestGuard
from tailrace.model.limits import DEFAULT_LIMITS
from tests.support.aio import on_loop


async def framework(scope: Any, receive: Any, send: Any) -> None:
    await send_response(FastResponse(b'"framed"'), send)


async def directly(body: bytes, receive: ASGIReceive) -> FastResponse:
    return FastResponse(b'"direct"')


@asynccontextmanager
async def asking(load: Callable[[], Any]) -> AsyncIterator[httpx.AsyncClient]:
    direct = FastEndpoints({("GET", "/direct"): directly}, RequestGuard(False), UnexpectedErrors(), DEFAULT_LIMITS)
    transport = httpx.ASGITransport(Application(direct, load))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield client


def test_the_application_and_its_listener_load_no_framework() -> None:
    code = "import sys, tailrace.http.app, tailrace.http.listener; sys.exit('litestar' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@on_loop
async def test_what_needs_no_framework_is_answered_while_it_loads() -> None:
    may_load = threading.Event()
    loaded = []

    def load() -> Any:
        loaded.append(may_load.wait(30))
        return framework

    async with asking(load) as client:
        waiting = [asyncio.ensure_future(client.get("/other")) for _ in range(3)]
        assert (await client.get("/direct")).json() == "direct"
        assert not any(each.done() for each in waiting)
        may_load.set()
        assert [(await each).json() for each in waiting] == ["framed"] * 3
        assert (await client.get("/other")).json() == "framed"
    assert loaded == [True]


@on_loop
async def test_one_who_loses_patience_does_not_end_the_loading_for_others() -> None:
    may_load = threading.Event()

    def load() -> Any:
        may_load.wait(30)
        return framework

    async with asking(load) as client:
        impatient, patient = (asyncio.ensure_future(client.get("/other")) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        may_load.set()
        assert (await patient).json() == "framed"


@on_loop
async def test_what_can_not_be_loaded_now_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[str] = []

    def load() -> Any:
        tries.append("to load it")
        if len(tries) == 1:
            raise OSError("too many open files")
        return framework

    async with asking(load) as client:
        refused = await client.get("/other")
        assert (refused.status_code, refused.json()["retriable"]) == (503, True)
        assert "too many open files" in caplog.text
        assert (await client.get("/direct")).json() == "direct"
        assert (await client.get("/other")).json() == "framed"
