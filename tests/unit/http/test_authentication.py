"""Every request is authenticated before anything else, by whatever it is sent with, on both paths."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from tailrace.broker.broker import Broker
from tailrace.broker.security.authentication import Login
from tailrace.broker.security.principals import current_principal
from tailrace.broker.security.settings import SecuritySettings
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.model.errors import AuthenticationError
from tailrace.model.limits import DEFAULT_LIMITS, Limits
from tailrace.model.security import Grant, Operation, Principal
from tailrace.store.memory import MemoryStore
from tests.support.aio import on_loop
from tests.support.clocks import ManualClock

PASSWORD = "a long one 1"  # noqa: S105
REQUIRED = SecuritySettings(authentication="required")
JSON = {"content-type": "application/json"}
PUBLISH = b'{"messages": [{"topic": "acme.orders", "value": 1}]}'


def basic(name: str, password: str = PASSWORD) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class Secured(NamedTuple):
    broker: Broker
    client: httpx.AsyncClient
    app: Any
    clock: ManualClock

    async def grant(self, name: str, operation: Operation) -> None:
        await self.broker.grants.add([Grant(principal=name, operation=operation, kind="topic", name="acme.orders")])

    async def status(self, headers: Mapping[str, str], path: str = "/api/whoami") -> int:
        return (await self.client.get(path, headers=headers)).status_code


@asynccontextmanager
async def secured(limits: Limits = DEFAULT_LIMITS, **options: Any) -> AsyncIterator[Secured]:
    """A server that demands authentication, with the user alice and a topic."""
    clock = ManualClock()
    broker = Broker(MemoryStore(), clock, limits, security=REQUIRED)
    await broker.start()
    await broker.topics.create("acme.orders", 1)
    await broker.users.create("alice", PASSWORD)
    app = create_app(broker, ServerStatus("fsync", clock, lambda: None), limits, on_loopback=True, **options)
    transport = httpx.ASGITransport(app, client=("10.0.0.9", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield Secured(broker, client, app, clock)
    await broker.close()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("alice", "wrong"),
        basic("nobody"),
        {"authorization": "Basic nonsense"},
        {"authorization": "Basic " + base64.b64encode(b"\xff:x").decode()},
        {"authorization": "Basic " + base64.b64encode(b"alice").decode()},
        bearer("tlr_000000000000_wrong"),
        bearer("eyJhbGciOiJub25lIn0.e30."),
        bearer(""),
        {"authorization": "Digest x"},
        {"cookie": "tailrace_session=wrong"},
    ],
)
@pytest.mark.parametrize("path", ["/api/whoami", "/api/topics", "/metrics", "/", "/api/openapi.json", "/api/nothing"])
@on_loop
async def test_who_does_not_log_in_is_told_nothing(headers: dict[str, str], path: str) -> None:
    async with secured() as server:
        answer = await server.client.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["type"] == "urn:tailrace:error:authentication"
        assert "topics" not in answer.text
        challenges = answer.headers.get_list("www-authenticate")
        assert [each.split(" ")[0] for each in challenges] == ["Basic", "Bearer"]


@on_loop
async def test_an_answer_does_not_tell_which_part_was_wrong() -> None:
    async with secured() as server:
        token = (await server.broker.users.create_token("alice")).text
        wrong = [basic("alice", "wrong"), basic("nobody"), bearer(token[:-1] + "!"), bearer("tlr_000000000000_x")]
        answers = [await server.client.get("/api/whoami", headers=headers) for headers in wrong]
        assert len({answer.text for answer in answers}) == 1


@on_loop
async def test_a_password_and_a_token_let_their_user_in() -> None:
    async with secured() as server:
        token = (await server.broker.users.create_token("alice")).text
        await server.broker.users.create_role("clerks")
        await server.broker.users.grant_role("clerks", "alice")
        for headers in (basic("alice"), bearer(token), {"authorization": bearer(token)["authorization"].replace("B", "b", 1)}):
            found = (await server.client.get("/api/whoami", headers=headers)).json()
            assert found == {"authentication": "required", "name": "alice", "roles": ["clerks"]}


@pytest.mark.parametrize("slash", ["", "/"], ids=["fast", "litestar"])
@on_loop
async def test_rules_see_the_principal_on_both_paths(slash: str) -> None:
    async with secured() as server:
        for headers, status in (({}, 401), (basic("alice"), 403)):
            answer = await server.client.post(f"/api/topics/publish{slash}", content=PUBLISH, headers={**JSON, **headers})
            assert answer.status_code == status
        assert answer.json()["type"] == "urn:tailrace:error:topic-forbidden"
        await server.grant("alice", "publish")
        answer = await server.client.post(f"/api/topics/publish{slash}", content=PUBLISH, headers={**JSON, **basic("alice")})
        assert answer.status_code == 200
        assert current_principal().is_server


@on_loop
async def test_a_body_is_not_read_before_the_login() -> None:
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked = True
        return {"type": "http.request", "body": PUBLISH}

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with secured() as server:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/topics/publish",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("10.0.0.9", 1),
            "query_string": b"",
        }
        await server.app(scope, receive, send)
    assert sent[0]["status"] == 401
    assert not asked


@pytest.mark.parametrize("path", ["/health", "/health/"])
@on_loop
async def test_health_says_nothing_more_to_strangers_than_that_the_server_works(path: str) -> None:
    async with secured() as server:
        assert (await server.client.get(path)).json() == {"status": "ok"}
        assert (await server.client.get(path, headers=basic("alice"))).json()["durability"] == "fsync"
        assert (await server.client.get(path, headers=basic("alice", "wrong"))).status_code == 401


@on_loop
async def test_metrics_need_describe_on_the_cluster() -> None:
    async with secured() as server:
        assert await server.status(basic("alice"), "/metrics") == 403
        seeing = Grant(principal="alice", operation="describe", kind="cluster", name="kafka-cluster")
        await server.broker.grants.add([seeing])
        assert await server.status(basic("alice"), "/metrics") == 200


@on_loop
async def test_lists_have_what_their_reader_may_describe() -> None:
    async with secured() as server:
        await server.broker.topics.create("other.orders", 1)
        assert (await server.client.get("/api/topics", headers=basic("alice"))).json()["topics"] == []
        await server.grant("alice", "describe")
        names = [topic["name"] for topic in (await server.client.get("/api/topics", headers=basic("alice"))).json()["topics"]]
        assert names == ["acme.orders"]
        for path in ("/api/topics/other.orders", "/api/topics/nothing", "/api/topics/nothing/partitions"):
            assert await server.status(basic("alice"), path) == 403


@on_loop
async def test_what_was_right_before_is_wrong_when_it_has_changed() -> None:
    async with secured() as server:
        users = server.broker.users
        token = await users.create_token("alice")
        brief = await users.create_token("alice", expires_ms=server.clock.now_ms() + 5_000)
        everything = (basic("alice"), bearer(token.text), bearer(brief.text))
        assert [await server.status(headers) for headers in everything * 2] == [200] * 6
        server.clock.advance(6_000)
        assert [await server.status(headers) for headers in everything] == [200, 200, 401]
        await users.drop_token(token.token.id)
        assert [await server.status(headers) for headers in everything] == [200, 401, 401]
        await users.set_password("alice", "another one 2")
        assert [await server.status(headers) for headers in (*everything, basic("alice", "another one 2"))][::3] == [401, 200]
        await users.drop("alice")
        assert await server.status(basic("alice", "another one 2")) == 401


@on_loop
async def test_a_user_who_is_created_again_is_another_one() -> None:
    async with secured() as server:
        token = (await server.broker.users.create_token("alice")).text
        cookie = await log_in(server)
        assert await server.status(bearer(token)) == 200
        await server.broker.users.drop("alice")
        await server.broker.users.create("alice", PASSWORD)
        assert await server.status(bearer(token)) == 401
        assert await server.status({"cookie": cookie}) == 401
        assert await server.status(basic("alice")) == 200


@on_loop
async def test_tokens_that_are_none_of_ours_are_asked_about() -> None:
    async def by_bearer(token: str, host: str) -> Login:
        await asyncio.sleep(0)
        if token != "jwt":  # noqa: S105
            raise AuthenticationError("wrong")
        return Login(Principal("issuer-user", host, ("clerks",)), expires_ms=2_000_000_000_000)

    async with secured(by_bearer=by_bearer) as server:
        await server.broker.users.create_role("clerks")
        found = (await server.client.get("/api/whoami", headers=bearer("jwt"))).json()
        assert (found["name"], found["roles"]) == ("issuer-user", ["clerks"])
        assert await server.status(bearer("other")) == 401
        assert await server.status(bearer((await server.broker.users.create_token("alice")).text)) == 200


@on_loop
async def test_the_certificate_of_a_client_lets_its_user_in() -> None:
    def name_of(certificate: Mapping[str, Any]) -> str | None:
        return certificate.get("name")

    async with secured(name_of_certificate=name_of) as server:
        app = server.app

        async def with_certificate(scope: Any, receive: Any, send: Any) -> None:
            extensions = {"tailrace.connection": {"certificate": lambda: {"name": "alice"}}}
            await app({**scope, "extensions": extensions}, receive, send)

        transport = httpx.ASGITransport(with_certificate)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get("/api/whoami")).json()["name"] == "alice"
            assert (await client.get("/api/whoami", headers=basic("alice", "wrong"))).status_code == 401
        assert await server.status({}) == 401


async def log_in(server: Secured, **headers: str) -> str:
    """The cookie of a new session of alice."""
    body = {"name": "alice", "password": PASSWORD}
    answer = await server.client.post("/api/login", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    server.client.cookies.clear()
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("is_tls", [False, True])
@on_loop
async def test_a_login_sets_a_cookie_that_no_page_can_read_or_send(is_tls: bool) -> None:
    async with secured(is_tls=is_tls) as server:
        answer = await server.client.post("/api/login", json={"name": "alice", "password": PASSWORD})
        name, *flags = answer.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(flags)
        assert ("Secure" in flags, name.startswith("__Host-tailrace_session=")) == (is_tls, is_tls)
        server.client.cookies.clear()
        found = await server.client.get("/api/whoami", headers={"cookie": f"other=1; {name}; more=2"})
        assert found.json()["name"] == "alice"


@on_loop
async def test_a_wrong_login_gets_no_cookie_and_no_prompt_of_the_browser() -> None:
    async with secured() as server:
        for body in ({"name": "alice", "password": "wrong"}, {"name": "nobody", "password": PASSWORD}):
            answer = await server.client.post("/api/login", json=body)
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
            assert answer.headers["www-authenticate"].startswith("Bearer")
        page = await server.client.get("/api/whoami", headers={"sec-fetch-mode": "cors"})
        assert page.headers.get_list("www-authenticate") == ['Bearer realm="tailrace"']


@on_loop
async def test_pages_of_other_origins_cannot_use_a_session() -> None:
    async with secured() as server:
        cookie = {"cookie": await log_in(server)}
        assert await server.status({**cookie, "origin": "http://127.0.0.1"}) == 200
        for origin in ("http://127.0.0.1:3000", "http://evil.example", "null"):
            assert await server.status({**cookie, "origin": origin}) == 403
            answer = await server.client.post(
                "/api/login", json={"name": "alice", "password": PASSWORD}, headers={"origin": origin}
            )
            assert answer.status_code == 403
        form = await server.client.post(
            "/api/topics/publish", content=PUBLISH, headers={**cookie, "content-type": "text/plain"}
        )
        assert form.status_code == 415


@on_loop
async def test_a_session_ends() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, session_seconds=60, sessions_of_user=2, sessions=3)
    async with secured(limits) as server:
        first, second = await log_in(server), await log_in(server)
        answer = await server.client.post("/api/logout", headers={**JSON, "cookie": second})
        assert answer.status_code == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert [await server.status({"cookie": each}) for each in (first, second)] == [200, 401]
        server.clock.advance(61_000)
        assert await server.status({"cookie": first}) == 401
        cookies = [await log_in(server) for _ in range(3)]
        assert [await server.status({"cookie": each}) for each in cookies] == [401, 200, 200]
        await server.broker.users.set_password("alice", "another one 2")
        assert [await server.status({"cookie": each}) for each in cookies] == [401, 401, 401]


@on_loop
async def test_one_user_cannot_end_the_sessions_of_another() -> None:
    limits = msgspec.structs.replace(DEFAULT_LIMITS, sessions_of_user=2)
    async with secured(limits) as server:
        await server.broker.users.create("bob", PASSWORD)
        answer = await server.client.post("/api/login", json={"name": "bob", "password": PASSWORD})
        server.client.cookies.clear()
        bob = answer.headers["set-cookie"].partition(";")[0]
        for _ in range(5):
            await log_in(server)
        assert await server.status({"cookie": bob}) == 200


@on_loop
async def test_failures_of_an_address_are_answered_later_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    async with secured() as server:
        real = server.broker.authenticator.pause_seconds

        def thousandth(host: str) -> float:
            pauses.append(real(host))
            return pauses[-1] / 1000

        monkeypatch.setattr(server.broker.authenticator, "pause_seconds", thousandth)
        for _ in range(6):
            assert await server.status(bearer("tlr_000000000000_x")) == 401
        assert pauses == [0, 0, 0.25, 0.5, 1, 2]
        pauses.clear()
        assert await server.status(basic("alice")) == 200
        assert await server.status(basic("alice")) == 200
        assert pauses == [2], "what was right before does not wait"


@on_loop
async def test_a_request_with_two_headers_is_refused() -> None:
    async with secured() as server:
        headers = [("authorization", basic("alice")["authorization"]), ("authorization", "Basic x")]
        assert (await server.client.get("/api/whoami", headers=headers)).status_code == 400


@on_loop
async def test_without_authentication_everybody_is_somebody() -> None:
    clock = ManualClock()
    broker = Broker(MemoryStore(), clock)
    await broker.start()
    app = create_app(broker, ServerStatus("fsync", clock, lambda: None), DEFAULT_LIMITS, on_loopback=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        assert (await client.get("/api/whoami")).json() == {"authentication": "off", "name": None, "roles": []}
        assert (await client.get("/api/whoami", headers=basic("nobody"))).status_code == 200
        assert (await client.post("/api/login", json={"name": "a", "password": "b"})).status_code == 400
    await broker.close()
