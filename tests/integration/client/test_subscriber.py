"""Subscriptions against a real server: patterns, order, resuming, reconnecting."""

from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tailrace.client import AsyncClient, Client, ConfigurationError, Event, InvalidPatternError
from tests.support.aio import on_loop
from tests.support.api import Api
from tests.support.proxy import FaultyProxy
from tests.support.server import ServerProcess


@pytest.fixture
def root(api: Api) -> str:
    """The first part of topics' names that only this test has."""
    name = f"r{uuid4().hex[:8]}"
    for topic in (name, f"{name}.created", f"{name}.us.created", f"{name}x.created"):
        api.create_topic(topic)
    return name


def publish(api: Api, *messages: tuple[str, Any]) -> list[int]:
    body = {"messages": [{"topic": topic, "value": value} for topic, value in messages]}
    return [record["cursor"] for record in api.ask("/api/topics/publish", body)["records"]]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("{}", [""]),
        ("{}.*", [".created"]),
        ("{}.>", ["", ".created", ".us.created"]),
        ("{}.*.created", [".us.created"]),
        ("{}.*.>", [".created", ".us.created"]),
        ("{}.created", [".created"]),
        ("{}x.>", ["x.created"]),
    ],
)
def test_a_pattern_yields_the_events_of_the_topics_that_match(
    url: str, api: Api, root: str, pattern: str, expected: list[str]
) -> None:
    names = ["", ".created", ".us.created", "x.created"]
    publish(api, *((f"{root}{name}", name) for name in names))
    with Client(url).subscriber().subscribe(pattern.format(root), cursor="beginning") as events:
        found = list(islice(events, len(expected)))
    assert [event.topic_name for event in found] == [f"{root}{name}" for name in expected]


def test_events_come_in_the_order_of_the_log_with_rising_cursors(url: str, api: Api, root: str) -> None:
    cursors = []
    for number in range(20):
        cursors += publish(api, (f"{root}.created" if number % 2 else root, number))
    with Client(url).subscriber().subscribe(f"{root}.>", "beginning") as events:
        found = list(islice(events, 20))
    assert [event.value for event in found] == list(range(20))
    assert [event.cursor for event in found] == cursors


def test_a_subscription_resumes_right_after_the_cursor_it_is_given(url: str, api: Api, root: str) -> None:
    publish(api, *((root, number) for number in range(10)))
    with Client(url).subscriber().subscribe(root, "beginning") as events:
        seen = [event.value for event in islice(events, 4)]
        cursor = events.cursor
    assert cursor is not None
    with Client(url).subscriber().subscribe(root, after=cursor) as events:
        assert next(events).value == 4
    with Client(url).subscriber().subscribe(root, cursor) as events:
        seen += [event.value for event in islice(events, 6)]
    assert seen == list(range(10))


def test_latest_begins_with_what_is_published_after_the_subscription(url: str, api: Api, root: str) -> None:
    @on_loop
    async def scenario() -> None:
        publish(api, (root, "before"))
        async with AsyncClient(url) as client, client.subscriber().subscribe(root) as events:
            publish(api, (root, "after"))
            async for event in events:
                assert event.value == "after"
                break

    scenario()


def test_bytes_keys_and_headers_arrive_as_they_were_sent(url: str, root: str) -> None:
    with Client(url) as client, client.publisher() as publisher:
        publisher.publish(root, b"\xff\x00", key=b"\xfe", headers={"a": "b", "raw": b"\xff"}, message_id="m")
        publisher.publish(root, None)
        with client.subscriber().subscribe(root, "beginning") as events:
            first, second = islice(events, 2)
    assert (first.payload, first.key, first.message_id) == (b"\xff\x00", b"\xfe", "m")
    assert [header for header in first.headers if header[0] != "message_id"] == [("a", b"b"), ("raw", b"\xff")]
    assert second.payload is None


def test_a_broken_connection_is_made_anew_and_nothing_is_missed_or_doubled(proxy: FaultyProxy, api: Api, root: str) -> None:
    seen: list[int] = []
    with Client(proxy.url).subscriber().subscribe(f"{root}.>", "latest") as events:
        for turn in range(5):
            publish(api, *((root, 10 * turn + number) for number in range(10)))
            seen += [event.value for event in islice(events, 10)]
            proxy.reset_connections()
        assert events.reconnects >= 4
    assert seen == list(range(50))


def test_a_subscription_outlives_a_kill_of_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, FaultyProxy(server.url) as proxy:
        api = Api(server.url)
        api.create_topic("t")
        with Client(proxy.url).subscriber().subscribe("t", "latest") as events:
            publish(api, ("t", 1))
            found: list[Event] = [next(events)]
            server.kill()
            server.start()
            proxy.point_at(server.url)
            publish(Api(server.url), ("t", 2))
            found.append(next(events))
    assert [event.value for event in found] == [1, 2]


def test_an_invalid_pattern_or_cursor_is_rejected_at_once(url: str) -> None:
    subscriber = Client(url).subscriber()
    with pytest.raises(InvalidPatternError):
        subscriber.subscribe("a.>.b")
    wrong: Any
    for wrong in ("newest", -2, True, None):
        with pytest.raises(ConfigurationError, match="cursor is"):
            subscriber.subscribe("a", wrong)
