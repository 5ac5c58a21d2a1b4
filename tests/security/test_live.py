"""Rights that are revoked while clients of a real server wait: within a second they get nothing more."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tailrace.wire.messages.fetch import FETCH_API, FetchRequest, FetchTopic
from tailrace.wire.messages.fetch import FetchPartition as Partition
from tests.security.secured_server import ADMINISTRATOR, PASSWORD, SecuredServer, secured_server
from tests.support.kafka import RawClient

_WATCHER = "watcher"
_SOON_SECONDS = 1.0
_WAIT_MS = 20_000
_FORBIDDEN = 29
_BY_NAME = 12
_GRANTED = (
    "CONSUME ON TOPIC acme.orders {} watcher",
    "CONSUME ON GROUP acme.readers {} watcher",
    "CONSUME ON QUEUE acme.jobs {} watcher",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured_server(tmp_path_factory.mktemp("live")) as running:
        _run(running, f"CREATE USER {_WATCHER} PASSWORD '{PASSWORD}'")
        yield running


def test_a_fetch_that_waits_is_refused(server: SecuredServer) -> None:
    with server.kafka(_WATCHER) as client:
        assert _after_revoking(server, lambda: _fetch(client, session=False)) == [_FORBIDDEN]


def test_a_fetch_of_a_session_that_waits_is_refused(server: SecuredServer) -> None:
    with server.kafka(_WATCHER) as client:
        assert _after_revoking(server, lambda: _fetch(client, session=True)) == [_FORBIDDEN]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/topics/consume", {"topic": "acme.orders", "timeout_ms": _WAIT_MS}),
        ("/api/topics/consume", {"topic": "acme.orders", "timeout_ms": _WAIT_MS, "group_id": "acme.readers"}),
        (
            "/api/topics/fetch",
            {"topic": "acme.orders", "positions": [{"partition_id": 0, "offset": 0}], "timeout_ms": _WAIT_MS},
        ),
        ("/api/queues/acme.jobs/receive", {"pattern": "acme.orders", "wait_ms": _WAIT_MS}),
        ("/api/queues/acme.jobs/receive", {"pattern": "acme.>", "wait_ms": _WAIT_MS}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_a_request_that_waits_is_refused(server: SecuredServer, path: str, body: dict[str, Any]) -> None:
    with server.http(_WATCHER) as client:
        assert _after_revoking(server, lambda: client.post(path, json=body).status_code) == 403


def test_a_subscription_to_a_topic_ends(server: SecuredServer) -> None:
    def read() -> str:
        with (
            server.http(_WATCHER) as client,
            client.stream("GET", "/api/subscribe", params={"pattern": "acme.orders"}) as response,
        ):
            return next(line for line in response.iter_lines() if line.startswith("data:"))

    assert '"status":403' in _after_revoking(server, read)


def test_a_subscription_to_a_wildcard_delivers_what_may_be_seen_now(server: SecuredServer) -> None:
    _grant(server)
    with (
        server.http(_WATCHER) as client,
        client.stream("GET", "/api/subscribe", params={"pattern": "acme.>"}) as response,
    ):
        lines = response.iter_lines()

        def next_topic() -> str:
            return next(line for line in lines if line.startswith("data:"))

        next(lines)
        _publish(server, "acme.orders")
        assert '"topic_name":"acme.orders"' in next_topic()
        _run(server, "REVOKE CONSUME ON TOPIC acme.orders FROM watcher; CREATE TOPIC acme.seen")
        _publish(server, "acme.orders")
        _run(server, "GRANT CONSUME ON TOPIC acme.seen TO watcher")
        _publish(server, "acme.seen")
        assert '"topic_name":"acme.seen"' in next_topic()
        _run(server, "DROP TOPIC acme.seen; CLEAR TOPIC acme.orders")


def _after_revoking(server: SecuredServer, wait: Callable[[], Any]) -> Any:
    """Return what a request gets whose rights are revoked while it waits. It has to come soon."""
    _run(server, "CLEAR TOPIC acme.orders")
    _grant(server)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        _until_somebody_waits(server)
        assert not waiting.done(), waiting.result()
        _revoke(server)
        began = time.monotonic()
        found = waiting.result(_WAIT_MS / 1000)
    assert time.monotonic() - began < _SOON_SECONDS
    return found


def _fetch(client: RawClient, *, session: bool) -> list[int]:
    partition = Partition(partition=0, fetch_offset=_end(client), partition_max_bytes=10**6)
    topics = (FetchTopic(topic="acme.orders", partitions=(partition,)),)
    began = FetchRequest(min_bytes=1, topics=topics, session_epoch=0 if session else -1)
    if session:
        opened = client.ask(FETCH_API, began, _BY_NAME)
        asked = FetchRequest(min_bytes=1, max_wait_ms=_WAIT_MS, session_id=opened.session_id, session_epoch=1)
    else:
        asked = FetchRequest(min_bytes=1, max_wait_ms=_WAIT_MS, topics=topics)
    response = client.ask(FETCH_API, asked, _BY_NAME)
    return [partition.error_code for topic in response.responses for partition in topic.partitions]


def _end(client: RawClient) -> int:
    partition = Partition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = (FetchTopic(topic="acme.orders", partitions=(partition,)),)
    (topic,) = client.ask(FETCH_API, FetchRequest(topics=topics), _BY_NAME).responses
    (found,) = topic.partitions
    high_watermark: int = found.high_watermark
    return high_watermark


def _until_somebody_waits(server: SecuredServer) -> None:
    """Wait until the requests of the test are there: the server has answered another one since, and they had their time."""
    for _ in range(10):
        _run(server, "SELECT 1")
        time.sleep(0.05)


def _grant(server: SecuredServer) -> None:
    _run(server, "; ".join("GRANT " + one.format("TO") for one in _GRANTED))


def _revoke(server: SecuredServer) -> None:
    _run(server, "; ".join("REVOKE " + one.format("FROM") for one in _GRANTED))


def _publish(server: SecuredServer, topic: str) -> None:
    with server.http(ADMINISTRATOR) as client:
        client.post("/api/topics/publish", json={"messages": [{"topic": topic, "value": "x"}]}).raise_for_status()


def _run(server: SecuredServer, text: str) -> None:
    with server.http(ADMINISTRATOR) as client:
        response: httpx.Response = client.post("/api/sql", json={"sql": text})
    assert response.is_success, response.text
