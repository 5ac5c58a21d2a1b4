"""HTTP is loaded with its first connection, once, and not before."""

import asyncio
import socket
import subprocess
import sys

import httpx
import pytest

from tailrace.broker.broker import Broker
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.http.listener import HttpListener
from tailrace.http.on_demand import HttpOnDemand
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.memory import MemoryStore
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


def listener(bound: socket.socket) -> HttpListener:
    clock = ManualClock()
    app = create_app(Broker(MemoryStore(), clock), ServerStatus("fsync", clock, lambda: None), DEFAULT_LIMITS)
    return HttpListener(app, bound, DEFAULT_LIMITS, 1)


def test_importing_the_server_loads_no_framework() -> None:
    listeners = "tailrace.server, tailrace.kafka.apis, tailrace.http.on_demand, tailrace.http.health"
    code = f"import sys, {listeners}; sys.exit('litestar' in sys.modules or 'uvicorn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_the_first_requests_are_answered_by_one_listener() -> None:
    made: list[HttpListener] = []

    def make() -> HttpListener:
        made.append(listener(bound))
        return made[-1]

    with socket.create_server(("127.0.0.1", 0)) as bound:
        http = HttpOnDemand(bound, make)
        await http.start()
        assert not http.is_loaded
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", timeout=PATIENCE_SECONDS) as client:
            answers = await asyncio.gather(*(client.get("/health") for _ in range(5)))
        assert [answer.status_code for answer in answers] == [200] * 5
        assert len(made) == 1
        await http.stop()


async def test_a_stop_without_any_connection_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        http = HttpOnDemand(bound, lambda: listener(bound))
        await http.start()
        await http.stop()
        assert not http.is_loaded


async def test_a_failed_load_is_retried_and_waiting_clients_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[str] = []

    def make() -> HttpListener:
        tries.append("to load it")
        if len(tries) == 1:
            raise OSError("too many open files")
        return listener(bound)

    with socket.create_server(("127.0.0.1", 0)) as bound:
        http = HttpOnDemand(bound, make)
        await http.start()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", timeout=PATIENCE_SECONDS) as client:
            assert (await client.get("/health")).status_code == 200
        assert len(tries) == 2
        assert "too many open files" in caplog.text
        await http.stop()


async def test_a_stop_does_not_wait_for_a_failing_load() -> None:
    tried = asyncio.Event()

    def make() -> HttpListener:
        tried.set()
        raise ImportError("no module named 'half'")

    with socket.create_server(("127.0.0.1", 0)) as bound:
        http = HttpOnDemand(bound, make)
        await http.start()
        with socket.create_connection(bound.getsockname()):
            await asyncio.wait_for(tried.wait(), PATIENCE_SECONDS)
            await asyncio.wait_for(http.stop(), PATIENCE_SECONDS)
        assert not http.is_loaded
