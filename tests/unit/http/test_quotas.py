"""Who uses more than its quota over HTTP is told when to come back, and logins over HTTP are in the audit."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.security.principals import act_as
from tailrace.broker.security.settings import SecuritySettings
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.http.quotas import HttpQuotas
from tailrace.model.clock import SystemClock
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.model.quota import QuotaEntity, QuotaKind
from tailrace.model.security import ADMIN_ROLE, ANONYMOUS, AUDIT_TOPIC, SERVER
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.brokers import NEVER, running_broker, values_in
from tests.support.clocks import ManualClock

JSON = {"content-type": "application/json"}
EVERYBODY = QuotaEntity(ANONYMOUS.name)


class Served(NamedTuple):
    broker: Broker
    client: httpx.AsyncClient
    clock: ManualClock

    async def publish(self, size: int = 1) -> httpx.Response:
        body = json.dumps({"messages": [{"topic": "orders", "value": "x" * size}]}).encode()
        return await self.client.post("/api/topics/publish", content=body, headers=JSON)

    async def fetch(self) -> httpx.Response:
        body = b'{"topic": "orders", "positions": [{"partition_id": 0, "offset": 0}]}'
        return await self.client.post("/api/topics/fetch", content=body, headers=JSON)


@asynccontextmanager
async def served(security: SecuritySettings | None = None) -> AsyncIterator[Served]:
    clock = ManualClock()
    broker = Broker(MemoryStore(clock), clock, DEFAULT_LIMITS, NEVER, security or SecuritySettings())
    await broker.start()
    await broker.topics.create("orders")
    app = create_app(broker, ServerStatus("fsync", clock, lambda: None), DEFAULT_LIMITS, on_loopback=True)
    transport = httpx.ASGITransport(app, client=("192.0.2.9", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield Served(broker, client, clock)
    await broker.close()


@on_loop
async def test_requests_over_the_quota_are_refused_until_it_has_filled_again() -> None:
    async with served() as server:
        await server.broker.quotas.alter(EVERYBODY, {"requests": 2.0})
        statuses = [(await server.publish()).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = await server.publish()
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["content-type"] == "application/problem+json"
        problem = refused.json()
        assert (problem["type"], problem["retriable"]) == ("urn:tailrace:error:quota-exceeded", True)
        assert problem["retry_after_seconds"] == 0.5
        assert (await server.client.get("/health")).status_code == 200
        server.clock.advance(500)
        assert (await server.publish()).status_code == 200
        assert server.broker.positions.bounds("orders", 0).end == 4


@pytest.mark.parametrize(
    ("kind", "refused", "allowed"), [("publish_bytes", "publish", "nothing"), ("consume_bytes", "fetch", "publish")]
)
@on_loop
async def test_bytes_over_the_quota_are_refused_in_the_direction_that_they_go(
    kind: QuotaKind, refused: str, allowed: str
) -> None:
    async with served() as server:
        assert (await server.publish(20_000)).status_code == 200
        await server.broker.quotas.alter(EVERYBODY, {kind: 10_000.0})
        assert (await getattr(server, refused)()).status_code == 200
        if refused == "publish":
            assert (await server.publish(20_000)).status_code == 200
        answer = await getattr(server, refused)()
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        if allowed == "publish":
            assert (await server.publish()).status_code == 200
        server.clock.advance(3_000)
        assert (await getattr(server, refused)()).status_code == 200


@pytest.mark.parametrize("path", ["/api/sql", "/api/sql/", "//api//sql", "/api/tables/app.t/rows"])
@on_loop
async def test_seconds_of_sql_are_counted(path: str) -> None:
    async with running_broker(clock=ManualClock()) as broker:
        await broker.quotas.alter(EVERYBODY, {"sql_seconds": 0.01})
        quotas = HttpQuotas(broker)
        sent: list[dict[str, Any]] = []

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.sleep(0.05)

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        scope = {"type": "http", "method": "POST", "path": path}
        await quotas.serve(slow, scope, receive, send)
        assert sent == []
        await quotas.serve(slow, scope, receive, send)
        assert sent[0]["status"] == 429
        sent.clear()
        await quotas.serve(slow, {**scope, "path": "/api/topics/fetch"}, receive, send)
        assert sent == []


@on_loop
async def test_what_waits_for_the_quota_of_bytes_does_not_use_seconds_of_sql() -> None:
    async with running_broker(clock=SystemClock()) as broker:
        await broker.quotas.alter(EVERYBODY, {"consume_bytes": 10_000.0, "sql_seconds": 0.1})

        async def streamed(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.body", "body": b"a" * 13_000, "more_body": True})
            await send({"type": "http.response.body", "body": b"b", "more_body": False})

        async def send(message: Any) -> None:
            pass

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        began = time.monotonic()
        await HttpQuotas(broker).serve(streamed, {"type": "http", "method": "POST", "path": "/api/sql"}, receive, send)
        assert time.monotonic() - began > 0.2
        assert broker.quotas.charge(ANONYMOUS, None, "sql_seconds", 0) == 0


@on_loop
async def test_an_answer_that_goes_on_is_slowed_down_and_whole() -> None:
    async with running_broker(clock=SystemClock()) as broker:
        await broker.quotas.alter(EVERYBODY, {"consume_bytes": 10_000.0})
        parts: list[bytes] = []
        at: list[float] = []

        async def streamed(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a" * 12_000, "more_body": True})
            for _ in range(3):
                try:
                    async with asyncio.timeout(0.15):
                        await send({"type": "http.response.body", "body": b"b", "more_body": True})
                    break
                except TimeoutError:
                    # As those do who look now and then whether others need the memory.
                    continue
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def send(message: Any) -> None:
            if message.get("body"):
                parts.append(message["body"][:1])
                at.append(time.monotonic())

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        await HttpQuotas(broker).serve(streamed, {"type": "http", "method": "GET", "path": "/api/subscribe"}, receive, send)
        assert parts == [b"a", b"b"]
        assert at[1] - at[0] > 0.15


@on_loop
async def test_websockets_are_held_to_the_quota_of_connections() -> None:
    async with running_broker() as broker:
        await broker.quotas.alter(EVERYBODY, {"connections": 1.0})
        quotas = HttpQuotas(broker)
        done = asyncio.Event()
        sent: list[dict[str, Any]] = []

        async def connected(scope: Any, receive: Any, send: Any) -> None:
            await done.wait()

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        scope = {"type": "websocket", "path": "/api/subscribe"}
        first = asyncio.create_task(quotas.serve(connected, scope, receive, send))
        await asyncio.sleep(0)
        await quotas.serve(connected, scope, receive, send)
        assert [(message["type"], message.get("status")) for message in sent] == [
            ("websocket.http.response.start", 429),
            ("websocket.http.response.body", None),
        ]
        done.set()
        await first
        sent.clear()
        await quotas.serve(connected, scope, receive, send)
        assert sent == []


@on_loop
async def test_the_quota_is_that_of_the_user_who_has_logged_in_and_logins_are_audited() -> None:
    async with served(SecuritySettings(authentication="required")) as server:
        users = server.broker.users
        tokens = {}
        for name in ("alice", "bob"):
            await users.create(name, f"the secret of {name}", [ADMIN_ROLE])
            tokens[name] = (await users.create_token(name)).text
        await server.broker.quotas.alter(QuotaEntity("alice"), {"requests": 1.0})

        async def status(headers: dict[str, str] | None = None, auth: tuple[str, str] | None = None) -> int:
            return (await server.client.get("/api/whoami", headers=headers, auth=auth)).status_code

        bearers = {name: {"authorization": f"Bearer {text}"} for name, text in tokens.items()}
        assert [await status(bearers["alice"]) for _ in range(4)] == [200, 200, 429, 429]
        assert [await status(bearers["bob"]) for _ in range(4)] == [200] * 4
        assert await status(auth=("bob", "the secret of bob")) == 200
        assert await status(auth=("bob", "a wrong secret")) == 401
        assert await status({"authorization": "Bearer tlr_00_wrong"}) == 401
        act_as(SERVER)
        await until(lambda: server.broker.audit.waiting == 0)
        records = [json.loads(value or b"") for value in await values_in(server.broker, AUDIT_TOPIC)]
        logins = [one for one in records if one["what"] == "login"]
        assert [(one["principal"], one["outcome"], one["reason"].split()[0]) for one in logins] == [
            ("alice", "allowed", "token"),
            ("bob", "allowed", "token"),
            ("bob", "allowed", "password"),
            ("bob", "denied", "password"),
            ("", "denied", "token"),
        ]
        assert {(one["host"], one["surface"]) for one in logins} == {("192.0.2.9", "http")}
        written = json.dumps(records)
        assert not any(secret in written for secret in ("secret", "wrong", *(text[-20:] for text in tokens.values())))
