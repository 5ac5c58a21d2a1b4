"""The consumer behind a network that delays, cuts, resets and goes silent, and a server that is killed."""

import random
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tailrace.client import (
    Client,
    OffsetOutOfRangeError,
    ServerUnreachableError,
    TailraceError,
    TopicConsumer,
    UnknownTopicError,
)
from tests.integration.client.test_consumer import committed, fill
from tests.support.api import Api
from tests.support.proxy import FaultyProxy
from tests.support.server import ServerProcess

QUICK: dict[str, Any] = {"retry_backoff": 10, "retry_backoff_max": 50, "poll_timeout": 30_000}


def consumer_of(url: str, topic: str, group: str = "", **settings: Any) -> TopicConsumer:
    return TopicConsumer(url, {"topic": topic, "group_id": group or f"g{uuid4().hex[:8]}", **QUICK, **settings})


def test_answers_that_are_cut_off_are_asked_for_again(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    with consumer_of(proxy.url, topic) as consumer:
        consumer.position()
        proxy.cut_answers = 3
        assert [record.offset for record in consumer.poll()] == [0, 1, 2]
    assert proxy.cut_answers == 0


def test_a_server_that_is_busy_is_asked_again(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    group = f"g{uuid4().hex[:8]}"
    with consumer_of(proxy.url, topic, group, enable_auto_commit=False) as consumer:
        consumer.position()
        proxy.busy_answers = 2
        records = consumer.poll()
        assert [record.offset for record in records] == [0, 1, 2]
        assert proxy.busy_answers == 0
        consumer.mark_processed(records[0])
        proxy.busy_answers = 2
        assert [result.committed_offset for result in consumer.commit()] == [1]
    assert committed(api, group, topic) == {0: 1}


def test_an_error_that_does_not_pass_by_waiting_is_raised_at_once(proxy: FaultyProxy, topic: str) -> None:
    patient: dict[str, Any] = {"retry_backoff": 60_000, "retry_backoff_max": 60_000, "api_timeout": 3_600_000}
    consumer = TopicConsumer(proxy.url, {"topic": "nowhere", "group_id": "g", **patient})
    with consumer, pytest.raises(UnknownTopicError):
        consumer.poll()
    with TopicConsumer(proxy.url, {"topic": topic, "group_id": f"g{uuid4().hex[:8]}", **patient}) as consumer:
        consumer.seek(50)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll()


def test_delays_are_only_delays(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    proxy.delay_seconds = 0.02
    with consumer_of(proxy.url, topic) as consumer:
        assert [record.offset for record in consumer.poll()] == [0, 1, 2]


def test_a_commit_whose_answer_is_lost_is_committed(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    group = f"g{uuid4().hex[:8]}"
    proxy.cut_only = lambda request: b"/commit" in request
    with consumer_of(proxy.url, topic, group, enable_auto_commit=False) as consumer:
        for record in consumer.poll():
            consumer.mark_processed(record)
        proxy.cut_answers = 2
        assert [result.committed_offset for result in consumer.commit()] == [3]
    assert committed(api, group, topic) == {0: 3}


def test_joining_survives_lost_answers_without_a_second_member(proxy: FaultyProxy, api: Api, topic: str) -> None:
    group = f"g{uuid4().hex[:8]}"
    proxy.cut_only = lambda request: b"/join" in request or b"/sync" in request
    proxy.cut_answers = 3
    # An id that was given out and never arrived holds up the others until its session would end.
    with consumer_of(proxy.url, topic, group, session_timeout=2_000, heartbeat_interval=200) as consumer:
        assert consumer.assignment() == [0]
        assert len(api.ask(f"/api/groups/{group}")["members"]) == 1


def test_a_connection_that_is_half_open_is_given_up(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 1)
    with consumer_of(proxy.url, topic, request_timeout=300) as consumer:
        consumer.position()
        proxy.is_silent = True
        threading.Timer(0.8, lambda: setattr(proxy, "is_silent", False)).start()
        assert len(consumer.poll()) == 1


def test_a_server_that_stays_away_is_an_error_after_the_timeout(proxy: FaultyProxy, topic: str) -> None:
    consumer = consumer_of(proxy.url, topic, api_timeout=300)
    consumer.position()
    proxy.refuses = True
    proxy.reset_connections()
    started = time.monotonic()
    with pytest.raises(TailraceError) as told:
        consumer.poll()
    assert told.value.retriable
    assert time.monotonic() - started < 20, "its patience is 0.3 s; by default it is a minute"
    proxy.refuses = False
    consumer.close()


def test_a_refused_connection_says_that_nothing_was_sent() -> None:
    with consumer_of("http://127.0.0.1:9", "t", api_timeout=100) as consumer, pytest.raises(ServerUnreachableError):
        consumer.poll()


def test_a_commit_that_could_not_be_sent_on_closing_is_raised(proxy: FaultyProxy, api: Api, topic: str) -> None:
    fill(api, topic, 1)
    consumer = consumer_of(proxy.url, topic, api_timeout=200)
    consumer.mark_processed(consumer.poll()[0])
    proxy.refuses = True
    proxy.reset_connections()
    with pytest.raises(TailraceError):
        consumer.close()


def test_no_record_is_skipped_and_no_offset_goes_back_when_connections_break_at_random(
    proxy: FaultyProxy, url: str, topic: str
) -> None:
    count = 3_000
    chance = random.Random(7)
    group = f"g{uuid4().hex[:8]}"
    stop = threading.Event()

    seen: list[int] = []

    def disturb() -> None:
        """Again and again, but not before something has come through: on a slow machine nothing would otherwise."""
        before = -1
        while not stop.wait(chance.uniform(0.02, 0.15)):
            if len(seen) > before:
                before = len(seen)
                proxy.cut_answers = chance.choice((0, 1, 2))
                proxy.reset_connections()

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        with Client(proxy.url) as client:
            publisher = client.publisher(retry_backoff=10, retry_backoff_max=50, batch_records=100)
            sending = threading.Thread(target=lambda: [publisher.send(topic, number) for number in range(count)])
            sending.start()
            with consumer_of(proxy.url, topic, group, auto_commit_interval=20, max_poll_records=100) as consumer:
                while len(seen) < count:
                    for record in consumer.poll():
                        seen.append(record.value)
                        consumer.mark_processed(record)
            sending.join()
            publisher.flush()
    finally:
        stop.set()
        disturbing.join()
    assert seen == list(range(count))
    assert committed(Api(url), group, topic) == {0: count}


def test_after_a_kill_of_the_server_the_consumer_goes_on(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, FaultyProxy(server.url) as proxy:
        Api(server.url).create_topic("t")
        fill(Api(server.url), "t", 100)
        seen: list[int] = []
        with consumer_of(proxy.url, "t", "g", max_poll_records=10, auto_commit_interval=10, fetch_max_bytes=100) as consumer:
            for _ in range(3):
                for record in consumer.poll():
                    seen.append(record.offset)
                    consumer.mark_processed(record)
            server.kill()
            server.start()
            proxy.point_at(server.url)
            fill(Api(server.url), "t", 10, first=100)
            while len(seen) < 110:
                for record in consumer.poll():
                    seen.append(record.offset)
                    consumer.mark_processed(record)
        assert seen == list(range(110))
        assert committed(Api(server.url), "g", "t") == {0: 110}
