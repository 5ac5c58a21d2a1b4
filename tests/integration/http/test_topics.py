"""The topic endpoints of a running server, and their errors."""

import base64
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.topics import create, publish
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import ServerProcess

UNTOUCHED = "untouched"
"""A topic for rejected requests, which nothing is written to."""

_NUMBERS = count()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("server") / "data"
    with ServerProcess(folder) as server:
        create(server.url, UNTOUCHED)
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as open_client:
        yield open_client


@pytest.fixture
def topic(url: str) -> str:
    """Create a topic with one partition."""
    name = f"orders.{next(_NUMBERS)}"
    create(url, name)
    return name


def send(client: httpx.Client, *messages: dict[str, Any]) -> httpx.Response:
    return client.post("/api/topics/publish", json={"messages": messages})


def read(client: httpx.Client, topic: str, **fields: object) -> dict[str, Any]:
    answer = client.post("/api/topics/consume", json={"topic": topic, **fields})
    answer.raise_for_status()
    return dict(answer.json())


def test_a_topic_is_created_once_and_gets_more_partitions_when_asked(client: httpx.Client) -> None:
    made = client.post("/api/topics", json={"name": "shop.orders", "partitions": 2, "alias": "shop"}).json()
    again = client.post("/api/topics", json={"name": "shop.orders", "partitions": 2}).json()
    grown = client.post("/api/topics", json={"name": "shop.orders", "partitions": 5}).json()
    assert (made["name"], made["alias"], made["partitions"]) == ("shop.orders", "shop", 2)
    assert again == made
    assert grown == {**made, "partitions": 5}
    assert client.post("/api/topics", json={"name": "shop.orders", "partitions": 1}).status_code == 400


def test_a_publish_over_two_topics_is_one_frame(client: httpx.Client, url: str, topic: str) -> None:
    create(url, "payments")
    records = send(client, {"topic": topic, "value": 1}, {"topic": "payments", "value": 2}).json()["records"]
    assert [(record["topic_name"], record["partition_id"], record["offset"]) for record in records] == [
        (topic, 0, 0),
        ("payments", 0, 0),
    ]
    assert records[1]["cursor"] == records[0]["cursor"] + 1


def test_a_publish_with_one_wrong_message_changes_nothing(client: httpx.Client, topic: str) -> None:
    end = client.get("/health").json()["end_cursor"]
    assert send(client, {"topic": topic, "value": 1}, {"topic": "nowhere", "value": 2}).status_code == 404
    assert read(client, topic)["partitions"][0]["end_offset"] == 0
    assert client.get("/health").json()["end_cursor"] == end


def test_a_record_comes_back_as_it_was_sent(client: httpx.Client, topic: str) -> None:
    opaque = base64.b64encode(b"\xff\x00").decode()
    sent = send(
        client,
        {"topic": topic, "key": "ann", "value": {"total": 12.50, "big": 2**80}, "headers": [{"name": "trace", "value": "abc"}]},
        {"topic": topic, "key_base64": opaque, "value_base64": opaque, "headers": [{"name": "h", "value_base64": opaque}]},
        {"topic": topic, "value": None, "timestamp_ms": 1_700_000_000_000, "message_id": "my own"},
    )
    records = read(client, topic)["messages"]
    timestamps = [record.pop("timestamp_ms") for record in records]
    places = ("topic_name", "partition_id", "offset", "cursor", "message_id")
    assert [{name: record.pop(name) for name in places} for record in records] == [
        {name: record[name] for name in places} for record in sent.json()["records"]
    ]
    assert records == [
        {"key": "ann", "value": {"total": 12.5, "big": 2**80}, "headers": [{"name": "trace", "value": "abc"}]},
        {"key_base64": opaque, "value_base64": opaque, "headers": [{"name": "h", "value_base64": opaque}]},
        {"key": None, "value": None},
    ]
    assert sent.json()["records"][2]["message_id"] == "my own"
    assert timestamps[2] == 1_700_000_000_000


def test_json_is_stored_exactly_as_it_was_written(client: httpx.Client, topic: str) -> None:
    written = b'{"total":  1.00, "a": "\\u00e9"}'
    body = b'{"messages": [{"topic": "%s", "value": %s}]}' % (topic.encode(), written)
    client.post("/api/topics/publish", content=body, headers={"content-type": "application/json"}).raise_for_status()
    answer = client.post("/api/topics/consume", json={"topic": topic})
    assert b'"value":' + written in answer.content


def test_equal_keys_go_to_one_partition_in_order(client: httpx.Client, url: str) -> None:
    create(url, "keyed", partitions=4)
    places = [send(client, {"topic": "keyed", "key": "ann", "value": number}).json()["records"][0] for number in range(5)]
    assert len({place["partition_id"] for place in places}) == 1
    assert [place["offset"] for place in places] == [0, 1, 2, 3, 4]


def test_a_repeated_id_is_reported_and_not_stored_again(client: httpx.Client, url: str) -> None:
    create(url, "once", settings={"dedup": "id"})
    first = send(client, {"topic": "once", "value": 1, "message_id": "order-1"}).json()["records"][0]
    again = send(client, {"topic": "once", "value": 1, "message_id": "order-1"}).json()["records"][0]
    assert (first["offset"], first["duplicate"]) == (0, False)
    assert (again["offset"], again["duplicate"], again["cursor"]) == (0, True, None)
    assert read(client, "once")["partitions"][0]["end_offset"] == 1


@pytest.mark.parametrize(
    ("start", "first"), [("earliest", 0), ("latest", 10), ("Latest", 10), (4, 4), ({"timestamp_ms": 1_007}, 7)]
)
def test_a_read_starts_where_it_was_asked_to(client: httpx.Client, topic: str, start: object, first: int) -> None:
    send(client, *({"topic": topic, "value": number, "timestamp_ms": 1_000 + number} for number in range(10)))
    answer = read(client, topic, start=start, limit=2)
    assert [record["offset"] for record in answer["messages"]] == list(range(10))[first : first + 2]
    assert answer["next_offset"] == min(first + 2, 10)
    assert answer["has_more"] is (first + 2 < 10)
    assert answer["partitions"] == [
        {"partition_id": 0, "next_offset": answer["next_offset"], "start_offset": 0, "end_offset": 10}
    ]


def test_a_waiting_read_is_answered_by_the_next_publish(client: httpx.Client, url: str, topic: str) -> None:
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(read(client, topic, start="latest", timeout_ms=15_000)))
    waiting.start()
    while waiting.is_alive() and not answers:
        publish(url, topic, "here")
        waiting.join(0.2)
    assert answers[0]["messages"][0]["value"] == "here"


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "detail"),
    [
        ("", {"name": "no spaces"}, 400, "invalid-topic-name", "'no spaces'"),
        ("", {"name": "a", "partitions": 0}, 400, "invalid-request", "`$.partitions`"),
        ("", {"name": "a", "partition": 1}, 400, "invalid-request", "unknown field `partition`"),
        ("", {"name": 5}, 400, "invalid-request", "Expected `str`, got `int` - at `$.name`"),
        ("", {"name": "a", "settings": {"dedup": "maybe"}}, 400, "invalid-request", "`$.settings.dedup`"),
        ("/publish", {"messages": [{"topic": UNTOUCHED}]}, 400, "invalid-request", "message 0 needs one of value"),
        ("/publish", {"messages": [{"topic": UNTOUCHED, "value": 1, "value_base64": ""}]}, 400, "invalid-request", "message 0"),
        ("/publish", {"messages": [{"topic": UNTOUCHED, "value_base64": "?"}]}, 400, "invalid-request", "Invalid base64"),
        ("/publish", {"messages": [{"topic": "nowhere", "value": 1}]}, 404, "unknown-topic", "'nowhere'"),
        ("/publish", {"messages": [{"topic": UNTOUCHED, "value": 1, "partition_id": 7}]}, 404, "unknown-partition", "7"),
        ("/publish", {"messages": [{"topic": UNTOUCHED, "value": "x" * 1_100_000}]}, 413, "message-too-large", "payload_bytes"),
        (
            "/publish",
            {"messages": [{"topic": UNTOUCHED, "value": "x" * 17_000_000}]},
            413,
            "message-too-large",
            "request_bytes",
        ),
        ("/consume", {"topic": "nowhere"}, 404, "unknown-topic", "'nowhere'"),
        ("/consume", {"topic": UNTOUCHED, "partition_id": 1}, 404, "unknown-partition", "1"),
        ("/consume", {"topic": UNTOUCHED, "partition_id": -1}, 400, "invalid-request", "`$.partition_id`"),
        ("/consume", {"topic": UNTOUCHED, "start": "first"}, 400, "invalid-request", "'first'"),
        ("/consume", {"topic": UNTOUCHED, "start": 99}, 416, "offset-out-of-range", "99"),
        ("/consume", {"topic": UNTOUCHED, "limit": 0}, 400, "invalid-request", "`$.limit`"),
        ("/consume", {"topic": UNTOUCHED, "positions": []}, 400, "invalid-request", "positions"),
        ("/consume", {"topic": UNTOUCHED, "limit": 1_000_000}, 400, "limit-exceeded", "read_records"),
        ("/consume", {"topic": UNTOUCHED, "timeout_ms": -1}, 400, "invalid-request", "`$.timeout_ms`"),
    ],
)
def test_wrong_input_is_a_problem_that_names_the_value_and_changes_nothing(
    client: httpx.Client, path: str, body: dict[str, Any], status: int, kind: str, detail: str
) -> None:
    end = client.get("/health").json()["end_cursor"]
    answer = client.post(f"/api/topics{path}", json=body)
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["status"], problem["type"]) == (status, status, f"urn:tailrace:error:{kind}")
    assert detail in problem["detail"]
    assert problem["outcome"] == "failed"
    assert client.get("/health").json()["end_cursor"] == end


@pytest.mark.parametrize(
    ("method", "path", "headers", "content", "status"),
    [
        ("GET", "/nowhere", {}, b"", 404),
        ("GET", "/api/topics/publish", {}, b"", 405),
        ("POST", "/api/topics", {"content-type": "text/plain"}, b'{"name": "a"}', 415),
        ("POST", "/api/topics", {}, b'{"name": "a"}', 415),
        ("POST", "/api/topics", {"content-type": "application/json"}, b'{"name": ', 400),
        ("POST", "/api/topics", {"content-type": "application/json"}, b"", 400),
        ("POST", "/api/topics", {"content-type": "application/json"}, b'{"name": "\xff"}', 400),
    ],
)
def test_an_invalid_request_is_a_problem_too(
    client: httpx.Client, method: str, path: str, headers: dict[str, str], content: bytes, status: int
) -> None:
    answer = client.request(method, path, headers=headers, content=content)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json().keys() >= {"type", "title", "status", "detail", "retriable", "outcome"}


def test_an_unsupported_method_and_an_empty_body_are_answered_with_what_to_send(client: httpx.Client) -> None:
    assert client.get("/api/topics/publish").json()["detail"].endswith("/api/topics/publish does not support GET; use POST")
    empty = client.post("/api/topics", headers={"content-type": "application/json"}, content=b"")
    assert empty.json()["detail"] == "the body is empty; send a JSON object"


def test_an_offset_out_of_range_is_an_error_with_the_bounds(client: httpx.Client, url: str, topic: str) -> None:
    publish(url, topic, *range(3))
    problem = client.post("/api/topics/consume", json={"topic": topic, "start": 9}).json()
    assert (problem["start"], problem["end"]) == (0, 3)


def make_again(client: httpx.Client, topic: str, *values: str) -> None:
    client.delete(f"/api/topics/{topic}").raise_for_status()
    create(str(client.base_url), topic)
    publish(str(client.base_url), topic, *values)


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(client: httpx.Client, topic: str) -> None:
    publish(str(client.base_url), topic, "old 0", "old 1", "old 2")
    old = read(client, topic, group_id="again")
    assert old["topic_uuid"] == client.get(f"/api/topics/{topic}").json()["uuid"]
    make_again(client, topic, "new 0", "new 1", "new 2", "new 3", "new 4")
    named = {"topic": topic, "topic_uuid": old["topic_uuid"]}
    positions = [{"partition_id": 0, "offset": 3}]
    done = {"offsets": [{**named, "partition_id": 0, "offset": 3}]}
    for path, body in (
        ("/api/topics/consume", {**named, "positions": positions}),
        ("/api/topics/consume", {**named, "group_id": "again"}),
        ("/api/topics/fetch", {**named, "positions": positions}),
        ("/api/topics/ack", {**named, "group_id": "again", "upto_offset": 2}),
        ("/api/groups/again/commit", done),
    ):
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.json()["type"]) == (404, "urn:tailrace:error:unknown-topic-id"), path
        assert f"topic {topic!r} was deleted and created again" in refused.json()["detail"]
    new = read(client, topic, group_id="again")
    assert [message["value"] for message in new["messages"]] == ["new 0", "new 1", "new 2", "new 3", "new 4"]


def test_a_waiting_read_fails_when_its_topic_is_deleted(client: httpx.Client, topic: str) -> None:
    answers: list[httpx.Response] = []

    def wait() -> None:
        answers.append(client.post("/api/topics/consume", json={"topic": topic, "timeout_ms": 20_000}))

    waiting = threading.Thread(target=wait)
    waiting.start()
    client.delete(f"/api/topics/{topic}").raise_for_status()
    waiting.join()
    assert answers[0].status_code == 404
    assert repr(topic) in answers[0].json()["detail"]


@pytest.mark.parametrize("path", ["/api/topics/consume", "/api/topics/fetch"])
def test_an_offset_out_of_range_is_rejected_with_the_name_of_the_topic(client: httpx.Client, topic: str, path: str) -> None:
    refused = client.post(path, json={"topic": topic, "positions": [{"partition_id": 0, "offset": 7}]})
    assert refused.status_code == 416
    assert refused.json()["detail"] == f"partition 0 of {topic!r} holds offsets 0 to 0, not 7"
