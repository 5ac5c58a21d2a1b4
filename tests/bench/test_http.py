"""The checks over HTTP and of routed changes pass only if everything that was sent arrived, once."""

from collections.abc import Iterator

import pytest

from bench.audit import AuditFailure
from bench.http.client import HttpClient
from bench.http.server import HttpServer, load_topic, serving
from bench.http.tasks import ConsumeMessages, InsertRows, PublishMessages, PublishSteadily, Subscribe
from bench.kafka.tasks import Delays, Done, Span
from bench.spark.router import RoutedTable, check_routed
from bench.workspace import Workspace
from tests.bench.scale import TINY

MESSAGES = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with serving(Workspace(tmp_path_factory.mktemp("over_http"), TINY, lambda _: None), "relaxed") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: HttpServer) -> Iterator[HttpClient]:
    with HttpClient(server) as running:
        yield running


def publish(server: HttpServer, client: HttpClient, topic: str, first: int = 0) -> None:
    server.create_topic(topic)
    task = PublishMessages(topic=topic, first=first, messages=MESSAGES, messages_a_request=7, body_bytes=10, connections=1)
    assert isinstance(client.ask(task), Span)


def consume(client: HttpClient, topic: str, messages: int) -> None:
    assert isinstance(client.ask(ConsumeMessages(topic=topic, messages=messages, messages_a_request=8)), Span)


def test_what_was_published_passes(server: HttpServer, client: HttpClient) -> None:
    publish(server, client, "spoken.well")
    consume(client, "spoken.well", MESSAGES)


def test_a_lost_message_is_found(server: HttpServer, client: HttpClient) -> None:
    publish(server, client, "spoken.short")
    with pytest.raises(AuditFailure, match=f"ends at {MESSAGES}, and {MESSAGES + 1} messages were published"):
        consume(client, "spoken.short", MESSAGES + 1)


def test_a_doubled_message_is_found(server: HttpServer, client: HttpClient) -> None:
    publish(server, client, "spoken.twice")
    publish(server, client, "spoken.twice", first=5)
    with pytest.raises(AuditFailure, match=f"gave {2 * MESSAGES} messages of {MESSAGES + 5} numbers"):
        consume(client, "spoken.twice", 2 * MESSAGES)


def test_a_request_that_is_rejected_ends_the_run(client: HttpClient) -> None:
    task = InsertRows(table="no.such", first_id=0, rows=1, rows_a_request=1, body_bytes=1, connections=1)
    with pytest.raises(AuditFailure, match="no table or topic"):
        client.ask(task)


def test_every_subscriber_gets_every_message(server: HttpServer, client: HttpClient) -> None:
    server.create_topic("fed.all")
    with HttpClient(server) as process:
        assert isinstance(process.ask(Subscribe(pattern="fed.all", subscribers=3, messages=MESSAGES)), Done)
        client.ask(PublishSteadily(topic="fed.all", messages=MESSAGES, per_second=1_000))
        delays = process.receive()

    assert isinstance(delays, Delays)
    assert len(delays.seconds) == 3 * MESSAGES
    assert min(delays.seconds) > 0


def test_a_subscriber_that_gets_other_messages_ends_the_run(server: HttpServer, client: HttpClient) -> None:
    server.create_topic("fed.other")
    with HttpClient(server) as process:
        process.ask(Subscribe(pattern="fed.other", subscribers=1, messages=MESSAGES))
        publish(server, client, "fed.other", first=1)
        with pytest.raises(AuditFailure, match="not all 30 once and in order"):
            process.receive()


def test_a_loaded_topic_has_what_was_said(server: HttpServer) -> None:
    loaded = load_topic(server, "loaded.topic", 6_000, 20)

    assert server.sql("SELECT count(*), sum(length(value)) FROM loaded.topic") == [list(loaded)]


@pytest.mark.parametrize(
    ("ids", "is_right"),
    [([0, 2, 4], True), ([0, 2], False), ([0, 2, 2, 4], False), ([0, 2, 2], False), ([0, 2, 3], False)],
    ids=["all", "one lost", "one doubled", "one lost and one doubled", "another one"],
)
def test_changes_that_are_not_routed_once_are_found(
    server: HttpServer, ids: list[int], is_right: bool, request: pytest.FixtureRequest
) -> None:
    topic = "routed." + request.node.callspec.id.replace(" ", "_")
    server.create_topic(topic)
    messages = [{"topic": topic, "key": str(number), "value": {"id": number}} for number in ids]
    server.ask("POST", "/api/topics/publish", {"messages": messages})
    table = RoutedTable("any", [topic], changes=5)

    if is_right:
        check_routed(server, table)
    else:
        with pytest.raises(AuditFailure, match="were due"):
            check_routed(server, table)
