"""The consumer against a real server: the scenarios of its specification, and a few more."""

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

from tailrace.client import (
    AsyncClient,
    Client,
    ClientClosedError,
    ConfigurationError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OffsetRegressionError,
    TopicConsumer,
    UnknownTopicError,
)
from tests.support.aio import on_loop
from tests.support.api import Api
from tests.support.eventually import eventually


def fill(api: Api, topic: str, count: int, first: int = 0) -> None:
    for start in range(first, first + count, 10_000):
        values = range(start, min(start + 10_000, first + count))
        api.ask("/api/topics/publish", {"messages": [{"topic": topic, "value": number} for number in values]})


def committed(api: Api, group: str, topic: str) -> dict[int, int]:
    offsets = api.ask(f"/api/groups/{group}/offsets?topic={topic}")["offsets"]
    return {each["partition_id"]: each["committed_offset"] for each in offsets}


def new_group() -> str:
    return f"g{uuid4().hex[:8]}"


def consumer_of(url: str, topic: str, group: str, **settings: Any) -> TopicConsumer:
    return TopicConsumer(url, {"topic": topic, "group_id": group, "poll_timeout": 30_000, **settings})


def test_records_come_in_order_and_a_commit_moves_the_groups_offset(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 10)
    group = new_group()
    with consumer_of(url, topic, group, enable_auto_commit=False) as consumer:
        records = consumer.poll()
        assert [record.offset for record in records] == list(range(10))
        assert [record.value for record in records] == list(range(10))
        for record in records[:7]:
            consumer.mark_processed(record)
        (result,) = consumer.commit()
        assert (result.topic_name, result.group_id, result.partition_id) == (topic, group, 0)
        assert (result.acknowledged_offset, result.committed_offset) == (6, 7)
        assert committed(api, group, topic) == {0: 7}
        assert consumer.commit() == []


def test_only_what_lies_below_the_first_unmarked_record_is_committed(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 5)
    group = new_group()
    with consumer_of(url, topic, group, enable_auto_commit=False) as consumer:
        records = consumer.poll()
        for number in (4, 3, 1, 0):
            consumer.mark_processed(records[number])
        assert [result.committed_offset for result in consumer.commit()] == [2]
        consumer.mark_processed(records[2])
        assert [result.committed_offset for result in consumer.commit()] == [5]


def test_auto_commit_moves_the_offset_without_being_asked(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    group = new_group()
    with consumer_of(url, topic, group, auto_commit_interval=50) as consumer:
        for record in consumer.poll():
            consumer.mark_processed(record)
        eventually(lambda: committed(api, group, topic) == {0: 3}, "the offset is committed")


def test_closing_commits_what_was_processed_and_leaves_the_group(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    group = new_group()
    with consumer_of(url, topic, group, auto_commit_interval=3_600_000) as consumer:
        consumer.mark_processed(consumer.poll()[0])
        assert len(api.ask(f"/api/groups/{group}")["members"]) == 1
    assert committed(api, group, topic) == {0: 1}
    assert api.ask(f"/api/groups/{group}")["members"] == []


def test_without_auto_commit_closing_commits_nothing(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    group = new_group()
    with consumer_of(url, topic, group, enable_auto_commit=False) as consumer:
        consumer.mark_processed(consumer.poll()[0])
    assert committed(api, group, topic) == {0: 0}


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [0, 1, 2, 3]), ("latest", [3]), (2, [2, 3])])
def test_a_new_group_starts_where_its_settings_say(url: str, api: Api, topic: str, reset: Any, expected: list[int]) -> None:
    fill(api, topic, 3)
    with consumer_of(url, topic, new_group(), auto_offset_reset=reset) as consumer:
        assert consumer.position() == expected[0]
        fill(api, topic, 1, first=3)
        seen: list[Any] = []
        while len(seen) < len(expected):
            seen += [record.value for record in consumer.poll()]
        assert seen == expected


def test_records_between_the_first_start_at_latest_and_the_next_are_not_skipped(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    group = new_group()
    with consumer_of(url, topic, group, auto_offset_reset="latest") as consumer:
        assert consumer.poll(timeout=0) == []
    fill(api, topic, 2, first=3)
    with consumer_of(url, topic, group, auto_offset_reset="latest") as consumer:
        assert [record.value for record in consumer.poll()] == [3, 4]


@pytest.mark.parametrize("reset", ["earliest", "latest", 0])
def test_a_committed_offset_wins_over_the_reset(url: str, api: Api, topic: str, reset: Any) -> None:
    fill(api, topic, 5)
    group = new_group()
    api.ask("/api/topics/ack", {"topic": topic, "group_id": group, "upto_offset": 2})
    with consumer_of(url, topic, group, auto_offset_reset=reset) as consumer:
        assert [record.offset for record in consumer.poll()] == [3, 4]


def test_a_poll_returns_empty_when_its_time_is_up(url: str, topic: str) -> None:
    with consumer_of(url, topic, new_group()) as consumer:
        consumer.poll(timeout=0)
        started = time.monotonic()
        assert consumer.poll(timeout=0.3) == []
        assert 0.25 < time.monotonic() - started < 15, "not after the 30 s that it would wait by itself"


def test_a_poll_that_waits_gets_what_is_published_meanwhile(url: str, api: Api, topic: str) -> None:
    @on_loop
    async def scenario() -> None:
        async with AsyncClient(url) as client, client.consumer(topic=topic, group_id=new_group()) as consumer:
            polling = asyncio.ensure_future(consumer.poll(timeout=30))
            await asyncio.to_thread(fill, api, topic, 1)
            assert [record.value for record in await polling] == [0]

    scenario()


def test_after_a_disconnect_everything_uncommitted_comes_again(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 6)
    group = new_group()
    first = consumer_of(url, topic, group, enable_auto_commit=False, partition_id=0)
    records = first.poll()
    for record in records[:4]:
        first.mark_processed(record)
    first.commit()
    first.mark_processed(records[4])
    # Nothing is closed: the client is just gone.
    with consumer_of(url, topic, group, partition_id=0) as second:
        assert [record.offset for record in second.poll()] == [4, 5]
    first.close()


def test_ten_thousand_records_come_once_each_and_never_more_than_asked_for(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 12_000)
    seen: list[int] = []
    with consumer_of(url, topic, new_group(), max_poll_records=700) as consumer:
        while len(seen) < 12_000:
            records = consumer.poll()
            assert 0 < len(records) <= 700
            seen += [record.offset for record in records]
    assert seen == list(range(12_000))


def test_consumers_of_several_topics_do_not_meet(url: str, api: Api) -> None:
    group = new_group()
    topics = [f"m{uuid4().hex[:8]}" for _ in range(3)]
    for place, topic in enumerate(topics):
        api.create_topic(topic)
        fill(api, topic, 5, first=100 * place)

    @on_loop
    async def scenario() -> None:
        async def read(topic: str, processed: int) -> list[Any]:
            settings: dict[str, Any] = {"topic": topic, "group_id": f"{group}-{topic}", "poll_timeout": 30_000}
            async with AsyncClient(url) as client, client.consumer(**settings) as consumer:
                records = await consumer.poll()
                for record in records[:processed]:
                    consumer.mark_processed(record)
                assert {record.topic_name for record in records} == {topic}
                return [record.value for record in records]

        found = await asyncio.gather(*(read(topic, place + 1) for place, topic in enumerate(topics)))
        assert found == [[100 * place + number for number in range(5)] for place in range(3)]

    scenario()
    assert [committed(api, f"{group}-{topic}", topic) for topic in topics] == [{0: 1}, {0: 2}, {0: 3}]


def test_iterating_marks_each_record_when_the_next_is_asked_for(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 5)
    group = new_group()
    with consumer_of(url, topic, group) as consumer:
        for record in consumer:
            if record.offset == 3:
                break
    assert committed(api, group, topic) == {0: 3}


def test_iterating_on_a_loop_is_the_same(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 5)
    group = new_group()

    @on_loop
    async def scenario() -> None:
        async with AsyncClient(url) as client, client.consumer(topic=topic, group_id=group) as consumer:
            async for record in consumer:
                if record.offset == 3:
                    break

    scenario()
    assert committed(api, group, topic) == {0: 3}


def test_what_was_committed_is_not_consumed_again_by_the_next_client(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 6)
    group = new_group()
    for expected in ([0, 1, 2, 3, 4, 5], [2, 3, 4, 5], [4, 5]):
        with consumer_of(url, topic, group, enable_auto_commit=False) as consumer:
            records = consumer.poll()
            assert [record.offset for record in records] == expected
            for record in records[:2]:
                consumer.mark_processed(record)
            consumer.commit()


def test_seek_goes_anywhere_and_position_says_where(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 5)
    with consumer_of(url, topic, new_group()) as consumer:
        assert consumer.position() == 0
        consumer.poll()
        assert consumer.position() == 5
        consumer.seek(2)
        assert consumer.position() == 2
        assert [record.offset for record in consumer.poll()] == [2, 3, 4]
        with pytest.raises(InvalidRequestError, match="offsets begin at 0"):
            consumer.seek(-1)
        with pytest.raises(InvalidRequestError, match=r"reads \[0\]"):
            consumer.seek(0, partition_id=7)


def test_reading_beyond_the_end_is_an_error(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 1)
    with consumer_of(url, topic, new_group()) as consumer:
        consumer.seek(50)
        with pytest.raises(OffsetOutOfRangeError) as told:
            consumer.poll()
        assert told.value.end == 1


def test_a_paused_consumer_returns_nothing_until_it_is_resumed(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 2)
    with consumer_of(url, topic, new_group()) as consumer:
        assert consumer.assignment() == [0]
        consumer.pause()
        assert consumer.poll(timeout=0.2) == []
        consumer.resume(0)
        assert len(consumer.poll()) == 2


def test_a_commit_that_nobody_waits_for_arrives(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 2)
    group = new_group()
    with consumer_of(url, topic, group, enable_auto_commit=False) as consumer:
        consumer.mark_processed(consumer.poll()[0])
        consumer.commit_async()
        eventually(lambda: committed(api, group, topic) == {0: 1}, "the offset is committed")


def test_a_commit_that_nobody_waits_for_is_made_before_the_end(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 2)
    group = new_group()
    with consumer_of(url, topic, group, enable_auto_commit=False) as consumer:
        consumer.mark_processed(consumer.poll()[0])
        consumer.commit_async()
    assert committed(api, group, topic) == {0: 1}


def test_a_commit_that_nobody_waits_for_and_that_fails_is_raised_by_the_next_poll(url: str, api: Api, topic: str) -> None:
    fill(api, topic, 3)
    group = new_group()
    with consumer_of(url, topic, group, enable_auto_commit=False, partition_id=0) as consumer:
        consumer.mark_processed(consumer.poll()[0])
        api.ask("/api/topics/ack", {"topic": topic, "group_id": group, "upto_offset": 2})
        consumer.commit_async()

        def is_told() -> bool:
            try:
                consumer.poll(timeout=0)
            except OffsetRegressionError:
                return True
            return False

        eventually(is_told, "the refusal is told")


def test_a_topic_that_does_not_exist_is_an_error(url: str) -> None:
    with consumer_of(url, "nowhere", new_group()) as consumer, pytest.raises(UnknownTopicError, match="nowhere"):
        consumer.poll()


def test_a_closed_consumer_says_so(url: str, topic: str) -> None:
    consumer = consumer_of(url, topic, new_group())
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosedError):
        consumer.poll()


def test_an_invalid_address_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="url is 'ftp://x'"):
        Client("ftp://x")


def test_records_of_tables_say_where_they_come_from(url: str, api: Api) -> None:
    api.sql("CREATE TABLE shop.items (id INT PRIMARY KEY, name TEXT)")
    api.sql("INSERT INTO shop.items VALUES (1, 'a')")
    with consumer_of(url, "_changes.shop.items", new_group()) as consumer:
        (record,) = consumer.poll()
    assert (record.source_table, record.op) == ("shop.items", "insert")
