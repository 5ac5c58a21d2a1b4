"""Subscriptions to queues against a real server: each event to one consumer, which says what became of it."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tailrace.client import (
    AsyncClient,
    AsyncQueueSubscription,
    Client,
    ClientClosedError,
    ConfigurationError,
    ConnectionLostError,
    InvalidPatternError,
    InvalidRequestError,
    LateReceiptError,
    QueueEvent,
    QueueSubscription,
)
from tests.support.aio import on_loop
from tests.support.api import Api
from tests.support.eventually import eventually
from tests.support.proxy import FaultyProxy
from tests.support.server import ServerProcess

QUICK: dict[str, Any] = {"retry_backoff": 10, "retry_backoff_max": 50, "poll_timeout": 30_000}


@pytest.fixture
def group() -> str:
    return f"g{uuid4().hex[:8]}"


def queue_of(url: str, pattern: str, group: str, **settings: Any) -> QueueSubscription:
    return Client(url).subscriber().subscribe_queue(pattern, group, **QUICK, **settings)


def publish(api: Api, topic: str, *values: Any, key: str | None = None) -> None:
    api.ask("/api/topics/publish", {"messages": [{"topic": topic, "value": value, "key": key} for value in values]})


def standing(api: Api, group: str) -> dict[str, Any]:
    (queue,) = [each for each in api.ask("/api/queues?limit=1000")["queues"] if each["group_id"] == group]
    return dict(queue)


def values(events: list[QueueEvent]) -> list[Any]:
    return [event.value for event in events]


def test_each_event_goes_to_one_consumer_and_is_done_when_it_says_so(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, *range(10))
    with queue_of(url, topic, group, max_poll_records=5) as first, queue_of(url, topic, group) as second:
        one, other = first.poll(), second.poll()
        assert values(one) + values(other) == list(range(10))
        assert (one[0].topic_name, one[0].deliveries, one[0].event.offset) == (topic, 1, 0)
        first.ack(*one)
        for event in other:
            second.ack(event)
        assert second.poll(timeout=0) == []
    assert standing(api, group)["lag"] == 0


def test_iterating_yields_events_of_all_topics_of_the_pattern_as_they_come(url: str, api: Api, topic: str, group: str) -> None:
    api.create_topic(f"{topic}.a")
    publish(api, topic, 1)
    publish(api, f"{topic}.a", 2)
    with queue_of(url, f"{topic}.>", group) as queue:
        seen = {}
        for event in queue:
            seen[event.topic_name] = event.value
            queue.ack(event)
            if len(seen) == 2:
                break
    assert seen == {topic: 1, f"{topic}.a": 2}


def test_what_iteration_took_ahead_goes_back_unseen_when_it_ends(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, *range(5))
    with queue_of(url, topic, group, max_deliveries=1) as queue:
        for event in islice(queue, 2):
            queue.ack(event)
    with queue_of(url, topic, group) as queue:
        assert [(event.value, event.deliveries) for event in queue.poll()] == [(2, 1), (3, 1), (4, 1)]


def test_a_nacked_event_comes_again_after_its_delay(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, 1)
    with queue_of(url, topic, group) as queue:
        began = time.monotonic()
        queue.nack(*queue.poll(), delay=0.3)
        (again,) = queue.poll()
        assert time.monotonic() - began >= 0.3
        assert again.deliveries == 2
        queue.nack(again)
        assert [event.deliveries for event in queue.poll(timeout=timedelta(seconds=30))] == [3]


def test_after_max_deliveries_an_event_is_a_dead_letter_with_the_reason(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, "bad")
    with queue_of(url, topic, group, max_deliveries=2) as queue:
        for _ in range(2):
            queue.nack(*queue.poll(), reason="no cure")
        with queue_of(url, f"{topic}.dead_letters", f"{group}.doctors") as letters:
            (letter,) = letters.poll()
        assert letter.value == "bad"
        told = dict(letter.event.headers)
        assert (told["dead_letter_cause"], told["dead_letter_deliveries"]) == (b"no cure", b"2")
        assert queue.poll(timeout=0) == []


def test_a_late_ack_is_rejected_by_name_and_the_others_count(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, 1, 2)
    with queue_of(url, topic, group, max_poll_records=1) as queue:
        (good,) = queue.poll()
        with queue_of(url, topic, group, max_poll_records=1, visibility_timeout=50) as slow:
            (late,) = slow.poll()
        (again,) = queue.poll()
        assert again.value == late.value
        with pytest.raises(LateReceiptError, match="handed out again") as told:
            queue.ack(late, good)
        refused: Any = told.value.refused
        assert [refusal.receipt for refusal in refused] == [late.receipt]
        queue.ack(again)
    assert standing(api, group)["lag"] == 0


def test_an_extended_event_stays_with_its_consumer(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, 1, 2)
    with queue_of(url, topic, group, visibility_timeout=2_000) as queue:
        extended, other = queue.poll()
        queue.extend(extended, timeout=60)
        # By the time the other one is back, both would be.
        assert values(queue.poll()) == [other.value]
        queue.ack(extended)


def test_with_auto_extend_events_stay_for_as_long_as_the_work_takes(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, 1, 2)
    with queue_of(url, topic, group, visibility_timeout=2_000, auto_extend=True) as queue:
        events = queue.poll()
        with queue_of(url, topic, group) as other:
            assert other.poll(timeout=3) == []
            queue.ack(events[0])
            queue.nack(events[1])
            assert values(other.poll()) == [2]


def test_a_stuck_consumer_with_auto_extend_loses_its_events_in_the_end(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, 1)
    stuck = queue_of(url, topic, group, visibility_timeout=300, auto_extend=True, max_poll_interval=1_000)
    with stuck, queue_of(url, topic, group) as other:
        (event,) = stuck.poll()
        assert values(other.poll()) == [1]
        with pytest.raises(LateReceiptError):
            stuck.ack(event)


def test_by_key_a_later_event_waits_for_the_earlier_one(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, "a1", "a2", key="a")
    publish(api, topic, "b1", key="b")
    with queue_of(url, topic, group, order_by_key=True) as queue:
        first = queue.poll()
        assert values(first) == ["a1", "b1"]
        assert queue.poll(timeout=0) == []
        queue.ack(first[0])
        assert values(queue.poll()) == ["a2"]


def test_a_group_that_begins_at_the_latest_gets_what_comes_after(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, "before")
    with queue_of(url, topic, group, auto_offset_reset="latest") as queue:
        assert queue.poll(timeout=0) == []
        publish(api, topic, "after")
        assert values(queue.poll()) == ["after"]


def test_acks_that_nobody_waits_for_share_requests(proxy: FaultyProxy, api: Api, topic: str, group: str) -> None:
    publish(api, topic, *range(1_500))
    acks: list[bytes] = []

    def count(request: bytes) -> bool:
        acks.extend([request] if b"/ack" in request else [])
        return False

    proxy.cut_only, proxy.cut_answers = count, 1
    with queue_of(proxy.url, topic, group, max_poll_records=1_000) as queue:
        done = 0
        while done < 1_500:
            for event in queue.poll():
                queue.ack_async(event)
                done += 1
        queue.flush()
        assert standing(api, group)["lag"] == 0
    assert 0 < len(acks) < 150


def test_a_rejection_that_nobody_waited_for_is_raised_by_flush_once(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, 1)
    with queue_of(url, topic, group, visibility_timeout=50) as queue:
        (late,) = queue.poll()
        assert len(queue.poll()) == 1
        queue.ack_async(late)
        with pytest.raises(LateReceiptError):
            queue.flush()
        queue.flush()


@pytest.mark.parametrize("lost", [1, 3])
def test_an_ack_whose_answer_is_lost_counts_and_is_not_taken_for_late(
    url: str, proxy: FaultyProxy, api: Api, topic: str, group: str, lost: int
) -> None:
    publish(api, topic, 1, 2, 3)
    proxy.cut_only = lambda request: b"/ack" in request or b"/nack" in request
    with queue_of(proxy.url, topic, group) as queue:
        first, second, third = queue.poll()
        proxy.cut_answers = lost
        queue.ack(first, second)
        assert proxy.cut_answers == 0
        proxy.cut_answers = lost
        queue.nack(third)
        assert [(event.value, event.deliveries) for event in queue.poll()] == [(3, 2)]
    assert standing(api, group)["lag"] == 1


def test_a_poll_whose_answer_is_lost_gets_the_same_events_uncounted(
    proxy: FaultyProxy, api: Api, topic: str, group: str
) -> None:
    publish(api, topic, 1, 2)
    with queue_of(proxy.url, topic, group, max_deliveries=1) as queue:
        proxy.cut_answers = 2
        events = queue.poll()
        assert proxy.cut_answers == 0
        assert [(event.value, event.deliveries) for event in events] == [(1, 1), (2, 1)]
        queue.ack(*events)


def test_an_ack_whose_answer_was_lost_in_a_kill_of_the_server_is_unknown_and_not_late(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, FaultyProxy(server.url) as proxy:
        api = Api(server.url)
        api.create_topic("t")
        publish(api, "t", 1, 2)

        @on_loop
        async def scenario() -> None:
            async with AsyncClient(proxy.url) as client:
                queue = client.subscriber().subscribe_queue("t", "g", **QUICK)
                done, held = await queue.poll()
                # The server stores the ack; its answers are lost until the server is another process.
                proxy.cut_only = lambda request: b"/ack" in request
                proxy.cut_answers = 1_000_000
                acking = asyncio.ensure_future(queue.ack(done))
                while proxy.cut_answers == 1_000_000:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                server.kill()
                server.start()
                proxy.point_at(server.url)
                proxy.cut_answers = 0
                with pytest.raises(ConnectionLostError) as told:
                    await acking
                assert told.value.outcome == "unknown"
                # It is open again, so its ack can't have counted: that is known.
                with pytest.raises(LateReceiptError):
                    await queue.ack(held)
                (again,) = await queue.poll()
                assert again.value == 2
                await queue.ack(again)

        scenario()
        assert standing(Api(server.url), "g")["lag"] == 0


def test_a_consumer_lives_through_broken_connections(proxy: FaultyProxy, api: Api, topic: str, group: str) -> None:
    seen = []
    with queue_of(proxy.url, topic, group) as queue:
        for number in range(5):
            publish(api, topic, number)
            (event,) = queue.poll()
            proxy.reset_connections()
            queue.ack(event)
            seen.append(event.value)
    assert seen == list(range(5))


def test_many_that_wait_and_ack_at_once_on_one_loop(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, *range(50))

    @on_loop
    async def scenario() -> None:
        async def work(queue: AsyncQueueSubscription) -> list[Any]:
            events = await queue.poll(max_records=50)
            await asyncio.gather(*(queue.ack(event) for event in events))
            return values(events)

        async with AsyncClient(url) as client:
            queues = [client.subscriber().subscribe_queue(topic, group, max_poll_records=10) for _ in range(5)]
            found = await asyncio.gather(*(work(queue) for queue in queues))
        assert sorted(value for each in found for value in each) == list(range(50))

    scenario()
    assert standing(api, group)["lag"] == 0


def test_threads_may_share_a_subscription(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, *range(80))

    with queue_of(url, topic, group) as queue, ThreadPoolExecutor(8) as threads:

        def work(_: int) -> list[Any]:
            events = queue.poll(max_records=10)
            for event in events:
                queue.ack(event)
            return values(events)

        found = [value for each in threads.map(work, range(8)) for value in each]
    assert sorted(found) == list(range(80))
    assert standing(api, group)["lag"] == 0


def test_closing_the_client_sends_the_acks_that_are_left(url: str, api: Api, topic: str, group: str) -> None:
    publish(api, topic, 1)
    with Client(url) as client:
        queue = client.subscriber().subscribe_queue(topic, group, **QUICK)
        queue.ack_async(*queue.poll())
    eventually(lambda: standing(api, group)["lag"] == 0, "the ack is there")
    with pytest.raises(ClientClosedError):
        queue.poll()


def test_what_is_wrong_is_said_at_once(url: str, topic: str, group: str) -> None:
    subscriber = Client(url).subscriber()
    with pytest.raises(InvalidPatternError):
        subscriber.subscribe_queue("a.>.b", group)
    with pytest.raises(ConfigurationError, match="max_deliveries is 0; allowed is a whole number, 1 to 100"):
        subscriber.subscribe_queue(topic, group, max_deliveries=0)
    with pytest.raises(ConfigurationError, match="there is no setting 'visible'"):
        subscriber.subscribe_queue(topic, group, visible=1)
    with subscriber.subscribe_queue(topic, group) as queue:
        with pytest.raises(InvalidRequestError, match="no event was given"):
            queue.ack()
        with pytest.raises(ConfigurationError, match="delay is -1"):
            queue.nack(delay=-1)
