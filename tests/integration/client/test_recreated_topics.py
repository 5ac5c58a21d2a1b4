"""A topic that is deleted and made again is another topic: no position, mark or commit of the old one applies to it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tailrace.client import (
    AsyncClient,
    AsyncTopicConsumer,
    Client,
    ConsumerRecord,
    NoCommittedOffsetError,
    PositionReset,
    TopicConsumer,
    UnknownTopicError,
    UnknownTopicIdError,
)
from tests.support.api import Api
from tests.support.eventually import eventually


def fill(api: Api, topic: str, *values: str) -> None:
    api.ask("/api/topics/publish", {"messages": [{"topic": topic, "value": value} for value in values]})


def make_again(api: Api, topic: str, partitions: int = 1) -> None:
    api.ask(f"/api/topics/{topic}", method="DELETE")
    api.create_topic(topic, partitions)


def committed(api: Api, group: str, topic: str) -> dict[int, int]:
    offsets = api.ask(f"/api/groups/{group}/offsets?topic={topic}")["offsets"]
    return {each["partition_id"]: each["committed_offset"] for each in offsets}


def poll_until(consumer: TopicConsumer, enough: int) -> list[str]:
    seen: list[str] = []
    while len(seen) < enough:
        seen += [record.value for record in consumer.poll(timeout=30)]
    return seen


OLD = ("old 0", "old 1", "old 2")
NEW = ("new 0", "new 1", "new 2", "new 3", "new 4")


@pytest.fixture
def group() -> str:
    return f"g{uuid4().hex[:8]}"


@pytest.fixture
def consumer_of(url: str, topic: str, group: str) -> Callable[..., TopicConsumer]:
    def make(on_reset: Callable[[PositionReset], None] | None = None, **settings: Any) -> TopicConsumer:
        return TopicConsumer(url, {"topic": topic, "group_id": group, **settings}, on_reset)

    return make


def test_a_topic_that_is_created_again_is_read_from_its_start_and_that_is_reported(
    api: Api,
    topic: str,
    group: str,
    consumer_of: Callable[..., TopicConsumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(api, topic, *OLD)
    resets: list[PositionReset] = []
    with consumer_of(resets.append) as consumer, caplog.at_level(logging.WARNING, "tailrace.client"):
        assert poll_until(consumer, 3) == list(OLD)
        make_again(api, topic)
        fill(api, topic, *NEW)
        assert poll_until(consumer, 5) == list(NEW)
    assert resets == [PositionReset(topic, 0, 3, 0)]
    assert f"topic {topic} was deleted and created again: group {group} continues at offset 0 of partition 0" in caplog.text


@pytest.mark.parametrize("alone", [True, False], ids=["one partition", "member of a group"])
def test_marks_of_the_old_topic_are_not_committed_in_the_new_one(
    api: Api, topic: str, group: str, consumer_of: Callable[..., TopicConsumer], alone: bool
) -> None:
    fill(api, topic, *OLD)
    settings = {"partition_id": 0} if alone else {}
    with consumer_of(enable_auto_commit=False, **settings) as consumer:
        old = consumer.poll(timeout=30)
        for record in old:
            consumer.mark_processed(record)
        make_again(api, topic)
        fill(api, topic, *NEW)
        assert consumer.commit() == []
        assert committed(api, group, topic) == {}
        first = consumer.poll(timeout=30)
        for record in old:
            consumer.mark_processed(record)
        assert consumer.commit() == []
        consumer.mark_processed(first[0])
        assert [result.committed_offset for result in consumer.commit()] == [1]
    with consumer_of(**settings) as consumer:
        assert poll_until(consumer, 4) == list(NEW[1:])


def test_a_commit_by_interval_finds_the_topic_made_again_and_the_consumer_goes_on(
    api: Api, topic: str, group: str, consumer_of: Callable[..., TopicConsumer]
) -> None:
    fill(api, topic, *OLD)
    with consumer_of(auto_commit_interval=50) as consumer:
        old = consumer.poll(timeout=30)
        make_again(api, topic)
        for record in old:
            consumer.mark_processed(record)
        fill(api, topic, *NEW)
        new: list[ConsumerRecord] = []
        while len(new) < 5:
            new += consumer.poll(timeout=30)
        for record in new:
            consumer.mark_processed(record)
        assert [record.value for record in new] == list(NEW)
        eventually(lambda: committed(api, group, topic) == {0: 5}, "the new offset is committed")


def test_latest_begins_at_the_end_of_the_new_topic(api: Api, topic: str, consumer_of: Callable[..., TopicConsumer]) -> None:
    resets: list[PositionReset] = []
    with consumer_of(resets.append, auto_offset_reset="latest") as consumer:
        assert consumer.position() == 0
        fill(api, topic, *OLD)
        assert poll_until(consumer, 3) == list(OLD)
        make_again(api, topic)
        fill(api, topic, *NEW)
        assert consumer.poll(timeout=0.2) == []
        assert resets == [PositionReset(topic, 0, 3, 5)]
        fill(api, topic, "newest")
        assert poll_until(consumer, 1) == ["newest"]


def test_with_none_a_topic_that_was_made_again_is_an_error_until_somebody_says_where_to_begin(
    api: Api, topic: str, group: str, consumer_of: Callable[..., TopicConsumer]
) -> None:
    fill(api, topic, *OLD)
    with consumer_of(auto_offset_reset="none") as consumer, pytest.raises(NoCommittedOffsetError, match="groups reset"):
        consumer.poll(timeout=0)
    api.ask(f"/api/groups/{group}/offsets", {"topic": topic, "start": "earliest"}, "PUT")
    with consumer_of(auto_offset_reset="none") as consumer:
        assert poll_until(consumer, 3) == list(OLD)
        make_again(api, topic)
        fill(api, topic, *NEW)
        with pytest.raises(UnknownTopicIdError, match="deleted and created again"):
            consumer.poll(timeout=30)
        with pytest.raises(NoCommittedOffsetError, match="has committed nothing"):
            consumer.poll(timeout=30)


def test_a_topic_that_is_gone_is_an_error_and_is_read_once_it_is_back(
    api: Api, topic: str, consumer_of: Callable[..., TopicConsumer]
) -> None:
    fill(api, topic, *OLD)
    with consumer_of() as consumer:
        assert poll_until(consumer, 3) == list(OLD)
        api.ask(f"/api/topics/{topic}", method="DELETE")
        with pytest.raises(UnknownTopicError, match=topic):
            consumer.poll(timeout=30)
        api.create_topic(topic)
        fill(api, topic, *NEW)
        assert poll_until(consumer, 5) == list(NEW)


def test_a_poll_that_waits_while_the_topic_is_made_again_gets_what_is_new(api: Api, topic: str, url: str, group: str) -> None:
    async def scenario() -> list[str]:
        async with AsyncClient(url) as client, client.consumer(topic=topic, group_id=group) as consumer:
            assert len(await consumer.poll(timeout=30)) == 3
            waiting = asyncio.create_task(consumer.poll(timeout=30))
            await asyncio.sleep(0)
            await asyncio.to_thread(make_again, api, topic)
            await asyncio.to_thread(fill, api, topic, *NEW)
            try:
                return [record.value for record in await waiting]
            except UnknownTopicError:
                # The poll looked in the moment between.
                return [record.value for record in await consumer.poll(timeout=30)]

    fill(api, topic, *OLD)
    assert asyncio.run(scenario()) == list(NEW)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_members_share_out_the_partitions_of_the_new_topic(api: Api, url: str, group: str, before: int, after: int) -> None:
    topic = f"t{uuid4().hex[:8]}"
    api.create_topic(topic, before)
    settings: dict[str, Any] = {"topic": topic, "group_id": group, "heartbeat_interval": 50, "session_timeout": 1000}

    async def scenario() -> set[str]:
        async with AsyncClient(url) as client, client.consumer(**settings) as one, client.consumer(**settings) as two:
            consumers = (one, two)

            async def shared() -> list[int]:
                await asyncio.gather(*(consumer.poll(timeout=0) for consumer in consumers))
                shares = await asyncio.gather(*(consumer.assignment() for consumer in consumers))
                return sorted(number for share in shares for number in share)

            seen: set[str] = set()

            async def poll_on(consumer: AsyncTopicConsumer) -> None:
                # Each by itself: a poll that joins waits for the polls of the others.
                while len(seen) < after:
                    try:
                        seen.update(record.value for record in await consumer.poll(timeout=0.1))
                    except UnknownTopicError:
                        # The heartbeat looked in the moment between.
                        continue

            async with asyncio.timeout(60):
                while await shared() != list(range(before)):
                    pass
                await asyncio.to_thread(make_again, api, topic, after)
                messages = [{"topic": topic, "value": f"p{number}", "partition_id": number} for number in range(after)]
                await asyncio.to_thread(api.ask, "/api/topics/publish", {"messages": messages})
                await asyncio.wait([asyncio.create_task(poll_on(each)) for each in consumers], return_when="FIRST_COMPLETED")
                return seen

    assert asyncio.run(scenario()) == {f"p{number}" for number in range(after)}


def test_a_subscription_goes_from_the_old_topic_to_the_new_one_by_its_cursor(api: Api, url: str, topic: str) -> None:
    fill(api, topic, *OLD)
    with Client(url) as client:
        with client.subscriber().subscribe(topic, cursor="beginning") as events:
            old = [next(events) for _ in OLD]
        make_again(api, topic)
        fill(api, topic, *NEW)
        with client.subscriber().subscribe(topic, cursor=old[-1].cursor) as events:
            assert [next(events).value for _ in NEW] == list(NEW)


def test_a_queue_takes_nothing_of_the_old_topic_for_the_new_one(api: Api, url: str, topic: str, group: str) -> None:
    fill(api, topic, *OLD)
    with Client(url) as client, client.subscriber().subscribe_queue(topic, group, poll_timeout=30_000) as queue:
        old = queue.poll()
        assert [event.value for event in old] == list(OLD)
        make_again(api, topic)
        fill(api, topic, *NEW)
        receipts = [event.receipt for event in old]
        with pytest.raises(AssertionError, match="late-receipt"):
            api.ask(f"/api/queues/{group}/ack", {"receipts": receipts})
        assert [event.value for event in queue.poll()] == list(NEW)
