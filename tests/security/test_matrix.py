"""Every row of the policy is tried with every principal on a real server.

What counts is whether a request is refused for lack of rights. It may fail for another reason: what it is about may not exist.
"""

import base64
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import msgspec
import pytest

from tailrace.kafka.cluster import KafkaSettings
from tailrace.wire.message import Api, KafkaMessage
from tests.security.http_requests import BODIES, Body, path_of
from tests.security.kafka_requests import REQUESTS, request_of
from tests.security.policy import HTTP, KAFKA, PRINCIPALS, SQL, SqlRule
from tests.security.secured_server import ADMINISTRATOR, PASSWORD, SecuredServer, secured_server
from tests.support.aio import on_loop
from tests.support.kafka import running_asker
from tests.support.patience import PATIENCE_SECONDS

_REFUSALS = {29, 30, 31, 53, 58}
"""TOPIC_, GROUP_, CLUSTER_, TRANSACTIONAL_ID_AUTHORIZATION_FAILED and SASL_AUTHENTICATION_FAILED."""
_UNAUTHORIZED = (401, 403)
_BY_LOGIN = ("SaslAuthenticate",)
"""Sent with each login."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured_server(tmp_path_factory.mktemp("matrix")) as running:
        yield running


@pytest.fixture(scope="module")
def apis() -> dict[str, Api]:
    found: dict[str, Api] = {}

    @on_loop
    async def collect() -> None:
        async with running_asker(KafkaSettings(client_telemetry=True)) as asker:
            found.update((route.api.name, route.api._replace(highest=route.versions[-1])) for route in asker.dispatcher.routes)

    collect()
    return found


@pytest.mark.parametrize("name", [name for name in KAFKA if name not in _BY_LOGIN])
def test_an_api_of_kafka_is_answered_as_the_policy_says(server: SecuredServer, apis: dict[str, Api], name: str) -> None:
    request, version = request_of(apis[name])
    is_open = KAFKA[name].allows("none")
    found = {one: _kafka_allows(server, apis[name], request, version, one, is_open) for one in PRINCIPALS}
    assert found == {one: KAFKA[name].allows(one) for one in PRINCIPALS}


def test_there_is_a_request_to_each_api_of_the_policy() -> None:
    assert sorted((*REQUESTS, *_BY_LOGIN)) == sorted(KAFKA)
    assert set(BODIES) <= set(HTTP)


@pytest.mark.parametrize("endpoint", HTTP)
def test_an_endpoint_of_http_is_answered_as_the_policy_says(server: SecuredServer, endpoint: str) -> None:
    found = {one: _http_status(server, endpoint, one) not in _UNAUTHORIZED for one in PRINCIPALS}
    assert found == {one: HTTP[endpoint].allows(one) for one in PRINCIPALS}


@pytest.mark.parametrize("rule", SQL, ids=lambda rule: rule.text)
def test_a_statement_is_answered_as_the_policy_says(server: SecuredServer, rule: SqlRule) -> None:
    answers = {one: _sql_answer(server, rule.text, one) for one in PRINCIPALS}
    found = {one: status not in _UNAUTHORIZED for one, (status, _) in answers.items()}
    assert found == {one: rule.allows(one) for one in PRINCIPALS}, answers
    assert '"sqlstate":"42601"' not in answers[ADMINISTRATOR][1], "the statement of the policy is not valid"


def test_what_does_not_exist_is_refused_like_what_may_not_be_seen(server: SecuredServer) -> None:
    with server.http("stranger") as client:
        answers = {
            name: [
                client.get(f"/api/topics/acme.{name}").text,
                client.get(f"/api/groups/acme.{name}").text,
                client.post("/api/topics/consume", json={"topic": f"acme.{name}"}).text,
                client.post("/api/sql", json={"sql": f"SELECT * FROM acme.{name}"}).text,
                client.post("/api/sql", json={"sql": f"DESCRIBE acme.{name}"}).text,
                client.post("/api/sql", json={"sql": f"DROP TABLE acme.{name}"}).text,
                client.post("/api/sql", json={"sql": f"INSERT INTO acme.{name} VALUES (1, 2)"}).text,
            ]
            for name in ("bills", "nothn")
        }
    assert [text.replace("nothn", "bills") for text in answers["nothn"]] == answers["bills"]


def test_lists_have_only_what_may_be_seen(server: SecuredServer) -> None:
    for principal, prefix in (("reader", "acme"), ("stranger", "other"), ("owner", "acme")):
        with server.http(principal) as client:
            listed = [topic["name"] for topic in client.get("/api/topics").json()["topics"]]
            answer = client.post("/api/sql", json={"sql": "SELECT name FROM system.topics"})
            result = answer.json()
        own = [name.removeprefix("_changes.") for name in listed]
        assert own and all(name.startswith(prefix) for name in own), (principal, listed)
        shown = [row[0].removeprefix("_changes.") for row in result["rows"]]
        assert shown and all(name.startswith(prefix) for name in shown), (principal, result["rows"])


def _kafka_allows(server: SecuredServer, api: Api, request: KafkaMessage, version: int, principal: str, is_open: bool) -> bool:
    # What is open is asked before anybody logs in.
    with server.kafka("none" if is_open else principal) as client:
        try:
            response = client.ask(api, request, version)
        except ConnectionError:
            return False
    return _REFUSALS.isdisjoint(_codes(response))


def _codes(response: Any) -> Iterator[int]:
    if isinstance(response, msgspec.Struct):
        for name in response.__struct_fields__:
            value = getattr(response, name)
            if name.endswith("error_code"):
                yield value
            else:
                yield from _codes(value)
    elif isinstance(response, (tuple, list)):
        for each in response:
            yield from _codes(each)


def _http_status(server: SecuredServer, endpoint: str, principal: str) -> int:
    method, path = endpoint.split(" ")[0], path_of(endpoint)
    body = BODIES.get(endpoint, Body())
    if method == "WEBSOCKET":
        return _websocket_status(server, path, body, principal)
    content: dict[str, Any] = {"json": body.content}
    if isinstance(body.content, bytes):
        content = {"content": body.content, "headers": {"content-type": body.media_type}}
    elif body.content is None:
        content = {}
    with (
        server.http(principal) as client,
        client.stream(method, path, params=body.query, **content) as response,
    ):
        return response.status_code


def _websocket_status(server: SecuredServer, path: str, body: Body, principal: str) -> int:
    address = urlsplit(server.url)
    lines = [
        f"GET {path}?{urlencode(body.query)} HTTP/1.1",
        f"Host: {address.netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
    ]
    if principal == "wrong":
        lines.append("Authorization: Bearer tlr_000000000000_wrong")
    elif principal != "none":
        lines.append(f"Authorization: Basic {base64.b64encode(f'{principal}:{PASSWORD}'.encode()).decode()}")
    with socket.create_connection((address.hostname or "", address.port or 0), PATIENCE_SECONDS) as connection:
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        return int(connection.recv(12).split()[1])


def _sql_answer(server: SecuredServer, text: str, principal: str) -> tuple[int, str]:
    with server.http(principal) as client:
        response: httpx.Response = client.post("/api/sql", json={"sql": text})
    return response.status_code, response.text
