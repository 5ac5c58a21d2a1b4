"""HTTP and WebSockets of a real server that demands authentication."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.integration.security.secured import ADMIN, PASSWORD, SecuredServer, secured_server
from tests.support.eventually import eventually
from tests.support.patience import PATIENCE_SECONDS

SOON_SECONDS = 1.5
"""A second, and what a busy machine adds to it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured_server(tmp_path_factory.mktemp("server") / "data") as running:
        running.sql("CREATE TOPIC acme.orders")
        running.sql("CREATE TABLE acme.bills (id INT PRIMARY KEY, total INT)")
        running.sql("INSERT INTO acme.bills VALUES (1, 10), (2, 20)")
        yield running


@pytest.fixture
def user(server: SecuredServer) -> str:
    """A new user who may use the topic, read the table, and consume for groups."""
    return server.create_user(
        "CONSUME, PUBLISH ON TOPIC acme.orders", "SELECT ON TABLE acme.bills", "CONSUME ON GROUP g", "CONSUME ON QUEUE q"
    )


def test_every_way_to_log_in_is_right_or_wrong(server: SecuredServer, user: str) -> None:
    token_id, token = server.create_token(user)
    _, brief = server.create_token(user, "1 second")
    with server.client() as client:

        def status(header: str | None) -> int:
            return client.get("/api/whoami", headers={} if header is None else {"authorization": header}).status_code

        assert status(None) == 401
        assert status(f"Bearer {token}") == 200
        assert status(f"Bearer {token}x") == 401
        eventually(lambda: status(f"Bearer {brief}") == 401, "the token has expired")
        assert client.get("/api/whoami", auth=(user, PASSWORD)).json()["name"] == user
        assert client.get("/api/whoami", auth=(user, "wrong")).status_code == 401
        server.sql(f"DROP TOKEN '{token_id}'")
        assert status(f"Bearer {token}") == 401


def test_a_select_by_key_is_answered_to_who_may_read_the_table_only(server: SecuredServer, user: str) -> None:
    """Again and again, so that later ones take the fast path; clients with other rights take turns on one server."""
    _, token = server.create_token(user)
    _, foreign = server.create_token(server.create_user())
    asked = {"sql": "SELECT total FROM acme.bills WHERE id = ?", "params": [2]}
    heads = [{"tailrace-request": "one"}, {}]
    with server.client() as client:
        for head in heads * 6:
            answers = [
                client.post("/api/sql", json=asked, headers={**head, "authorization": f"Bearer {each}"})
                for each in (token, foreign, token)
            ]
            assert [answer.status_code for answer in answers] == [200, 403, 200]
            assert answers[0].json()["rows"] == [[20]]
        assert client.post("/api/sql", json=asked, headers={"authorization": f"Bearer {token[:-3]}"}).status_code == 401
        server.sql(f"REVOKE SELECT ON TABLE acme.bills FROM {user}")
        assert client.post("/api/sql", json=asked, headers={"authorization": f"Bearer {token}"}).status_code == 403


class Ended(NamedTuple):
    seconds: float
    last: str


class Stream:
    """A request that stays open, in a thread."""

    def __init__(self, run: Callable[[threading.Event], str]) -> None:
        self._opened = threading.Event()
        self._ended: Ended | None = None
        self._run = run
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        assert self._opened.wait(PATIENCE_SECONDS)
        # So that it waits, and has not only been sent.
        time.sleep(0.3)

    def ended_after(self, change: Callable[[], object]) -> Ended:
        began = time.monotonic()
        change()
        self._thread.join(PATIENCE_SECONDS)
        assert self._ended is not None, "it goes on"
        return self._ended._replace(seconds=self._ended.seconds - began)

    def _work(self) -> None:
        last = self._run(self._opened)
        self._ended = Ended(time.monotonic(), last)


def sse(client: httpx.Client, opened: threading.Event) -> str:
    with client.stream("GET", "/api/subscribe?pattern=acme.*") as response:
        assert response.status_code == 200
        opened.set()
        return "".join(response.iter_text()).rstrip("\n").rpartition("\n\n")[2]


def long_poll(path: str, body: dict[str, Any]) -> Callable[[httpx.Client, threading.Event], str]:
    def ask(client: httpx.Client, opened: threading.Event) -> str:
        opened.set()
        answer = client.post(path, json=body)
        return f"{answer.status_code} {answer.text}"

    return ask


STREAMS = {
    "sse": (sse, "event: error"),
    "consume": (long_poll("/api/topics/consume", {"topic": "acme.orders", "start": "latest", "timeout_ms": 20_000}), "401 "),
    "fetch": (
        long_poll(
            "/api/topics/fetch",
            {"topic": "acme.orders", "positions": [{"partition_id": 0, "offset": 0}], "timeout_ms": 20_000},
        ),
        "401 ",
    ),
    "receive": (long_poll("/api/queues/q/receive", {"pattern": "acme.orders", "start": "latest", "wait_ms": 20_000}), "401 "),
}
REVOCATIONS = {
    "token dropped": lambda server, user, token_id: server.sql(f"DROP TOKEN '{token_id}'"),
    "user dropped": lambda server, user, token_id: server.sql(f"DROP USER {user}"),
}


@pytest.mark.parametrize("revocation", REVOCATIONS)
@pytest.mark.parametrize("stream", STREAMS)
def test_what_is_open_ends_within_a_second(server: SecuredServer, user: str, stream: str, revocation: str) -> None:
    token_id, token = server.create_token(user)
    run, expected = STREAMS[stream]
    with server.client(token=token) as client:
        opened = Stream(lambda event: run(client, event))
        ended = opened.ended_after(lambda: REVOCATIONS[revocation](server, user, token_id))
    # What waits for records also looks at grants again, and those of a user are dropped with it.
    is_refused = revocation == "user dropped" and ended.last.startswith("403 ")
    assert is_refused or (ended.last.startswith(expected) and "the login has ended" in ended.last)
    assert ended.seconds < SOON_SECONDS


def test_a_stream_ends_when_its_password_changes_or_its_token_expires(server: SecuredServer, user: str) -> None:
    with server.client(user) as client:
        opened = Stream(lambda event: sse(client, event))
        ended = opened.ended_after(lambda: server.sql(f"ALTER USER {user} PASSWORD 'another one of it 2'"))
        assert "the login has ended" in ended.last
        assert ended.seconds < SOON_SECONDS
    _, token = server.create_token(user, "2 seconds")
    with server.client(token=token) as client:
        ended = Stream(lambda event: sse(client, event)).ended_after(lambda: None)
        assert "the login has ended" in ended.last
        assert ended.seconds < 2 + SOON_SECONDS


def test_a_stream_goes_on_when_others_change(server: SecuredServer, user: str) -> None:
    with server.client(user) as client, client.stream("GET", "/api/subscribe?pattern=acme.*") as response:
        lines = response.iter_lines()
        next(lines)
        other_user = server.create_user()
        token_id, _ = server.create_token(other_user)
        server.sql(f"DROP TOKEN '{token_id}'")
        server.sql(f"DROP USER {other_user}")
        time.sleep(1.2)
        with server.client(user) as other:
            message = {"topic": "acme.orders", "value": "still there"}
            assert other.post("/api/topics/publish", json={"messages": [message]}).status_code == 200
        found = next(line for line in lines if line.startswith("data: "))
    assert "still there" in found


def websocket(server: SecuredServer, token: str | None, **headers: str) -> Any:
    sent = {**({} if token is None else {"authorization": f"Bearer {token}"}), **headers}
    return connect(f"{server.url.replace('http', 'ws')}/api/subscribe?pattern=acme.*", additional_headers=sent)


def test_a_websocket_is_authenticated_and_ends_with_its_login(server: SecuredServer, user: str) -> None:
    token_id, token = server.create_token(user)
    for wrong in (None, token + "x"):
        with pytest.raises(InvalidStatus) as refused, websocket(server, wrong):
            pass
        assert refused.value.response.status_code == 401
        assert b"urn:tailrace:error:authentication" in (refused.value.response.body or b"")
    with websocket(server, token) as socket:
        began = time.monotonic()
        server.sql(f"DROP TOKEN '{token_id}'")
        messages = []
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                messages.append(json.loads(socket.recv(PATIENCE_SECONDS)))
    assert time.monotonic() - began < SOON_SECONDS
    assert messages[-1]["type"] == "error"
    assert messages[-1]["error"]["status"] == 401
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


def test_a_page_of_another_port_cannot_open_a_websocket_with_the_cookie(server: SecuredServer, user: str) -> None:
    with server.client() as client:
        cookie = client.post("/api/login", json={"name": user, "password": PASSWORD}).headers["set-cookie"].partition(";")[0]
    host = server.url.removeprefix("http://")
    with websocket(server, None, cookie=cookie, origin=f"http://{host}"):
        pass
    with pytest.raises(InvalidStatus) as refused, websocket(server, None, cookie=cookie, origin="http://127.0.0.1:3000"):
        pass
    assert refused.value.response.status_code == 403


def test_requests_of_one_connection_are_of_who_sends_them(server: SecuredServer, user: str) -> None:
    """The principal of one request is not that of the next one of its connection, nor of one that is sent right behind it."""
    following = server.create_user()
    with server.client() as client:
        for _ in range(3):
            assert client.get("/api/whoami", auth=(user, PASSWORD)).json()["name"] == user
            assert client.get("/api/whoami").status_code == 401
            assert client.get("/api/whoami", auth=(following, PASSWORD)).json()["name"] == following
            assert client.get("/health").json() == {"status": "ok"}


def test_the_document_says_what_requests_authenticate_with(server: SecuredServer, user: str) -> None:
    with server.client(user) as client:
        document = client.get("/api/openapi.json").json()
    schemes = document["components"]["securitySchemes"]
    assert {name for each in document["security"] for name in each} == set(schemes)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert {"401", "403"} <= set(operation["responses"])
            assert (operation.get("security") == []) == (path in ("/health", "/api/login"))


def test_answers_have_security_headers(server: SecuredServer, user: str) -> None:
    with server.client(user) as client:
        answers = [
            client.get("/health"),
            client.get("/"),
            client.get("/api/topics"),
            client.get("/api/nothing"),
            client.post("/api/sql", json={"sql": "SELECT 1"}),
            httpx.get(f"{server.url}/api/topics"),
        ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "strict-transport-security" not in answer.headers
    assert "frame-ancestors 'none'" in answers[1].headers["content-security-policy"]


def test_secrets_are_in_no_answer_and_no_output(server: SecuredServer, user: str) -> None:
    _, token = server.create_token(user)
    planted = "planted-token-that-is-wrong"
    half = f'{{"password": "{planted}", '.encode()
    with server.client() as client:
        answers = [
            client.get("/api/topics", headers={"authorization": f"Bearer {planted}"}),
            client.get("/api/topics", auth=(user, planted)),
            client.post("/api/login", json={"name": user, "password": planted}),
            client.post("/api/login", json={"name": user, "password": planted, "more": planted}),
            client.post("/api/login", content=half, headers={"content-type": "application/json"}),
            client.get("/api/topics?x=1", headers={"authorization": f"Bearer {token}"}),
        ]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 400, 400, 400]
    assert [answer.text for answer in answers if planted in answer.text or token in answer.text] == []
    assert planted not in server.process.stderr
    server.assert_output_has_no_secret()


def test_users_and_tokens_survive_a_restart_and_sessions_do_not(tmp_path: Path) -> None:
    with secured_server(tmp_path / "data") as server:
        alice = server.create_user()
        _, token = server.create_token(alice)
        with server.client() as client:
            cookie = client.post("/api/login", json={"name": alice, "password": PASSWORD}).headers["set-cookie"]
        assert server.process.terminate() == 0
        server.process.start()
        with server.client() as client:
            assert client.get("/api/whoami", headers={"cookie": cookie.partition(";")[0]}).status_code == 401
            assert client.get("/api/whoami", headers={"authorization": f"Bearer {token}"}).status_code == 200
            assert client.get("/api/whoami", auth=(ADMIN, PASSWORD)).json()["roles"] == ["admin"]
