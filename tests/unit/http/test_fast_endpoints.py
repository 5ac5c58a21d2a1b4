"""Fast endpoints respond as the same endpoints in Litestar do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.reading.answers import ReadAnswer
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.http.statements import SqlExecutor
from tailrace.model.clock import SystemClock
from tailrace.model.errors import SqlError
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.table import ColumnType
from tailrace.sql.results import Result, ResultColumn, ResultEncoder, ResultStream
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop

CLOCK = SystemClock()
JSON = {"content-type": "application/json"}
LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, request_bytes=1_000)
ONCE = b'{"publisher": "me", "number": 1, "messages": [{"topic": "a", "value": 1}]}'


@asynccontextmanager
async def running(engine: SqlExecutor | None = None) -> AsyncIterator[tuple[Broker, Any]]:
    store = MemoryStore()
    broker = Broker(store, CLOCK, LIMITS)
    await broker.start()
    await broker.topics.create("a", 1)
    app = create_app(broker, ServerStatus("fsync", CLOCK, lambda: None), LIMITS, engine=engine, on_loopback=True)
    yield broker, app
    await broker.close()


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("publish", ONCE, JSON, 200),
        ("publish", b'{"messages": [{"topic": "nowhere", "value": 1}]}', JSON, 404),
        ("publish", b'{"messages": 1}', JSON, 400),
        ("publish", b"{", JSON, 400),
        ("publish", ONCE, {}, 415),
        ("publish", ONCE, {"content-type": "text/plain"}, 415),
        ("publish", ONCE, {**JSON, "host": "elsewhere.example"}, 403),
        ("publish", b" " * 2_000, JSON, 413),
        ("fetch", b'{"topic": "a", "positions": [{"partition_id": 0, "offset": 0}]}', JSON, 200),
        ("fetch", b'{"topic": "a", "positions": [{"partition_id": 7, "offset": 0}]}', JSON, 404),
    ],
)
@on_loop
async def test_responses_are_equal_on_both_paths(path: str, body: bytes, headers: dict[str, str], status: int) -> None:
    async with running() as (broker, app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            # Stored once here; the requests that are compared repeat it.
            await client.post("/api/topics/publish", content=ONCE, headers=JSON)
            answers = [await client.post(f"/api/topics/{path}{slash}", content=body, headers=headers) for slash in ("", "/")]
        assert broker.positions.bounds("a", 0)[1] == 1
    direct, framed = ((each.status_code, each.headers["content-type"], each.content) for each in answers)
    assert direct == framed
    assert direct[0] == status


class EchoingEngine:
    """Returns the text and the parameters of a statement as a row."""

    async def execute(self, text: str, params: Any = (), answer: ReadAnswer | None = None) -> list[Result]:
        if text == "fail":
            raise SqlError("it fails", 1, 3, sqlstate="42601")
        return [Result([ResultColumn("said", ColumnType("text"))], [(text, *params)], "SELECT 1")]

    async def stream(self, text: str, params: Any, encoder: ResultEncoder, answer: ReadAnswer) -> ResultStream:
        stream = ResultStream(encoder, LIMITS)
        stream.put([ResultColumn("said", ColumnType("text"))], [(text,)])
        stream.end()
        return stream

    def execute_at_once(self, text: str, params: Any) -> Result | None:
        return Result([ResultColumn("said", ColumnType("text"))], [(text,)], "SELECT 1") if text == "at once" else None

    async def copy_rows(self, table: str, data: bytes, *, skip: bool) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"sql": "SELECT ?", "params": [1]}', JSON, 200),
        (b'{"sql": "at once"}', JSON, 200),
        (b'{"sql": "SELECT 1"}', {**JSON, "accept": "application/json"}, 200),
        (b'{"sql": "SELECT 1"}', {**JSON, "accept": "text/csv"}, 200),
        (b'{"sql": "fail"}', JSON, 400),
        (b'{"sql": 1}', JSON, 400),
        (b"{", JSON, 400),
        (b'{"sql": "SELECT 1"}', {}, 415),
        (b'{"sql": "SELECT 1"}', {**JSON, "host": "elsewhere.example"}, 403),
        (b" " * 2_000, JSON, 413),
    ],
)
@on_loop
async def test_statements_are_answered_equally_on_both_paths(body: bytes, headers: dict[str, str], status: int) -> None:
    async with running(EchoingEngine()) as (_, app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answers = [await client.post(f"/api/sql{slash}", content=body, headers=headers) for slash in ("", "/")]
    direct, framed = ((each.status_code, each.headers["content-type"], each.content) for each in answers)
    assert direct == framed
    assert direct[0] == status


@pytest.mark.parametrize("headers", [{}, {"host": "elsewhere.example"}], ids=["answered", "refused"])
@on_loop
async def test_health_is_equal_on_both_paths(headers: dict[str, str]) -> None:
    async with running() as (_, app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            direct, framed = [await client.get(f"/health{slash}", headers=headers) for slash in ("", "/")]
    told = [answer.json() | {"uptime_seconds": 0} for answer in (direct, framed)]
    assert told[0] == told[1]
    assert direct.status_code == framed.status_code == (403 if headers else 200)
    assert direct.headers["content-type"] == framed.headers["content-type"]


@on_loop
async def test_an_incomplete_request_has_no_effect_and_no_response() -> None:
    messages = iter(({"type": "http.request", "body": ONCE, "more_body": True}, {"type": "http.disconnect"}))
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(0)
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    async with running() as (broker, app):
        head = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/api/topics/publish", "headers": head}
        await app(scope, receive, send)
        assert broker.positions.bounds("a", 0)[1] == 0
    assert sent == []
