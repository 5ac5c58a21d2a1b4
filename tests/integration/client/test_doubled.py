"""Something between client and server passes bytes on twice: nothing is stored, counted or handed out twice."""

from contextlib import suppress
from itertools import islice
from typing import Any

import httpx
import pytest

from tailrace.client import Client, LateReceiptError, TailraceError
from tests.integration.client.test_consumer import committed, consumer_of, fill, new_group
from tests.integration.topics import consume
from tests.support.api import Api
from tests.support.patience import PATIENCE_SECONDS
from tests.support.proxy import FaultyProxy

QUICK: dict[str, Any] = {"retry_backoff": 10, "retry_backoff_max": 50}


def double(proxy: FaultyProxy, direction: str, pieces: int) -> None:
    setattr(proxy, f"double_{direction}", pieces)


both_directions = pytest.mark.parametrize("direction", ["requests", "answers"])


@both_directions
def test_what_is_published_is_stored_once_and_in_order(url: str, proxy: FaultyProxy, topic: str, direction: str) -> None:
    with Client(proxy.url) as client, client.publisher(**QUICK) as publisher:
        offsets = []
        for number in range(20):
            if number % 3 == 0:
                double(proxy, direction, 1)
            offsets.append(publisher.publish(topic, number).offset)
    assert offsets == list(range(20))
    assert consume(url, topic) == list(range(20))


@both_directions
def test_what_is_consumed_comes_once_and_commits_stay(proxy: FaultyProxy, api: Api, topic: str, direction: str) -> None:
    fill(api, topic, 20)
    group = new_group()
    seen: list[int] = []
    # A doubled join leaves a member that nobody is, until its session ends.
    settings = {"max_poll_records": 5, "fetch_max_bytes": 100, "session_timeout": 3_000, "heartbeat_interval": 100}
    with consumer_of(proxy.url, topic, group, enable_auto_commit=False, **settings) as consumer:
        while len(seen) < 20:
            double(proxy, direction, 1)
            for record in consumer.poll():
                seen.append(record.offset)
                consumer.mark_processed(record)
            fill(api, topic, 1, first=20)
            double(proxy, direction, 1)
            consumer.commit()
    assert seen[:20] == list(range(20))
    assert committed(api, group, topic)[0] >= 20


@both_directions
def test_what_is_followed_comes_once(proxy: FaultyProxy, api: Api, topic: str, direction: str) -> None:
    seen: list[int] = []
    with Client(proxy.url).subscriber().subscribe(topic) as events:
        for turn in range(5):
            fill(api, topic, 10, first=10 * turn)
            seen += [event.value for event in islice(events, 10)]
            double(proxy, direction, 1)
    assert seen == list(range(50))


@both_directions
def test_an_event_of_a_queue_is_acknowledged_once(proxy: FaultyProxy, api: Api, topic: str, direction: str) -> None:
    fill(api, topic, 10)
    # What a doubled receive takes comes back after its timeout.
    settings = {**QUICK, "visibility_timeout": 1_000, "max_poll_records": 2, "poll_timeout": 50, "max_deliveries": 100}
    with Client(proxy.url) as client:
        queue = client.subscriber().subscribe_queue(topic, new_group(), **settings)
        done: list[int] = []
        while len(done) < 10:
            double(proxy, direction, 1)
            events = queue.poll()
            for event in events:
                double(proxy, direction, 1)
                with suppress(LateReceiptError):
                    queue.ack(event)
                    done.append(event.value)
        assert queue.poll(timeout=1.5) == []
    assert sorted(done) == list(range(10))


def test_bytes_that_are_doubled_within_a_request_are_an_error_or_do_no_harm(url: str, proxy: FaultyProxy, topic: str) -> None:
    stored = []
    with Client(proxy.url) as client:
        publisher = client.publisher(**QUICK)
        for number in range(20):
            if number % 3 == 0:
                double(proxy, "pieces", 1)
            try:
                publisher.publish(topic, number)
            except TailraceError as error:
                assert error.outcome == "failed"
            else:
                stored.append(number)
    assert len(stored) >= 10
    assert consume(url, topic) == stored


def test_an_answer_says_which_request_it_is_for(url: str) -> None:
    for path, status in (("/health", 200), ("/api/topics/nowhere", 404)):
        answer = httpx.get(url + path, headers={"tailrace-request": "mine"}, timeout=PATIENCE_SECONDS)
        assert (answer.status_code, answer.headers["tailrace-request"]) == (status, "mine")
    assert "tailrace-request" not in httpx.get(f"{url}/health", timeout=PATIENCE_SECONDS).headers
