"""The publisher against a real server, with and without faults in between."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import (
    AsyncClient,
    Client,
    ClientClosedError,
    ConnectionLostError,
    InvalidRequestError,
    OutgoingMessage,
    OverloadedError,
    Publisher,
    PublisherConfig,
    ServerUnreachableError,
    TailraceError,
    TimeoutError,
    UnknownTopicError,
)
from tests.integration.topics import consume
from tests.support.aio import on_loop
from tests.support.api import Api
from tests.support.proxy import FaultyProxy
from tests.support.server import ServerProcess


def test_a_message_is_durable_with_its_place_when_publish_returns(url: str, api: Api, topic: str) -> None:
    with Client(url) as client, client.publisher() as publisher:
        first = publisher.publish(topic, {"id": 1}, key="k", headers={"trace": "7", "raw": b"\xff"}, message_id="m1")
        second = publisher.publish(topic, b"\xfe\xff")
        third = publisher.publish(topic, None, key=b"k")
    assert [result.offset for result in (first, second, third)] == [0, 1, 2]
    assert first.cursor is not None and second.cursor is not None
    assert first.cursor < second.cursor
    one, two, three = api.ask("/api/topics/consume", {"topic": topic})["messages"]
    assert (one["value"], one["key"], one["message_id"]) == ({"id": 1}, "k", "m1")
    assert one["headers"] == [{"name": "trace", "value": "7"}, {"name": "raw", "value_base64": "/w=="}]
    assert (two["value_base64"], three["value"]) == ("/v8=", None)


def test_a_batch_is_atomic_over_topics(url: str, api: Api, topic: str) -> None:
    api.create_topic(f"{topic}.other")
    with Client(url) as client, client.publisher() as publisher:
        with pytest.raises(UnknownTopicError):
            publisher.publish_batch([(topic, 1), ("nowhere", 2)])
        results = publisher.publish_batch([(topic, 1), OutgoingMessage(f"{topic}.other", 2, key="k")])
        assert publisher.publish_batch([]) == []
    assert [result.topic_name for result in results] == [topic, f"{topic}.other"]
    assert results[1].cursor == (results[0].cursor or 0) + 1
    assert consume(url, topic) == [1]


def test_thousands_are_sent_in_order_by_few_requests(url: str, topic: str) -> None:
    with Client(url) as client, client.publisher(batch_records=500) as publisher:
        deliveries = [publisher.send(topic, number) for number in range(5_000)]
        publisher.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(5_000))
        assert publisher._number < 1_000
    assert consume(url, topic) == list(range(5_000))


def test_many_that_publish_at_once_share_requests(url: str, topic: str) -> None:
    @on_loop
    async def scenario() -> None:
        async with AsyncClient(url) as client, client.publisher() as publisher:
            results = await asyncio.gather(*(publisher.publish(topic, number) for number in range(200)))
            assert [result.offset for result in results] == list(range(200))
            assert publisher._number <= 20

    scenario()


def test_one_bad_message_does_not_fail_its_neighbours(url: str, topic: str) -> None:
    with Client(url) as client, client.publisher(linger=50) as publisher:
        good, bad, fine = publisher.send(topic, 1), publisher.send("nowhere", 2), publisher.send(topic, 3)
        assert (good.result().offset, fine.result().offset) == (0, 1)
        with pytest.raises(UnknownTopicError):
            bad.result()


def test_a_failure_that_nobody_asked_for_is_raised_by_flush_once(url: str, topic: str) -> None:
    with Client(url) as client, client.publisher() as publisher:
        publisher.send("nowhere", 1)
        with pytest.raises(UnknownTopicError):
            publisher.flush()
        publisher.flush()
        publisher.publish(topic, 1)


def test_closing_sends_what_is_left_and_ends_it(url: str, topic: str) -> None:
    publisher = Publisher(url, PublisherConfig.from_properties({"linger": 20}))
    for number in range(10):
        publisher.send(topic, number)
    publisher.close()
    assert consume(url, topic) == list(range(10))
    with pytest.raises(ClientClosedError):
        publisher.publish(topic, 1)


def test_an_invalid_message_is_rejected_before_it_is_sent(url: str, topic: str) -> None:
    with Client(url) as client, client.publisher() as publisher, pytest.raises(InvalidRequestError):
        publisher.publish(topic, object())


def test_a_full_buffer_holds_the_sender_back_and_then_rejects(proxy: FaultyProxy, topic: str) -> None:
    proxy.is_silent = True
    publisher = Publisher(proxy.url, PublisherConfig.from_properties({"buffer_records": 5, "api_timeout": 1_000}))
    sent = [publisher.send(topic, number) for number in range(6)]
    with pytest.raises(OverloadedError, match="buffer_records"):
        sent.extend(publisher.send(topic, number) for number in range(10))
    proxy.is_silent = False
    proxy.reset_connections()
    with pytest.raises(TailraceError):
        publisher.close()


@pytest.mark.parametrize("lost", [1, 3])
def test_a_publish_whose_answer_is_lost_is_sent_again_and_stored_once(
    url: str, proxy: FaultyProxy, topic: str, lost: int
) -> None:
    proxy.cut_only = lambda request: b"/publish" in request
    with Client(proxy.url) as client, client.publisher(retry_backoff=10) as publisher:
        publisher.publish(topic, "before")
        proxy.cut_answers = lost
        result = publisher.publish(topic, "lost")
        publisher.publish(topic, "after")
    assert proxy.cut_answers == 0
    assert (result.offset, result.duplicate) == (1, True)
    assert consume(url, topic) == ["before", "lost", "after"]


def test_a_batch_whose_answer_is_lost_is_stored_once_in_all_topics(url: str, api: Api, proxy: FaultyProxy, topic: str) -> None:
    other = f"{topic}.other"
    api.create_topic(other, 3)
    with Client(proxy.url) as client, client.publisher(retry_backoff=10) as publisher:
        publisher.publish(topic, 0)
        proxy.cut_answers = 1
        results = publisher.publish_batch([(topic, 1), *((other, number) for number in range(6))])
    assert [result.topic_name for result in results] == [topic, *[other] * 6]
    assert sorted(number for partition in range(3) for number in consume(url, other, partition)) == list(range(6))
    assert consume(url, topic) == [0, 1]


def test_a_publish_whose_answer_was_lost_in_a_kill_of_the_server_is_stored_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, FaultyProxy(server.url) as proxy:
        Api(server.url).create_topic("t")
        with Client(proxy.url) as client, client.publisher(retry_backoff=20) as publisher:
            publisher.publish("t", "before")
            # The server stores it; its answer, and those to what is sent again, are lost until the server is another process.
            proxy.cut_only = lambda request: b"/publish" in request
            proxy.cut_answers = 1_000_000
            delivery = publisher.send("t", "lost")
            while proxy.cut_answers == 1_000_000:
                threading.Event().wait(0.01)
            server.kill()
            server.start()
            proxy.point_at(server.url)
            proxy.cut_answers = 0
            assert delivery.result().offset == 1
            publisher.publish("t", "after")
        assert consume(server.url, "t") == ["before", "lost", "after"]


def test_without_an_answer_the_outcome_is_unknown_and_without_a_server_it_failed(proxy: FaultyProxy, topic: str) -> None:
    quick: dict[str, Any] = {"api_timeout": 200, "request_timeout": 1_500, "retry_backoff": 10}
    with Client(proxy.url) as client:
        publisher = client.publisher(**quick)
        proxy.is_silent = True
        with pytest.raises(TimeoutError) as silent:
            publisher.publish(topic, 1)
        assert silent.value.outcome == "unknown"
        proxy.is_silent = False
        proxy.cut_answers = 1_000
        with pytest.raises(ConnectionLostError) as cut:
            publisher.publish(topic, 1)
        assert cut.value.outcome == "unknown"
        publisher.close()
    with Client("http://127.0.0.1:9") as client, client.publisher(**quick) as publisher:
        with pytest.raises(ServerUnreachableError) as nobody:
            publisher.publish(topic, 1)
        assert nobody.value.outcome == "failed"


def test_delays_are_only_delays(url: str, proxy: FaultyProxy, topic: str) -> None:
    proxy.delay_seconds = 0.02
    with Client(proxy.url) as client, client.publisher() as publisher:
        for number in range(20):
            publisher.send(topic, number)
        publisher.flush()
    assert consume(url, topic) == list(range(20))
