"""The application: errors, health, loopback names, and the framework that is loaded when it is needed."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.broker.broker import Broker
from tailrace.http.app import Application, create_app
from tailrace.http.disconnect import ASGIReceive
from tailrace.http.fast_endpoints import FastEndpoints, FastResponse, send_response
from tailrace.http.health import ServerStatus
from tailrace.http.problems import UnexpectedErrors
from tailrace.http.request_guard import RequestGuard
from tailrace.model.clock import SystemClock
from tailrace.model.errors import StorageFailedError, TailraceError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.record import Message, Published
from tailrace.store.embedded import EmbeddedStore
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop

CLOCK = SystemClock()
MESSAGE = {"messages": [{"topic": "a", "value": 1}]}


@asynccontextmanager
async def client_of(broker: Broker, failure: TailraceError | None = None) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(broker, ServerStatus("fsync", CLOCK, lambda: failure), DEFAULT_LIMITS)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield client


@on_loop
async def test_an_unexpected_error_is_counted_logged_and_kept_from_the_caller(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(messages: Sequence[Message]) -> list[Published]:
        raise KeyError("a secret of the inside")

    broker = Broker(MemoryStore(), CLOCK)
    monkeypatch.setattr(broker.publisher, "publish", fail)
    async with client_of(broker) as client:
        with caplog.at_level(logging.ERROR, "tailrace.http"):
            answer = await client.post("/api/topics/publish", json=MESSAGE)
        shown = (await client.get("/metrics")).text
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert (problem["outcome"], problem["retriable"]) == ("unknown", False)
    assert "secret" not in answer.text
    assert "a secret of the inside" in caplog.text
    assert "tailrace_unexpected_errors_total 1.0" in shown


@on_loop
async def test_health_is_unavailable_once_storage_has_failed() -> None:
    async with client_of(Broker(MemoryStore(), CLOCK), StorageFailedError("the disk is gone")) as client:
        answer = await client.get("/health")
    assert answer.status_code == 503
    assert (answer.json()["status"], answer.json()["failure"]) == ("failed", "the disk is gone")


@on_loop
async def test_health_and_metrics_report_a_full_disk(tmp_path: Path) -> None:
    with closing(EmbeddedStore.open(tmp_path, limits=Limits(min_free_bytes=1 << 60))) as store:
        async with client_of(Broker(store, CLOCK)) as client:
            health, metrics, page = [await client.get(path) for path in ("/health", "/metrics", "/")]
    assert (health.status_code, health.json()["status"]) == (200, "full")
    assert "tailrace_disk_full 1.0" in metrics.text
    assert "The disk is full" in page.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8080", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("localhost.example", 403),
        ("127.0.0.1.example:8080", 403),
        ("example", 403),
        ("[::1", 400),
        ("", 403),
    ],
)
def test_a_server_on_loopback_answers_only_to_loopback_names(host: str, status: int) -> None:
    @on_loop
    async def run() -> None:
        app = create_app(
            Broker(MemoryStore(), CLOCK), ServerStatus("fsync", CLOCK, lambda: None), DEFAULT_LIMITS, on_loopback=True
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            assert (await client.get("/api/topics", headers={"host": host})).status_code == status

    run()


@on_loop
async def test_an_unknown_path_is_answered_with_where_the_endpoints_are() -> None:
    async with client_of(Broker(MemoryStore(), CLOCK)) as client:
        lost = await client.get("/console")
        told = lost.json()["detail"]
        assert (lost.status_code, told) == (404, "/console does not exist; /api/openapi.json lists all endpoints")
        assert (await client.get("/api/openapi.json")).status_code == 200


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
async def test_fast_endpoints_respond_while_the_framework_loads() -> None:
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
async def test_a_cancelled_request_does_not_cancel_the_load_for_others() -> None:
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
async def test_a_failed_load_is_answered_with_503_and_retried(caplog: pytest.LogCaptureFixture) -> None:
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
